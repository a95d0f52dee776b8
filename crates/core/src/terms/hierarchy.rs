//! Prefixes of addresses.

/// Which prefixes to look at.
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
