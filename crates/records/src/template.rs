//! Templates, and what records say that follow them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::cursor::Cursor;
use crate::element::{ELEMENTS, Element};
use crate::record::Record;

/// Fields of a template at most.
pub(crate) const MOST_FIELDS: usize = 512;

/// The length of a field that says its own.
const VARIABLE: u16 = u16::MAX;

/// A field of a template.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    element: Element,
    len: u16,
    /// Whether each record says how long it is.
    varies: bool,
}

impl Field {
    /// A field of so many bytes; in IPFIX the largest number stands for any.
    pub(crate) fn new(element: Element, len: u16, ipfix: bool) -> Self {
        Self { element, len, varies: ipfix && len == VARIABLE }
    }
}

/// The fields of records.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) fields: Box<[Field]>,
    /// Whether its records tell of the exporter, not of flows.
    pub(crate) options: bool,
    /// Bytes of a record at least.
    pub(crate) least: usize,
}

impl Template {
    /// A template of these fields; `None` where a record may have no bytes, so that a set could hold any
    /// number of them, or where there are too many fields.
    pub(crate) fn new(mut fields: Vec<Field>, options: bool) -> Option<Self> {
        // Then the fields of all records are no more than the bytes of their datagram.
        fields.retain(|field| field.len > 0);
        let len = |field: &Field| if field.varies { 1 } else { usize::from(field.len) };
        let least = fields.iter().map(len).sum();
        let fits = least > 0 && fields.len() <= MOST_FIELDS;
        fits.then(|| Self { fields: fields.into(), options, least })
    }

    /// Reads a record; `None` where it ends too early.
    pub(crate) fn read(&self, cursor: &mut Cursor<'_>) -> Option<Values> {
        let mut values = Values::default();
        for field in &self.fields {
            let len = if field.varies {
                match cursor.u8()? {
                    u8::MAX => usize::from(cursor.u16()?),
                    len => usize::from(len),
                }
            } else {
                usize::from(field.len)
            };
            values.set(field.element, cursor.take(len)?);
        }
        Some(values)
    }
}

/// What a record says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values {
    numbers: [u64; ELEMENTS],
    /// A bit for each element that there is.
    present: u32,
    v6: [Ipv6Addr; 2],
}

impl Default for Values {
    fn default() -> Self {
        Self { numbers: [0; ELEMENTS], present: 0, v6: [Ipv6Addr::UNSPECIFIED; 2] }
    }
}

impl Values {
    /// Takes a value; one of a length that its element cannot have counts as none.
    #[inline]
    fn set(&mut self, element: Element, bytes: &[u8]) {
        match (element, bytes.len()) {
            (Element::Other, _) | (_, 0) => return,
            (Element::Source6 | Element::Destination6, _) => {
                let Ok(address) = <[u8; 16]>::try_from(bytes) else { return };
                self.v6[usize::from(element == Element::Destination6)] = address.into();
            }
            (Element::Source4 | Element::Destination4, len) if len != 4 => return,
            (_, 1..=8) => {
                let number = bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
                self.numbers[element as usize] = number;
            }
            _ => return,
        }
        self.present |= 1 << element as u8;
    }

    #[inline]
    fn get(&self, element: Element) -> Option<u64> {
        (self.present >> element as u8 & 1 == 1).then(|| self.numbers[element as usize])
    }

    /// The first of these elements that there is.
    fn first(&self, elements: &[Element]) -> u64 {
        elements.iter().find_map(|element| self.get(*element)).unwrap_or_default()
    }

    /// Source and destination: those of IPv6 where a template has both, and those of IPv4 are none.
    fn addresses(&self) -> Option<[IpAddr; 2]> {
        let v4 = [Element::Source4, Element::Destination4].map(|element| self.get(element));
        let has_v6 = [Element::Source6, Element::Destination6]
            .into_iter()
            .any(|element| self.present >> element as u8 & 1 == 1);
        let has_v4 = v4.iter().any(Option::is_some);
        if has_v6 && (!has_v4 || v4.into_iter().flatten().all(|address| address == 0)) {
            return Some(self.v6.map(IpAddr::V6));
        }
        let address = |number: Option<u64>| {
            IpAddr::V4(Ipv4Addr::from_bits(number.unwrap_or_default() as u32))
        };
        has_v4.then(|| v4.map(address))
    }

    /// The flow; `None` where it has no address.
    pub(crate) fn record(&self) -> Option<Record> {
        let [source, destination] = self.addresses()?;
        let port = |element| self.get(element).unwrap_or_default() as u16;
        let destination_port = port(Element::DestinationPort);
        // Older exporters tell type and code of ICMP in place of the port.
        let icmp = self.get(Element::Icmp).map_or(destination_port, |icmp| icmp as u16);
        Some(Record {
            source,
            destination,
            source_port: port(Element::SourcePort),
            destination_port,
            protocol: self.get(Element::Protocol).unwrap_or_default() as u8,
            tcp_flags: self.get(Element::TcpFlags).unwrap_or_default() as u8,
            icmp: icmp.to_be_bytes(),
            packets: self.first(&[Element::Packets, Element::TotalPackets, Element::PostPackets]),
            bytes: self.first(&[Element::Bytes, Element::TotalBytes, Element::PostBytes]),
        })
    }

