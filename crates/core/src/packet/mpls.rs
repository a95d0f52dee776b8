//! MPLS label stacks.

use super::cursor::Cursor;
use super::network::Network;
use super::{Layer, Malformed, NoKey};

/// Moves to the bottom of the stack. Nothing there names what follows, so its first bits decide.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    loop {
        cursor.nest(Layer::Mpls)?;
        let &[_, _, bottom, _] = cursor.take(Layer::Mpls)?;
        if bottom & 1 == 1 {
            break;
        }
    }
    Network::by_version(cursor, Layer::Mpls, NoKey::Mpls)
}
