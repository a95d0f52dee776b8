//! Streams longer than memory: the same packets, repeated.

use std::collections::HashMap;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::key::FlowKey;
use flowgauge_core::summary::Answers;
use flowgauge_core::terms::Measure;

use super::latency::Runner;
use super::setting::FRAME_BYTES;
use crate::exact::number;
use crate::speed::clock::thread_seconds;

/// Feeds keys, and starts over after the last one.
pub(crate) struct Loop<'a, K> {
    keys: &'a [K],
    /// Packets fed so far.
    taken: usize,
    batch: Batch<K>,
}

impl<'a, K: FlowKey> Loop<'a, K> {
    /// Starts at the first key; `keys` must not be empty.
    pub(crate) fn new(keys: &'a [K]) -> Self {
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
pub(crate) struct Arrivals<K> {
    asked: Vec<Arrival<K>>,
}

struct Arrival<K> {
    /// Packets so far, including this one.
    packets: usize,
    key: K,
    truth: f64,
    /// Number of packets that this one represents.
    weight: f64,
}

impl<K: FlowKey> Arrivals<K> {
    /// Draws `count` random arrivals before the first of these lengths, and between each two.
    pub(crate) fn draw(keys: &[K], lengths: &[usize], count: usize, seed: u64) -> Self {
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
            let count = counts.entry(number(key.canonical(K::SHORTEST))).or_default();
            *count += 1;
            while let Some(&&number) = next.peek().filter(|n| places[***n].0 % keys.len() == at) {
                before[number] = *count;
                next.next();
            }
        }
        let arrival = |((place, weight), before): ((usize, f64), u64)| {
            let (turns, key) = (place / keys.len(), keys[place % keys.len()]);
            let whole = counts.get(&number(key.canonical(K::SHORTEST))).copied().unwrap_or(0);
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
        keys: &[K],
        lengths: &[usize],
    ) -> Option<Vec<f64>> {
        let (mut stream, mut sum) = (Loop::new(keys), 0.0);
        let mut asked = self.asked.iter().peekable();
        let mut squares = Vec::new();
        for &length in lengths {
            while let Some(arrival) = asked.next_if(|arrival| arrival.packets <= length) {
                stream.feed(runner, arrival.packets);
                let (answers, key) = (answers(runner), arrival.key.canonical(K::SHORTEST));
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

#[cfg(test)]
mod tests {
    use flowgauge_core::key::Key4;

    use super::super::setting::Setting;
    use super::super::structure::Structure;
    use super::*;

    /// A large enough table has no errors; a structure that counts nothing errs by the full sizes.
    #[test]
    fn sizes_on_arrival_are_those_so_far() {
        let key = |i: u32| Key4::from_canonical(&(i * i % 37).to_be_bytes());
        let keys: Vec<Key4> = (0..1000).filter_map(key).collect();
        let lengths = [700, 5300];
        let arrivals = Arrivals::draw(&keys, &lengths, 50, 1);
        let squares = |algorithm, absent| {
            let built = Structure::new("", algorithm).build::<Key4>(&Setting::quick());
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
        let truth = |arrival: &Arrival<Key4>| {
            let so_far = (0..arrival.packets).filter(|at| keys[at % keys.len()] == arrival.key);
            so_far.count() as f64
        };
        assert!(arrivals.asked.iter().all(|arrival| (truth(arrival) - arrival.truth).abs() < 0.5));
        let weight: f64 = arrivals.asked.iter().map(|arrival| arrival.weight).sum();
        assert!((weight - 5300.0).abs() < 1e-6, "{weight}");
    }
}
