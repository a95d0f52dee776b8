//! Packet time: where time epochs end, when updates are due, and which timestamps are irregular.

use crate::config::EpochLength;

/// A step between two packets above this is a jump: captures of quiet links have gaps of minutes.
const JUMP_NS: i64 = 3_600_000_000_000;

/// The clock that packets drive.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// Length of a time epoch; `None` if epochs do not end by time.
    length_ns: Option<i64>,
    /// Time between updates; `None` if updates are not made by time.
    updates_ns: Option<i64>,
    /// The first and the last nanosecond of the open epoch; all of time if epochs do not end by
    /// time.
    start_ns: i64,
    last_of_epoch_ns: i64,
    /// The last nanosecond before the epoch ends or an update is due.
    quiet_ns: i64,
    /// Whether there is an open epoch.
    opened: bool,
    /// Time of the previous packet.
    last_ns: i64,
    /// Time of the first packet; 0 before it.
    first_ns: i64,
    started: bool,
}

/// What the time of a packet triggers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "findings, each independent of the others")]
pub(crate) struct Tick {
    /// The packet is the first of a later epoch.
    pub(crate) closes: bool,
    /// A time epoch was opened: the first one, or the one after a closed epoch.
    pub(crate) opens: bool,
    /// An update of the open epoch is due.
    pub(crate) updates: bool,
    /// Whole empty epochs between the open one and the packet's.
    pub(crate) gap: u64,
    /// The packet is older than the open epoch.
    pub(crate) late: bool,
    /// The packet is older than the previous one.
    pub(crate) backwards: bool,
    /// The packet is more than an hour younger than the previous one.
    pub(crate) jump: bool,
    /// The step if time went back by more than an epoch or forward by more than an hour, which ends
    /// the open epoch; otherwise 0.
    pub(crate) step_ns: i64,
}

impl Clock {
    pub(crate) fn new(epoch: EpochLength, updates: EpochLength) -> Self {
        let time = |length| match length {
            EpochLength::Time(length_ns) => Some(length_ns),
            EpochLength::Whole | EpochLength::Packets(_) => None,
        };
        Self {
            length_ns: time(epoch),
            updates_ns: time(updates),
            start_ns: i64::MIN,
            last_of_epoch_ns: i64::MAX,
            quiet_ns: i64::MAX,
            opened: false,
            last_ns: 0,
            first_ns: 0,
            started: false,
        }
    }

    /// Makes an update due the next time that the clock is asked.
    pub(crate) fn make_due(&mut self) {
        self.quiet_ns = i64::MIN;
    }

    /// Continues after a packet that another clock has seen.
    pub(crate) fn follow(&mut self, before_ns: i64) {
        (self.last_ns, self.started) = (before_ns, true);
    }

    /// Whether the packet is ordinary: in the open epoch, with no update due, and shortly after the
    /// previous one.
    #[inline(always)]
    pub(crate) fn flows(&mut self, time_ns: i64) -> bool {
        let step = time_ns.wrapping_sub(self.last_ns).cast_unsigned();
        let forwards = time_ns >= self.last_ns && step <= JUMP_NS.cast_unsigned();
        let inside = time_ns >= self.start_ns && time_ns <= self.quiet_ns;
        let flows = self.started && forwards && inside;
        if flows {
            self.last_ns = time_ns;
        }
        flows
    }

    /// Number of packets at the start of `times_ns` that are ordinary. `ordered` says whether no
    /// packet is older than the one before it, the previous one included.
    #[inline(never)]
    pub(crate) fn run(&mut self, times_ns: &[i64], ordered: bool) -> usize {
        let Some((first_ns, rest)) = times_ns.split_first() else { return 0 };
        if !self.flows(*first_ns) {
            return 0;
        }
        // If the last one is ordinary then, so are those between.
        if ordered && rest.last().is_none_or(|last_ns| self.flows(*last_ns)) {
            return times_ns.len();
        }
        1 + rest.iter().take_while(|time_ns| self.flows(**time_ns)).count()
    }

