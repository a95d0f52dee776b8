//! Sudden rises and falls of the packets a second.
//!
//! Only steady traffic has them: a quarter of the seconds must come near the lower quartile. Where rises
//! or falls are many, the traffic comes in bursts, and none of them stands out.

use std::collections::HashMap;
use std::ops::Range;

use super::scene::{Scene, Tuple, most};
use super::{Finding, FindingKind};
use crate::key::CanonicalKey;
use crate::summary::SizeEstimate;
use crate::terms::Size;
use crate::timeline::{Bin, SampledPacket};

const SECOND_NS: i64 = 1_000_000_000;
/// Whole seconds that a series has at least.
const LEAST_SECONDS: usize = 10;
/// Packets in a second of what is usual.
const LEAST_USUAL: f64 = 100.0;
/// A rise is over so many times the usual, and a fall under the usual divided by it.
const FACTOR: f64 = 2.0;
/// Beside the factor, a second differs by so many deviations of a Poisson count.
const DEVIATIONS: f64 = 6.0;
/// A second is near the usual within this factor.
const NEAR: f64 = 1.5;
/// The share of seconds that are near it in steady traffic.
const STEADY: f64 = 0.25;
/// More rises or falls than this are bursty traffic.
const MOST: usize = 3;
/// What has this share of the change is named as its cause.
const CAUSE: f64 = 0.5;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let seconds = scene.timeline.series().widened(SECOND_NS);
    let width_ns = seconds.width_ns();
    let bins: Vec<Bin> = seconds.bins().collect();
    // The first and the last second are cut by the capture.
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
    // Where the traffic is high most of the time, the time before the rise is no fall.
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

/// The runs of seconds that are `strange`, where the others are steady about `usual`.
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

/// The source, the destination and the service with most of what came in addition during `run_ns`.
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
    // What was expected inside for each packet outside.
    let scale = run_ns / (all_ns as f64 - run_ns).max(1.0);
    let more = inside.len() as f64 - outside.len() as f64 * scale;
    let address = |of: fn(Tuple<'_>) -> &[u8]| {
        grown(&inside, &outside, scale, more, |tuple| CanonicalKey::new(of(tuple)))
    };
    let service =
        grown(&inside, &outside, scale, more, |tuple| (tuple.protocol, tuple.destination_port));
    (address(|tuple| tuple.source), address(|tuple| tuple.destination), service)
}

/// The value that has most of the growth.
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
