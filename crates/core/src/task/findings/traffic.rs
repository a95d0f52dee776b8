//! The traffic as a whole: sudden rises and falls, small packets, one protocol or port with most
//! packets, entropy near its limits.

use std::collections::HashMap;
use std::ops::Range;

use super::scene::{Common, LEAST_PACKETS, Scene, TCP, Tuple, UDP, most};
use super::{Finding, FindingKind};
use crate::key::CanonicalKey;
use crate::summary::{Estimate, SizeEstimate};
use crate::terms::Size;
use crate::timeline::{Bin, SampledPacket};

const SECOND_NS: i64 = 1_000_000_000;
/// Minimum number of whole seconds in the series.
const LEAST_SECONDS: usize = 10;
/// Minimum usual packets in a second.
const LEAST_USUAL: f64 = 100.0;
/// A rise exceeds the usual rate times this factor; a fall is below the usual rate divided by it.
const FACTOR: f64 = 2.0;
/// A rise or fall also differs by at least this number of standard deviations of a Poisson count.
const DEVIATIONS: f64 = 6.0;
/// A second is near the usual rate within this factor.
const NEAR: f64 = 1.5;
/// Minimum share of seconds near the usual rate in steady traffic.
const STEADY: f64 = 0.25;
/// Maximum number of rises or falls; with more, the traffic is bursty and none stands out.
const MOST: usize = 3;
/// Minimum share of a change for an address or service to be its cause.
const CAUSE: f64 = 0.5;

/// Finds sudden rises and falls of the packet rate.
///
/// Only steady traffic has them: a quarter of the seconds must be near the lower quartile. Where
/// rises or falls are many, the traffic is bursty, and none of them stands out.
pub(super) fn rates(scene: &Scene<'_>) -> Vec<Finding> {
    let seconds = scene.timeline.series().widened(SECOND_NS);
    let width_ns = seconds.width_ns();
    let bins: Vec<Bin> = seconds.bins().collect();
    // The first and the last second are incomplete.
    let Some(inner) = bins.len().checked_sub(2).filter(|inner| *inner >= LEAST_SECONDS) else {
        return Vec::new();
    };
    let bins = &bins[1..=inner];
    let counts: Vec<f64> = bins.iter().map(|bin| bin.size.packets as f64).collect();
    let (lower, middle) = (quantile(&counts, 0.25), quantile(&counts, 0.5));
    let floor = LEAST_USUAL * (width_ns / SECOND_NS) as f64;
    let rises = runs(&counts, lower, floor, |count| {
        count > FACTOR * lower && count - lower > DEVIATIONS * lower.sqrt()
    });
    // If the traffic is high most of the time, the time before the rise is no fall.
    let rises_are_usual = rises.iter().map(Range::len).sum::<usize>() * 2 >= counts.len();
    let falls = if rises_are_usual {
        Vec::new()
    } else {
        runs(&counts, middle, floor, |count| {
            count < middle / FACTOR && middle - count > DEVIATIONS * middle.sqrt()
        })
    };
    let mut found = Vec::new();
    for (kind, runs, usual) in
        [(FindingKind::Rise, rises, lower), (FindingKind::Fall, falls, middle)]
    {
        if runs.len() <= MOST {
            let all = runs.into_iter().map(|run| finding(scene, kind, &bins[run], usual, width_ns));
            found.extend(all);
        }
    }
    found
}

/// The runs of seconds that are `strange`, if enough seconds are near `usual`. Only steady traffic
/// has rises and falls.
fn runs(
    counts: &[f64],
    usual: f64,
    floor: f64,
    strange: impl Fn(f64) -> bool,
) -> Vec<Range<usize>> {
    let near = |count: &&f64| (usual / NEAR..=usual * NEAR).contains(*count);
    let steady = counts.iter().filter(near).count() as f64 >= STEADY * counts.len() as f64;
    if usual < floor || !steady {
        return Vec::new();
    }
    let mut runs: Vec<Range<usize>> = Vec::new();
    for at in (0..counts.len()).filter(|at| strange(counts[*at])) {
        match runs.last_mut().filter(|run| run.end + 1 >= at) {
            Some(run) => run.end = at + 1,
            None => runs.push(at..at + 1),
        }
    }
    runs
}

