//! The queues of an interface: a fanout group, which gives each packet to one of them.

use std::sync::{Mutex, PoisonError};

use libc::{c_int, c_uint};

use crate::fault::InterfaceFault;
use crate::socket::Socket;

/// Which queue of an interface gets a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fanout {
    /// By the hash of its flow, the same in both directions.
    Hash,
    /// By the CPU on which it arrived, as the interface's own queues are served.
    Cpu,
}

impl Fanout {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 2] = [("hash", Self::Hash), ("cpu", Self::Cpu)];
}

/// Where the sockets of an interface's queues meet.
#[derive(Debug)]
pub(crate) struct Group {
    fanout: Fanout,
    queues: usize,
    /// The interface by number, and the group of its sockets. An interface that is created again has
    /// another number, and its sockets another group.
    joined: Mutex<Option<(c_int, c_uint)>>,
}

impl Group {
    pub(crate) fn new(fanout: Fanout, queues: usize) -> Self {
        Self { fanout, queues, joined: Mutex::new(None) }
    }

    /// Has a bound socket share its packets with those of the other queues.
    pub(crate) fn join(&self, socket: &Socket, interface: c_int) -> Result<(), InterfaceFault> {
        if self.queues == 1 {
            return Ok(());
        }
        let way = match self.fanout {
            Fanout::Hash => libc::PACKET_FANOUT_HASH,
            Fanout::Cpu => libc::PACKET_FANOUT_CPU,
        };
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        let group = match *joined {
            Some((there, group)) if there == interface => group,
            _ => (way | libc::PACKET_FANOUT_FLAG_UNIQUEID) << 16,
        };
        socket.set(libc::PACKET_FANOUT, &group)?;
        if joined.is_none_or(|(there, _)| there != interface) {
            let number = socket.option(libc::PACKET_FANOUT)? as c_uint & 0xffff;
            *joined = Some((interface, way << 16 | number));
        }
        Ok(())
    }
}
