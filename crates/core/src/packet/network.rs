//! What the headers in front of an IP header lead to.

use super::cursor::Cursor;
use super::{Headers, Layer, LinkType, Malformed, NoKey, ipv4, ipv6};

/// The header at the cursor.
pub(super) enum Network {
    /// That of an IPv4 packet.
    Ipv4,
    /// That of an IPv6 packet.
    Ipv6,
    /// One that is not followed.
    Other(NoKey),
    /// That of a link type that is not read.
    Unread(LinkType),
}

impl Network {
    /// Tells IP by its first bits from what else `layer` may carry.
    pub(super) fn by_version(
        cursor: &Cursor<'_>,
        layer: Layer,
        other: NoKey,
    ) -> Result<Self, Malformed> {
        let &[first] = cursor.peek(layer)?;
        Ok(match first >> 4 {
            4 => Self::Ipv4,
            6 => Self::Ipv6,
            _ => Self::Other(other),
        })
    }

    /// Reads the packet.
    #[inline]
    pub(super) fn read(self, cursor: &mut Cursor<'_>) -> Headers {
        match self {
            Self::Ipv4 => ipv4::read(cursor).map_or_else(Headers::Malformed, Headers::V4),
            Self::Ipv6 => ipv6::read(cursor).map_or_else(Headers::Malformed, Headers::V6),
            Self::Other(reason) => Headers::NoKey(reason),
            Self::Unread(link) => Headers::Unread(link),
        }
    }
}
