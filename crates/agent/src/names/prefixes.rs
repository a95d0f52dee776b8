//! Names of prefixes, from a file.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use crate::failure::Failure;

/// Names by prefix length and prefix bits, in IPv6 form.
#[derive(Debug, Default)]
pub(super) struct Prefixes(BTreeMap<u8, HashMap<u128, String>>);

/// Bits before an IPv4 address in its IPv6 form.
const MAPPED: u8 = 96;

impl Prefixes {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or a line lacks a prefix or a name.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(|error| {
            Failure::Usage(format!("names.prefixes: cannot read {}: {error}", path.display()))
        })?;
        Self::parse(&text).map_err(|(line, reason)| {
            Failure::Usage(format!("names.prefixes: {}: line {line}: {reason}", path.display()))
        })
    }

    fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut prefixes = Self::default();
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |reason: &str| (number, format!("{reason}; write '192.0.2.0/24 office'"));
            let (prefix, name) = line
                .split_once(char::is_whitespace)
                .ok_or_else(|| wrong("a prefix and its name are missing"))?;
            let (bits, start) =
                parsed(prefix).ok_or_else(|| wrong(&format!("'{prefix}' is not a prefix")))?;
            prefixes.0.entry(bits).or_default().insert(start, name.trim().to_owned());
        }
        Ok(prefixes)
    }

    /// The name of the longest prefix that contains an address.
    pub(super) fn name(&self, address: IpAddr) -> Option<&str> {
        let bits = mapped(address);
        self.0
            .iter()
            .rev()
            .find_map(|(length, names)| names.get(&masked(bits, *length)))
            .map(String::as_str)
    }
}

/// The length and bits of a prefix. A plain address is a prefix of full length.
fn parsed(text: &str) -> Option<(u8, u128)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let (most, before) = if address.is_ipv4() { (32, MAPPED) } else { (128, 0) };
    let bits = before + bits.unwrap_or(most).min(most + 1);
    (bits <= 128).then(|| (bits, masked(mapped(address), bits)))
}

fn mapped(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Clears all but the first bits of an address.
fn masked(address: u128, bits: u8) -> u128 {
    match 128 - u32::from(bits) {
        128 => 0,
        zeros => address >> zeros << zeros,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn the_longest_prefix_gives_its_name() {
        let text = "# names\n10.0.0.0/8 all sites\n\n10.1.0.0/16\tnorth\n10.1.2.3  printer \n\
                    ::/0 the rest\n2001:db8::/32 documentation\n";
        let names = Prefixes::parse(text).unwrap();
        let name = |address: &str| names.name(address.parse().unwrap()).unwrap_or_default();
        assert_eq!(name("10.9.0.1"), "all sites");
        assert_eq!(name("10.1.255.1"), "north");
        assert_eq!(name("10.1.2.3"), "printer");
        assert_eq!(name("10.1.2.4"), "north");
        assert_eq!(name("2001:db8::1"), "documentation");
        assert_eq!(name("2001:db9::1"), "the rest");
        assert_eq!(Prefixes::default().name("10.0.0.1".parse().unwrap()), None);
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        for (text, reason) in [
            ("10.0.0.0/8 a\n10.0.0.0/33 b\n", (2, "'10.0.0.0/33' is not a prefix")),
            ("2001:db8::/129 b", (1, "'2001:db8::/129' is not a prefix")),
            ("10.0.0.0/8", (1, "a prefix and its name are missing")),
            ("office 10.0.0.0/8", (1, "'office' is not a prefix")),
            ("10.0.0.0/-1 a", (1, "'10.0.0.0/-1' is not a prefix")),
        ] {
            let (line, refused) = Prefixes::parse(text).unwrap_err();
            assert_eq!(line, reason.0, "{text}");
            assert_eq!(refused, format!("{}; write '192.0.2.0/24 office'", reason.1));
        }
    }
}