    /// What the time of a packet triggers for which [`Self::flows`] returned `false`.
    #[cold]
    pub(crate) fn tick(&mut self, time_ns: i64) -> Tick {
        let mut tick = Tick::default();
        if self.started {
            (tick.backwards, tick.jump) = strange(self.last_ns, time_ns);
        } else {
            self.first_ns = time_ns;
        }
        self.last_ns = time_ns;
        self.advance(time_ns, &mut tick);
        tick.late = self.opened && time_ns < self.start_ns;
        self.started = true;
        tick
    }

    /// The time of the last packet, and the time up to which all later packets are ordinary; `None`
    /// if the next packet may not be ordinary.
    pub(crate) fn calm(&self) -> Option<(i64, i64)> {
        let until_ns = self.quiet_ns.min(self.last_ns.saturating_add(JUMP_NS));
        (self.started && self.last_ns >= self.start_ns).then_some((self.last_ns, until_ns))
    }

    /// What the time `now_ns` triggers if no older packet will come; `None` if it neither opens nor
    /// ends an epoch and no update is due. A clock that was set back by more than an epoch ends the
    /// open epoch.
    pub(crate) fn passes(&mut self, now_ns: i64) -> Option<Tick> {
        let opens = !self.opened && (self.length_ns.is_some() || self.updates_ns.is_some());
        let mut tick = Tick::default();
        let set_back = self.opened
            && self.length_ns.is_some_and(|ns| now_ns < self.start_ns.saturating_sub(ns));
        (opens || set_back || now_ns > self.quiet_ns || self.is_ahead(now_ns)).then(|| {
            self.advance(now_ns, &mut tick);
            tick
        })
    }

    /// Times of the first and the last packet in order of arrival.
    pub(crate) fn ends_ns(&self) -> Option<(i64, i64)> {
        self.started.then_some((self.first_ns, self.last_ns))
    }

    /// Opens the epoch of `time_ns` unless it is the open one or an older one; in that case checks
    /// whether an update is due.
    fn advance(&mut self, time_ns: i64, tick: &mut Tick) {
        if let Some(length_ns) = self.length_ns {
            let length = i128::from(length_ns);
            let into = i128::from(time_ns) - i128::from(self.start_ns);
            let back = into < -length;
            tick.closes = self.opened && (into >= length || back);
            if tick.closes && !back {
                tick.gap = (into / length - 1) as u64;
            }
            if tick.closes && (back || tick.jump) {
                tick.step_ns =
                    i64::try_from(into).unwrap_or(if back { i64::MIN } else { i64::MAX });
            }
            tick.opens = tick.closes || !self.opened;
            if tick.opens {
                (self.start_ns, self.last_of_epoch_ns) = around(time_ns, length_ns);
            }
        }
        if tick.closes || !self.opened || time_ns > self.quiet_ns || self.is_ahead(time_ns) {
            tick.updates = self.opened && !tick.closes;
            let update_ns =
                self.updates_ns.map_or(i64::MAX, |every_ns| around(time_ns, every_ns).1);
            self.quiet_ns = self.last_of_epoch_ns.min(update_ns);
            self.opened = true;
        }
    }

    /// Whether the next update by time is due so late only because of an earlier time that was wrong,
    /// or before the clock was set back.
    fn is_ahead(&self, time_ns: i64) -> bool {
        self.updates_ns.is_some_and(|every_ns| {
            let latest_ns = time_ns.saturating_add(every_ns).saturating_add(JUMP_NS);
            self.quiet_ns > latest_ns && self.quiet_ns < self.last_of_epoch_ns
        })
    }

    /// Number of the open time epoch, in multiples of its length since the UNIX epoch; 0 if epochs
    /// do not end by time.
    pub(crate) fn number(&self) -> i64 {
        self.length_ns.map_or(0, |length_ns| self.start_ns.div_euclid(length_ns))
    }

    /// The bounds of the open time epoch.
    pub(crate) fn bounds_ns(&self) -> Option<(i64, i64)> {
        let length_ns = self.length_ns.filter(|_| self.opened)?;
        Some((self.start_ns, self.start_ns.saturating_add(length_ns)))
    }
}

