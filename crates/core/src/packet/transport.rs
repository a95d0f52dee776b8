//! The ports of TCP, UDP and SCTP, which stand in the same four bytes.

use super::cursor::Cursor;
use super::{Layer, Ports};

/// Transmission Control Protocol.
const TCP: u8 = 6;
/// User Datagram Protocol.
pub(super) const UDP: u8 = 17;
/// Stream Control Transmission Protocol.
const SCTP: u8 = 132;

pub(super) fn ports(cursor: &Cursor<'_>, protocol: u8) -> Ports {
    match protocol {
        TCP | UDP | SCTP => match cursor.peek(Layer::Transport) {
            Ok(&ports) => Ports::Found(u32::from_be_bytes(ports)),
            Err(malformed) => Ports::Malformed(malformed),
        },
        _ => Ports::Absent,
    }
}
