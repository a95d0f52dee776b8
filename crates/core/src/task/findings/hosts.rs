//! Flooded hosts, and hosts with most of the traffic.
//!
//! Candidates are hosts with a tenth of the sampled packets. The table says how large the flows of these
//! packets are, whether they are answered, and what the hosts have in all.

use std::collections::HashMap;

use super::super::lane::Side;
use super::super::{buckets, order};
use super::scene::{Common, EMPTY_BYTES, LEAST_PACKETS, Scene, TCP, TINY, Tuple, UDP};
use super::{Finding, FindingKind};
use crate::key::CanonicalKey;
use crate::summary::{Estimate, SizeEstimate};
use crate::terms::Size;

/// A flooded host gets this share of all packets.
const FLOODED: f64 = 0.1;
/// Of its packets, this share is in flows of at most three packets; of a reflection, comes from one
/// service.
const ALIKE: f64 = 0.8;
/// It has so many sources in the sample.
const LEAST_SOURCES: usize = 50;
/// A reflection comes from so many servers.
const LEAST_SERVERS: usize = 20;
/// At most this share of the flows is answered.
const ANSWERED: f64 = 0.2;
/// Reflected packets are larger than this on average: requests are not.
const REFLECTED_BYTES: f64 = 200.0;
/// Services whose answers are larger than the requests.
const REFLECTORS: [u16; 16] =
    [17, 19, 53, 111, 123, 137, 161, 389, 520, 1900, 3283, 3702, 5353, 11_211, 27_015, 10_001];
/// A single host has most of the traffic from this share on.
const DOMINANT: f64 = 0.6;
/// Where so many others have the rest.
const OTHERS: usize = 20;

pub(super) fn find(scene: &Scene<'_>, found: &[Finding], scratch: &mut [u64]) -> Vec<Finding> {
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

/// Which attack the packets to a host are, if they are one.
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
    // Clients that open connections again and again, and never acknowledge anything.
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
    // Sources that the table does not hold may be in the sample.
    let peers = match side {
        Side::Source => peers,
        Side::Destination => peers.max(common.sources.len() as u64),
    };
    let missed = scene.untracked();
    // What found no room may be its own: as much of it as the sample says.
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

/// What a host has in its table, and its distinct peers there.
fn of_host(scene: &Scene<'_>, side: Side, host: &CanonicalKey, scratch: &mut [u64]) -> (Size, u64) {
    let bytes = host.as_bytes().len();
    let Some(lane) = scene.lanes.iter().find(|lane| lane.address_bytes == bytes) else {
        return (Size::default(), 0);
    };
    let entries = &mut scratch[1 << buckets::bits(lane.flows.len())..];
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
