//! Exact counts of packets by protocol and by service port, for reports of summaries that do not
//! hold every flow.

use std::fmt;
use std::sync::LazyLock;

use flowgauge_kernel::Tuple;

use crate::terms::Size;

/// Protocols with ports: TCP, UDP and SCTP.
pub const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// Service ports of at least 1024 with a counter of their own. All lower ports have one.
pub const REGISTERED: [u16; 44] = [
    1080, 1194, 1433, 1521, 1701, 1723, 1812, 1813, 1883, 1900, 2049, 2123, 2152, 3074, 3128, 3268,
    3306, 3389, 3478, 4500, 4789, 5060, 5061, 5222, 5353, 5355, 5432, 5672, 5900, 6081, 6379, 6443,
    6667, 6881, 8080, 8443, 9092, 9100, 9200, 11211, 20000, 25565, 27017, 51820,
];

/// Ports below this number have a counter of their own.
const WELL_KNOWN: usize = 1024;

/// Counters of a protocol with ports: one for each known port, and one for all others.
const PLACES: usize = WELL_KNOWN + REGISTERED.len() + 1;

/// Number of counters, for an index of 12 bits: a row of ports for each protocol with ports, then
/// one counter for each protocol.
const SLOTS: usize = 4096;

/// The index of the first protocol's counter.
const PROTOCOLS: usize = WITH_PORTS.len() * PLACES;

const _: () = assert!(PROTOCOLS + 256 <= SLOTS);

/// Finds the counter of a packet: the start given by its protocol, plus the place of its port where
/// the protocol has ports.
struct Index {
    protocols: [(u16, u16); 256],
    ports: Box<[u16; 1 << 16]>,
}

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let protocol = |protocol: usize| {
        let with_ports = WITH_PORTS.iter().position(|with| usize::from(*with) == protocol);
        with_ports.map_or(((PROTOCOLS + protocol) as u16, 0), |at| ((at * PLACES) as u16, u16::MAX))
    };
    let place = |port: u16| {
        let registered = || REGISTERED.iter().position(|one| *one == port);
        match usize::from(port) {
            port if port < WELL_KNOWN => port,
            _ => registered().map_or(PLACES - 1, |at| WELL_KNOWN + at),
        }
    };
    let ports: Box<[u16]> = (0..=u16::MAX).map(|port| place(port) as u16).collect();
    let ports = ports.try_into().unwrap_or_else(|_| unreachable!("one for each port"));
    Index { protocols: std::array::from_fn(protocol), ports }
});

/// Packets and bytes by protocol, and by the lower of both ports.
///
/// Cost: two additions a packet. Memory: 64 KiB, and 129 KiB once for all instances.
///
/// ```
/// use flowgauge_core::services::Services;
///
/// let mut services = Services::default();
/// services.add(17, [0x30, 0x39, 0, 53], 80); // UDP from port 12345 to port 53
/// let (protocol, port, size) = services.ports().next().unwrap();
/// assert_eq!((protocol, port, size.bytes), (17, 53, 80));
/// ```
#[derive(Clone)]
pub struct Services {
    slots: Box<[Size; SLOTS]>,
    index: &'static Index,
}

impl Services {
    /// Counts a packet of `wire` bytes. Ports are in network order, source port first.
    #[inline(always)]
    pub fn add(&mut self, protocol: u8, ports: [u8; 4], wire: u32) {
        let slot = self.slot(protocol, ports);
        self.slots[usize::from(slot) % SLOTS] += one(wire);
    }

    /// The number of the counter of such packets.
    #[inline(always)]
    fn slot(&self, protocol: u8, [a, b, c, d]: [u8; 4]) -> u16 {
        let port = u16::from_be_bytes([a, b]).min(u16::from_be_bytes([c, d]));
        let (first, mask) = self.index.protocols[usize::from(protocol)];
        first + (self.index.ports[usize::from(port)] & mask)
    }

    /// Counts packets with ports, and so many bytes each.
    #[inline(never)]
    pub(crate) fn add_all<const N: usize>(&mut self, tuples: &[Tuple<N>], wires: &[u32]) {
        for (tuple, wire) in tuples.iter().zip(wires) {
            self.add(tuple.protocol(), tuple.ports(), *wire);
        }
    }

    /// Adds the counts of a block.
    #[inline(never)]
    pub(crate) fn add_tally(&mut self, tally: &Tally) {
        for slot in &tally.met {
            self.slots[usize::from(*slot) % SLOTS] +=
                tally.counts.slots[usize::from(*slot) % SLOTS];
        }
    }

