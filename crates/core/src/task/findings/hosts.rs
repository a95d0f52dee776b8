//! Scans, flooded hosts, and hosts with most of the traffic.

use std::collections::HashMap;
use std::ops::Range;

use super::scene::{Common, EMPTY_BYTES, LEAST_PACKETS, Scene, SceneLane, TCP, TINY, Tuple, UDP};
use super::{Finding, FindingKind};
use crate::key::CanonicalKey;
use crate::summary::{Estimate, SizeEstimate};
use crate::task::{Side, order};
use crate::terms::Size;

/// Scan: minimum share of the tried hosts or ports that get only a few packets.
const TINY_SHARE: f64 = 0.8;
/// Echo request types of ICMP and `ICMPv6`.
const ECHO: [u8; 2] = [8, 128];

/// A kind of scan: how flows are grouped, and the field whose values are counted in a group.
struct Grouping {
    kind: FindingKind,
    /// The fields that are equal in a group, and the field whose values are counted.
    group: Vec<Range<usize>>,
    counted: Range<usize>,
    /// Whether only flows to the lower port are counted, which excludes answers of a service.
    down: bool,
}

/// The groupings of keys with addresses of `size` bytes.
fn groupings(size: usize) -> [Grouping; 2] {
    let (source, destination) = (0..size, size..2 * size);
    let (port, service) = (2 * size + 2..2 * size + 4, 2 * size + 2..2 * size + 5);
    [
        Grouping {
            kind: FindingKind::HostScan,
            group: vec![source.clone(), service],
            counted: destination.clone(),
            down: false,
        },
        Grouping {
            kind: FindingKind::PortScan,
            group: vec![source, destination, 2 * size + 4..2 * size + 5],
            counted: port,
            down: true,
        },
    ]
}

impl Grouping {
    fn hash(&self, key: &[u8]) -> u64 {
        self.group.iter().fold(0, |hash, field| {
            (hash ^ order::bucket_hash(&key[field.clone()])).rotate_left(23).wrapping_mul(5)
        })
    }

    fn has(&self, key: &[u8]) -> bool {
        let tuple = Tuple::of(key);
        !self.down || tuple.destination_port < tuple.source_port
    }

    fn same(&self, one: &[u8], other: &[u8]) -> bool {
        self.group.iter().all(|field| one[field.clone()] == other[field.clone()])
    }
}

/// Finds scans: one source tries many hosts at one port, or many ports of one host, by flows of few
/// packets without data.
///
/// As for superspreaders, a first pass counts the flows of each group in buckets, and only the
/// flows of full buckets are sorted.
pub(super) fn scans(scene: &Scene<'_>, spread: u64, scratch: &mut [u64]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for lane in &scene.lanes {
        for grouping in groupings(lane.address_bytes) {
            in_lane(scene, lane, &grouping, spread, scratch, &mut findings);
        }
    }
    findings
}

fn in_lane(
    scene: &Scene<'_>,
    lane: &SceneLane<'_>,
    grouping: &Grouping,
    spread: u64,
    scratch: &mut [u64],
    findings: &mut Vec<Finding>,
) {
    let flows = lane.flows;
    let bits = order::bucket_bits(flows.len());
    let (counts, entries) = scratch.split_at_mut(1 << bits);
    let bucket = |key: &[u8]| {
        (order::bucket_hash(&grouping.hash(key).to_be_bytes()) >> (64 - bits)) as usize
    };
    counts.fill(0);
    flows.for_each(&mut |key, _| counts[bucket(key)] += u64::from(grouping.has(key)));
    let (mut flow, mut suspects) = (0, 0);
    flows.for_each(&mut |key, _| {
        if counts[bucket(key)] > spread && grouping.has(key) {
            entries[suspects] = order::entry(0, flow);
            suspects += 1;
        }
        flow += 1;
    });
    let entries = &mut entries[..suspects];
    let fields = grouping.group.iter().cloned().chain([grouping.counted.clone()]);
    order::sort(entries, flows, &order::columns(fields));
    let key = |entry: &u64| flows.get(order::flow(*entry)).0;
    for group in entries.chunk_by(|one, other| grouping.same(key(one), key(other))) {
        if group.len() as u64 > spread {
            findings.extend(judge(scene, lane, grouping, spread, group));
        }
    }
}

