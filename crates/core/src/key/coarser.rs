//! Keys that are made of other keys: of some of their fields, or of shorter prefixes.

use super::{CanonicalKey, Fields, KeyError, KeyKind, KeySpec};

/// Maps the keys of one kind to those of a coarser one: `five-tuple` to `source`, `source` to `source/24`.
#[derive(Clone, Copy, Debug)]
pub struct Coarser {
    from: KeySpec,
    to: KeySpec,
}

impl Coarser {
    /// The map from keys of `from` to keys of `to`.
    ///
    /// # Errors
    /// When `to` has a field, or bits of an address, that `from` lacks.
    pub fn new(from: KeySpec, to: KeySpec) -> Result<Self, KeyError> {
        let refused = |reason| Err(KeyError::NotCoarser { from, to, reason });
        let has_fields = match (from.kind, to.kind) {
            (one, other) if one == other => true,
            (KeyKind::FiveTuple, _) => true,
            (KeyKind::Pair, other) => matches!(other, KeyKind::Source | KeyKind::Destination),
            _ => false,
        };
        if !has_fields {
            return refused("it lacks fields of that key");
        }
        let longer = to.v4_prefix > from.v4_prefix || to.v6_prefix > from.v6_prefix;
        if to.kind.has_addresses() && longer {
            return refused("its prefixes are shorter");
        }
        Ok(Self { from, to })
    }

    /// The coarser key that this key, given by its canonical bytes, belongs to.
    ///
    /// # Panics
    /// When the bytes are no key of the kind that is mapped.
    pub fn key(&self, canonical: &[u8]) -> CanonicalKey {
        let Self { from, to } = self;
        let fields = from.fields(canonical);
        let five_tuple = to.kind == KeyKind::FiveTuple;
        let kept = Fields {
            source: fields.source.filter(|_| to.kind.has_source()),
            destination: fields.destination.filter(|_| to.kind.has_destination()),
            source_port: fields.source_port.filter(|_| five_tuple),
            destination_port: fields.destination_port.filter(|_| to.kind.needs_ports()),
            protocol: fields.protocol.filter(|_| five_tuple || to.kind == KeyKind::Protocol),
        };
        to.canonical(&kept).expect("a coarser key has no field that the key lacks")
    }
}
