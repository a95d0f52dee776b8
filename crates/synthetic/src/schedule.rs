//! Which packets of the run are planted ones.
//!
//! The events are layers: the first one picks its places among all packets of the run, the next
//! among those that are left, and so on; the background gets the rest. Within its layer an event
//! with k packets cuts its window into k stretches and takes one place in each, which a hash of
//! the packet's number chooses. So counts are exact, places are known without remembering any,
//! and a packet of the background costs one comparison an event.

use super::random::{Stream, mix, scale};

/// Picks `packets` of the places `start..end` of its layer.
#[derive(Clone, Debug)]
struct Layer {
    start: u64,
    /// Places in the window.
    room: u64,
    /// Packets of the event.
    packets: u64,
    /// Packets given out so far.
    given: u64,
    /// The place of the next packet.
    next: u64,
    /// Places gone by.
    place: u64,
    salt: u64,
}

impl Layer {
    /// The first place of stretch `index`, counted from the window's start.
    fn stretch(&self, index: u64) -> u64 {
        (u128::from(index) * u128::from(self.room) / u128::from(self.packets)) as u64
    }

    /// The place of packet `index`; behind everything when there is none.
    fn place_of(&self, index: u64) -> u64 {
        if index >= self.packets {
            return u64::MAX;
        }
        let (from, to) = (self.stretch(index), self.stretch(index + 1));
        self.start + from + scale(mix(self.salt ^ index), to - from)
    }

    /// How many of the event's packets come before `place`.
    fn before(&self, place: u64) -> u64 {
        let Some(inside) = place.checked_sub(self.start) else { return 0 };
        if inside >= self.room {
            return self.packets;
        }
        // The last stretch that begins at or before the place; all before it are over.
        let wide = u128::from(inside + 1) * u128::from(self.packets);
        let index = (wide.div_ceil(u128::from(self.room)) - 1) as u64;
        index + u64::from(self.place_of(index) < place)
    }
}

/// Events that take turns with the background.
#[derive(Clone, Debug, Default)]
pub(super) struct Schedule {
    layers: Vec<Layer>,
}

impl Schedule {
    /// Plants one more event: `packets` > 0 of the run's packets `start..end`.
    ///
    /// # Errors
    /// With the number of free places, when that is less than `packets`.
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

    /// Whose the next packet is: an event's number and the number of its packet, or `None` for
    /// the background.
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

    /// The closed form that windows of later layers are found with.
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
}
