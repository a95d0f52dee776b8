//! Templates of NetFlow 9 and IPFIX, their information elements, and the records that follow them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::cursor::Cursor;
use crate::record::Record;

/// Maximum number of fields of a template.
pub(crate) const MOST_FIELDS: usize = 512;

/// The length of a field whose records give its length.
const VARIABLE: u16 = u16::MAX;

/// An information element that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Element {
    Bytes,
    Packets,
    /// Since the flow began; used if there is no difference.
    TotalBytes,
    TotalPackets,
    /// After the exporter; used if there are no counts before it.
    PostBytes,
    PostPackets,
    /// In the other direction.
    ReverseBytes,
    ReversePackets,
    ReverseTcpFlags,
    Protocol,
    TcpFlags,
    SourcePort,
    DestinationPort,
    Source4,
    Source6,
    Destination4,
    Destination6,
    /// Type and code.
    Icmp,
    IcmpType,
    IcmpCode,
    /// The one by which packets came in.
    Interface,
    /// One in this many packets is sampled.
    OneIn,
    Sampler,
    /// Number of adjacent packets sampled, before [`Self::SkippedRun`] ones are not.
    SampledRun,
    SkippedRun,
    /// Number of packets sampled out of [`Self::Population`].
    SampleSize,
    Population,
    Other,
}

/// Number of elements.
const ELEMENTS: usize = Element::Other as usize + 1;

/// The enterprise of the reverse direction (RFC 5103).
const REVERSE: u32 = 29305;

impl Element {
    /// The element with this number, and in IPFIX with this enterprise number, if it has one.
    pub(crate) fn new(enterprise: Option<u32>, number: u16) -> Self {
        match (enterprise, number) {
            (None, 1 | 231) => Self::Bytes,
            (None, 2 | 298) => Self::Packets,
            (None, 85) => Self::TotalBytes,
            (None, 86) => Self::TotalPackets,
            (None, 23) => Self::PostBytes,
            (None, 24) => Self::PostPackets,
            (None, 232) | (Some(REVERSE), 1 | 85) => Self::ReverseBytes,
            (None, 299) | (Some(REVERSE), 2 | 86) => Self::ReversePackets,
            (Some(REVERSE), 6) => Self::ReverseTcpFlags,
            (None, 4) => Self::Protocol,
            (None, 6) => Self::TcpFlags,
            (None, 7 | 180 | 182) => Self::SourcePort,
            (None, 11 | 181 | 183) => Self::DestinationPort,
            (None, 8) => Self::Source4,
            (None, 12) => Self::Destination4,
            (None, 27) => Self::Source6,
            (None, 28) => Self::Destination6,
            (None, 32 | 139) => Self::Icmp,
            (None, 176 | 178) => Self::IcmpType,
            (None, 177 | 179) => Self::IcmpCode,
            (None, 10) => Self::Interface,
            (None, 34 | 50) => Self::OneIn,
            (None, 48 | 302) => Self::Sampler,
            (None, 305) => Self::SampledRun,
            (None, 306) => Self::SkippedRun,
            (None, 309) => Self::SampleSize,
            (None, 310) => Self::Population,
            _ => Self::Other,
        }
    }

    /// The element that corresponds to a type of scope in NetFlow 9, which has numbers of its own.
    pub(crate) fn scope9(number: u16) -> Self {
        if number == 2 { Self::Interface } else { Self::Other }
    }
}

/// A field of a template.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    element: Element,
    len: u16,
    /// Whether each record gives its length.
    varies: bool,
}

impl Field {
    /// A field of `len` bytes; in IPFIX, the largest number means a variable length.
    pub(crate) fn new(element: Element, len: u16, ipfix: bool) -> Self {
        Self { element, len, varies: ipfix && len == VARIABLE }
    }
}

/// A template: the fields of its records.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) fields: Box<[Field]>,
    /// Whether its records are about the exporter, not about flows.
    pub(crate) options: bool,
    /// Minimum length of a record in bytes.
    pub(crate) least: usize,
}

