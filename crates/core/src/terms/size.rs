//! Packets, bytes and thresholds on them.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// Packets and bytes; sums of sizes stay at the largest number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

/// What a size is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Packets.
    Packets,
    /// Bytes on the wire.
    Bytes,
}

impl Measure {
    /// `packets` or `bytes`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Bytes => "bytes",
        }
    }
}

impl Size {
    /// A size of which only `measure` is counted.
    pub fn of(measure: Measure, weight: u64) -> Self {
        match measure {
            Measure::Packets => Self { packets: weight, bytes: 0 },
            Measure::Bytes => Self { packets: 0, bytes: weight },
        }
    }

    /// The one that `measure` names.
    #[inline(always)]
    pub fn by(&self, measure: Measure) -> u64 {
        match measure {
            Measure::Packets => self.packets,
            Measure::Bytes => self.bytes,
        }
    }
}

impl Add for Size {
    type Output = Self;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_add(other.packets),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

impl AddAssign for Size {
    #[inline(always)]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Size {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::default(), Add::add)
    }
}

/// A share of the epoch's keyed weight, or a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// A share between 0 and 1.
    Share(f64),
    /// Packets or bytes.
    Weight(u64),
}

impl Threshold {
    /// The weight that this threshold is in an epoch of `total` weight.
    pub fn weight(&self, total: u64) -> f64 {
        match *self {
            Self::Share(share) => share * total as f64,
            Self::Weight(weight) => weight as f64,
        }
    }
}
