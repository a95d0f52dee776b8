//! The largest flows of a stream, and the errors of structures on them.

use std::collections::HashMap;
use std::ops::Range;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::key::FlowKey;
use flowgauge_core::summary::{Answers, Summary};
use flowgauge_core::terms::Measure;

use super::setting::Mix;
use crate::exact::number;

/// The traffic for claims about traffic.
pub(crate) const TRAFFIC: [(&str, Mix); 3] =
    [("backbone", Mix::Trace), ("Zipf 1.1", Mix::Zipf(1.1)), ("uniform", Mix::Zipf(0.0))];

/// A repeating stream of packets, each with a length and a time.
pub(crate) struct Packets<'a, K> {
    pub(crate) keys: &'a [K],
    /// The length in bytes of a packet, by its number.
    pub(crate) wire: &'a dyn Fn(usize) -> u32,
    /// Nanoseconds between packets.
    pub(crate) gap_ns: i64,
}

impl<K: FlowKey> Packets<'_, K> {
    /// Feeds the packets with these numbers.
    pub(crate) fn feed(&self, summary: &mut dyn Summary<K>, numbers: Range<usize>) {
        let mut batch = Batch::new();
        let end = numbers.end;
        for packet in numbers {
            let time_ns = 1 + (packet as u64).cast_signed() * self.gap_ns;
            batch.push(self.keys[packet % self.keys.len()], (self.wire)(packet), time_ns);
            if batch.len() == BATCH_PACKETS || packet + 1 == end {
                summary.ingest(&mut batch);
                batch.clear();
            }
        }
    }

    /// The largest flows, at most `most`, after each of these numbers of packets.
    pub(crate) fn largest_along(&self, lengths: &[usize], most: usize) -> Vec<Largest> {
        lengths.iter().map(|length| self.largest(Measure::Packets, *length, most)).collect()
    }

    /// Feeds a summary, and returns the errors of the largest flows after each of these numbers of
    /// packets.
    pub(crate) fn errors_along(
        &self,
        summary: &mut dyn Summary<K>,
        lengths: &[usize],
        largest: &[Largest],
    ) -> Vec<Vec<f64>> {
        let mut fed = 0;
        let errors = lengths.iter().zip(largest).map(|(length, largest)| {
            self.feed(summary, fed..*length);
            fed = *length;
            summary.settle();
            largest.errors::<K>(summary.answers())
        });
        errors.collect()
    }

    /// The largest flows, at most `most`, after this many packets.
    pub(crate) fn largest(&self, by: Measure, packets: usize, most: usize) -> Largest {
        let turn = self.keys.len();
        let mut sizes: HashMap<u128, u64> = HashMap::new();
        for (at, key) in self.keys.iter().enumerate().take(packets) {
            let turns = (packets - at).div_ceil(turn) as u64;
            let weight = match by {
                Measure::Packets => turns,
                Measure::Bytes => turns * u64::from((self.wire)(at)),
            };
            *sizes.entry(number(key.canonical(K::SHORTEST))).or_default() += weight;
        }
        let total = sizes.values().sum::<u64>() as f64;
        let norm = sizes.values().map(|size| (*size as f64).powi(2)).sum::<f64>().sqrt();
        let mut flows: Vec<(u128, u64)> = sizes.into_iter().collect();
        flows.sort_unstable_by_key(|(key, size)| (std::cmp::Reverse(*size), *key));
        flows.truncate(most);
        Largest { flows, total, norm, by }
    }
}

/// The largest flows of a stream.
pub(crate) struct Largest {
    flows: Vec<(u128, u64)>,
    /// The total size of all flows, and the root of the sum of their squares.
    pub(crate) total: f64,
    pub(crate) norm: f64,
    by: Measure,
}

impl Largest {
    /// Estimate minus true size for each flow; `None` if the summary does not answer sizes.
    pub(crate) fn errors<K: FlowKey>(&self, answers: &dyn Answers) -> Vec<f64> {
        let Some(sizes) = answers.size() else { return Vec::new() };
        let error = |(key, size): &(u128, u64)| {
            let said = sizes.estimate(&key.to_be_bytes()[..K::SHORTEST]).by(self.by)?;
            Some(said.value - *size as f64)
        };
        self.flows.iter().filter_map(error).collect()
    }

    /// Keys as numbers, largest flow first.
    pub(crate) fn keys(&self) -> impl Iterator<Item = u128> {
        self.flows.iter().map(|(key, _)| *key)
    }

    /// Sizes, largest first.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = f64> {
        self.flows.iter().map(|(_, size)| *size as f64)
    }
}

/// The root mean square.
pub(crate) fn root_mean_square(numbers: &[f64]) -> f64 {
    (numbers.iter().map(|number| number * number).sum::<f64>() / numbers.len() as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use flowgauge_core::key::Key4;

    use super::super::setting::Setting;
    use super::super::structure::Structure;
    use super::*;

    /// An exact table has no errors, in packets and bytes, within a turn of the stream and beyond.
    #[test]
    fn tables_are_off_nowhere() {
        let key = |i: u32| Key4::from_canonical(&(i * i % 37).to_be_bytes());
        let keys: Vec<Key4> = (0..1000).filter_map(key).collect();
        let packets = Packets { keys: &keys, wire: &|at| 64 + at as u32 % 1000 % 7, gap_ns: 10 };
        let built = Structure::new("", "linear-table").build::<Key4>(&Setting::quick());
        let Ok(mut table) = built else { panic!("a table can be built") };
        for (from, to) in [(0, 700), (700, 5300)] {
            packets.feed(&mut *table, from..to);
            table.settle();
            for by in [Measure::Packets, Measure::Bytes] {
                let largest = packets.largest(by, to, 5);
                assert_eq!(largest.errors::<Key4>(table.answers()), [0.0; 5], "{to}, {by:?}");
                assert!(largest.sizes().is_sorted_by(|a, b| a >= b));
                assert!(largest.norm < largest.total);
            }
            let all = packets.largest(Measure::Packets, to, 5).total;
            assert!((all - to as f64).abs() < 0.5);
        }
        assert!((root_mean_square(&[3.0, -4.0]) - 12.5_f64.sqrt()).abs() < 1e-12);
    }
}