impl Template {
    /// A template of these fields. `None` if there are too many fields, or if a record could have
    /// no bytes, because a set could then hold any number of records.
    pub(crate) fn new(mut fields: Vec<Field>, options: bool) -> Option<Self> {
        // Without empty fields, a datagram has at most as many fields as bytes.
        fields.retain(|field| field.len > 0);
        let len = |field: &Field| if field.varies { 1 } else { usize::from(field.len) };
        let least = fields.iter().map(len).sum();
        let fits = least > 0 && fields.len() <= MOST_FIELDS;
        fits.then(|| Self { fields: fields.into(), options, least })
    }

    /// Reads a record; `None` if it is cut short.
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

/// The values of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values {
    numbers: [u64; ELEMENTS],
    /// A bit for each element present.
    present: u32,
    v6: [Ipv6Addr; 2],
}

impl Default for Values {
    fn default() -> Self {
        Self { numbers: [0; ELEMENTS], present: 0, v6: [Ipv6Addr::UNSPECIFIED; 2] }
    }
}

impl Values {
    /// Sets a value. Ignores a value of a length that is not valid for its element, and a zero beside
    /// another value: of the ports of TCP and of UDP, a record has one.
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
                if number > 0 {
                    self.numbers[element as usize] = number;
                }
            }
            _ => return,
        }
        self.present |= 1 << element as u8;
    }

    #[inline]
    fn get(&self, element: Element) -> Option<u64> {
        (self.present >> element as u8 & 1 == 1).then(|| self.numbers[element as usize])
    }

    /// The value of the first of these elements that is present; otherwise 0.
    fn first(&self, elements: &[Element]) -> u64 {
        elements.iter().find_map(|element| self.get(*element)).unwrap_or_default()
    }

    /// Source and destination. If the record has both, the IPv6 addresses count only if those of
    /// IPv4 are zero.
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

    /// The flow; `None` if it has no address.
    pub(crate) fn record(&self) -> Option<Record> {
        let [source, destination] = self.addresses()?;
        let number = |element| self.get(element).unwrap_or_default();
        let port = |element| number(element) as u16;
        let destination_port = port(Element::DestinationPort);
        let icmp_type = self.get(Element::IcmpType);
        let icmp = icmp_type.map(|icmp_type| icmp_type << 8 | number(Element::IcmpCode));
        let icmp = self.get(Element::Icmp).or(icmp).map(|icmp| icmp as u16);
        Some(Record {
            source,
            destination,
            source_port: port(Element::SourcePort),
            destination_port,
            protocol: number(Element::Protocol) as u8,
            tcp_flags: number(Element::TcpFlags) as u8,
            // Older exporters give them in place of the port.
            icmp: icmp.unwrap_or(destination_port).to_be_bytes(),
            packets: self.first(&[Element::Packets, Element::TotalPackets, Element::PostPackets]),
            bytes: self.first(&[Element::Bytes, Element::TotalBytes, Element::PostBytes]),
        })
    }

    /// The flow in the other direction; `None` if it has no packets.
    pub(crate) fn reverse(&self, record: &Record) -> Option<Record> {
        let packets = self.get(Element::ReversePackets).filter(|packets| *packets > 0)?;
        Some(Record {
            source: record.destination,
            destination: record.source,
            source_port: record.destination_port,
            destination_port: record.source_port,
            tcp_flags: self.get(Element::ReverseTcpFlags).unwrap_or_default() as u8,
            packets,
            bytes: self.get(Element::ReverseBytes).unwrap_or_default(),
            ..*record
        })
    }

    /// The number of the interface by which packets came in.
    pub(crate) fn interface(&self) -> Option<u64> {
        self.get(Element::Interface)
    }

    /// The number of the sampler.
    pub(crate) fn sampler(&self) -> Option<u64> {
        self.get(Element::Sampler)
    }

    /// The sampling interval (one packet in N), if the record has it.
    pub(crate) fn one_in(&self) -> Option<u64> {
        let ratio = |all: u64, taken: u64| all.checked_add(taken / 2)?.checked_div(taken);
        let run = |taken| self.get(Element::SkippedRun)?.checked_add(taken);
        let runs = || {
            let taken = self.get(Element::SampledRun)?;
            ratio(run(taken)?, taken)
        };
        let sizes = || ratio(self.get(Element::Population)?, self.get(Element::SampleSize)?);
        let one_in = self.get(Element::OneIn).or_else(runs).or_else(sizes);
        one_in.filter(|one_in| *one_in > 0)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    /// A template with this number of fields of one byte.
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
    fn empty_and_too_large_templates_are_refused() {
        let field = |len| Field::new(Element::Other, len, true);
        let fits = |fields: Vec<Field>| Template::new(fields, false).is_some();
        assert!(!fits(vec![]));
        assert!(!fits(vec![field(0); 3]));
        assert!(fits(vec![field(0), field(VARIABLE)]));
        assert!(fits(vec![field(1); MOST_FIELDS]));
        assert!(!fits(vec![field(1); MOST_FIELDS + 1]));
    }

    #[test]
    fn only_ipfix_has_fields_of_variable_length() {
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
    fn ipv6_counts_if_ipv4_is_zero() {
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
    fn no_zero_replaces_a_value() {
        // Ports of TCP and UDP, types of ICMP, sampling rates, samplers, bytes, packets.
        for (one, other) in
            [(182, 180), (183, 181), (32, 139), (34, 50), (48, 302), (1, 231), (2, 298)]
        {
            let [one, other] = [one, other].map(|number| Element::new(None, number));
            for bytes in [[[0, 9], [0, 0]], [[0, 0], [0, 9]]] {
                let values = values(&[(one, &bytes[0]), (other, &bytes[1])]);
                assert_eq!(values.get(one), Some(9));
            }
            assert_eq!(values(&[(one, &[0]), (other, &[0])]).get(one), Some(0));
        }
    }

    #[test]
    fn the_type_of_icmp_is_given_in_three_ways() {
        let icmp = |fields: &[(u16, &[u8])]| {
            let of = |(number, bytes): &(u16, _)| (Element::new(None, *number), *bytes);
            let source = (Element::Source4, &[10, 0, 0, 1][..]);
            let fields: Vec<_> = fields.iter().map(of).chain([source]).collect();
            values(&fields).record().unwrap().icmp
        };
        assert_eq!(icmp(&[(11, &[3, 1])]), [3, 1]);
        assert_eq!(icmp(&[(11, &[0, 0]), (32, &[8, 0])]), [8, 0]);
        assert_eq!(icmp(&[(11, &[0, 0]), (176, &[3]), (177, &[1])]), [3, 1]);
        assert_eq!(icmp(&[(178, &[128])]), [128, 0]);
        assert_eq!(icmp(&[(176, &[0]), (177, &[0]), (11, &[1, 187])]), [0, 0]);
    }

    /// The flags of a biflow are those of each direction.
    #[test]
    fn the_other_direction_has_flags_of_its_own() {
        let (syn, reset): (&[u8], &[u8]) = (&[2], &[0x14]);
        let source = (Element::Source4, &[10, 0, 0, 1][..]);
        let both = [source, (Element::TcpFlags, syn), (Element::ReversePackets, &[1])];
        let flags = |fields: &[(Element, &[u8])]| {
            let values = values(fields);
            let record = values.record().unwrap();
            (record.tcp_flags, values.reverse(&record).unwrap().tcp_flags)
        };
        assert_eq!(flags(&both), (2, 0));
        let reverse = (Element::new(Some(REVERSE), 6), reset);
        assert_eq!(flags(&[&both[..], &[reverse]].concat()), (2, 0x14));
    }

    #[test]
    fn sampling_is_given_in_three_ways() {
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
    fn counts_before_the_exporter_are_preferred() {
        let all = [(Element::PostPackets, &[3][..]), (Element::TotalPackets, &[2])];
        let packets = |fields: &[(Element, &[u8])]| {
            let source = (Element::Source4, &[1, 2, 3, 4][..]);
            values(&[fields, &[source]].concat()).record().unwrap().packets
        };
        assert_eq!(packets(&all[..1]), 3);
        assert_eq!(packets(&all), 2);
        assert_eq!(packets(&[&all[..], &[(Element::Packets, &[1])]].concat()), 1);
        // More than eight bytes are not a number.
        assert_eq!(packets(&[(Element::Packets, &[1; 9])]), 0);
    }
}
