//! Sizes, thresholds, hierarchies and peers: the terms that keys, summaries and tasks share.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// A number of packets and of bytes. Sums saturate.
///
/// ```
/// use flowgauge_core::terms::{Measure, Size};
///
/// let size = Size { packets: 2, bytes: 120 } + Size { packets: 1, bytes: 1500 };
/// assert_eq!(size.by(Measure::Packets), 3);
/// assert_eq!(size.by(Measure::Bytes), 1620);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

/// The unit of a size: packets or bytes.
///
/// ```
/// use flowgauge_core::terms::{Measure, Size};
///
/// assert_eq!(Size::of(Measure::Bytes, 1500), Size { packets: 0, bytes: 1500 });
/// assert_eq!(Measure::Bytes.name(), "bytes");
/// ```
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
    /// A size with only `measure` counted.
    pub fn of(measure: Measure, weight: u64) -> Self {
        match measure {
            Measure::Packets => Self { packets: weight, bytes: 0 },
            Measure::Bytes => Self { packets: 0, bytes: weight },
        }
    }

    /// The number of packets or of bytes, as `measure` says.
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

/// A threshold on the weight of a flow: a share of the epoch's keyed weight, or a weight.
///
/// ```
/// use flowgauge_core::terms::Threshold;
///
/// assert_eq!(Threshold::Share(0.01).weight(5000), 50.0);
/// assert_eq!(Threshold::Weight(70).weight(5000), 70.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// A share of the keyed weight, between 0 and 1.
    Share(f64),
    /// Packets or bytes.
    Weight(u64),
}

impl Threshold {
    /// The threshold as a weight, in an epoch of weight `total`.
    pub fn weight(&self, total: u64) -> f64 {
        match *self {
            Self::Share(share) => share * total as f64,
            Self::Weight(weight) => weight as f64,
        }
    }
}

/// The prefixes that a hierarchy of addresses consists of.
///
/// ```
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::Key8;
/// use flowgauge_core::summary::Options;
/// use flowgauge_core::terms::Hierarchy;
///
/// let options = Options { hierarchy: Hierarchy::Pair, ..Options::new(1 << 20, 1) };
/// let summary = catalog::build::<Key8>("rhhh", &options)?;
/// assert_eq!(summary.answers().prefixes().unwrap().hierarchy(), Hierarchy::Pair);
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hierarchy {
    /// Prefixes of whole bytes: 5 levels for IPv4, 17 for IPv6.
    Bytes,
    /// Prefixes of any length: 33 levels, or 129.
    Bits,
    /// Source × destination, by bytes: 25 nodes above each flow, or 289.
    Pair,
}

impl Hierarchy {
    /// Every hierarchy with its name on the command line.
    pub const ALL: [(&'static str, Self); 3] =
        [("bytes", Self::Bytes), ("bits", Self::Bits), ("pair", Self::Pair)];
}

/// The part of a peer that must differ for it to count as distinct.
///
/// ```
/// use flowgauge_core::terms::SpreadOf;
///
/// assert_eq!(SpreadOf::Endpoint.name(), "endpoint");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpreadOf {
    /// Address.
    Address,
    /// Port.
    Port,
    /// Address and port.
    Endpoint,
}

impl SpreadOf {
    /// Every choice with its name on the command line.
    pub const ALL: [(&'static str, Self); 3] =
        [("address", Self::Address), ("port", Self::Port), ("endpoint", Self::Endpoint)];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, of)| *of == self).map_or("", |(name, _)| name)
    }
}
