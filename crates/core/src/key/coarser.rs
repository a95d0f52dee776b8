//! Keys that are made of other keys: of some of their fields, or of shorter prefixes.

use super::{CanonicalKey, KeyError, KeySpec};

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
        if !to.kind().is_made_of(from.kind()) {
            return refused("it lacks fields of that key");
        }
        if to.keeps_more(from) {
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
        let kept = from.fields(canonical).of(to.kind());
        to.canonical(&kept).expect("a coarser key has no field that the key lacks")
    }
}
