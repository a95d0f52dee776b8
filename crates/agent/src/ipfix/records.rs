//! Converts a report into records.

use std::collections::HashSet;
use std::net::IpAddr;

use flowgauge_core::key::{CanonicalKey, Field, KeyKind, KeySpec};
use flowgauge_core::summary::Estimate;
use flowgauge_core::task::{HierarchyItem, Report, Selection, Side, SizeItem, SpreadItem};
use flowgauge_core::terms::{Measure, SpreadOf};
use flowgauge_engine::report::EpochReport;

/// The records of a report. `process` is the number of the metering process, which stands for the
/// measurement.
///
/// `enterprise` is the number for values without an IANA element.
pub(super) fn of(report: &EpochReport, process: u32, enterprise: Option<u32>) -> Vec<Record> {
    let Some(start_ns) = report.start_ns else { return Vec::new() };
    let milliseconds = |ns: i64| u64::try_from(ns / 1_000_000).unwrap_or(0);
    let mut records = Records {
        key: report.key,
        process,
        enterprise,
        start: milliseconds(start_ns),
        end: milliseconds(report.end_ns.unwrap_or(start_ns)),
        list: Vec::new(),
    };
    // A flow in several lists is exported once, so that sums at the collector are right.
    let mut seen = HashSet::new();
    for (_, task) in &report.tasks {
        match task {
            Report::Sizes { selection: Selection::Largest | Selection::Over(_), items, .. } => {
                let new = items.iter().filter(|item| seen.insert(item.key.as_bytes()));
                new.for_each(|item| records.flow(item));
            }
            Report::Spread { side, of, items, .. } => {
                for item in items {
                    records.spread(*side, *of, item);
                }
            }
            Report::Cardinality { flows } => records.cardinality(flows),
            Report::Entropy { bits, normalized } => records.entropy(bits, *normalized),
            Report::Hierarchical { items, .. } => {
                for item in items {
                    records.prefix(report.by, item);
                }
            }
            _ => {}
        }
    }
    records.list
}

struct Records {
    key: KeySpec,
    process: u32,
    enterprise: Option<u32>,
    /// Start and end of the epoch, in milliseconds since the UNIX epoch.
    start: u64,
    end: u64,
    list: Vec<Record>,
}

impl Records {
    /// A flow with its packets and bytes.
    fn flow(&mut self, item: &SizeItem) {
        let Some(key) = self.key_of(&item.key) else { return };
        let counts =
            [(PACKET_DELTA_COUNT, item.size.packets), (OCTET_DELTA_COUNT, item.size.bytes)];
        let counts = counts.into_iter().filter_map(|(element, count)| Some((element, count?)));
        self.add(&key, &counts.collect::<Vec<_>>());
    }

    /// A host with its number of distinct peers.
    fn spread(&mut self, side: Side, of: SpreadOf, item: &SpreadItem) {
        let (end, field, peers) = match side {
            Side::Source => (&SOURCE, Field::Source, DISTINCT_COUNT_OF_DESTINATION_IP_ADDRESS),
            Side::Destination => {
                (&DESTINATION, Field::Destination, DISTINCT_COUNT_OF_SOURCE_IP_ADDRESS)
            }
        };
        let element = match of {
            SpreadOf::Address => Some(peers),
            SpreadOf::Port => self.own(own::DISTINCT_PORTS),
            SpreadOf::Endpoint => self.own(own::DISTINCT_ENDPOINTS),
        };
        let (Some(element), Some(address)) = (element, address(&item.address)) else { return };
        let mut key = Record::default();
        key.put_address(end, address, self.key.prefix_of(field, address));
        self.add(&key, &[(element, item.distinct)]);
    }

