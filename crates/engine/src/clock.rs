//! Packet time: where time epochs end, and what is strange about the timestamps.

use crate::config::EpochLength;

/// A step between two packets above this is a jump: captures of quiet links have gaps of minutes.
const JUMP_NS: i64 = 3_600_000_000_000;

/// The clock that packets drive.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// Length of a time epoch; `None` where time ends no epoch.
    length_ns: Option<i64>,
    /// The first and the last nanosecond of the open epoch; all of them where time ends no epoch.
    start_ns: i64,
    last_of_epoch_ns: i64,
    /// Whether there is an open epoch.
    opened: bool,
    /// Time of the packet before, where there was one.
    last_ns: i64,
    /// Time of the first packet; 0 before it.
    first_ns: i64,
    started: bool,
}

/// What a packet's time means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "four findings, each independent of the others")]
pub(crate) struct Tick {
    /// The packet is the first of a later epoch.
    pub(crate) closes: bool,
    /// Whole empty epochs between the open one and the packet's.
    pub(crate) gap: u64,
    /// It is older than the open epoch.
    pub(crate) late: bool,
    /// It is older than the packet before.
    pub(crate) backwards: bool,
    /// It is over an hour younger than the packet before.
    pub(crate) jump: bool,
}

impl Clock {
    pub(crate) fn new(epoch: EpochLength) -> Self {
        let length_ns = match epoch {
            EpochLength::Time(length_ns) => Some(length_ns),
            EpochLength::Whole | EpochLength::Packets(_) => None,
        };
        Self {
            length_ns,
            start_ns: i64::MIN,
            last_of_epoch_ns: i64::MAX,
            opened: false,
            last_ns: 0,
            first_ns: 0,
            started: false,
        }
    }

    /// Whether the packet is an ordinary one: in the open epoch, and shortly after the last.
    #[inline(always)]
    pub(crate) fn flows(&mut self, time_ns: i64) -> bool {
        let step = time_ns.wrapping_sub(self.last_ns).cast_unsigned();
        let forwards = time_ns >= self.last_ns && step <= JUMP_NS.cast_unsigned();
        let inside = time_ns >= self.start_ns && time_ns <= self.last_of_epoch_ns;
        let flows = self.started && forwards && inside;
        if flows {
            self.last_ns = time_ns;
        }
        flows
    }

    /// What the time of a packet means for which [`Self::flows`] said no.
    #[cold]
    pub(crate) fn tick(&mut self, time_ns: i64) -> Tick {
        let mut tick = Tick::default();
        if self.started {
            (tick.backwards, tick.jump) = strange(self.last_ns, time_ns);
        } else {
            self.first_ns = time_ns;
        }
        self.last_ns = time_ns;
        if let Some(length_ns) = self.length_ns {
            tick.late = self.opened && time_ns < self.start_ns;
            self.advance(time_ns, length_ns, &mut tick);
        }
        self.started = true;
        tick
    }

    /// What it means that no packet older than `now_ns` comes any more; `None` where that neither
    /// opens nor ends an epoch.
    pub(crate) fn passes(&mut self, now_ns: i64) -> Option<Tick> {
        let length_ns =
            self.length_ns.filter(|_| !self.opened || now_ns > self.last_of_epoch_ns)?;
        let mut tick = Tick::default();
        self.advance(now_ns, length_ns, &mut tick);
        Some(tick)
    }

    /// Times of the first and of the last packet, in the order of the packets.
    pub(crate) fn ends_ns(&self) -> Option<(i64, i64)> {
        self.started.then_some((self.first_ns, self.last_ns))
    }

    /// Opens the epoch that `time_ns` is in, unless that is the open one or an older one.
    fn advance(&mut self, time_ns: i64, length_ns: i64, tick: &mut Tick) {
        let into = i128::from(time_ns) - i128::from(self.start_ns);
        if !self.opened {
            self.open(time_ns, length_ns);
        } else if into >= i128::from(length_ns) {
            tick.closes = true;
            tick.gap = (into / i128::from(length_ns) - 1) as u64;
            self.open(time_ns, length_ns);
        }
    }

    /// Opens the epoch that `time_ns` is in.
    fn open(&mut self, time_ns: i64, length_ns: i64) {
        let into = time_ns.rem_euclid(length_ns);
        // The first epoch of all time may begin before the first nanosecond: it is cut there.
        self.start_ns = time_ns.saturating_sub(into);
        self.last_of_epoch_ns = self.start_ns.saturating_add(length_ns - 1);
        self.opened = true;
    }

    /// The bounds of the open time epoch.
    pub(crate) fn bounds_ns(&self) -> Option<(i64, i64)> {
        let length_ns = self.length_ns.filter(|_| self.opened)?;
        Some((self.start_ns, self.start_ns.saturating_add(length_ns)))
    }
}

/// Whether a packet is older than the one before it, and over an hour younger.
pub(crate) fn strange(before_ns: i64, time_ns: i64) -> (bool, bool) {
    (time_ns < before_ns, time_ns.saturating_sub(before_ns) > JUMP_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(epoch: EpochLength, times_ns: &[i64]) -> Vec<Tick> {
        let mut clock = Clock::new(epoch);
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
            (false, 0),
        ];
        assert_eq!(closes, expected);
        let strange: Vec<_> = ticks.iter().map(|tick| (tick.backwards, tick.late)).collect();
        assert_eq!(
            strange[5..],
            [(false, false), (true, false), (true, true), (false, false), (true, true)]
        );
    }

    #[test]
    fn time_that_passes_ends_epochs_without_a_packet_and_is_no_packet_itself() {
        let mut clock = Clock::new(EpochLength::Time(10));
        assert_eq!(clock.passes(15), Some(Tick::default()));
        assert_eq!((clock.bounds_ns(), clock.passes(19)), (Some((10, 20)), None));
        let closes = Tick { closes: true, ..Tick::default() };
        assert_eq!((clock.passes(20), clock.passes(20)), (Some(closes), None));
        // A first packet that was on its way joins the open epoch, and nothing came before it.
        assert_eq!(clock.tick(19), Tick { late: true, ..Tick::default() });
        assert!(clock.flows(21));
        assert_eq!(clock.passes(55), Some(Tick { gap: 2, ..closes }));
        assert_eq!(clock.bounds_ns(), Some((50, 60)));
        assert_eq!(Clock::new(EpochLength::Whole).passes(i64::MAX), None);
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
        assert_eq!(closes, [false, true, false, true, true, false]);
        assert_eq!(ticks[4].gap, (i64::MAX / 7 - 1) as u64);
        assert!(ticks[5].late);
    }
}