    /// Packets and bytes of the other direction; `None` where there is none.
    pub(crate) fn reverse(&self) -> Option<(u64, u64)> {
        let packets = self.get(Element::ReversePackets).filter(|packets| *packets > 0)?;
        Some((packets, self.get(Element::ReverseBytes).unwrap_or_default()))
    }

    /// The number of the sampler that took the packets, or that is told of.
    pub(crate) fn sampler(&self) -> Option<u64> {
        self.get(Element::Sampler)
    }

    /// One in how many packets is sampled, where that is told.
    pub(crate) fn one_in(&self) -> Option<u64> {
        let ratio = |all: u64, taken: u64| all.checked_add(taken / 2)?.checked_div(taken);
        let run = |taken| self.get(Element::SkippedRun)?.checked_add(taken);
        let runs = || {
            let taken = self.get(Element::SampledRun)?;
            ratio(run(taken)?, taken)
        };
        let sizes = || ratio(self.get(Element::Population)?, self.get(Element::SampleSize)?);
        let told = self.get(Element::OneIn).or_else(runs).or_else(sizes);
        told.filter(|one_in| *one_in > 0)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    /// A template of so many fields of a byte.
    pub(crate) fn of_fields(fields: usize) -> Template {
        Template::new(vec![Field::new(Element::Other, 1, true); fields], false).unwrap()
    }

    fn values(fields: &[(Element, &[u8])]) -> Values {
        let mut values = Values::default();
        for (element, bytes) in fields {
            values.set(*element, bytes);
        }
        values
    }

    #[test]
    fn a_template_has_bytes_and_not_too_many_fields() {
        let field = |len| Field::new(Element::Other, len, true);
        let fits = |fields: Vec<Field>| Template::new(fields, false).is_some();
        assert!(!fits(vec![]));
        assert!(!fits(vec![field(0); 3]));
        assert!(fits(vec![field(0), field(VARIABLE)]));
        assert!(fits(vec![field(1); MOST_FIELDS]));
        assert!(!fits(vec![field(1); MOST_FIELDS + 1]));
    }

    #[test]
    fn fields_may_say_their_length_in_ipfix_alone() {
        let varies = Field::new(Element::Packets, VARIABLE, true);
        let template = Template::new(vec![varies, Field::new(Element::Source4, 4, true)], false);
        let template = template.unwrap();
        assert_eq!(template.least, 5);
        for bytes in [&[1, 9, 1, 2, 3, 4][..], &[255, 0, 2, 0, 9, 1, 2, 3, 4]] {
            let mut cursor = Cursor(bytes);
            let record = template.read(&mut cursor).unwrap().record().unwrap();
            assert_eq!((cursor.len(), record.packets), (0, 9));
            assert_eq!(record.source, IpAddr::from([1, 2, 3, 4]));
            assert!(template.read(&mut Cursor(&bytes[..bytes.len() - 1])).is_none());
        }
        assert!(!Field::new(Element::Packets, VARIABLE, false).varies);
    }

    #[test]
    fn ipv6_counts_where_ipv4_is_none() {
        let v6 = [7; 16];
        let both = |v4: &[u8]| {
            let of = values(&[(Element::Source4, v4), (Element::Source6, &v6)]);
            of.record().unwrap().source
        };
        assert_eq!(both(&[0; 4]), IpAddr::from(v6));
        assert_eq!(both(&[10, 0, 0, 1]), IpAddr::from([10, 0, 0, 1]));
        assert!(values(&[(Element::Packets, &[1])]).record().is_none());
        assert!(values(&[(Element::Source4, &[1]), (Element::Source6, &[1])]).record().is_none());
    }

    #[test]
    fn rates_are_told_in_three_ways() {
        let of = |fields: &[(Element, u32)]| {
            let bytes: Vec<_> = fields.iter().map(|(e, n)| (*e, n.to_be_bytes())).collect();
            let fields: Vec<_> = bytes.iter().map(|(e, bytes)| (*e, &bytes[..])).collect();
            values(&fields).one_in()
        };
        assert_eq!(of(&[(Element::OneIn, 100)]), Some(100));
        assert_eq!(of(&[(Element::OneIn, 0)]), None);
        assert_eq!(of(&[(Element::SampledRun, 1), (Element::SkippedRun, 99)]), Some(100));
        assert_eq!(of(&[(Element::SampledRun, 10), (Element::SkippedRun, 95)]), Some(11));
        assert_eq!(of(&[(Element::SampledRun, 0), (Element::SkippedRun, 99)]), None);
        assert_eq!(of(&[(Element::SampleSize, 2), (Element::Population, 2000)]), Some(1000));
        assert_eq!(of(&[(Element::Population, 2000)]), None);
    }

    #[test]
    fn packets_before_the_exporter_count_first() {
        let all = [(Element::PostPackets, &[3][..]), (Element::TotalPackets, &[2])];
        let packets = |fields: &[(Element, &[u8])]| {
            let source = (Element::Source4, &[1, 2, 3, 4][..]);
            values(&[fields, &[source]].concat()).record().unwrap().packets
        };
        assert_eq!(packets(&all[..1]), 3);
        assert_eq!(packets(&all), 2);
        assert_eq!(packets(&[&all[..], &[(Element::Packets, &[1])]].concat()), 1);
        // Of more than eight bytes no number is.
        assert_eq!(packets(&[(Element::Packets, &[1; 9])]), 0);
    }
}