    /// A prefix with its weight, and its weight outside of heavy prefixes within it.
    fn prefix(&mut self, by: Measure, item: &HierarchyItem) {
        let numbers = match by {
            Measure::Packets => own::PREFIX_PACKETS,
            Measure::Bytes => own::PREFIX_BYTES,
        };
        let [Some(total), Some(discounted)] = numbers.map(|number| self.own(number)) else {
            return;
        };
        let is_destination = !self.key.kind().has(Field::Source);
        let end = if is_destination { &DESTINATION } else { &SOURCE };
        let Some(source) = address(&item.source) else { return };
        let mut key = Record::default();
        key.put_address(end, source, Some(item.source_bits));
        if let Some((destination, bits)) = &item.destination {
            let Some(destination) = address(destination) else { return };
            key.put_address(&DESTINATION, destination, Some(*bits));
        }
        self.add(&key, &[(total, item.total), (discounted, item.discounted)]);
    }

    /// The number of flows, or of addresses if the key is an address.
    fn cardinality(&mut self, flows: &Estimate) {
        let kind = self.key.kind();
        let is_whole = self.key == KeySpec::from(kind);
        let element = match kind {
            KeyKind::SOURCE if is_whole => DISTINCT_COUNT_OF_SOURCE_IP_ADDRESS,
            KeyKind::DESTINATION if is_whole => DISTINCT_COUNT_OF_DESTINATION_IP_ADDRESS,
            _ => ORIGINAL_FLOWS_PRESENT,
        };
        self.about_all(|record| record.put_u64(element, whole(flows)));
        self.limits(&Record::default(), element, flows);
    }

    fn entropy(&mut self, bits: &Estimate, normalized: f64) {
        let own = [own::ENTROPY, own::NORMALIZED_ENTROPY].map(|number| self.own(number));
        let [Some(entropy), Some(normalized_entropy)] = own else { return };
        self.about_all(|record| {
            record.put_f64(entropy, bits.value);
            record.put_f64(normalized_entropy, normalized);
        });
        self.limits(&Record::default(), entropy, bits);
    }

    /// The enterprise-specific element with this number, if an enterprise is configured.
    fn own(&self, number: u16) -> Option<Element> {
        self.enterprise.map(|enterprise| Element::of(enterprise, number))
    }

    /// The fields of a flow's key, or `None` if a field has no element, such as an address of
    /// either end.
    fn key_of(&self, key: &CanonicalKey) -> Option<Record> {
        let fields = self.key.fields(key.as_bytes());
        if fields.host.is_some() || fields.mac.is_some() {
            return None;
        }
        let mut record = Record::default();
        if let Some(address) = fields.source {
            record.put_address(&SOURCE, address, self.key.prefix_of(Field::Source, address));
        }
        if let Some(address) = fields.destination {
            record.put_address(
                &DESTINATION,
                address,
                self.key.prefix_of(Field::Destination, address),
            );
        }
        if let Some(port) = fields.source_port {
            record.put_u16(SOURCE_TRANSPORT_PORT, port);
        }
        if let Some(port) = fields.destination_port {
            record.put_u16(DESTINATION_TRANSPORT_PORT, port);
        }
        if let Some(protocol) = fields.protocol {
            record.put_u8(PROTOCOL_IDENTIFIER, protocol);
        }
        if let Some(vlan) = fields.vlan {
            record.put_u16(VLAN_ID, vlan);
        }
        if let Some(flags) = fields.tcp_flags {
            record.put_u16(TCP_CONTROL_BITS, flags.0.into());
        }
        if let Some(mac) = fields.source_mac {
            record.put(SOURCE_MAC_ADDRESS, &mac.0);
        }
        if let Some(mac) = fields.destination_mac {
            record.put(DESTINATION_MAC_ADDRESS, &mac.0);
        }
        (!record.bytes.is_empty()).then_some(record)
    }

    /// Adds a data record with a key and counts, and the limits of counts that are not exact.
    fn add(&mut self, key: &Record, counts: &[(Element, Estimate)]) {
        let mut record = key.clone();
        record.put_u64(FLOW_START_MILLISECONDS, self.start);
        record.put_u64(FLOW_END_MILLISECONDS, self.end);
        for (element, count) in counts {
            record.put_u64(*element, whole(count));
        }
        record.put_u32(METERING_PROCESS_ID, self.process);
        self.list.push(record);
        for (element, count) in counts {
            self.limits(key, *element, count);
        }
    }

