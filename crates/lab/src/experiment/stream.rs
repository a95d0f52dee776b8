//! Keys in memory: an epoch, its endless repetition, and its largest flows.

use std::collections::HashMap;
use std::ops::Range;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::key::{Element, Extract, FlowKey, KeyKind};
use flowgauge_core::summary::{Answers, Summary};
use flowgauge_core::terms::{Measure, SpreadOf};
use flowgauge_kernel::{Digester, Isa, Seed};

use super::latency::Runner;
use super::setting::{FRAME_BYTES, Mix, Setting};
use crate::exact::number;
use crate::failure::Failure;
use crate::keys::Keys;
use crate::machine::thread_seconds;
use crate::traffic::{Packet, Scene};

/// Keys of packets in memory, and the digests of their elements.
#[derive(Clone, Debug)]
pub(crate) struct Stream<K: Keys> {
    pub(crate) keys: Vec<K::Key>,
    pub(crate) elements: Vec<u64>,
}

impl<K: Keys> Stream<K> {
    /// Draws one epoch of plain traffic.
    ///
    /// # Errors
    /// When the trace does not have it.
    pub(crate) fn draw(setting: &Setting, mix: Mix) -> Result<Self, Failure> {
        let epochs = setting.epochs(mix, Scene::Plain)?;
        setting.needs(mix, K::BYTES)?;
        Ok(Self::of(epochs.first().map_or(&[], Vec::as_slice), setting.seed))
    }

    /// The keys of these packets.
    pub(crate) fn of(packets: &[Packet], seed: u64) -> Self {
        let digester = Digester::new(Seed::number(seed), Isa::best());
        // The peers of a source are addresses; other keys have one or none.
        let of = if K::KIND == KeyKind::SOURCE { SpreadOf::Address } else { SpreadOf::Endpoint };
        let keyed = packets.iter().filter_map(|packet| {
            let element = packet.ip.element(K::KIND, of, &digester).ok()?;
            Some((K::Key::extract(K::KIND, &packet.ip).ok()?, element))
        });
        let (keys, elements) = keyed.unzip();
        Self { keys, elements }
    }
}

/// Feeds keys, and starts over after the last one.
pub(crate) struct Loop<'a, K: Keys> {
    keys: &'a [K::Key],
    /// Packets fed so far.
    taken: usize,
    batch: Batch<K::Key>,
}

impl<'a, K: Keys> Loop<'a, K> {
    /// Starts at the first key; `keys` must not be empty.
    pub(crate) fn new(keys: &'a [K::Key]) -> Self {
        Self { keys, taken: 0, batch: Batch::new() }
    }

    /// Feeds packets until `packets` were fed in all; returns the CPU time in seconds.
    pub(crate) fn feed(&mut self, runner: &mut dyn Runner<K>, packets: usize) -> f64 {
        let start = thread_seconds();
        while self.taken < packets {
            let at = self.taken % self.keys.len();
            let rows = BATCH_PACKETS.min(packets - self.taken).min(self.keys.len() - at);
            self.batch.fill(&self.keys[at..at + rows], FRAME_BYTES);
            runner.take(&mut self.batch);
            self.taken += rows;
        }
        runner.end();
        thread_seconds() - start
    }
}

/// Sampled packets of a [`Loop`], with the true size of their flow at that moment, for errors on
/// arrival.
pub(crate) struct Arrivals<K: Keys> {
    asked: Vec<Arrival<K>>,
}

struct Arrival<K: Keys> {
    /// Packets so far, including this one.
    packets: usize,
    key: K::Key,
    truth: f64,
    /// Number of packets that this one represents.
    weight: f64,
}

