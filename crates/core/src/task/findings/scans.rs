//! Scans: one source tries many hosts at one port, or many ports of one host, by flows of few packets
//! without data.
//!
//! As for superspreaders, a first pass counts the flows of each group in buckets, and only flows of full
//! buckets are sorted.

use std::ops::Range;

use super::super::lane::Side;
use super::super::{buckets, order};
use super::scene::{Common, EMPTY_BYTES, Scene, SceneLane, TCP, TINY, Tuple, UDP};
use super::{Finding, FindingKind};
use crate::key::CanonicalKey;
use crate::summary::{Estimate, SizeEstimate};
use crate::terms::Size;

/// This share of the tried hosts or ports sees a few packets only.
const TINY_SHARE: f64 = 0.8;
/// At most this share of the tried hosts or ports answers over UDP.
const ANSWERED: f64 = 0.2;
/// Types of ICMP and `ICMPv6` that ask for an echo.
const ECHO: [u8; 2] = [8, 128];

/// Which flows are one group, and what is counted in it.
struct Grouping {
    kind: FindingKind,
    /// Fields that are equal in a group, and the one whose values are counted.
    group: Vec<Range<usize>>,
    counted: Range<usize>,
    /// Whether only flows towards the lower port belong to it: answers of a service do not.
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
            (hash ^ buckets::mix(&key[field.clone()])).rotate_left(23).wrapping_mul(5)
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

pub(super) fn find(scene: &Scene<'_>, spread: u64, scratch: &mut [u64]) -> Vec<Finding> {
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
    let bits = buckets::bits(flows.len());
    let (counts, entries) = scratch.split_at_mut(1 << bits);
    let bucket =
        |key: &[u8]| (buckets::mix(&grouping.hash(key).to_be_bytes()) >> (64 - bits)) as usize;
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

/// Judges the flows of a group, which are sorted by the counted field.
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
        // A host that is tried by several flows may get a few packets of each.
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
        // Of a small scan the sample may have no packet.
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
