//! Link types, by the numbers of the registry that pcap and pcapng share.

/// What the first bytes of a frame are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: the address family in the byte order of the capturing host.
    pub const NULL: Self = Self(0);
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// Raw IP by the number that most systems use inside, which some files carry.
    pub const DLT_RAW: Self = Self(12);
    /// Raw IP by the number that `OpenBSD` uses inside, which some files carry.
    pub const DLT_RAW_OPENBSD: Self = Self(14);
    /// Raw IP, version 4 or 6 by its first bits.
    pub const RAW: Self = Self(101);
    /// `OpenBSD` loopback: the address family in network order.
    pub const LOOP: Self = Self(108);
    /// Linux cooked capture.
    pub const LINUX_SLL: Self = Self(113);
    /// Raw IPv4.
    pub const IPV4: Self = Self(228);
    /// Raw IPv6.
    pub const IPV6: Self = Self(229);
    /// Linux cooked capture, version 2.
    pub const LINUX_SLL2: Self = Self(276);
}
