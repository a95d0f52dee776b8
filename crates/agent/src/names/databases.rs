//! Autonomous systems and countries, from databases in MaxMind's format.

use std::net::IpAddr;
use std::path::PathBuf;

use maxminddb::Reader;
use serde::Deserialize;

use super::Label;
use crate::Failure;

/// The databases, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Databases(Vec<Reader<Vec<u8>>>);

/// A database record about an address.
#[derive(Deserialize)]
struct Record<'a> {
    autonomous_system_number: Option<u32>,
    #[serde(borrow)]
    autonomous_system_organization: Option<&'a str>,
    #[serde(borrow)]
    country: Option<Country<'a>>,
}

#[derive(Deserialize)]
struct Country<'a> {
    iso_code: Option<&'a str>,
}

impl Databases {
    /// Reads the databases into memory.
    ///
    /// # Errors
    /// When a database cannot be read or is damaged.
    pub(super) fn read(paths: &[PathBuf]) -> Result<Self, Failure> {
        let read = |path: &PathBuf| {
            Reader::open_readfile(path).map_err(|error| {
                Failure::Usage(format!("names.databases: cannot read {}: {error}", path.display()))
            })
        };
        paths.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// The label of an address. For each field, the first database that has it wins.
    pub(super) fn label(&self, address: IpAddr) -> Label<'_> {
        let mut label = Label::default();
        for database in &self.0 {
            // A database of IPv4 only rejects IPv6 addresses.
            let Ok(found) = database.lookup(address) else { continue };
            let Ok(Some(record)) = found.decode::<Record<'_>>() else { continue };
            label.autonomous_system = label.autonomous_system.or(record.autonomous_system_number);
            label.organization = label.organization.or(record.autonomous_system_organization);
            label.country = label.country.or(record.country.and_then(|country| country.iso_code));
        }
        label
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::fs;

    use super::*;

    /// A database of IPv6 addresses in MaxMind's format: a tree of 24-bit records, the records of
    /// prefixes, and the metadata.
    pub(in crate::names) fn database(prefixes: &[(&str, Vec<u8>)]) -> Vec<u8> {
        // A child is a node, a data record, or nothing.
        let mut nodes: Vec<[Option<Result<usize, usize>>; 2]> = vec![[None, None]];
        let (mut data, mut places) = (Vec::<u8>::new(), Vec::new());
        for (number, (prefix, record)) in prefixes.iter().enumerate() {
            let (address, bits) = prefix.split_once('/').unwrap();
            let (address, bits) = match address.parse().unwrap() {
                // IPv4 addresses are those whose first 96 bits are zero.
                IpAddr::V4(it) => (u128::from(it.to_bits()), 96 + bits.parse::<u32>().unwrap()),
                IpAddr::V6(it) => (it.to_bits(), bits.parse().unwrap()),
            };
            places.push(data.len());
            data.extend(record);
            let mut at = 0;
            for bit in 0..bits {
                let side = (address >> (127 - bit) & 1) as usize;
                if bit + 1 == bits {
                    nodes[at][side] = Some(Err(number));
                } else if let Some(Ok(next)) = nodes[at][side] {
                    at = next;
                } else {
                    nodes.push([None, None]);
                    nodes[at][side] = Some(Ok(nodes.len() - 1));
                    at = nodes.len() - 1;
                }
            }
        }
        let count = nodes.len();
        let mut file = Vec::new();
        for child in nodes.iter().flatten() {
            let value = match child {
                Some(Ok(node)) => *node,
                Some(Err(number)) => count + 16 + places[*number],
                None => count,
            };
            file.extend(&u32::try_from(value).unwrap().to_be_bytes()[1..]);
        }
        file.extend([0; 16]);
        file.extend(data);
        file.extend(b"\xab\xcd\xefMaxMind.com");
        let entries = [
            ("node_count", number(6, count as u64)),
            ("record_size", number(5, 24)),
            ("ip_version", number(5, 6)),
            ("database_type", text("Test")),
            ("languages", vec![0, 4]),
            ("binary_format_major_version", number(5, 2)),
            ("binary_format_minor_version", number(5, 0)),
            ("build_epoch", number(9, 1)),
            ("description", map(&[])),
        ];
        file.extend(map(&entries));
        file
    }

    fn text(text: &str) -> Vec<u8> {
        let size = u8::try_from(text.len()).unwrap();
        // Sizes from 29 on use another byte.
        let rest = size.checked_sub(29);
        let mut bytes = vec![2 << 5 | size.min(29)];
        bytes.extend(rest);
        bytes.extend(text.bytes());
        bytes
    }

    fn number(kind: u8, number: u64) -> Vec<u8> {
        let bytes: Vec<_> =
            number.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
        let size = u8::try_from(bytes.len()).unwrap();
        let head = if kind < 8 { vec![kind << 5 | size] } else { vec![size, kind - 7] };
        [head, bytes].concat()
    }

    fn map(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = vec![7 << 5 | u8::try_from(entries.len()).unwrap()];
        for (name, value) in entries {
            bytes.extend(text(name));
            bytes.extend(value);
        }
        bytes
    }

    pub(in crate::names) fn system(of: u64, organization: &str) -> Vec<u8> {
        map(&[
            ("autonomous_system_number", number(6, of)),
            ("autonomous_system_organization", text(organization)),
        ])
    }

    pub(in crate::names) fn country(code: &str) -> Vec<u8> {
        map(&[("country", map(&[("iso_code", text(code)), ("geoname_id", number(6, 7))]))])
    }

    #[test]
    fn the_first_database_that_knows_something_gives_it() {
        let folder = std::env::temp_dir().join(format!("flowgauge-mmdb-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (systems, countries) = (folder.join("systems"), folder.join("countries"));
        let of =
            [("192.0.2.0/24", system(64_500, "Example")), ("2001:db8::/32", system(64_501, "Six"))];
        fs::write(&systems, database(&of)).unwrap();
        fs::write(&countries, database(&[("192.0.0.0/8", country("DE"))])).unwrap();
        let databases = Databases::read(&[systems.clone(), countries]).unwrap();
        let label = |address: &str| databases.label(address.parse().unwrap());
        let example = Label {
            autonomous_system: Some(64_500),
            organization: Some("Example"),
            country: Some("DE"),
            name: None,
        };
        assert_eq!(label("192.0.2.7"), example);
        let germany = Label { country: Some("DE"), ..Label::default() };
        assert_eq!(label("192.0.3.7"), germany);
        assert_eq!(label("2001:db8::7").autonomous_system, Some(64_501));
        assert_eq!(label("10.0.0.1"), Label::default());
        // A damaged database is rejected when opened or on lookup.
        let whole = fs::read(&systems).unwrap();
        for length in 0..whole.len() {
            fs::write(&systems, &whole[..length]).unwrap();
            if let Ok(damaged) = Databases::read(std::slice::from_ref(&systems)) {
                damaged.label("192.0.2.7".parse().unwrap());
            }
        }
        fs::write(&systems, "nothing").unwrap();
        let refused = Databases::read(std::slice::from_ref(&systems)).unwrap_err().to_string();
        assert!(refused.starts_with("names.databases: cannot read "), "{refused}");
        fs::remove_dir_all(folder).unwrap();
    }
}
