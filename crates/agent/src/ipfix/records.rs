//! Converts a report into records.

use std::collections::HashSet;
use std::net::IpAddr;

use flowgauge_core::key::{CanonicalKey, Field, KeyKind, KeySpec};
use flowgauge_core::summary::Estimate;
use flowgauge_core::task::{HierarchyItem, Report, Selection, Side, SizeItem, SpreadItem};
use flowgauge_core::terms::{Measure, SpreadOf};
use flowgauge_engine::report::EpochReport;

use super::element::*;
use super::record::Record;

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
