//! The kinds of keys that are measured, as types.

use flowgauge_core::key::{Extract, FlowKey, Key8, Key16, KeyKind};

/// A kind of keys of IPv4 packets. Several kinds share a key type of `core`; the kind also fixes
/// their length.
pub(crate) trait Keys: Clone + Send + 'static {
    type Key: FlowKey + Extract<8>;
    const KIND: KeyKind;
    /// Canonical bytes of a key.
    const BYTES: usize;
}

macro_rules! kinds {
    ($($(#[$about:meta])* $name:ident: $kind:ident, $bytes:literal bytes in $key:ty;)*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Debug)]
            pub(crate) enum $name {}

            impl Keys for $name {
                type Key = $key;
                const KIND: KeyKind = KeyKind::$kind;
                const BYTES: usize = $bytes;
            }
        )*
    };
}

kinds! {
    /// Source addresses.
    Sources: SOURCE, 4 bytes in Key8;
    /// Destination addresses.
    Destinations: DESTINATION, 4 bytes in Key8;
    /// Pairs of addresses.
    Pairs: PAIR, 8 bytes in Key8;
    /// Five-tuples.
    FiveTuples: FIVE_TUPLE, 13 bytes in Key16;
}

#[cfg(test)]
mod tests {
    use flowgauge_core::key::KeySpec;

    use super::*;

    /// The lengths are those of the engine.
    #[test]
    fn lengths_are_those_of_ipv4() {
        fn check<K: Keys>() {
            assert_eq!(KeySpec::from(K::KIND).lanes()[0], K::BYTES);
            assert!(K::Key::holds(K::BYTES));
        }
        check::<Sources>();
        check::<Destinations>();
        check::<Pairs>();
        check::<FiveTuples>();
    }
}
