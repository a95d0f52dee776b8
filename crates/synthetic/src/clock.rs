//! Evenly spaced times.

/// Counts ⌊i × 10⁹ ÷ rate⌋ for i = 0, 1, 2, … without a division and without drift.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    time_ns: i64,
    step_ns: i64,
    /// What each step lacks, and what has gathered of it, in nanoseconds ÷ `rate`.
    rest: u64,
    gathered: u64,
    rate: u64,
}

impl Clock {
    /// Starts at `start_ns`; `rate` > 0 is in packets a second.
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
        // The sum of both could overflow, their distance to the rate cannot.
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
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_division() {
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