    /// Counts a packet without readable ports, among the other ports of its protocol.
    pub fn add_protocol(&mut self, protocol: u8, wire: u32) {
        let (first, mask) = self.index.protocols[usize::from(protocol)];
        let none = (PLACES - 1) as u16 & mask;
        self.slots[usize::from(first + none) % SLOTS] += one(wire);
    }

    /// Adds the counts of another thread.
    pub fn merge(&mut self, other: &Self) {
        for (own, other) in self.slots.iter_mut().zip(&*other.slots) {
            *own += *other;
        }
    }

    /// Forgets all packets.
    pub fn clear(&mut self) {
        self.slots.fill(Size::default());
    }

    /// The protocols with a packet, and their sizes.
    pub fn protocols(&self) -> impl Iterator<Item = (u8, Size)> {
        let of = |protocol: u8| match WITH_PORTS.iter().position(|with| *with == protocol) {
            Some(at) => self.slots[at * PLACES..][..PLACES].iter().copied().sum(),
            None => self.slots[PROTOCOLS + usize::from(protocol)],
        };
        let all = (0..=u8::MAX).map(move |protocol| (protocol, of(protocol)));
        all.filter(|(_, size): &(u8, Size)| size.packets > 0)
    }

    /// The known ports with a packet, as protocol, port and size.
    pub fn ports(&self) -> impl Iterator<Item = (u8, u16, Size)> {
        let port = |place: usize| match place.checked_sub(WELL_KNOWN) {
            None => Some(place as u16),
            Some(at) => REGISTERED.get(at).copied(),
        };
        let met = self.slots[..PROTOCOLS].iter().copied().enumerate();
        let met = met.filter(|(_, size)| size.packets > 0);
        met.filter_map(move |(at, size)| Some((WITH_PORTS[at / PLACES], port(at % PLACES)?, size)))
    }
}

/// The counts of one block of packets, which several measurements add to theirs.
///
/// Cost: that of [`Services`] and a comparison for each packet, and an addition for each counter
/// that the block meets. Memory: that of [`Services`].
#[derive(Default)]
pub(crate) struct Tally {
    counts: Services,
    /// The numbers of the counters that are not 0.
    met: Vec<u16>,
}

impl Tally {
    /// Counts a packet as [`Services::add`] does.
    #[inline(always)]
    pub(crate) fn add(&mut self, protocol: u8, ports: [u8; 4], wire: u32) {
        let slot = self.counts.slot(protocol, ports);
        let counter = &mut self.counts.slots[usize::from(slot) % SLOTS];
        if counter.packets == 0 {
            self.met.push(slot);
        }
        *counter += one(wire);
    }

    /// Forgets all packets.
    pub(crate) fn clear(&mut self) {
        for slot in self.met.drain(..) {
            self.counts.slots[usize::from(slot) % SLOTS] = Size::default();
        }
    }
}

impl Default for Services {
    fn default() -> Self {
        let slots = vec![Size::default(); SLOTS].into_boxed_slice();
        let slots = slots.try_into().unwrap_or_else(|_| unreachable!("as many as asked for"));
        Self { slots, index: &INDEX }
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.protocols()).finish()
    }
}

/// One packet of `wire` bytes.
#[inline(always)]
fn one(wire: u32) -> Size {
    Size { packets: 1, bytes: u64::from(wire) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_adds_what_its_packets_would() {
        let packets = [(6, 80), (17, 53), (6, 80), (17, 50_000), (6, 40_000)];
        let tuples = packets.map(|(protocol, port): (u8, u16)| {
            let [high, low] = port.to_be_bytes();
            Tuple::new([0; 8], [0xff, 0xff, high, low], protocol)
        });
        let wires = [60, 70, 80, 90, 100];
        let (mut direct, mut added, mut tally) =
            (Services::default(), Services::default(), Tally::default());
        for _ in 0..2 {
            direct.add_all(&tuples, &wires);
            tally.clear();
            for (tuple, wire) in tuples.iter().zip(wires) {
                tally.add(tuple.protocol(), tuple.ports(), wire);
            }
            added.add_tally(&tally);
        }
        let all = |services: &Services| {
            let ports: Vec<_> = services.ports().collect();
            (ports, services.protocols().collect::<Vec<_>>())
        };
        assert_eq!(all(&added), all(&direct));
        assert_eq!(all(&added).0[0], (6, 80, Size { packets: 4, bytes: 280 }));
    }
}