/// Decides whether a group is a scan. Its flows are sorted by the counted field.
fn judge(
    scene: &Scene<'_>,
    lane: &SceneLane<'_>,
    grouping: &Grouping,
    spread: u64,
    group: &[u64],
) -> Option<Finding> {
    let flow = |entry: &u64| lane.flows.get(order::flow(*entry));
    let counted = |entry: &u64| &flow(entry).0[grouping.counted.clone()];
    let (mut tried, mut tiny, mut size) = (0, 0, Size::default());
    for one in group.chunk_by(|one, other| counted(one) == counted(other)) {
        let sum: Size = one.iter().map(|entry| flow(entry).1).sum();
        tried += 1;
        // A host that several flows try may get a few packets from each.
        tiny += u64::from(sum.packets <= TINY * one.len() as u64);
        size += sum;
    }
    if tried <= spread || (tiny as f64) < TINY_SHARE * tried as f64 {
        return None;
    }
    let first = flow(&group[0]).0;
    let tuple = Tuple::of(first);
    let packets = scene.sample.iter().filter(|packet| {
        packet.key().is_some_and(|key| {
            key.len() == first.len() && grouping.same(key, first) && grouping.has(key)
        })
    });
    let common = Common::of(packets.copied());
    let tries = match tuple.protocol {
        // The sample may have no packet of a small scan.
        TCP if common.tcp == 0 => size.bytes as f64 <= EMPTY_BYTES * size.packets as f64,
        TCP => common.opens(),
        UDP => {
            scene.is_two_way && scene.answered(group.iter().map(|entry| flow(entry).0)) <= ANSWERED
        }
        _ => common.icmp.keys().all(|kind| ECHO.contains(kind)),
    };
    if !tries {
        return None;
    }
    let missed = scene.untracked();
    let size = SizeEstimate::between(size, size, size + missed);
    let (by, peers) = (scene.epoch.by, tried as f64);
    let address = |side| CanonicalKey::new(tuple.address(side));
    let of_host = grouping.kind == FindingKind::PortScan;
    Some(Finding {
        source: Some(address(Side::Source)),
        destination: of_host.then(|| address(Side::Destination)),
        protocol: Some(tuple.protocol),
        port: Some(tuple.destination_port).filter(|port| !of_host && *port > 0),
        size,
        share: scene.epoch.share(size.by(by).map_or(0.0, |size| size.value)),
        peers: Some(Estimate::between(peers, peers, peers + missed.packets as f64)),
        span_ns: common.span_ns(),
        span_is_exact: scene.timeline.sample().is_whole(),
        flags: common.flags(),
        ..Finding::new(grouping.kind)
    })
}

/// Minimum share of the packets of a flooded host.
const FLOODED: f64 = 0.1;
/// Flood: minimum share of the host's packets in flows of at most three packets. Reflection:
/// minimum share from one service.
const ALIKE: f64 = 0.8;
/// Flood: minimum number of sources in the sample.
const LEAST_SOURCES: usize = 50;
/// Reflection: minimum number of servers.
const LEAST_SERVERS: usize = 20;
/// Maximum share of answered flows in a flood, a reflection or a UDP scan.
const ANSWERED: f64 = 0.2;
/// Reflection: minimum mean length of the packets. Requests are shorter.
const REFLECTED_BYTES: f64 = 200.0;
/// Services whose answers are larger than the requests.
const REFLECTORS: [u16; 16] =
    [17, 19, 53, 111, 123, 137, 161, 389, 520, 1900, 3283, 3702, 5353, 11_211, 27_015, 10_001];
/// Minimum share of the packets of a dominant host.
const DOMINANT: f64 = 0.6;
/// Minimum number of hosts in the sample for a dominant host.
const OTHERS: usize = 20;

/// Finds flooded hosts, and hosts with most of the traffic.
///
/// Candidates are hosts with a tenth of the sampled packets. The table gives the sizes of the flows
/// of these packets, whether they are answered, and the hosts' total size.
pub(super) fn heavy(scene: &Scene<'_>, found: &[Finding], scratch: &mut [u64]) -> Vec<Finding> {
    if scene.epoch.keyed.packets < LEAST_PACKETS {
        return Vec::new();
    }
    let mut findings: Vec<Finding> = Vec::new();
    for side in [Side::Destination, Side::Source] {
        let mut hosts: HashMap<&[u8], usize> = HashMap::new();
        for packet in &scene.sample {
            if let Some(key) = packet.key() {
                *hosts.entry(Tuple::of(key).address(side)).or_default() += 1;
            }
        }
        let others = hosts.len();
        let heavy = hosts.into_iter().filter(|(_, sampled)| scene.share(*sampled) >= FLOODED);
        for (host, sampled) in heavy {
            let of_host = |key: &[u8]| Tuple::of(key).address(side) == host;
            let packets = scene.sample.iter().filter(|packet| packet.key().is_some_and(of_host));
            let common = Common::of(packets.copied());
            let kind = match side {
                Side::Destination => attack(scene, &common),
                Side::Source => None,
            };
            let dominant = scene.share(sampled) >= DOMINANT && others >= OTHERS;
            let dominant = dominant.then_some(match side {
                Side::Source => FindingKind::Source,
                Side::Destination => FindingKind::Destination,
            });
            let Some(kind) = kind.or(dominant) else { continue };
            let host = CanonicalKey::new(host);
            if kind == FindingKind::Source && found.iter().any(|scan| scan.source == Some(host)) {
                continue;
            }
            findings.push(finding(scene, kind, side, host, &common, scratch));
        }
    }
    findings
}

