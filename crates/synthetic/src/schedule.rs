//! The schedule: which packets of the run are planted, and when packets are sent.
//!
//! Events are layers. The first event chooses its places among all packets of the run, the next one
//! among the remaining packets, and so on; the background gets the rest. Within its layer, an event
//! with k packets divides its window into k stretches and takes one place in each, chosen by a hash
//! of the packet's number. So counts are exact, no places are stored, and a background packet costs
//! one comparison per event.

use super::random::{Stream, mix, scale};

/// Picks `packets` of the places `start..end` of its layer.
#[derive(Clone, Debug)]
struct Layer {
    start: u64,
    /// Number of places in the window.
    room: u64,
    /// Packets of the event.
    packets: u64,
    /// Packets sent so far.
    given: u64,
    /// The place of the next packet.
    next: u64,
    /// The current place.
    place: u64,
    salt: u64,
}

impl Layer {
    /// The first place of stretch `index`, counted from the window's start.
    fn stretch(&self, index: u64) -> u64 {
        (u128::from(index) * u128::from(self.room) / u128::from(self.packets)) as u64
    }

    /// The place of packet `index`; `u64::MAX` if the event has no such packet.
    fn place_of(&self, index: u64) -> u64 {
        if index >= self.packets {
            return u64::MAX;
        }
        let (from, to) = (self.stretch(index), self.stretch(index + 1));
        self.start + from + scale(mix(self.salt ^ index), to - from)
    }

    /// Number of the event's packets before `place`.
    fn before(&self, place: u64) -> u64 {
        let Some(inside) = place.checked_sub(self.start) else { return 0 };
        if inside >= self.room {
            return self.packets;
        }
        // The last stretch that begins at or before the place. All earlier ones are complete.
        let wide = u128::from(inside + 1) * u128::from(self.packets);
        let index = (wide.div_ceil(u128::from(self.room)) - 1) as u64;
        index + u64::from(self.place_of(index) < place)
    }
}

/// The planted events of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Schedule {
    layers: Vec<Layer>,
}

impl Schedule {
    /// Plants an event: `packets` > 0 of the run's packets `start..end`.
    ///
    /// # Errors
    /// The number of free places, if that is less than `packets`.
    pub(super) fn plant(
        &mut self,
        packets: u64,
        start: u64,
        end: u64,
        seed: u64,
    ) -> Result<(), u64> {
        let free = |place: u64| self.layers.iter().fold(place, |at, layer| at - layer.before(at));
        let (start, end) = (free(start), free(end));
        let room = end.saturating_sub(start);
        if packets > room {
            return Err(room);
        }
        let salt = mix(Stream::Plants.seed(seed) ^ self.layers.len() as u64);
        let mut layer = Layer { start, room, packets, given: 0, next: 0, place: 0, salt };
        layer.next = layer.place_of(0);
        self.layers.push(layer);
        Ok(())
    }

    /// The owner of the next packet: the number of an event and the index of the packet in it, or
    /// `None` for the background.
    #[inline]
    pub(super) fn next(&mut self) -> Option<(u16, u64)> {
        for (event, layer) in self.layers.iter_mut().enumerate() {
            let place = layer.place;
            layer.place += 1;
            if place == layer.next {
                let index = layer.given;
                layer.given += 1;
                layer.next = layer.place_of(layer.given);
                return Some((event as u16, index));
            }
        }
        None
    }
}

/// Evenly spaced times: ⌊i × 10⁹ ÷ rate⌋ for i = 0, 1, 2, …, without division and without drift.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    time_ns: i64,
    step_ns: i64,
    /// The fraction that each step lacks, in units of 1 ÷ `rate` ns.
    rest: u64,
    /// The sum of these fractions since the last extra nanosecond.
    gathered: u64,
    rate: u64,
}

impl Clock {
    /// A clock that starts at `start_ns`; `rate` > 0 is in packets per second.
    pub(super) fn new(start_ns: i64, rate: u64) -> Self {
        Self {
            time_ns: start_ns,
            step_ns: (1_000_000_000 / rate).cast_signed(),
            rest: 1_000_000_000 % rate,
            gathered: 0,
            rate,
        }
    }

    /// The time of the next packet.
    #[inline]
    pub(super) fn next(&mut self) -> i64 {
        let time_ns = self.time_ns;
        self.time_ns += self.step_ns;
        // Compares without adding `gathered` and `rest`, because their sum could overflow.
        let lacking = self.rate - self.rest;
        if self.gathered >= lacking {
            self.gathered -= lacking;
            self.time_ns += 1;
        } else {
            self.gathered += self.rest;
        }
        time_ns
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

    #[test]
    fn counts_and_windows_are_exact() {
        for seed in 0..20 {
            let run = 10_000;
            let events =
                [(1, 0, run), (3_000, 2_000, 7_000), (1_000, 5_000, 8_000), (400, 6_990, 8_000)];
            let mut schedule = Schedule::default();
            for (packets, start, end) in events {
                schedule.plant(packets, start, end, seed).unwrap();
            }
            let mut given = [0; 4];
            for place in 0..run {
                if let Some((event, index)) = schedule.next() {
                    let (_, start, end) = events[usize::from(event)];
                    assert_eq!(index, given[usize::from(event)]);
                    assert!((start..end).contains(&place), "event {event} at {place}");
                    given[usize::from(event)] += 1;
                }
            }
            assert_eq!(given, events.map(|(packets, ..)| packets), "seed {seed}");
        }
    }

    #[test]
    fn a_full_window_is_filled_and_one_more_is_refused() {
        let mut schedule = Schedule::default();
        schedule.plant(60, 0, 100, 1).unwrap();
        assert_eq!(schedule.clone().plant(41, 0, 100, 1), Err(40));
        schedule.plant(40, 0, 100, 1).unwrap();
        assert!((0..100).all(|_| schedule.next().is_some()));
        assert_eq!(schedule.next(), None);
    }

    /// Checks the closed form that finds the windows of later layers.
    #[test]
    fn packets_before_a_place_are_counted() {
        let mut schedule = Schedule::default();
        schedule.plant(777, 123, 5_000, 3).unwrap();
        let layer = schedule.layers[0].clone();
        let places: Vec<u64> = (0..777).map(|index| layer.place_of(index)).collect();
        assert!(places.is_sorted_by(|a, b| a < b));
        for place in 0..5_100 {
            let expected = places.iter().filter(|&&at| at < place).count() as u64;
            assert_eq!(layer.before(place), expected, "place {place}");
        }
    }

    #[test]
    fn times_equal_the_division() {
        for rate in [1, 3, 547_000, 999_999_999, 1_000_000_000, 3_000_000_000, u64::MAX] {
            let mut clock = Clock::new(7, rate);
            for index in 0..10_000_u128 {
                let expected = 7 + index * 1_000_000_000 / u128::from(rate);
                assert_eq!(
                    u128::from(clock.next().cast_unsigned()),
                    expected,
                    "packet {index} at {rate} a second"
                );
            }
        }
    }
}
