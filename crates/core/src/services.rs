//! Exact counts of packets by protocol and by service port, for reports of summaries that do not
//! hold every flow.

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
/// Cost: two additions a packet. Reading and clearing visit only the counters that are not 0.
/// Memory: 64 KiB, and 129 KiB once for all instances.
///
/// ```
/// use flowgauge_core::services::Services;
///
/// let mut services = Services::default();
/// services.add(17, [0x30, 0x39, 0, 53], 80); // UDP from port 12345 to port 53
/// let (protocol, port, size) = services.counts().ports().next().unwrap();
/// assert_eq!((protocol, port, size.bytes), (17, 53, 80));
/// ```
pub struct Services {
    slots: Box<[Size; SLOTS]>,
    /// The numbers of the counters that are not 0.
    met: Vec<u16>,
    index: &'static Index,
}

impl Services {
    /// Counts a packet of `wire` bytes. Ports are in network order, source port first.
    #[inline(never)]
    pub fn add(&mut self, protocol: u8, ports: [u8; 4], wire: u32) {
        self.add_one(protocol, ports, wire);
    }

    #[inline(always)]
    fn add_one(&mut self, protocol: u8, [a, b, c, d]: [u8; 4], wire: u32) {
        let port = u16::from_be_bytes([a, b]).min(u16::from_be_bytes([c, d]));
        let (first, mask) = self.index.protocols[usize::from(protocol)];
        self.count(first + (self.index.ports[usize::from(port)] & mask), one(wire));
    }

    /// Counts a packet without readable ports, among the other ports of its protocol.
    pub fn add_protocol(&mut self, protocol: u8, wire: u32) {
        let (first, mask) = self.index.protocols[usize::from(protocol)];
        self.count(first + ((PLACES - 1) as u16 & mask), one(wire));
    }

    /// Counts packets with ports, and so many bytes each.
    #[inline(never)]
    pub(crate) fn add_all<const N: usize>(&mut self, tuples: &[Tuple<N>], wires: &[u32]) {
        for (tuple, wire) in tuples.iter().zip(wires) {
            self.add_one(tuple.protocol(), tuple.ports(), *wire);
        }
    }

    /// Adds the counts of others.
    #[inline(never)]
    pub(crate) fn merge(&mut self, other: &Self) {
        for slot in &other.met {
            self.count(*slot, other.slots[usize::from(*slot) % SLOTS]);
        }
    }

    #[inline(always)]
    fn count(&mut self, slot: u16, size: Size) {
        let counter = &mut self.slots[usize::from(slot) % SLOTS];
        let is_new = counter.packets == 0;
        *counter += size;
        if is_new {
            self.meet(slot);
        }
    }

    #[cold]
    #[inline(never)]
    fn meet(&mut self, slot: u16) {
        self.met.push(slot);
    }

    /// The counts so far.
    pub fn counts(&self) -> ServiceCounts {
        let size = |slot: &u16| (*slot, self.slots[usize::from(*slot) % SLOTS]);
        ServiceCounts(self.met.iter().map(size).collect())
    }

    /// Forgets all packets.
    pub fn clear(&mut self) {
        for slot in self.met.drain(..) {
            self.slots[usize::from(slot) % SLOTS] = Size::default();
        }
    }
}

impl Default for Services {
    fn default() -> Self {
        let slots = vec![Size::default(); SLOTS].into_boxed_slice();
        let slots = slots.try_into().unwrap_or_else(|_| unreachable!("as many as asked for"));
        Self { slots, met: Vec::new(), index: &INDEX }
    }
}

/// What [`Services`] counted.
///
/// Memory: 24 bytes for each counter that is not 0.
#[derive(Clone, Debug)]
pub struct ServiceCounts(Vec<(u16, Size)>);

impl ServiceCounts {
    /// Adds the counts of others.
    pub fn merge(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
        self.0.sort_unstable_by_key(|(slot, _)| *slot);
        self.0.dedup_by(|(slot, size), (kept, sum)| {
            let same = slot == kept;
            if same {
                *sum += *size;
            }
            same
        });
    }

    /// The protocols with a packet, and their sizes.
    pub fn protocols(&self) -> impl Iterator<Item = (u8, Size)> {
        let mut sizes = [Size::default(); 256];
        for (slot, size) in &self.0 {
            let protocol = match usize::from(*slot).checked_sub(PROTOCOLS) {
                Some(protocol) => protocol,
                None => usize::from(WITH_PORTS[usize::from(*slot) / PLACES]),
            };
            sizes[protocol] += *size;
        }
        (0..=u8::MAX).zip(sizes).filter(|(_, size)| size.packets > 0)
    }

    /// The known ports with a packet, as protocol, port and size.
    pub fn ports(&self) -> impl Iterator<Item = (u8, u16, Size)> {
        let port = |place: usize| match place.checked_sub(WELL_KNOWN) {
            None => Some(place as u16),
            Some(at) => REGISTERED.get(at).copied(),
        };
        let met = self.0.iter().map(|(slot, size)| (usize::from(*slot), *size));
        let met = met.filter(|(slot, _)| *slot < PROTOCOLS);
        met.filter_map(move |(at, size)| Some((WITH_PORTS[at / PLACES], port(at % PLACES)?, size)))
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

    /// Five packets over TCP and UDP, two of them to ports without a counter of their own, and one of ICMP.
    fn counted() -> Services {
        let mut services = Services::default();
        let packets = [(6, 80), (17, 53), (6, 80), (17, 50_000), (6, 40_000)];
        let tuples = packets.map(|(protocol, port): (u8, u16)| {
            let [high, low] = port.to_be_bytes();
            Tuple::new([0; 8], [0xff, 0xff, high, low], protocol)
        });
        services.add_all(&tuples, &[60, 70, 80, 90, 100]);
        services.add_protocol(1, 110);
        services
    }

    fn of(packets: u64, bytes: u64) -> Size {
        Size { packets, bytes }
    }

    #[test]
    fn packets_count_by_protocol_and_known_port() {
        let counts = counted().counts();
        let protocols: Vec<_> = counts.protocols().collect();
        assert_eq!(protocols, [(1, of(1, 110)), (6, of(3, 240)), (17, of(2, 160))]);
        let ports: Vec<_> = counts.ports().collect();
        assert_eq!(ports, [(6, 80, of(2, 140)), (17, 53, of(1, 70))]);
    }

    #[test]
    fn counts_add_up() {
        let (mut services, mut counts) = (counted(), counted().counts());
        services.merge(&counted());
        counts.merge(&counted().counts());
        for counts in [counts, services.counts()] {
            assert_eq!(counts.protocols().next(), Some((1, of(2, 220))));
            assert_eq!(
                counts.ports().collect::<Vec<_>>(),
                [(6, 80, of(4, 280)), (17, 53, of(2, 140))]
            );
        }
    }

    #[test]
    fn nothing_is_left_after_clearing() {
        let mut services = counted();
        services.clear();
        assert_eq!(services.counts().protocols().count(), 0);
        services.merge(&counted());
        assert_eq!(services.counts().protocols().count(), 3);
    }
}