/// The kind of attack that the packets to a host are, if any.
fn attack(scene: &Scene<'_>, common: &Common<'_>) -> Option<FindingKind> {
    let ((protocol, port), same_origin) = common.origin()?;
    let answered = || scene.answered(common.flows.iter().map(|(key, _)| *key));
    if protocol == UDP
        && REFLECTORS.contains(&port)
        && same_origin >= ALIKE
        && common.sources.len() >= LEAST_SERVERS
        && common.mean_bytes() >= REFLECTED_BYTES
        && answered() <= ANSWERED
    {
        return Some(FindingKind::Reflection);
    }
    if common.sources.len() < LEAST_SOURCES {
        return None;
    }
    let ((protocol, _), _) = common.service()?;
    // Clients that open connections repeatedly and never acknowledge anything.
    if protocol == TCP && common.opens() {
        return Some(FindingKind::Flood);
    }
    let tiny = common.flows.iter().filter(|(key, _)| scene.packets(key) <= TINY);
    let tiny = tiny.map(|(_, count)| count).sum::<usize>() as f64 / common.packets as f64;
    if tiny < ALIKE {
        return None;
    }
    let is_flood = match protocol {
        TCP => common.mean_bytes() <= EMPTY_BYTES,
        _ => scene.is_two_way && answered() <= ANSWERED,
    };
    is_flood.then_some(FindingKind::Flood)
}

fn finding(
    scene: &Scene<'_>,
    kind: FindingKind,
    side: Side,
    host: CanonicalKey,
    common: &Common<'_>,
    scratch: &mut [u64],
) -> Finding {
    let (known, peers) = of_host(scene, side, &host, scratch);
    // The sample may contain sources that the table lacks.
    let peers = match side {
        Side::Source => peers,
        Side::Destination => peers.max(common.sources.len() as u64),
    };
    let missed = scene.untracked();
    // Untracked packets may belong to the host; the sample says how many.
    let high = known + missed;
    let sampled = scene.share(common.packets) * scene.epoch.keyed.packets as f64;
    let mut size = SizeEstimate::between(known, known, high);
    for (estimate, per_packet) in [(&mut size.packets, 1.0), (&mut size.bytes, common.mean_bytes())]
    {
        if let Some(estimate) = estimate {
            estimate.value = (sampled * per_packet).clamp(estimate.low, estimate.high);
        }
    }
    let value = size.by(scene.epoch.by).map_or(0.0, |estimate| estimate.value);
    let service = match kind {
        FindingKind::Reflection => common.origin(),
        _ => common.service(),
    };
    let service = service.filter(|(_, share)| *share >= 0.5).map(|(service, _)| service);
    let peers_high = (peers + missed.packets) as f64;
    Finding {
        source: (side == Side::Source).then_some(host),
        destination: (side == Side::Destination).then_some(host),
        protocol: service.map(|(protocol, _)| protocol),
        port: service.map(|(_, port)| port).filter(|port| *port > 0),
        size,
        share: scene.epoch.share(value),
        peers: Some(Estimate::between(peers as f64, peers as f64, peers_high)),
        span_ns: common.span_ns(),
        span_is_exact: scene.timeline.sample().is_whole(),
        flags: common.flags(),
        ..Finding::new(kind)
    }
}

/// The size of a host's flows in its table, and the distinct count of its peers there.
fn of_host(scene: &Scene<'_>, side: Side, host: &CanonicalKey, scratch: &mut [u64]) -> (Size, u64) {
    let bytes = host.as_bytes().len();
    let Some(lane) = scene.lanes.iter().find(|lane| lane.address_bytes == bytes) else {
        return (Size::default(), 0);
    };
    let entries = &mut scratch[1 << order::bucket_bits(lane.flows.len())..];
    let (mut flow, mut own, mut size) = (0, 0, Size::default());
    lane.flows.for_each(&mut |key, flow_size| {
        if Tuple::of(key).address(side) == host.as_bytes() {
            entries[own] = order::entry(0, flow);
            size += flow_size;
            own += 1;
        }
        flow += 1;
    });
    let peer = match side {
        Side::Source => bytes..2 * bytes,
        Side::Destination => 0..bytes,
    };
    let entries = &mut entries[..own];
    order::sort(entries, lane.flows, &order::columns([peer.clone()]));
    let at = |entry: u64| &lane.flows.get(order::flow(entry)).0[peer.clone()];
    let differ = entries.windows(2).filter(|pair| at(pair[0]) != at(pair[1])).count();
    (size, differ as u64 + u64::from(own > 0))
}
