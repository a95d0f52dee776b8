//! The five-tuples of flows: a seeded one-to-one map. Flows never collide, and neither the order of
//! addresses nor ports reveal the popularity of a flow.

use flowgauge_core::key::CanonicalKey;

use super::random::{Stream, mix};

/// IP protocol number of TCP.
pub(super) const TCP: u8 = 6;
/// IP protocol number of UDP.
pub(super) const UDP: u8 = 17;

/// The map from flow numbers to five-tuples. Each pair of a client and a server has one flow, so
/// 2^`host_bits` clients and as many servers give 2^(2 × `host_bits`) flows.
#[derive(Clone, Debug)]
pub(super) struct Flows {
    host_bits: u32,
    ipv6: f64,
    /// Keys of the four rounds of the permutation.
    rounds: [u64; 4],
    /// Decides ports, protocol, direction and the free bits of addresses.
    salt: u64,
}

/// The network bits of background addresses, which distinguish them from planted events.
pub(super) const IPV6_BACKGROUND: [u8; 4] = [0x20, 0x01, 0x0d, 0xb8];

/// The services of servers; all entries are equally frequent.
const SERVICES: [(u16, u8); 16] = [
    (443, TCP),
    (443, TCP),
    (443, TCP),
    (443, TCP),
    (443, TCP),
    (443, TCP),
    (80, TCP),
    (80, TCP),
    (80, TCP),
    (22, TCP),
    (25, TCP),
    (8080, TCP),
    (443, UDP),
    (443, UDP),
    (53, UDP),
    (123, UDP),
];

/// First octets of ordinary unicast addresses. Octets with a reserved block are excluded, including
/// 198, which planted events use.
const OCTETS: [u8; 215] = {
    let mut octets = [0; 215];
    let (mut octet, mut len) = (1, 0);
    while octet < 224 {
        if !matches!(octet, 10 | 100 | 127 | 169 | 172 | 192 | 198 | 203) {
            octets[len] = octet;
            len += 1;
        }
        octet += 1;
    }
    octets
};

impl Flows {
    /// A map with enough hosts for `flows` flows, some four per client and four per server.
    pub(super) fn new(flows: u64, ipv6: f64, seed: u64) -> Self {
        let start = Stream::Flows.seed(seed);
        Self {
            host_bits: (flows / 4).next_power_of_two().ilog2().clamp(8, 23),
            ipv6,
            rounds: std::array::from_fn(|i| mix(start ^ (i as u64 + 1))),
            salt: mix(start),
        }
    }

    /// Whether the flow is IPv6. Exactly the configured share of flows is, spread evenly over the
    /// ranks, so about that share of packets is IPv6, too.
    #[inline]
    fn is_ipv6(&self, flow: u64) -> bool {
        (flow as f64 * self.ipv6).floor() < ((flow + 1) as f64 * self.ipv6).floor()
    }

    /// The canonical five-tuple of a flow.
    #[inline]
    pub(super) fn five_tuple(&self, flow: u64) -> CanonicalKey {
        let (client, server) = self.hosts(flow);
        let bits = mix(flow ^ self.salt);
        let (service, protocol) = SERVICES[(bits & 15) as usize];
        let ephemeral = 0x8000 | (bits >> 8) as u16;
        let client = Endpoint { host: 2 * client, port: ephemeral };
        let server = Endpoint { host: 2 * server + 1, port: service };
        let (from, to) = if bits >> 63 == 0 { (client, server) } else { (server, client) };
        if self.is_ipv6(flow) {
            five_tuple(self.ipv6(from.host), self.ipv6(to.host), from.port, to.port, protocol)
        } else {
            five_tuple(self.ipv4(from.host), self.ipv4(to.host), from.port, to.port, protocol)
        }
    }

