//! The fields of keys, and the kinds of keys that they make up.

use std::fmt;

/// A field of a packet that can be part of a key.
///
/// ```
/// use flowgauge_core::key::{Field, KeyKind};
///
/// assert_eq!(Field::SourcePort.name(), "source-port");
/// assert!(KeyKind::FIVE_TUPLE.has(Field::SourcePort));
/// assert!(Field::Source.is_address());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Source address.
    Source,
    /// Destination address.
    Destination,
    /// Source or destination address: a packet counts for both.
    Host,
    /// Source port.
    SourcePort,
    /// Destination port.
    DestinationPort,
    /// Protocol.
    Protocol,
    /// VLAN ID of the outermost tag; 0 without a tag.
    Vlan,
    /// TCP flags, from CWR in the highest bit to FIN in the lowest; 0 without TCP.
    TcpFlags,
    /// Source MAC address; zeros where the frame has none.
    SourceMac,
    /// Destination MAC address; zeros where the frame has none.
    DestinationMac,
    /// Source or destination MAC address: a packet counts for both.
    Mac,
}

impl Field {
    /// Every field, in the order of canonical bytes.
    pub const ALL: [Self; 11] = [
        Self::Source,
        Self::Destination,
        Self::Host,
        Self::SourcePort,
        Self::DestinationPort,
        Self::Protocol,
        Self::Vlan,
        Self::TcpFlags,
        Self::SourceMac,
        Self::DestinationMac,
        Self::Mac,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
            Self::Host => "host",
            Self::SourcePort => "source-port",
            Self::DestinationPort => "destination-port",
            Self::Protocol => "protocol",
            Self::Vlan => "vlan",
            Self::TcpFlags => "tcp-flags",
            Self::SourceMac => "source-mac",
            Self::DestinationMac => "destination-mac",
            Self::Mac => "mac",
        }
    }

    /// Whether it is an IP address. A key may keep a prefix of it.
    pub fn is_address(self) -> bool {
        matches!(self, Self::Source | Self::Destination | Self::Host)
    }

    /// Length in bytes of a field other than an IP address, which is a number in network order.
    pub(super) fn number_bytes(self) -> usize {
        match self {
            Self::Source | Self::Destination | Self::Host => 0,
            Self::Protocol | Self::TcpFlags => 1,
            Self::SourcePort | Self::DestinationPort | Self::Vlan => 2,
            Self::SourceMac | Self::DestinationMac | Self::Mac => 6,
        }
    }
}

/// A kind of key: a set of fields, and whether the endpoints are ordered.
///
/// ```
/// use flowgauge_core::key::{Field, KeyKind};
///
/// let kind = KeyKind::of(&[Field::Source, Field::Vlan]);
/// assert_eq!(kind.to_string(), "source+vlan");
/// assert!(kind.has(Field::Source) && kind.needs_extras());
/// assert_eq!(KeyKind::CONVERSATION.name(), Some("conversation"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyKind(u16);

impl KeyKind {
    /// Source address.
    pub const SOURCE: Self = Self::of(&[Field::Source]);
    /// Destination address.
    pub const DESTINATION: Self = Self::of(&[Field::Destination]);
    /// Source and destination address.
    pub const PAIR: Self = Self::of(&[Field::Source, Field::Destination]);
    /// Source, destination, source port, destination port, protocol.
    pub const FIVE_TUPLE: Self = Self::of(&[
        Field::Source,
        Field::Destination,
        Field::SourcePort,
        Field::DestinationPort,
        Field::Protocol,
    ]);
    /// Source or destination address: a packet counts for both.
    pub const HOST: Self = Self::of(&[Field::Host]);
    /// Protocol.
    pub const PROTOCOL: Self = Self::of(&[Field::Protocol]);
    /// Source port.
    pub const SOURCE_PORT: Self = Self::of(&[Field::SourcePort]);
    /// Destination port.
    pub const DESTINATION_PORT: Self = Self::of(&[Field::DestinationPort]);

    /// A five-tuple with ordered endpoints, the lower one first: both directions are one flow.
    pub const CONVERSATION: Self = Self(Self::FIVE_TUPLE.0 | IN_ORDER);

