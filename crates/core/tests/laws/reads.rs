//! Columns that a summary says it does not read: their contents make no difference.

use flowgauge_core::batch::Batch;
use flowgauge_core::catalog::stored::encode;
use flowgauge_core::catalog::{self, ALGORITHMS};
use flowgauge_core::key::{FlowKey, Key8, Key16};
use flowgauge_core::summary::{Info, Options, Parameters, Reads};
use flowgauge_core::terms::Measure;

use super::stream::{Packet, key_of, packets};
use super::{UNSEEDED, parameters, stacks};

/// Passes packets a microsecond apart to `ingest`, with other values in the columns that are not
/// `read`.
fn feed<K: FlowKey>(packets: &[Packet], read: Reads, mut ingest: impl FnMut(&mut Batch<K>)) {
    let mut batch = Batch::new();
    let mut now_ns = 0;
    for chunk in packets.chunks(256) {
        for packet in chunk {
            now_ns += 1000;
            let bytes = if read.bytes { packet.bytes } else { !packet.bytes };
            let time_ns = if read.times { now_ns } else { i64::MAX / now_ns };
            let element = u64::from(packet.peer).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let element = if read.elements { element } else { !element };
            batch.push_with_element(key_of(packet.flow, K::BYTES), bytes, time_ns, element);
        }
        ingest(&mut batch);
        batch.clear();
    }
}

const ALL: Reads = Reads { bytes: true, times: true, elements: true };

/// Returns the number of summaries that were built, and of those that read not all columns.
fn what_is_not_read_makes_no_difference<K: FlowKey>(info: &Info) -> (usize, usize) {
    // Below 200 packets, the library without a seed draws nothing.
    let packets = packets(if info.name == UNSEEDED { 150 } else { 2000 }, 300, 11);
    let (mut built, mut partly) = (0, 0);
    for by in [Measure::Packets, Measure::Bytes] {
        for parameters in parameters(info) {
            let before_headers = ["uniform", "nitro"]
                .map(|name| vec![(name.to_owned(), Parameters::new([("before", "headers")]))]);
            for before in stacks().into_iter().chain(before_headers) {
                let memory = Options::new(1 << 18, 1).for_keys(K::BYTES);
                let options = Options { parameters: parameters.clone(), by, ..memory };
                let build = || catalog::build_accelerated::<K>(&before, info.name, &options);
                let Ok(mut plain) = build() else { continue };
                let (read, mut other) = (plain.reads(), build().unwrap());
                feed(&packets, ALL, |batch| plain.ingest(batch));
                feed(&packets, read, |batch| other.ingest(batch));
                let [plain, other] = [plain, other].map(|mut summary| {
                    summary.settle();
                    encode(info, &options, &*summary)
                });
                let case = format!("{before:?} {} {parameters:?} {by:?}", info.name);
                assert!(plain == other, "{case} reads more than {read:?}");
                built += 1;
                partly += usize::from(read != ALL);
            }
        }
    }
    (built, partly)
}

#[test]
fn what_a_summary_does_not_read_makes_no_difference() {
    let (mut built, mut partly) = (0, 0);
    for info in ALGORITHMS {
        for (of_width, partly_of_width) in [
            what_is_not_read_makes_no_difference::<Key8>(info),
            what_is_not_read_makes_no_difference::<Key16>(info),
        ] {
            built += of_width;
            partly += partly_of_width;
        }
    }
    assert!(built > 500 && partly > 500, "{built} {partly}");
}

/// A concurrent summary reads no more than the ordinary one that answers for it.
#[test]
fn what_a_concurrent_summary_does_not_read_makes_no_difference() {
    let packets = packets(2000, 300, 11);
    for name in catalog::CONCURRENT {
        let info = ALGORITHMS.iter().find(|info| info.name == *name).unwrap();
        for by in [Measure::Packets, Measure::Bytes] {
            let options = Options { by, ..Options::new(1 << 18, 1).for_keys(Key16::BYTES) };
            let stored = |only_read: bool| {
                let mut summary = catalog::build_concurrent::<Key16>(info.name, &options).unwrap();
                let read = if only_read { summary.ordinary().reads() } else { ALL };
                feed(&packets, read, |batch| summary.ingest(batch));
                encode(info, &options, summary.collect())
            };
            assert!(stored(true) == stored(false), "{name} {by:?}");
        }
    }
}
