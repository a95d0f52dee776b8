//! The information elements that are read, of IPFIX and NetFlow 9.

/// What a field of a template means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Element {
    Bytes,
    Packets,
    /// Since the flow began, where no difference is told.
    TotalBytes,
    TotalPackets,
    /// Behind the exporter, where nothing is told of before.
    PostBytes,
    PostPackets,
    /// Of the other direction.
    ReverseBytes,
    ReversePackets,
    Protocol,
    TcpFlags,
    SourcePort,
    DestinationPort,
    Source4,
    Source6,
    Destination4,
    Destination6,
    Icmp,
    /// One in so many packets is sampled.
    OneIn,
    Sampler,
    /// So many packets in a row are sampled, and then so many are not.
    SampledRun,
    SkippedRun,
    /// So many packets of so many are sampled.
    SampleSize,
    Population,
    Other,
}

/// How many there are.
pub(crate) const ELEMENTS: usize = Element::Other as usize + 1;

/// The enterprise of the reverse direction (RFC 5103).
const REVERSE: u32 = 29305;

impl Element {
    /// The element of this number; `enterprise` is that of IPFIX, if there is one.
    pub(crate) fn new(enterprise: Option<u32>, number: u16) -> Self {
        match (enterprise, number) {
            (None, 1 | 231) => Self::Bytes,
            (None, 2 | 298) => Self::Packets,
            (None, 85) => Self::TotalBytes,
            (None, 86) => Self::TotalPackets,
            (None, 23) => Self::PostBytes,
            (None, 24) => Self::PostPackets,
            (None, 232) | (Some(REVERSE), 1 | 85) => Self::ReverseBytes,
            (None, 299) | (Some(REVERSE), 2 | 86) => Self::ReversePackets,
            (None, 4) => Self::Protocol,
            (None, 6) => Self::TcpFlags,
            (None, 7 | 180 | 182) => Self::SourcePort,
            (None, 11 | 181 | 183) => Self::DestinationPort,
            (None, 8) => Self::Source4,
            (None, 12) => Self::Destination4,
            (None, 27) => Self::Source6,
            (None, 28) => Self::Destination6,
            (None, 32 | 139) => Self::Icmp,
            (None, 34 | 50) => Self::OneIn,
            (None, 48 | 302) => Self::Sampler,
            (None, 305) => Self::SampledRun,
            (None, 306) => Self::SkippedRun,
            (None, 309) => Self::SampleSize,
            (None, 310) => Self::Population,
            _ => Self::Other,
        }
    }
}
