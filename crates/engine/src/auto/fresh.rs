//! Flows that a sample has not seen.
//!
//! Whoever reads a sample again meets the same flows, where a run meets new ones, for which tables
//! grow and caches are too small. By Good and Turing the next packet belongs to a new flow with a
//! chance that is the share of packets whose flow occurs once. So these belong to other flows
//! each time around.

use std::collections::HashSet;

use flowgauge_core::key::{CanonicalKey, Extract, FlowKey, Key4, Key8, Key16, Key37, KeySpec};
use flowgauge_core::packet::{Extras, Frame, Headers, Ip, Tunnels};

/// Where in a sample the addresses of a packet stand.
pub(super) struct Fresh {
    /// The packet's number.
    pub(super) packet: usize,
    /// Where the bytes begin, and how many an address has.
    at: usize,
    bytes: usize,
}

impl Fresh {
    /// Gives the packet addresses that it did not have before, for 65,536 times. They differ in their
    /// last two bytes, so that filters and prefixes mostly see the same.
    pub(super) fn renew(&self, bytes: &mut [u8]) {
        const ODD: u16 = 0x9e37;
        for end in [self.at + self.bytes, self.at + 2 * self.bytes] {
            let low = u16::from_be_bytes([bytes[end - 2], bytes[end - 1]]).wrapping_add(ODD);
            bytes[end - 2..end].copy_from_slice(&low.to_be_bytes());
        }
    }
}

/// Those of the packets whose keys are among `once`.
pub(super) fn fresh<'a>(
    packets: impl Iterator<Item = (usize, Frame<'a>)>,
    key: KeySpec,
    tunnels: Tunnels,
    once: &HashSet<CanonicalKey>,
) -> Vec<Fresh> {
    let one = |(packet, (begin, frame)): (usize, (usize, Frame<'_>))| {
        let (captured, extras) = (frame.bytes, Extras::read(&frame, tunnels));
        let (flow, at, bytes) = match &tunnels.read(&frame).0 {
            Headers::V4(ip) => (v4(key, ip, &extras)?, place(captured, &ip.addresses)?, 4),
            Headers::V6(ip) => (v6(key, ip, &extras)?, place(captured, &ip.addresses)?, 16),
            Headers::NoKey(_) | Headers::Unread(_) | Headers::Malformed(_) => return None,
        };
        once.contains(&flow).then_some(Fresh { packet, at: begin + at, bytes })
    };
    packets.enumerate().filter_map(one).collect()
}

/// Where both addresses stand in a packet.
fn place(captured: &[u8], addresses: &[u8]) -> Option<usize> {
    captured.windows(addresses.len()).position(|bytes| bytes == addresses)
}

fn v4(key: KeySpec, ip: &Ip<8>, extras: &Extras) -> Option<CanonicalKey> {
    match key.lanes() {
        [4, _] => of::<Key4, 8>(key, ip, extras),
        [8, _] => of::<Key8, 8>(key, ip, extras),
        [_, _] => of::<Key16, 8>(key, ip, extras),
        // Other addresses are no other keys.
        _ => None,
    }
}

fn v6(key: KeySpec, ip: &Ip<32>, extras: &Extras) -> Option<CanonicalKey> {
    match key.lanes() {
        [_, 16] => of::<Key16, 32>(key, ip, extras),
        [_, _] => of::<Key37, 32>(key, ip, extras),
        _ => None,
    }
}

fn of<K: FlowKey + Extract<N>, const N: usize>(
    key: KeySpec,
    ip: &Ip<N>,
    extras: &Extras,
) -> Option<CanonicalKey> {
    let key_bytes = key.lanes()[usize::from(N == 32)];
    let flow = K::extract_bits(key.kind(), ip, extras, key.mask(key_bytes)).ok()?;
    Some(CanonicalKey::new(flow.canonical(key_bytes)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use std::collections::HashMap;

    use flowgauge_core::key::KeyKind;
    use flowgauge_synthetic::{Config, Profile, Traffic};

    use super::super::Sample;
    use super::*;
    use crate::source::{Burst, Columns, Source};

    fn keys<'a>(key: KeySpec, frames: impl Iterator<Item = Frame<'a>>) -> Vec<CanonicalKey> {
        let parsed = frames.map(|frame| flowgauge_core::packet::parse(frame.link, frame.bytes));
        let key = |headers| match headers {
            Headers::V4(ip) => v4(key, &ip, &Extras::default()),
            Headers::V6(ip) => v6(key, &ip, &Extras::default()),
            _ => None,
        };
        parsed.map(|headers| key(headers).unwrap()).collect()
    }

    #[test]
    fn flows_that_occur_once_are_others_each_time_around() {
        let profile = Profile::Backbone { flows: Some(2000) };
        for kind in [KeyKind::SOURCE, KeyKind::PAIR, KeyKind::FIVE_TUPLE] {
            let key = KeySpec::from(kind);
            let config = Config { profile, packets: 3000, ..Config::default() };
            let mut sample = Sample::generated(Traffic::new(config).unwrap());
            let first = keys(key, sample.packets().map(|(_, frame)| frame));
            let mut sizes = HashMap::new();
            for flow in &first {
                *sizes.entry(*flow).or_insert(0) += 1;
            }
            let once =
                sizes.iter().filter(|(_, size)| **size == 1).map(|(flow, _)| *flow).collect();
            sample.renew(fresh(sample.packets(), key, Tunnels::Outer, &once));
            let mut replay = sample.replay(3000, 9000);
            let (mut seen, mut columns) = (Vec::new(), Columns::default());
            loop {
                let mut burst = Burst::new(&mut columns);
                if !replay.poll(&mut burst).unwrap() {
                    break;
                }
                seen.extend(keys(key, burst.frames().iter()));
            }
            assert_eq!(seen.len(), 9000);
            assert!(once.len() > 100 && once.len() < 2900, "{kind:?} {}", once.len());
            let mut new = HashSet::new();
            for around in seen.chunks(3000) {
                for (now, first) in around.iter().zip(&first) {
                    if once.contains(first) {
                        new.insert(*now);
                    } else {
                        assert_eq!(now, first);
                    }
                }
            }
            // Few meet others by chance.
            assert!(new.len() > 3 * once.len() * 99 / 100, "{kind:?} {}", new.len());
        }
    }
}
