//! No part is said to be more than the whole.

use flowgauge_core::catalog::ALGORITHMS;
use flowgauge_core::key::{FlowKey, Key4, Key8, Key16, Key37};
use flowgauge_core::summary::{Answers, Estimate, Info, Merge, Options, SizeEstimate};
use flowgauge_core::terms::Measure;

use super::stream::{feed, key, packets};
use super::{build, for_all};

/// Packets and flows, of few packets and of many, and with one packet's worth of flows.
const STREAMS: [(usize, u32); 5] = [(1, 1), (7, 3), (40, 2), (300, 12), (4000, 700)];

/// Calls `visit` with every size that is said of a flow, a prefix, or one that was not seen.
fn all_sizes<K: FlowKey>(answers: &dyn Answers, flows: u32, visit: &mut dyn FnMut(SizeEstimate)) {
    if let Some(sizes) = answers.size() {
        for flow in (0..=flows).chain([u32::MAX]) {
            visit(sizes.estimate(key::<K>(flow).canonical(K::BYTES)));
        }
    }
    if let Some(candidates) = answers.candidates() {
        candidates.for_each(&mut |_, size| visit(size));
    }
    if let Some(flows) = answers.flows() {
        flows.for_each(&mut |_, size| visit(SizeEstimate::exact(size)));
    }
    let Some(prefixes) = answers.prefixes() else { return };
    for node in 0..prefixes.nodes().len() {
        prefixes.for_each(node, &mut |_, weight| {
            visit(match prefixes.measure() {
                Measure::Packets => SizeEstimate { packets: Some(weight), bytes: None },
                Measure::Bytes => SizeEstimate { packets: None, bytes: Some(weight) },
            });
        });
    }
}

/// No flow is larger than all packets together, nor surely so: in one summary and in a sum.
fn no_flow_exceeds_the_total<K: FlowKey>(info: &Info) -> bool {
    let mut built = false;
    for (by, (count, flows), seed) in [Measure::Packets, Measure::Bytes]
        .into_iter()
        .flat_map(|by| STREAMS.map(|stream| (by, stream)))
        .flat_map(|(by, stream)| [1, 2, 3].map(|seed| (by, stream, seed)))
    {
        let options = Options { by, ..Options::new(64 << 10, seed) };
        let part = || build::<K>(info, &options);
        let (Some(mut summary), Some(mut other)) = (part(), part()) else { continue };
        built = true;
        let packets = packets(count, flows, seed);
        let (first, second) = packets.split_at(count / 2);
        feed(&mut *summary, first, 256);
        if info.laws.merge == Merge::Disjoint {
            feed(&mut *summary, second, 256);
        } else {
            feed(&mut *other, second, 256);
            summary.merge(&*other).unwrap();
        }
        let total = [count as u64, packets.iter().map(|packet| u64::from(packet.bytes)).sum()];
        all_sizes::<K>(summary.answers(), flows, &mut |size| {
            for (estimate, total) in [size.packets, size.bytes].into_iter().zip(total) {
                let Some(Estimate { value, low, .. }) = estimate else { continue };
                let most = total as f64 * (1.0 + 1e-12);
                assert!(value <= most && low <= most, "{}: {estimate:?} of {total}", info.name);
            }
        });
    }
    built
}

#[test]
fn no_estimate_is_over_the_total() {
    for_all!(no_flow_exceeds_the_total);
}