fn quantile(counts: &[f64], q: f64) -> f64 {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * q) as usize]
}

fn finding(
    scene: &Scene<'_>,
    kind: FindingKind,
    run: &[Bin],
    usual: f64,
    width_ns: i64,
) -> Finding {
    let size: Size = run.iter().map(|bin| bin.size).sum();
    let start_ns = run[0].start_ns;
    let end_ns = run[run.len() - 1].start_ns + width_ns;
    let seconds = (end_ns - start_ns) as f64 / 1e9;
    let (source, destination, service) = match kind {
        FindingKind::Rise => cause(scene, start_ns..end_ns),
        _ => (None, None, None),
    };
    let by = size.by(scene.epoch.by) as f64;
    Finding {
        source,
        destination,
        protocol: service.map(|(protocol, _)| protocol),
        port: service.map(|(_, port)| port).filter(|port| *port > 0),
        size: SizeEstimate::exact(size),
        share: scene.epoch.share(by),
        span_ns: Some((start_ns, end_ns)),
        span_is_exact: false,
        usual: Some((usual * 1e9 / width_ns as f64, size.packets as f64 / seconds)),
        ..Finding::new(kind)
    }
}

/// A protocol and a destination port.
type Service = (u8, u16);

/// The source, the destination and the service with most of the additional packets during `run_ns`.
fn cause(
    scene: &Scene<'_>,
    run_ns: Range<i64>,
) -> (Option<CanonicalKey>, Option<CanonicalKey>, Option<Service>) {
    let (inside, outside): (Vec<&SampledPacket>, Vec<&SampledPacket>) =
        scene.sample.iter().copied().partition(|packet| run_ns.contains(&packet.time_ns));
    let bins: Vec<_> = scene.timeline.series().bins().collect();
    let all_ns = bins.last().map_or(0, |last| last.start_ns)
        - bins.first().map_or(0, |first| first.start_ns);
    let run_ns = (run_ns.end - run_ns.start) as f64;
    // The expected packets inside the run for each packet outside.
    let scale = run_ns / (all_ns as f64 - run_ns).max(1.0);
    let more = inside.len() as f64 - outside.len() as f64 * scale;
    let address = |of: fn(Tuple<'_>) -> &[u8]| {
        grown(&inside, &outside, scale, more, |tuple| CanonicalKey::new(of(tuple)))
    };
    let service =
        grown(&inside, &outside, scale, more, |tuple| (tuple.protocol, tuple.destination_port));
    (address(|tuple| tuple.source), address(|tuple| tuple.destination), service)
}

