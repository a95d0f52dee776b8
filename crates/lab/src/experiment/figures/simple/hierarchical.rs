//! Section 3: a hierarchical sketch against a heap.

use flowgauge_core::batch::Batch;
use flowgauge_core::key::{FlowKey, Key8, KeyKind};
use flowgauge_kernel::{Zeroed, prefetch};

use super::{BATCH, Contender, HEAP, SET_COUNT_MIN};
use crate::experiment::chart::{Chart, log};
use crate::experiment::latency::Runner;
use crate::experiment::papers::xxhash32;
use crate::experiment::part::Part;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::machine::zeroed;

pub(crate) const HIERARCHICAL: Experiment = Experiment {
    name: "simple/hierarchical",
    title: "a hierarchical Count-Min against a heap",
    paper: "Simple (SOSR 2018), section 3",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::BATCHES,
        super::KEY,
        super::SIZES,
        Preset::other(
            "hierarchical sketch",
            "several sketches, of which no number is given",
            "a Count-Min of 3 rows for each of the key's 8 bytes",
            "fewer would be slow to search, one a bit slower to update",
        ),
    ],
    measure,
    judge,
    missing: &[],
    charts: &[Chart {
        y_axis: log("latency (ns a packet)"),
        see: "The heap's line is far below that of the hierarchical sketch, which updates eight sketches for each \
              packet.",
        ..super::BY_SIZE
    }],
};

const LEVELS: usize = 8;
const ROWS: usize = 3;
const NAME: &str = "Count-Min for each byte";

/// A Count-Min per prefix length in bytes. Heavy prefixes lead to heavy keys.
struct Hierarchy {
    /// By level, then by row.
    counters: Zeroed<u32>,
    columns: usize,
}

impl Hierarchy {
    /// As many counters as fit into `bytes`, with a power of two per row.
    fn new(bytes: usize) -> Self {
        let columns = 1_usize << (bytes / (LEVELS * ROWS * size_of::<u32>())).max(8).ilog2();
        Self { counters: zeroed(LEVELS * ROWS * columns), columns }
    }

    /// The counter indices of a key.
    fn places(&self, key: Key8) -> [usize; LEVELS * ROWS] {
        let bytes = key.canonical(Key8::SHORTEST);
        std::array::from_fn(|place| {
            let hash = xxhash32(&bytes[..=place / ROWS], place as u32) as usize;
            place * self.columns + (hash & (self.columns - 1))
        })
    }
}

impl Runner<Key8> for Hierarchy {
    fn begin(&mut self) {
        self.counters.fill(0);
    }

    fn take(&mut self, batch: &mut Batch<Key8>) {
        let mut places = [[0; LEVELS * ROWS]; BATCH];
        for keys in batch.keys().chunks(BATCH) {
            for (key, places) in keys.iter().zip(&mut places) {
                *places = self.places(*key);
                for place in *places {
                    prefetch(&self.counters, place);
                }
            }
            for place in places[..keys.len()].iter().flatten() {
                self.counters[*place] += 1;
            }
        }
    }
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Key8>::draw(setting, Mix::Trace, KeyKind::PAIR)?;
    let mut table = super::table(["size_mb"]);
    for bytes in setting.sizes(super::LEAST) {
        let contenders = vec![
            Contender::of_paper(NAME, Hierarchy::new(bytes)),
            Contender::named(HEAP, bytes, setting)?,
            Contender::named(SET_COUNT_MIN, bytes, setting)?,
        ];
        super::measure(&mut table, &[super::megabytes(bytes)], contenders, setting, &stream, None)?;
    }
    let limit = super::limit(&table);
    let notes = "All are the paper's, written in the lab, with a hash for each row.".to_owned();
    Ok(Outcome { table, limit, notes })
}

fn judge(table: &Table) -> Verdict {
    let less = |one: &str, other: &str| {
        [("mean", "mean_ns"), ("tail", "p99_ns")].map(|(what, column)| {
            let of = |name: &str| table.numbers("structure", name, column);
            Part::less(&format!("{what} of the {one} over {other}"), &of(one), &of(other))
        })
    };
    Verdict::of(
        table,
        [
            Claim::new(
                "A heap is faster than a hierarchical sketch.",
                less(HEAP, NAME),
                "A heap that is too small for the flows takes its steps for nearly every packet.",
            ),
            Claim::new(
                "A set of heavy keys beside one sketch is faster, too.",
                less(SET_COUNT_MIN, NAME),
                "One sketch has all of the memory, and leaves the cache sooner.",
            ),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_counts_every_packet() {
        let mut hierarchy = Hierarchy::new(1 << 16);
        let mut batch = Batch::new();
        for number in 0..100_u64 {
            if let Some(key) = Key8::from_canonical(&(number % 5).to_be_bytes()) {
                batch.push(key, 64, 0);
            }
        }
        hierarchy.take(&mut batch);
        for counters in hierarchy.counters.chunks(hierarchy.columns) {
            assert_eq!(counters.iter().sum::<u32>(), 100);
        }
        // The first seven bytes are zero in all keys; the eighth distinguishes them.
        let most = |row: usize| {
            let row = &hierarchy.counters[row * hierarchy.columns..][..hierarchy.columns];
            row.iter().max().copied()
        };
        assert_eq!([most(0), most(LEVELS * ROWS - 1)], [Some(100), Some(20)]);
    }
}