    /// Adds an option about the whole epoch, so that no collector takes it for a flow.
    fn about_all(&mut self, put: impl FnOnce(&mut Record)) {
        let mut record = Record::default();
        record.put_u32(METERING_PROCESS_ID, self.process);
        record.put_u64(FLOW_START_MILLISECONDS, self.start);
        record.put_u64(FLOW_END_MILLISECONDS, self.end);
        record.end_scope();
        put(&mut record);
        self.list.push(record);
    }

    /// Adds the limits of an estimate as the registry defines them: an option scoped to the counted
    /// key.
    fn limits(&mut self, key: &Record, element: Element, estimate: &Estimate) {
        let Estimate { value, low, high, confidence } = *estimate;
        if low >= value && high <= value {
            return;
        }
        let mut record = key.clone();
        record.put_u32(METERING_PROCESS_ID, self.process);
        record.put_u64(FLOW_START_MILLISECONDS, self.start);
        record.put_u16(INFORMATION_ELEMENT_ID, element.number);
        if let Some(enterprise) = element.enterprise {
            record.put_u32(PRIVATE_ENTERPRISE_NUMBER, enterprise);
        }
        record.end_scope();
        record.put_f64(UPPER_CI_LIMIT, high);
        record.put_f64(LOWER_CI_LIMIT, low);
        record.put_f64(CONFIDENCE_LEVEL, confidence.unwrap_or(1.0));
        if confidence.is_none() {
            // The registry defines it as an error that is never exceeded.
            record.put_f64(ABSOLUTE_ERROR, (high - value).max(value - low));
        }
        self.list.push(record);
    }
}

/// A count as an integer.
fn whole(estimate: &Estimate) -> u64 {
    estimate.value.round() as u64
}

fn address(key: &CanonicalKey) -> Option<IpAddr> {
    KeySpec::from(KeyKind::SOURCE).fields(key.as_bytes()).source
}

/// A template: elements, optionally starting with a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    /// Number of scope elements; 0 unless it is an options template.
    pub(super) scope: u16,
    /// All elements, in order.
    pub(super) elements: Vec<Element>,
}

/// A data record.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub(super) shape: Shape,
    /// The values.
    pub(super) bytes: Vec<u8>,
}

impl Record {
    /// Adds a value; the element determines its length.
    pub(super) fn put(&mut self, element: Element, value: &[u8]) {
        debug_assert_eq!(usize::from(element.len), value.len(), "{element:?}");
        self.shape.elements.push(element);
        self.bytes.extend_from_slice(value);
    }

    /// Adds a byte.
    pub(super) fn put_u8(&mut self, element: Element, value: u8) {
        self.put(element, &[value]);
    }

    /// Adds a number of two bytes.
    pub(super) fn put_u16(&mut self, element: Element, value: u16) {
        self.put(element, &value.to_be_bytes());
    }

    /// Adds a number of four bytes.
    pub(super) fn put_u32(&mut self, element: Element, value: u32) {
        self.put(element, &value.to_be_bytes());
    }

    /// Adds a number of eight bytes.
    pub(super) fn put_u64(&mut self, element: Element, value: u64) {
        self.put(element, &value.to_be_bytes());
    }

    /// Adds a real number.
    pub(super) fn put_f64(&mut self, element: Element, value: f64) {
        self.put(element, &value.to_be_bytes());
    }

    /// Adds an address, or with `bits`, a prefix of that length.
    pub(super) fn put_address(&mut self, end: &End, address: IpAddr, bits: Option<u8>) {
        let version = usize::from(address.is_ipv6());
        let element = if bits.is_some() { end.prefix[version] } else { end.address[version] };
        match address {
            IpAddr::V4(address) => self.put(element, &address.octets()),
            IpAddr::V6(address) => self.put(element, &address.octets()),
        }
        if let Some(bits) = bits {
            self.put_u8(end.prefix_len[version], bits);
        }
    }

    /// Ends the scope: the elements so far are the subject of the following ones.
    pub(super) fn end_scope(&mut self) {
        self.shape.scope = self.shape.elements.len() as u16;
    }
}

/// An information element with the length of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Element {
    /// Its number.
    pub(super) number: u16,
    /// Bytes of a value.
    pub(super) len: u16,
    /// The enterprise number; `None` for IANA elements.
    pub(super) enterprise: Option<u32>,
}

