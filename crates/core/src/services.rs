//! Packets by protocol and by service port, counted one by one: for reports beside summaries that do not
//! hold every flow.

use std::sync::LazyLock;

use crate::terms::Size;

/// Protocols whose ports are told apart: TCP, UDP and SCTP.
pub const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// Service ports from 1024 on that are told apart. Those below all are.
pub const REGISTERED: [u16; 44] = [
    1080, 1194, 1433, 1521, 1701, 1723, 1812, 1813, 1883, 1900, 2049, 2123, 2152, 3074, 3128, 3268,
    3306, 3389, 3478, 4500, 4789, 5060, 5061, 5222, 5353, 5355, 5432, 5672, 5900, 6081, 6379, 6443,
    6667, 6881, 8080, 8443, 9092, 9100, 9200, 11211, 20000, 25565, 27017, 51820,
];

/// Ports that are told apart by their numbers.
const WELL_KNOWN: usize = 1024;

/// Ports that are told apart, and one more for all others.
const PLACES: usize = WELL_KNOWN + REGISTERED.len() + 1;

/// The place of each port.
static PLACE: LazyLock<Box<[u16]>> = LazyLock::new(|| {
    let place = |port: u16| {
        let registered = || REGISTERED.iter().position(|one| *one == port);
        match usize::from(port) {
            port if port < WELL_KNOWN => port,
            _ => registered().map_or(PLACES - 1, |at| WELL_KNOWN + at),
        }
    };
    (0..=u16::MAX).map(|port| place(port) as u16).collect()
});

/// Packets and bytes by protocol, and by the lower of both ports.
///
/// Cost: two additions a packet. Memory: 55 KiB.
#[derive(Clone, Debug)]
pub struct Services {
    protocols: Box<[Size; 256]>,
    /// By protocol with ports, then by the place of the port.
    ports: Box<[Size]>,
    place: &'static [u16],
}

impl Services {
    /// Counts a packet of `wire` bytes, whose ports are in network order: those of the source first.
    #[inline(always)]
    pub fn add(&mut self, protocol: u8, [a, b, c, d]: [u8; 4], wire: u32) {
        let size = Size { packets: 1, bytes: u64::from(wire) };
        self.protocols[usize::from(protocol)] += size;
        let Some(at) = WITH_PORTS.iter().position(|with| *with == protocol) else { return };
        let port = u16::from_be_bytes([a, b]).min(u16::from_be_bytes([c, d]));
        self.ports[at * PLACES + usize::from(self.place[usize::from(port)])] += size;
    }

    /// Counts a packet whose ports could not be read.
    pub fn add_protocol(&mut self, protocol: u8, wire: u32) {
        self.protocols[usize::from(protocol)] += Size { packets: 1, bytes: u64::from(wire) };
    }

    /// Adds what another thread counted.
    pub fn merge(&mut self, other: &Self) {
        for (own, other) in self.protocols.iter_mut().zip(&*other.protocols) {
            *own += *other;
        }
        for (own, other) in self.ports.iter_mut().zip(&*other.ports) {
            *own += *other;
        }
    }

    /// Forgets all packets.
    pub fn clear(&mut self) {
        self.protocols.fill(Size::default());
        self.ports.fill(Size::default());
    }

    /// The protocols that had a packet.
    pub fn protocols(&self) -> impl Iterator<Item = (u8, Size)> {
        let all = (0..=u8::MAX).zip(self.protocols.iter().copied());
        all.filter(|(_, size)| size.packets > 0)
    }

    /// The protocols and ports that are told apart and had a packet.
    pub fn ports(&self) -> impl Iterator<Item = (u8, u16, Size)> {
        let port = |place: usize| match place.checked_sub(WELL_KNOWN) {
            None => Some(place as u16),
            Some(at) => REGISTERED.get(at).copied(),
        };
        let met = self.ports.iter().copied().enumerate().filter(|(_, size)| size.packets > 0);
        met.filter_map(move |(at, size)| Some((WITH_PORTS[at / PLACES], port(at % PLACES)?, size)))
    }
}

impl Default for Services {
    fn default() -> Self {
        Self {
            protocols: Box::new([Size::default(); 256]),
            ports: vec![Size::default(); WITH_PORTS.len() * PLACES].into_boxed_slice(),
            place: &PLACE,
        }
    }
}
