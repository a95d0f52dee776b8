//! Timestamps: 64-bit counts of an interface's own unit.

/// Turns an interface's timestamps into nanoseconds since the UNIX epoch, exactly but for what is
/// below a nanosecond, which is cut off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Clock {
    unit: Unit,
    offset_ns: i128,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    /// So many nanoseconds.
    Nanoseconds(u64),
    /// One of so many parts of a nanosecond.
    Part(u64),
    /// A second halved so many times.
    Halved(u32),
}

impl Clock {
    /// The clock of an interface with this `if_tsresol` (a negative power of ten, or of two where
    /// the high bit is set) and `if_tsoffset` (seconds).
    pub(super) fn new(resolution: u8, offset_s: i64) -> Self {
        let exponent = u32::from(resolution & 0x7f);
        let unit = match exponent {
            _ if resolution & 0x80 != 0 => Unit::Halved(exponent),
            0..=9 => Unit::Nanoseconds(10u64.pow(9 - exponent)),
            10..=28 => Unit::Part(10u64.pow(exponent - 9)),
            // No 64-bit count of such units amounts to a nanosecond.
            _ => Unit::Nanoseconds(0),
        };
        Self { unit, offset_ns: i128::from(offset_s) * 1_000_000_000 }
    }

    /// The time of a timestamp; the nearest that 64 bits can hold, where they cannot hold it.
    #[inline]
    pub(super) fn time_ns(&self, ticks: u64) -> i64 {
        // Nearly all times are of this kind.
        if let Unit::Nanoseconds(ns) = self.unit
            && self.offset_ns == 0
            && let Some(time_ns) = ticks.checked_mul(ns)
            && let Ok(time_ns) = i64::try_from(time_ns)
        {
            return time_ns;
        }
        let ns = match self.unit {
            Unit::Nanoseconds(ns) => i128::from(ticks) * i128::from(ns),
            Unit::Part(parts) => i128::from(ticks / parts),
            Unit::Halved(times) => (i128::from(ticks) * 1_000_000_000) >> times,
        };
        (ns + self.offset_ns).clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}