impl Element {
    const fn new(number: u16, len: u16) -> Self {
        Self { number, len, enterprise: None }
    }

    /// An enterprise-specific element.
    pub(super) const fn of(enterprise: u32, number: u16) -> Self {
        Self { number, len: 8, enterprise: Some(enterprise) }
    }
}

pub(super) const OCTET_DELTA_COUNT: Element = Element::new(1, 8);
pub(super) const PACKET_DELTA_COUNT: Element = Element::new(2, 8);
pub(super) const PROTOCOL_IDENTIFIER: Element = Element::new(4, 1);
pub(super) const TCP_CONTROL_BITS: Element = Element::new(6, 2);
pub(super) const SOURCE_TRANSPORT_PORT: Element = Element::new(7, 2);
pub(super) const DESTINATION_TRANSPORT_PORT: Element = Element::new(11, 2);
pub(super) const SOURCE_MAC_ADDRESS: Element = Element::new(56, 6);
pub(super) const VLAN_ID: Element = Element::new(58, 2);
pub(super) const DESTINATION_MAC_ADDRESS: Element = Element::new(80, 6);
pub(super) const METERING_PROCESS_ID: Element = Element::new(143, 4);
pub(super) const FLOW_START_MILLISECONDS: Element = Element::new(152, 8);
pub(super) const FLOW_END_MILLISECONDS: Element = Element::new(153, 8);
pub(super) const INFORMATION_ELEMENT_ID: Element = Element::new(303, 2);
pub(super) const ABSOLUTE_ERROR: Element = Element::new(320, 8);
pub(super) const UPPER_CI_LIMIT: Element = Element::new(336, 8);
pub(super) const LOWER_CI_LIMIT: Element = Element::new(337, 8);
pub(super) const CONFIDENCE_LEVEL: Element = Element::new(338, 8);
pub(super) const PRIVATE_ENTERPRISE_NUMBER: Element = Element::new(346, 4);
pub(super) const ORIGINAL_FLOWS_PRESENT: Element = Element::new(375, 8);
pub(super) const DISTINCT_COUNT_OF_SOURCE_IP_ADDRESS: Element = Element::new(378, 8);
pub(super) const DISTINCT_COUNT_OF_DESTINATION_IP_ADDRESS: Element = Element::new(379, 8);

/// The address elements of one end of a flow.
pub(super) struct End {
    /// The host address, for IPv4 and IPv6.
    pub(super) address: [Element; 2],
    /// A prefix.
    pub(super) prefix: [Element; 2],
    /// The prefix length.
    pub(super) prefix_len: [Element; 2],
}

pub(super) const SOURCE: End = End {
    address: [Element::new(8, 4), Element::new(27, 16)],
    prefix: [Element::new(44, 4), Element::new(170, 16)],
    prefix_len: [Element::new(9, 1), Element::new(29, 1)],
};
pub(super) const DESTINATION: End = End {
    address: [Element::new(12, 4), Element::new(28, 16)],
    prefix: [Element::new(45, 4), Element::new(169, 16)],
    prefix_len: [Element::new(13, 1), Element::new(30, 1)],
};

/// Numbers of the enterprise-specific elements, as docs/ipfix.md lists them.
pub(super) mod own {
    /// Entropy of the traffic over flows, in bits.
    pub(in super::super) const ENTROPY: u16 = 1;
    /// Entropy divided by its maximum.
    pub(in super::super) const NORMALIZED_ENTROPY: u16 = 2;
    /// Distinct ports of a host's peers.
    pub(in super::super) const DISTINCT_PORTS: u16 = 3;
    /// Distinct pairs of address and port of a host's peers.
    pub(in super::super) const DISTINCT_ENDPOINTS: u16 = 4;
    /// Packets of a prefix, and its packets outside of heavy prefixes within it.
    pub(in super::super) const PREFIX_PACKETS: [u16; 2] = [5, 6];
    /// Bytes of a prefix, and its bytes outside of heavy prefixes within it.
    pub(in super::super) const PREFIX_BYTES: [u16; 2] = [7, 8];
}