/// The first and the last nanosecond of the interval between multiples of `length_ns` that contains
/// `time_ns`. The earliest interval is cut at the smallest representable time.
fn around(time_ns: i64, length_ns: i64) -> (i64, i64) {
    let start_ns = time_ns.saturating_sub(time_ns.rem_euclid(length_ns));
    (start_ns, start_ns.saturating_add(length_ns - 1))
}

/// Whether a packet is older than the previous one, and whether it is more than an hour younger.
pub(crate) fn strange(before_ns: i64, time_ns: i64) -> (bool, bool) {
    (time_ns < before_ns, time_ns.saturating_sub(before_ns) > JUMP_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(epoch: EpochLength, times_ns: &[i64]) -> Vec<Tick> {
        let mut clock = Clock::new(epoch, EpochLength::Whole);
        let mut tick = |&time_ns: &i64| {
            if clock.flows(time_ns) { Tick::default() } else { clock.tick(time_ns) }
        };
        times_ns.iter().map(&mut tick).collect()
    }

    #[test]
    fn epochs_are_multiples_of_their_length() {
        let ticks = ticks(EpochLength::Time(10), &[7, 9, 10, 19, 20, 55, 54, 49, 60, -1]);
        let closes: Vec<_> = ticks.iter().map(|tick| (tick.closes, tick.gap)).collect();
        let expected = [
            (false, 0),
            (false, 0),
            (true, 0),
            (false, 0),
            (true, 0),
            (true, 2),
            (false, 0),
            (false, 0),
            (true, 0),
            (true, 0),
        ];
        assert_eq!(closes, expected);
        let strange: Vec<_> = ticks.iter().map(|tick| (tick.backwards, tick.late)).collect();
        assert_eq!(
            strange[5..],
            [(false, false), (true, false), (true, true), (false, false), (true, false)]
        );
        let steps: Vec<_> = ticks.iter().map(|tick| tick.step_ns).collect();
        assert_eq!(steps, [0, 0, 0, 0, 0, 0, 0, 0, 0, -61]);
    }

    /// No timestamp keeps epochs from closing: neither one of 2096, nor one that is an hour too
    /// old.
    #[test]
    fn a_step_of_the_clock_ends_the_epoch_and_the_next_ones_close_as_before() {
        const SECOND: i64 = 1_000_000_000;
        let day = 1_790_000_000 * SECOND;
        let far = day + 70 * 365 * 86_400 * SECOND;
        let mut times_ns = vec![day, day + SECOND, far, day + 2 * SECOND];
        times_ns.extend((1..=6).map(|tens| day + tens * 10 * SECOND));
        times_ns.extend((0..6).map(|tens| day - 3_600 * SECOND + tens * 10 * SECOND));
        let ticks = ticks(EpochLength::Time(10 * SECOND), &times_ns);
        let closes: Vec<_> = ticks.iter().map(|tick| u8::from(tick.closes)).collect();
        assert_eq!(closes, [0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
        let steps: Vec<_> =
            ticks.iter().map(|tick| tick.step_ns / SECOND).filter(|step| *step != 0).collect();
        assert_eq!(steps, [far / SECOND - day / SECOND, (day - far) / SECOND + 2, -3_660]);
    }

    #[test]
    fn a_clock_that_is_set_back_ends_the_epoch_without_a_packet() {
        let mut clock = Clock::new(EpochLength::Time(10), EpochLength::Whole);
        let opens = Tick { opens: true, ..Tick::default() };
        assert_eq!(clock.passes(1_005), Some(opens));
        assert_eq!((clock.passes(995), clock.passes(990)), (None, None));
        let back = Tick { closes: true, step_ns: -11, ..opens };
        assert_eq!((clock.passes(989), clock.passes(989)), (Some(back), None));
        assert_eq!(clock.bounds_ns(), Some((980, 990)));
    }

    #[test]
    fn time_that_passes_ends_epochs_without_a_packet_and_is_no_packet_itself() {
        let mut clock = Clock::new(EpochLength::Time(10), EpochLength::Whole);
        let opens = Tick { opens: true, ..Tick::default() };
        assert_eq!(clock.passes(15), Some(opens));
        assert_eq!((clock.bounds_ns(), clock.passes(19)), (Some((10, 20)), None));
        let closes = Tick { closes: true, ..opens };
        assert_eq!((clock.passes(20), clock.passes(20)), (Some(closes), None));
        // A first packet that is late joins the open epoch; there is no previous packet.
        assert_eq!(clock.tick(19), Tick { late: true, ..Tick::default() });
        assert!(clock.flows(21));
        assert_eq!(clock.passes(55), Some(Tick { gap: 2, ..closes }));
        assert_eq!(clock.bounds_ns(), Some((50, 60)));
        let mut whole = Clock::new(EpochLength::Whole, EpochLength::Whole);
        assert_eq!(whole.passes(i64::MAX), None);
    }

    #[test]
    fn updates_are_due_between_the_ends_of_epochs_and_when_they_are_made_so() {
        let mut clock = Clock::new(EpochLength::Time(10), EpochLength::Time(4));
        let due = |clock: &mut Clock, time_ns: i64| {
            let quiet = clock.flows(time_ns);
            let tick = if quiet { Tick::default() } else { clock.tick(time_ns) };
            (tick.updates, tick.closes)
        };
        let times_ns = [1, 3, 4, 5, 2, 8, 9, 10, 11, 12, 19, 40, 41, 48];
        let found: Vec<_> = times_ns
            .into_iter()
            .filter_map(|time_ns| match due(&mut clock, time_ns) {
                (false, false) => None,
                due => Some((time_ns, due)),
            })
            .collect();
        let (update, end) = ((true, false), (false, true));
        let expected = [
            (4, update),
            (8, update),
            (10, end),
            (12, update),
            (19, update),
            (40, end),
            (48, update),
        ];
        assert_eq!(found, expected);
        let mut clock = Clock::new(EpochLength::Time(10), EpochLength::Packets(3));
        assert_eq!(due(&mut clock, 46), (false, false));
        clock.make_due();
        assert_eq!((due(&mut clock, 45), due(&mut clock, 49)), (update, (false, false)));
        clock.make_due();
        assert_eq!(due(&mut clock, 51), end);
        assert_eq!(due(&mut clock, 51), (false, false));
    }

    #[test]
    fn updates_are_due_by_elapsed_time_for_any_epoch_length() {
        let update = Tick { updates: true, ..Tick::default() };
        for epoch in [EpochLength::Whole, EpochLength::Packets(7)] {
            let mut clock = Clock::new(epoch, EpochLength::Time(4));
            assert_eq!((clock.passes(5), clock.passes(7)), (Some(Tick::default()), None));
            assert_eq!((clock.passes(12), clock.passes(15)), (Some(update), None));
            let mut clock = Clock::new(epoch, EpochLength::Packets(3));
            assert_eq!(clock.passes(5), None);
            clock.tick(6);
            clock.make_due();
            assert_eq!((clock.passes(8), clock.passes(9)), (Some(update), None));
        }
    }

    #[test]
    fn an_hour_is_no_jump_and_a_nanosecond_more_is() {
        let ticks = ticks(EpochLength::Whole, &[0, JUMP_NS, 2 * JUMP_NS + 1, i64::MAX, i64::MIN]);
        let jumps: Vec<_> = ticks.iter().map(|tick| tick.jump).collect();
        assert_eq!(jumps, [false, false, true, true, false]);
        assert!(ticks[4].backwards && !ticks[4].late && !ticks[4].closes);
    }

    #[test]
    fn times_before_1970_and_extremes_are_epochs_like_others() {
        let ticks = ticks(EpochLength::Time(7), &[-8, -7, -1, 0, i64::MAX, i64::MIN]);
        let closes: Vec<_> = ticks.iter().map(|tick| tick.closes).collect();
        assert_eq!(closes, [false, true, false, true, true, true]);
        assert_eq!(ticks[4].gap, (i64::MAX / 7 - 1) as u64);
        assert!(ticks[5].backwards && !ticks[5].late && ticks[5].step_ns == i64::MIN);
    }
}
