//! The exact counts of the traffic, to compare estimates with.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::IpAddr;

use flowgauge_core::key::{CanonicalKey, Fields, KeyKind, KeySpec};
use flowgauge_core::terms::Size;
use libm::log2;

use super::{Packet, Plant, PlantKind, Traffic};

/// The exact counts of a planted event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Planted {
    /// The event as configured.
    pub plant: Plant,
    /// The fields that all its packets share: the source of a scan, the destination of a flood.
    pub key: Fields,
    /// Its packets and bytes.
    pub count: Size,
    /// Its distinct flows: destinations of a scan, sources of a flood.
    pub flows: u64,
    /// Times of its first and last packet, in nanoseconds since the UNIX epoch; equal before the
    /// first packet.
    pub times_ns: (i64, i64),
}

/// Exact counts of all five-tuples, for tests and tools. Memory grows with the number of flows, and
/// each packet costs one look-up in a hash table.
///
/// ```
/// use flowgauge_synthetic::{Config, Profile, Traffic, Truth};
///
/// let profile = Profile::Zipf { flows: 10, skew: 1.0 };
/// let traffic = Traffic::new(Config { profile, packets: 1_000, ..Config::default() })?;
/// let truth = Truth::of(traffic);
/// assert_eq!((truth.total().packets, truth.cardinality()), (1_000, 10));
/// // The largest of ten Zipf flows has about a third of the packets.
/// assert!((300..400).contains(&truth.ranked()[0].1.packets));
/// # Ok::<(), flowgauge_synthetic::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Truth {
    flows: HashMap<CanonicalKey, Size>,
    total: Size,
    planted: Vec<Planted>,
}

impl Truth {
    /// Empty counts for packets of `traffic`.
    pub fn new(traffic: &Traffic) -> Self {
        let five_tuple = KeySpec::from(KeyKind::FIVE_TUPLE);
        let planted = traffic.config().plants.iter().enumerate().map(|(event, &plant)| {
            let first = traffic.planted_flow(event as u16, 0);
            let mut key = five_tuple.fields(first.as_bytes());
            match plant.kind {
                PlantKind::Scan => (key.destination, key.destination_port) = (None, None),
                PlantKind::Ports => key.destination_port = None,
                PlantKind::Flood => (key.source, key.source_port) = (None, None),
                PlantKind::Reflection => key.source = None,
                PlantKind::Burst | PlantKind::Vanish => {}
            }
            Planted { plant, key, count: Size::default(), flows: plant.flows, times_ns: (0, 0) }
        });
        Self { flows: HashMap::new(), total: Size::default(), planted: planted.collect() }
    }

    /// Counts all remaining packets of `traffic`.
    pub fn of(traffic: Traffic) -> Self {
        let mut truth = Self::new(&traffic);
        for packet in traffic {
            truth.record(&packet);
        }
        truth
    }

    /// Counts a packet.
    pub fn record(&mut self, packet: &Packet) {
        let count = Size { packets: 1, bytes: u64::from(packet.wire) };
        *self.flows.entry(packet.key).or_default() += count;
        self.total += count;
        if let Some(planted) =
            packet.event.and_then(|event| self.planted.get_mut(usize::from(event)))
        {
            if planted.count.packets == 0 {
                planted.times_ns.0 = packet.time_ns;
            }
            planted.times_ns.1 = packet.time_ns;
            planted.count += count;
        }
    }

    /// Packets and bytes of every five-tuple.
    pub fn flows(&self) -> &HashMap<CanonicalKey, Size> {
        &self.flows
    }

    /// The total of packets and bytes.
    pub fn total(&self) -> Size {
        self.total
    }

    /// The planted events, in the order of the configuration.
    pub fn planted(&self) -> &[Planted] {
        &self.planted
    }

    /// Number of distinct five-tuples.
    pub fn cardinality(&self) -> u64 {
        self.flows.len() as u64
    }

    /// Shannon entropy of the packets over the five-tuples, in bits; 0 without packets.
    pub fn entropy_bits(&self) -> f64 {
        if self.total.packets == 0 {
            return 0.0;
        }
        // Sorted, so that rounding does not depend on the order of the table.
        let mut sizes: Vec<u64> = self.flows.values().map(|count| count.packets).collect();
        sizes.sort_unstable();
        let weighted: f64 = sizes.iter().map(|&size| size as f64 * log2(size as f64)).sum();
        let packets = self.total.packets as f64;
        (log2(packets) - weighted / packets).max(0.0)
    }