    /// The client and server of a flow, by a Feistel network, which is one-to-one for any round
    /// function.
    #[inline]
    fn hosts(&self, flow: u64) -> (u32, u32) {
        let mask = (1_u64 << self.host_bits) - 1;
        let (mut left, mut right) = (flow >> self.host_bits & mask, flow & mask);
        for round in self.rounds {
            (left, right) = (right, left ^ (mix(right ^ round) & mask));
        }
        (left as u32, right as u32)
    }

    /// An address: 24 bits scattered over the range, one-to-one because the factor is odd, and a
    /// first octet derived from them.
    #[inline]
    fn ipv4(&self, host: u32) -> [u8; 4] {
        let [_, b, c, d] = host.wrapping_mul(0x009e_3779).to_be_bytes();
        let [.., octet, _] = mix(u64::from(host) ^ self.salt).to_be_bytes();
        [OCTETS[usize::from(octet) * OCTETS.len() / 256], b, c, d]
    }

    /// An address: each host has its own subnet of the documentation prefix.
    #[inline]
    fn ipv6(&self, host: u32) -> [u8; 16] {
        let mut address = [0; 16];
        address[..4].copy_from_slice(&IPV6_BACKGROUND);
        address[4..8].copy_from_slice(&host.wrapping_mul(0x009e_3779).to_be_bytes());
        address[8..].copy_from_slice(&mix(u64::from(host) ^ self.salt).to_be_bytes());
        address
    }
}

struct Endpoint {
    host: u32,
    port: u16,
}

/// Canonical bytes of a five-tuple with addresses of `N` bytes.
#[inline]
pub(super) fn five_tuple<const N: usize>(
    source: [u8; N],
    destination: [u8; N],
    source_port: u16,
    destination_port: u16,
    protocol: u8,
) -> CanonicalKey {
    let mut bytes = [0; CanonicalKey::MAX_BYTES];
    bytes[..N].copy_from_slice(&source);
    bytes[N..2 * N].copy_from_slice(&destination);
    bytes[2 * N..2 * N + 2].copy_from_slice(&source_port.to_be_bytes());
    bytes[2 * N + 2..2 * N + 4].copy_from_slice(&destination_port.to_be_bytes());
    bytes[2 * N + 4] = protocol;
    CanonicalKey::new(&bytes[..2 * N + 5])
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn flows_have_distinct_address_pairs() {
        // The smallest map has 8 bits per host, so 65,536 flows use all of its address pairs.
        for (sized_for, asked) in [(1, 65_536), (300_000, 300_000)] {
            for ipv6 in [0.0, 0.3, 1.0] {
                let flows = Flows::new(sized_for, ipv6, 5);
                let pairs: HashSet<CanonicalKey> = (0..asked)
                    .map(|flow| {
                        let key = flows.five_tuple(flow);
                        CanonicalKey::new(&key.as_bytes()[..key.as_bytes().len() - 5])
                    })
                    .collect();
                assert_eq!(pairs.len() as u64, asked, "sized for {sized_for}, ipv6 {ipv6}");
            }
        }
    }

    #[test]
    fn the_share_of_ipv6_is_exact() {
        for (ipv6, expected) in [(0.0, 0), (0.1, 1_000), (0.25, 2_500), (1.0, 10_000)] {
            let flows = Flows::new(10_000, ipv6, 1);
            let count = (0..10_000).filter(|&f| flows.five_tuple(f).as_bytes().len() == 37).count();
            assert_eq!(count, expected);
        }
    }

    /// Spearman's ρ of rank against source address: within 5 standard errors of 0.
    #[test]
    fn addresses_do_not_reveal_popularity() {
        let flows = Flows::new(10_000, 0.0, 2);
        let mut by_address: Vec<u64> = (0..10_000).collect();
        by_address.sort_by_key(|&flow| flows.five_tuple(flow));
        let squares: f64 =
            by_address.iter().enumerate().map(|(i, &f)| (i as f64 - f as f64).powi(2)).sum();
        let rho = 1.0 - 6.0 * squares / (1e4 * (1e8 - 1.0));
        assert!(rho.abs() < 0.05, "ρ = {rho}");
    }
}
