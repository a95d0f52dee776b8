//! A long run: estimates of several structures for every flow, beside the true sizes.

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::key::{Extract, FlowKey, Key16, KeyKind};
use flowgauge_core::summary::Answers;
use flowgauge_core::terms::{Measure, Size};
use flowgauge_kernel::{Digester, Isa, Seed};

use crate::experiment::setting::{Mix, Setting};
use crate::experiment::structure::Structure;
use crate::failure::Failure;

/// The skew of the traffic.
const SKEW: f64 = 1.1;

/// Buckets of the exact table: more than there are flows.
const BUCKETS: usize = 1 << 21;

/// A flow.
pub(super) struct Flow {
    pub(super) truth: Size,
    /// Packets and bytes as each structure estimates them.
    estimates: Vec<[f64; 2]>,
}

impl Flow {
    /// A structure's estimate.
    pub(super) fn estimate(&self, structure: usize, by: Measure) -> f64 {
        self.estimates[structure][usize::from(by == Measure::Bytes)]
    }

    /// The signed relative error of a structure's estimate.
    pub(super) fn error(&self, structure: usize, by: Measure) -> f64 {
        self.estimate(structure, by) / self.truth.by(by) as f64 - 1.0
    }
}

/// Packet lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lengths {
    /// One length per flow: out of 12 flows, on average 7 have 64 bytes, 4 have 570 and 1 has
    /// 1,518.
    ByFlow,
    /// The same distribution per packet.
    Mixed,
}

impl Lengths {
    /// The length of a packet, given the drawn length and the flow's digest.
    fn of(self, drawn: u32, digest: u64) -> u32 {
        match (self, digest % 12) {
            (Self::Mixed, _) => drawn,
            (Self::ByFlow, 0..7) => 64,
            (Self::ByFlow, 7..11) => 570,
            (Self::ByFlow, _) => 1518,
        }
    }
}

/// Every flow of a run over Zipf five-tuples, `times` as long as the usual one.
///
/// # Errors
/// A structure cannot be built.
pub(super) fn run(
    setting: &Setting,
    structures: &[Structure],
    lengths: Lengths,
    times: usize,
) -> Result<Vec<Flow>, Failure> {
    // A separate digest, so that lengths are independent of positions in the structures.
    let digester = Digester::new(Seed::number(setting.seed + 1), Isa::best());
    let digester = digester.for_keys(Key16::SHORTEST);
    let exact = Structure::new("exact", "linear-table").with([("buckets", BUCKETS)]);
    let mut exact = exact.build::<Key16>(setting)?;
    let built = structures.iter().map(|structure| structure.build::<Key16>(setting));
    let mut built = built.collect::<Result<Vec<_>, _>>()?;
    let mut batch = Batch::new();
    super::pieces(setting, Mix::Zipf(SKEW), times * super::epochs(setting), |packets| {
        for packets in packets.chunks(BATCH_PACKETS) {
            batch.clear();
            for packet in packets {
                if let Ok(key) = Key16::extract(KeyKind::FIVE_TUPLE, &packet.ip) {
                    let bytes = lengths.of(packet.wire, key.digest(&digester));
                    batch.push(key, bytes, packet.time_ns);
                }
            }
            exact.ingest(&mut batch);
            for summary in &mut built {
                summary.ingest(&mut batch);
            }
        }
    })?;
    exact.settle();
    for summary in &mut built {
        summary.settle();
    }
    if exact.answers().untracked().packets > 0 {
        let reason = "more flows than the exact table has room for".to_owned();
        return Err(Failure::Trace { name: "the traffic".to_owned(), reason });
    }
    let mut flows = Vec::new();
    if let Some(all) = exact.answers().flows() {
        all.for_each(&mut |key, truth| {
            let estimate = |answers: &dyn Answers| {
                let size = answers.size().map(|sizes| sizes.estimate(key));
                [Measure::Packets, Measure::Bytes].map(|by| {
                    size.and_then(|size| size.by(by)).map_or(f64::NAN, |estimate| estimate.value)
                })
            };
            let estimates = built.iter().map(|summary| estimate(summary.answers())).collect();
            flows.push(Flow { truth, estimates });
        });
    }
    Ok(flows)
}

/// InstaMeasure with a regulator of this many bytes before the paper's table.
pub(super) fn of_sketch(bytes: usize) -> Structure {
    let parameters = [("sketch", bytes), ("entries", 1 << 20)];
    Structure::new(format!("{} KB", bytes >> 10), "insta-measure").with(parameters)
}

/// The measure with its name in tables, and the minimum size of each class of flows with the
/// class's name, largest first.
pub(super) struct Classes {
    pub(super) by: Measure,
    pub(super) classes: [(&'static str, f64); 3],
}

pub(super) const PACKETS: Classes = Classes {
    by: Measure::Packets,
    classes: [("1,000,000 packets", 1e6), ("100,000 packets", 1e5), ("10,000 packets", 1e4)],
};

pub(super) const BYTES: Classes =
    Classes { by: Measure::Bytes, classes: [("1 GB", 1e9), ("100 MB", 1e8), ("10 MB", 1e7)] };

impl Classes {
    /// The class of a flow of this size: the first whose minimum it reaches.
    pub(super) fn of(&self, size: f64) -> Option<&'static str> {
        self.classes.iter().find(|(_, least)| size >= *least).map(|(name, _)| *name)
    }
}