    /// Counts by another key, which `key` derives from the five-tuple.
    pub fn by(&self, key: impl Fn(&CanonicalKey) -> CanonicalKey) -> HashMap<CanonicalKey, Size> {
        let mut counts: HashMap<CanonicalKey, Size> = HashMap::new();
        for (five_tuple, &count) in &self.flows {
            *counts.entry(key(five_tuple)).or_default() += count;
        }
        counts
    }

    /// All five-tuples by descending packets, then by key.
    pub fn ranked(&self) -> Vec<(CanonicalKey, Size)> {
        let mut ranked: Vec<_> = self.flows.iter().map(|(&key, &count)| (key, count)).collect();
        ranked.sort_unstable_by(|a, b| b.1.packets.cmp(&a.1.packets).then(a.0.cmp(&b.0)));
        ranked
    }

    /// Writes all counts as one JSON object, with one line per flow:
    ///
    /// ```json
    /// {"packets":3,"bytes":192,"flows":2,"entropy_bits":0.9182958340544896,
    /// "planted":[
    /// {"kind":"scan","key":{"source":"198.18.0.0","source_port":45678,"protocol":6},"packets":1,"bytes":64,"flows":1,"first_ns":0,"last_ns":0}
    /// ],
    /// "counts":[
    /// {"key":{"source":"1.2.3.4","destination":"5.6.7.8","source_port":40000,
    ///   "destination_port":443,"protocol":6},"packets":2,"bytes":128}
    /// ]}
    /// ```
    ///
    /// `flows` is the number of distinct five-tuples; `counts` has all of them, by descending
    /// packets. The `key` of an event has the fields that its packets share; its `flows` is the
    /// number of a scan's destinations or a flood's sources.
    ///
    /// # Errors
    /// When writing to `out` fails.
    pub fn write_json(&self, out: impl Write) -> io::Result<()> {
        let mut out = io::BufWriter::new(out);
        let Size { packets, bytes } = self.total;
        let (flows, entropy) = (self.flows.len(), self.entropy_bits());
        write!(
            out,
            "{{\"packets\":{packets},\"bytes\":{bytes},\"flows\":{flows},\"entropy_bits\":{entropy:?},\n\
             \"planted\":["
        )?;
        let mut separator = "\n";
        for planted in &self.planted {
            write!(out, "{separator}{{\"kind\":\"{}\",\"key\":", planted.plant.kind.name())?;
            write_key(&mut out, &planted.key)?;
            let Size { packets, bytes } = planted.count;
            let (flows, (first, last)) = (planted.flows, planted.times_ns);
            write!(
                out,
                ",\"packets\":{packets},\"bytes\":{bytes},\"flows\":{flows},\
                 \"first_ns\":{first},\"last_ns\":{last}}}"
            )?;
            separator = ",\n";
        }
        write!(out, "\n],\n\"counts\":[")?;
        separator = "\n";
        let five_tuple = KeySpec::from(KeyKind::FIVE_TUPLE);
        for (key, Size { packets, bytes }) in self.ranked() {
            write!(out, "{separator}{{\"key\":")?;
            write_key(&mut out, &five_tuple.fields(key.as_bytes()))?;
            write!(out, ",\"packets\":{packets},\"bytes\":{bytes}}}")?;
            separator = ",\n";
        }
        writeln!(out, "\n]}}")?;
        out.flush()
    }
}

/// Writes a key as an object with the fields that are present.
fn write_key(out: &mut impl Write, key: &Fields) -> io::Result<()> {
    let text = |address: Option<IpAddr>| address.map(|address| format!("\"{address}\""));
    let parts = [
        ("source", text(key.source)),
        ("destination", text(key.destination)),
        ("source_port", key.source_port.map(|port| port.to_string())),
        ("destination_port", key.destination_port.map(|port| port.to_string())),
        ("protocol", key.protocol.map(|protocol| protocol.to_string())),
    ];
    let mut separator = '{';
    for (name, value) in parts {
        if let Some(value) = value {
            write!(out, "{separator}\"{name}\":{value}")?;
            separator = ',';
        }
    }
    write!(out, "}}")
}