impl<K: Keys> Arrivals<K> {
    /// Draws `count` random arrivals before the first of these lengths, and between each two.
    pub(crate) fn draw(keys: &[K::Key], lengths: &[usize], count: usize, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut places = Vec::new();
        let mut from = 0;
        for &to in lengths {
            let weight = (to - from) as f64 / count as f64;
            let mut part: Vec<usize> = (0..count).map(|_| random.usize(from..to)).collect();
            part.sort_unstable();
            places.extend(part.into_iter().map(|place| (place, weight)));
            from = to;
        }
        // Of a flow: its packets up to this point in the turn, and in a whole turn.
        let mut by_turn: Vec<usize> = (0..places.len()).collect();
        by_turn.sort_unstable_by_key(|number| places[*number].0 % keys.len());
        let mut counts: HashMap<u128, u64> = HashMap::new();
        let mut before = vec![0; places.len()];
        let mut next = by_turn.iter().peekable();
        for (at, key) in keys.iter().enumerate() {
            let count = counts.entry(number(key.canonical(K::BYTES))).or_default();
            *count += 1;
            while let Some(&&number) = next.peek().filter(|n| places[***n].0 % keys.len() == at) {
                before[number] = *count;
                next.next();
            }
        }
        let arrival = |((place, weight), before): ((usize, f64), u64)| {
            let (turns, key) = (place / keys.len(), keys[place % keys.len()]);
            let whole = counts.get(&number(key.canonical(K::BYTES))).copied().unwrap_or(0);
            let truth = (turns as u64 * whole + before) as f64;
            Arrival { packets: place + 1, key, truth, weight }
        };
        Self { asked: places.into_iter().zip(before).map(arrival).collect() }
    }

    /// Sums of squared errors over all packets up to each of these lengths, or `None` if `answers`
    /// do not give sizes. `absent` defines the size of flows that the structure does not hold.
    pub(crate) fn squares<R: Runner<K>>(
        &self,
        runner: &mut R,
        answers: impl Fn(&R) -> &dyn Answers,
        absent: Absent,
        keys: &[K::Key],
        lengths: &[usize],
    ) -> Option<Vec<f64>> {
        let (mut stream, mut sum) = (Loop::new(keys), 0.0);
        let mut asked = self.asked.iter().peekable();
        let mut squares = Vec::new();
        for &length in lengths {
            while let Some(arrival) = asked.next_if(|arrival| arrival.packets <= length) {
                stream.feed(runner, arrival.packets);
                let (answers, key) = (answers(runner), arrival.key.canonical(K::BYTES));
                let estimate = match absent {
                    Absent::None if !names(answers, key) => 0.0,
                    _ => answers.size()?.estimate(key).by(Measure::Packets)?.value,
                };
                sum += arrival.weight * (estimate - arrival.truth).powi(2);
            }
            stream.feed(runner, length);
            squares.push(sum);
        }
        Some(squares)
    }
}

/// The size of a flow that a structure does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// The structure's answer.
    Said,
    /// No packets.
    None,
}

/// Whether a structure holds a flow.
fn names(answers: &dyn Answers, key: &[u8]) -> bool {
    let mut named = false;
    if let Some(candidates) = answers.candidates() {
        candidates.for_each(&mut |candidate, _| named |= candidate.as_bytes() == key);
    }
    named
}

/// The traffic for claims about traffic.
pub(crate) const TRAFFIC: [(&str, Mix); 3] =
    [("backbone", Mix::Trace), ("Zipf 1.1", Mix::Zipf(1.1)), ("uniform", Mix::Zipf(0.0))];

/// A repeating stream of packets, each with a length and a time.
pub(crate) struct RepeatedStream<'a, K: Keys> {
    pub(crate) keys: &'a [K::Key],
    /// The length in bytes of a packet, by its number.
    pub(crate) wire: &'a dyn Fn(usize) -> u32,
    /// Nanoseconds between packets.
    pub(crate) gap_ns: i64,
}

