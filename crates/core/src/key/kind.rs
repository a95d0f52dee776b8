//! The fields that keys are made of, and the names of usual sets of them.

use std::fmt;

/// A field of a packet that a key may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Source address.
    Source,
    /// Destination address.
    Destination,
    /// Source port.
    SourcePort,
    /// Destination port.
    DestinationPort,
    /// Protocol.
    Protocol,
}

impl Field {
    /// Every field, in the order in which canonical bytes hold them.
    pub const ALL: [Self; 5] =
        [Self::Source, Self::Destination, Self::SourcePort, Self::DestinationPort, Self::Protocol];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
            Self::SourcePort => "source-port",
            Self::DestinationPort => "destination-port",
            Self::Protocol => "protocol",
        }
    }

    /// Whether it is an address, so that a key may keep a prefix.
    pub fn is_address(self) -> bool {
        matches!(self, Self::Source | Self::Destination)
    }

    /// Bytes of a field that is no address: a number in network order.
    pub(super) fn number_bytes(self) -> usize {
        match self {
            Self::Source | Self::Destination => 0,
            Self::SourcePort | Self::DestinationPort => 2,
            Self::Protocol => 1,
        }
    }
}

/// The fields that make up a key: a set of them, and whether the endpoints stand in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyKind(u8);

impl KeyKind {
    /// Source address.
    pub const SOURCE: Self = Self::of(&[Field::Source]);
    /// Destination address.
    pub const DESTINATION: Self = Self::of(&[Field::Destination]);
    /// Source and destination address.
    pub const PAIR: Self = Self::of(&[Field::Source, Field::Destination]);
    /// Source, destination, source port, destination port, protocol.
    pub const FIVE_TUPLE: Self = Self::of(&Field::ALL);
    /// Protocol.
    pub const PROTOCOL: Self = Self::of(&[Field::Protocol]);
    /// Source port.
    pub const SOURCE_PORT: Self = Self::of(&[Field::SourcePort]);
    /// Destination port.
    pub const DESTINATION_PORT: Self = Self::of(&[Field::DestinationPort]);

    /// A five-tuple whose endpoints stand in order, the lower one first: both directions are one flow.
    pub const CONVERSATION: Self = Self(Self::FIVE_TUPLE.0 | IN_ORDER);

    /// The sets that have a name. Others are written as names joined by `+`.
    pub const NAMED: [(&'static str, Self); 8] = [
        ("source", Self::SOURCE),
        ("destination", Self::DESTINATION),
        ("pair", Self::PAIR),
        ("five-tuple", Self::FIVE_TUPLE),
        ("conversation", Self::CONVERSATION),
        ("protocol", Self::PROTOCOL),
        ("source-port", Self::SOURCE_PORT),
        ("destination-port", Self::DESTINATION_PORT),
    ];

    /// The set of these fields.
    pub const fn of(fields: &[Field]) -> Self {
        let (mut set, mut at) = (0, 0);
        while at < fields.len() {
            set |= 1 << fields[at] as u8;
            at += 1;
        }
        Self(set)
    }

    /// The set without a field.
    pub(super) const NONE: Self = Self(0);

    /// The fields of either.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The fields of both.
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

    /// The fields, in the order in which canonical bytes hold them.
    pub fn fields(self) -> impl Iterator<Item = Field> {
        Field::ALL.into_iter().filter(move |field| self.has(*field))
    }

    /// The name, where this set has one.
    pub fn name(self) -> Option<&'static str> {
        Self::NAMED.iter().find(|(_, kind)| *kind == self).map(|(name, _)| *name)
    }

    /// Whether the key holds addresses, so that IPv4 and IPv6 differ in it.
    pub fn has_addresses(self) -> bool {
        self.common(Self::PAIR) != Self::NONE
    }

    /// Whether the endpoints stand in order, so that a key does not tell source from destination.
    pub fn is_in_order(self) -> bool {
        self.0 & IN_ORDER != 0
    }

    /// Whether keys of this kind can be made of those of another one.
    pub(super) fn is_made_of(self, other: Self) -> bool {
        let fields = Self(self.0 & !IN_ORDER);
        let tells_ends = self.common(Self::PAIR.with(PORTS)) != Self::NONE && !self.is_in_order();
        other.has_all(fields) && !(other.is_in_order() && tells_ends)
    }

    /// Whether keys of this kind are made by code of their own, which is faster.
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

    /// Bytes of the fields that are no addresses.
    pub(super) fn number_bytes(self) -> usize {
        self.fields().map(Field::number_bytes).sum()
    }
}

/// The bit of a kind whose endpoints stand in order, beside those of the fields.
const IN_ORDER: u8 = 1 << 7;

const PORTS: KeyKind = KeyKind::SOURCE_PORT.with(KeyKind::DESTINATION_PORT);

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => f.write_str(&self.fields().map(Field::name).collect::<Vec<_>>().join("+")),
        }
    }
}