    /// The kinds with a name. Others are written as names joined by `+`.
    pub const NAMED: [(&'static str, Self); 14] = [
        ("source", Self::SOURCE),
        ("destination", Self::DESTINATION),
        ("host", Self::HOST),
        ("pair", Self::PAIR),
        ("five-tuple", Self::FIVE_TUPLE),
        ("conversation", Self::CONVERSATION),
        ("protocol", Self::PROTOCOL),
        ("source-port", Self::SOURCE_PORT),
        ("destination-port", Self::DESTINATION_PORT),
        ("vlan", Self::of(&[Field::Vlan])),
        ("tcp-flags", Self::of(&[Field::TcpFlags])),
        ("source-mac", Self::of(&[Field::SourceMac])),
        ("destination-mac", Self::of(&[Field::DestinationMac])),
        ("mac", Self::of(&[Field::Mac])),
    ];

    /// The kind with these fields.
    pub const fn of(fields: &[Field]) -> Self {
        let (mut set, mut at) = (0, 0);
        while at < fields.len() {
            set |= 1 << fields[at] as u16;
            at += 1;
        }
        Self(set)
    }

    /// The kind without fields.
    pub(super) const NONE: Self = Self(0);

    /// The fields of either kind.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The fields of both kinds.
    #[must_use]
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether the key has all these fields.
    pub fn has_all(self, other: Self) -> bool {
        self.common(other) == other
    }

    /// Whether the key has this field.
    pub fn has(self, field: Field) -> bool {
        self.has_all(Self::of(&[field]))
    }

    /// The fields, in the order of canonical bytes.
    pub fn fields(self) -> impl Iterator<Item = Field> {
        Field::ALL.into_iter().filter(move |field| self.has(*field))
    }

    /// The name, where this kind has one.
    pub fn name(self) -> Option<&'static str> {
        Self::NAMED.iter().find(|(_, kind)| *kind == self).map(|(name, _)| *name)
    }

    /// The names that are joined by `+` to write this kind.
    fn names(self) -> impl Iterator<Item = &'static str> {
        let whole = self.is_in_order().then_some("conversation");
        whole.into_iter().chain(self.apart().map(Field::name))
    }

    /// The fields to write, besides `conversation` where the endpoints are ordered.
    pub(super) fn apart(self) -> impl Iterator<Item = Field> {
        let whole = if self.is_in_order() { Self::FIVE_TUPLE } else { Self::NONE };
        self.fields().filter(move |field| !whole.has(*field))
    }

    /// Whether the key has addresses, so that keys of IPv4 and IPv6 differ.
    pub fn has_addresses(self) -> bool {
        self.common(ADDRESSES) != Self::NONE
    }

    /// The number of IP addresses in the key.
    pub(super) fn addresses(self) -> usize {
        self.common(ADDRESSES).fields().count()
    }

    /// Whether the endpoints are ordered, so that a key does not distinguish source and
    /// destination.
    pub fn is_in_order(self) -> bool {
        self.0 & IN_ORDER != 0
    }

    /// Whether a packet counts twice, once for each of its ends, unless both have the same key.
    pub fn is_either(self) -> bool {
        self.common(EITHER) != Self::NONE
    }

    /// Whether a field belongs to the source or the destination.
    pub(super) fn tells_ends(self) -> bool {
        self.common(ENDS) != Self::NONE
    }

    /// Whether the key needs extras: fields outside the five-tuple.
    pub fn needs_extras(self) -> bool {
        self.common(EXTRAS) != Self::NONE
    }

    /// Whether keys of this kind can be derived from keys of another kind.
    pub(super) fn is_made_of(self, other: Self) -> bool {
        let fields = Self(self.0 & !IN_ORDER);
        let tells_ends = self.tells_ends() && !self.is_in_order();
        other.has_all(fields) && !(other.is_in_order() && tells_ends)
    }

    /// Whether keys of this kind have extraction code of their own, which is faster.
    pub(crate) fn is_usual(self) -> bool {
        matches!(
            self,
            Self::SOURCE
                | Self::DESTINATION
                | Self::PAIR
                | Self::FIVE_TUPLE
                | Self::PROTOCOL
                | Self::DESTINATION_PORT
        )
    }

    /// Whether the key needs the ports of the transport header.
    pub(super) fn needs_ports(self) -> bool {
        self.common(PORTS) != Self::NONE
    }

    /// Total length in bytes of the fields other than IP addresses.
    pub(super) fn number_bytes(self) -> usize {
        self.fields().map(Field::number_bytes).sum()
    }
}

/// The bit that marks ordered endpoints; the lower bits are the fields.
const IN_ORDER: u16 = 1 << 15;

const PORTS: KeyKind = KeyKind::SOURCE_PORT.with(KeyKind::DESTINATION_PORT);
const ADDRESSES: KeyKind = KeyKind::PAIR.with(KeyKind::HOST);
const MACS: KeyKind = KeyKind::of(&[Field::SourceMac, Field::DestinationMac]);
const EITHER: KeyKind = KeyKind::of(&[Field::Host, Field::Mac]);
const ENDS: KeyKind = KeyKind::PAIR.with(PORTS).with(MACS);
const EXTRAS: KeyKind = MACS.with(KeyKind::of(&[Field::Vlan, Field::TcpFlags, Field::Mac]));

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => f.write_str(&self.names().collect::<Vec<_>>().join("+")),
        }
    }
}