impl<K: Keys> RepeatedStream<'_, K> {
    /// Feeds the packets with these numbers.
    pub(crate) fn feed(&self, summary: &mut dyn Summary<K::Key>, numbers: Range<usize>) {
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
        summary: &mut dyn Summary<K::Key>,
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
            *sizes.entry(number(key.canonical(K::BYTES))).or_default() += weight;
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
    pub(crate) fn errors<K: Keys>(&self, answers: &dyn Answers) -> Vec<f64> {
        let Some(sizes) = answers.size() else { return Vec::new() };
        let error = |(key, size): &(u128, u64)| {
            let said = sizes.estimate(&key.to_be_bytes()[..K::BYTES]).by(self.by)?;
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
    use flowgauge_core::key::Key8;

    use super::super::setting::Setting;
    use super::super::structure::Structure;
    use super::*;
    use crate::keys::Sources;

    /// A large enough table has no errors; a structure that counts nothing errs by the full sizes.
    #[test]
    fn sizes_on_arrival_are_those_so_far() {
        let key = |i: u32| Key8::from_canonical(&(i * i % 37).to_be_bytes());
        let keys: Vec<Key8> = (0..1000).filter_map(key).collect();
        let lengths = [700, 5300];
        let arrivals = Arrivals::draw(&keys, &lengths, 50, 1);
        let squares = |algorithm, absent| {
            let built = Structure::new("", algorithm).build::<Sources>(&Setting::quick());
            let Ok(mut summary) = built else { panic!("{algorithm} cannot be built") };
            arrivals.squares(&mut summary, |s| s.answers(), absent, &keys, &lengths)
        };
        for absent in [Absent::Said, Absent::None] {
            assert_eq!(squares("linear-table", absent), Some(vec![0.0, 0.0]));
        }
        assert_eq!(squares("linear-counting", Absent::Said), None);
        let all: f64 = arrivals.asked.iter().map(|a| a.weight * a.truth.powi(2)).sum();
        let none =
            squares("linear-counting", Absent::None).and_then(|squares| squares.last().copied());
        assert!(none.is_some_and(|none| (none / all - 1.0).abs() < 1e-9), "{none:?} of {all}");
        let truth = |arrival: &Arrival<Sources>| {
            let so_far = (0..arrival.packets).filter(|at| keys[at % keys.len()] == arrival.key);
            so_far.count() as f64
        };
        assert!(arrivals.asked.iter().all(|arrival| (truth(arrival) - arrival.truth).abs() < 0.5));
        let weight: f64 = arrivals.asked.iter().map(|arrival| arrival.weight).sum();
        assert!((weight - 5300.0).abs() < 1e-6, "{weight}");
    }

    /// An exact table has no errors, in packets and bytes, within a turn of the stream and beyond.
    #[test]
    fn tables_are_off_nowhere() {
        let key = |i: u32| Key8::from_canonical(&(i * i % 37).to_be_bytes());
        let keys: Vec<Key8> = (0..1000).filter_map(key).collect();
        let packets = RepeatedStream::<Sources> {
            keys: &keys,
            wire: &|at| 64 + at as u32 % 1000 % 7,
            gap_ns: 10,
        };
        let built = Structure::new("", "linear-table").build::<Sources>(&Setting::quick());
        let Ok(mut table) = built else { panic!("a table can be built") };
        for (from, to) in [(0, 700), (700, 5300)] {
            packets.feed(&mut *table, from..to);
            table.settle();
            for by in [Measure::Packets, Measure::Bytes] {
                let largest = packets.largest(by, to, 5);
                assert_eq!(largest.errors::<Sources>(table.answers()), [0.0; 5], "{to}, {by:?}");
                assert!(largest.sizes().is_sorted_by(|a, b| a >= b));
                assert!(largest.norm < largest.total);
            }
            let all = packets.largest(Measure::Packets, to, 5).total;
            assert!((all - to as f64).abs() < 0.5);
        }
        assert!((root_mean_square(&[3.0, -4.0]) - 12.5_f64.sqrt()).abs() < 1e-12);
    }
}