/// The value with most of the growth, if it has the share [`CAUSE`] of it.
fn grown<T: Copy + Ord + std::hash::Hash>(
    inside: &[&SampledPacket],
    outside: &[&SampledPacket],
    scale: f64,
    more: f64,
    of: impl Fn(Tuple<'_>) -> T,
) -> Option<T> {
    let mut counts: HashMap<T, usize> = HashMap::new();
    let value = |packet: &&SampledPacket| packet.key().map(|key| of(Tuple::of(key)));
    inside.iter().filter_map(value).for_each(|value| *counts.entry(value).or_default() += 1);
    let (most, count) = most(&counts)?;
    let before = outside.iter().filter_map(value).filter(|value| *value == most).count();
    (count as f64 - before as f64 * scale >= CAUSE * more).then_some(most)
}

/// Maximum length of a small packet in bytes.
const SMALL_BYTES: u32 = 100;
/// Minimum share of small packets.
const SMALL: f64 = 0.9;
/// Minimum packet rate, in packets a second, at which small packets are a finding.
const FAST: f64 = 10_000.0;
/// Minimum number of sampled flows for a dominant protocol or port.
const LEAST_SAMPLED_FLOWS: usize = 100;
/// Minimum share of a dominant protocol other than TCP and UDP.
const PROTOCOL: f64 = 0.5;
/// Minimum share of a dominant port other than a web port.
const SERVICE: f64 = 0.9;
const WEB: [u16; 2] = [80, 443];
/// Minimum number of flows for rules on entropy.
const LEAST_FLOWS: u64 = 1000;
/// Entropy divided by its maximum: flows are even from `EVEN` on, and few flows have everything up
/// to `FEW`.
const EVEN: f64 = 0.98;
const FEW: f64 = 0.1;

/// Finds small packets, a dominant protocol or port, and entropy near its limits.
pub(super) fn shape(scene: &Scene<'_>, found: &[Finding]) -> Vec<Finding> {
    if scene.epoch.keyed.packets < LEAST_PACKETS {
        return Vec::new();
    }
    let common = Common::of(scene.sample.iter().copied());
    // An attack explains a dominant protocol or port.
    let attacked =
        found.iter().any(|finding| finding.kind <= FindingKind::PortScan && finding.share >= 0.5);
    let few = common.flows.len() < LEAST_SAMPLED_FLOWS;
    let services =
        if attacked || few { [None, None] } else { [protocol(&common), service(&common)] };
    let all = services.into_iter().chain([small(scene, &common), entropy(scene)]);
    all.flatten().map(|finding| Finding { span_is_exact: true, ..finding }).collect()
}

fn small(scene: &Scene<'_>, common: &Common<'_>) -> Option<Finding> {
    let series = scene.timeline.series();
    let seconds = series.bins().count() as f64 * series.width_ns() as f64 / 1e9;
    let rate = scene.epoch.keyed.packets as f64 / seconds.max(1e-3);
    let small = scene.sample.iter().filter(|packet| packet.wire <= SMALL_BYTES).count();
    let share = scene.share(small);
    (share >= SMALL && rate >= FAST).then(|| Finding {
        usual: Some((f64::from(SMALL_BYTES), common.mean_bytes())),
        share,
        ..Finding::new(FindingKind::SmallPackets)
    })
}

fn protocol(common: &Common<'_>) -> Option<Finding> {
    let ((protocol, _), share) = common.service()?;
    (![TCP, UDP].contains(&protocol) && share >= PROTOCOL).then(|| Finding {
        protocol: Some(protocol),
        share,
        ..Finding::new(FindingKind::Protocol)
    })
}

fn service(common: &Common<'_>) -> Option<Finding> {
    let ((protocol, port), share) = common.lower_port()?;
    let has_ports = [TCP, UDP].contains(&protocol);
    (has_ports && share >= SERVICE && !WEB.contains(&port)).then(|| Finding {
        protocol: Some(protocol),
        port: Some(port),
        share,
        ..Finding::new(FindingKind::Service)
    })
}

fn entropy(scene: &Scene<'_>) -> Option<Finding> {
    let flows = scene.flows();
    if flows < LEAST_FLOWS || scene.untracked().packets > 0 {
        return None;
    }
    let by = scene.epoch.by;
    // Not the keyed weight, since dropped packets are in no flow.
    let (mut total, mut logs) = (0.0, 0.0);
    for lane in &scene.lanes {
        lane.flows.for_each(&mut |_, size| {
            let weight = size.by(by) as f64;
            total += weight;
            if weight > 1.0 {
                logs += weight * weight.log2();
            }
        });
    }
    let (bits, most) = ((total.log2() - logs / total).max(0.0), (flows as f64).log2());
    let kind = match bits / most {
        EVEN.. => FindingKind::EvenFlows,
        ..=FEW => FindingKind::FewFlows,
        _ => return None,
    };
    Some(Finding {
        share: bits / most,
        peers: Some(Estimate::exact(flows)),
        usual: Some((most, bits)),
        ..Finding::new(kind)
    })
}
