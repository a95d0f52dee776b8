//! Anonymous reports: addresses reveal no host, but shared prefixes stay visible.

use std::path::Path;
use std::sync::Arc;

use flowgauge_core::key::{CanonicalKey, Field, KeyKind, KeySpec};
use flowgauge_core::task::{Report, Side};
use flowgauge_engine::report::EpochReport;
use flowgauge_engine::sink::{Item, Sink, SinkError, Takes};
use serde::Deserialize;

use crate::Failure;

/// How addresses are made anonymous.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// By a permutation under a secret key that preserves prefixes.
    Prefix,
}

/// Wraps sinks so that they receive anonymous reports.
#[derive(Clone)]
pub(crate) struct Anonymizer(Permutation);

impl Anonymizer {
    /// Creates an agent's anonymizer. Its key is derived from the secret seed file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn new(seed: &Path) -> Result<Self, Failure> {
        Permutation::of(seed).map(Self)
    }

    /// Wraps a sink.
    pub(crate) fn before(&self, sink: Box<dyn Sink>) -> Box<dyn Sink> {
        Box::new(Anonymous { anonymizer: self.clone(), sink })
    }

    /// Replaces the addresses of a key.
    fn key(&self, spec: KeySpec, key: &mut CanonicalKey) {
        let mut bytes = key.as_bytes().to_vec();
        for field in [Field::Source, Field::Destination, Field::Host] {
            if let Some(place) = spec.place(field, bytes.len()) {
                self.0.apply(&mut bytes[place], spec.bits(field, key.as_bytes().len()));
            }
        }
        for field in [Field::SourceMac, Field::DestinationMac, Field::Mac] {
            if let Some(place) = spec.place(field, bytes.len()) {
                self.0.apply(&mut bytes[place], MAC_BITS);
            }
        }
        *key = CanonicalKey::new(&bytes);
    }

    fn prefix(&self, address: &mut CanonicalKey, bits: u8) {
        let mut bytes = address.as_bytes().to_vec();
        self.0.apply(&mut bytes, bits);
        *address = CanonicalKey::new(&bytes);
    }

    /// A copy of the report with replaced addresses, in the same order.
    fn report(&self, report: &EpochReport) -> EpochReport {
        let mut report = report.clone();
        let spec = report.key;
        for (_, answer) in &mut report.tasks {
            let alone = |side: Side, address: &mut CanonicalKey| {
                self.key(spec.alone(side.address()), address);
            };
            match answer {
                Report::Sizes { items, .. } => {
                    for item in items {
                        self.key(spec, &mut item.key);
                    }
                }
                Report::Changes { items, .. } => {
                    for item in items {
                        self.key(spec, &mut item.key);
                    }
                }
                Report::Quantiles { keys, .. } => {
                    for (_, key) in keys {
                        self.key(spec, key);
                    }
                }
                Report::Addresses { side, items, .. } => {
                    for item in items {
                        alone(*side, &mut item.address);
                    }
                }
                Report::Spread { side, items, .. } => {
                    for item in items {
                        alone(*side, &mut item.address);
                    }
                }
                Report::Findings { items, .. } => {
                    for item in items {
                        let ends = [item.source.as_mut(), item.destination.as_mut()];
                        for address in ends.into_iter().flatten() {
                            self.key(KeySpec::from(KeyKind::SOURCE), address);
                        }
                    }
                }
                Report::Hierarchical { items, .. } => {
                    for item in items {
                        self.prefix(&mut item.source, item.source_bits);
                        if let Some((address, bits)) = &mut item.destination {
                            self.prefix(address, *bits);
                        }
                    }
                }
                Report::Cardinality { .. }
                | Report::Entropy { .. }
                | Report::SizeDistribution { .. } => {}
            }
        }
        report
    }
}

/// A sink that receives anonymous reports.
struct Anonymous {
    anonymizer: Anonymizer,
    sink: Box<dyn Sink>,
}

impl Sink for Anonymous {
    fn takes(&self) -> Takes {
        self.sink.takes()
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        match item {
            Item::Epoch(report) => {
                self.sink.deliver(&Item::Epoch(Arc::new(self.anonymizer.report(report))))
            }
            // Neither has an address.
            Item::Gap(_) | Item::Total(_) => self.sink.deliver(item),
            // Snapshots hold real keys, so they are not passed on.
            Item::Snapshot(_) => Ok(()),
        }
    }

    fn lost(&mut self) -> u64 {
        self.sink.lost()
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.sink.finish()
    }
}

/// Context string of the key derivation.
const PURPOSE: &str = "flowgauge 2026 anonymize addresses";

/// Bits of a MAC address.
const MAC_BITS: u8 = 48;

/// The permutation under one key.
#[derive(Clone)]
struct Permutation {
    key: [u8; 32],
}

impl Permutation {
    /// The permutation of an agent, derived from its secret seed file.
    ///
    /// # Errors
    /// When the file cannot be read.
    fn of(seed: &Path) -> Result<Self, Failure> {
        let secret = std::fs::read(seed).map_err(|error| {
            Failure::Failed(format!("cannot read the seed {}: {error}", seed.display()))
        })?;
        Ok(Self { key: blake3::derive_key(PURPOSE, &secret) })
    }

    /// Maps the first `bits` bits of an address. The other bits are zero and stay zero.
    fn apply(&self, address: &mut [u8], bits: u8) {
        let before = address.to_vec();
        let mut left = bits;
        for (at, byte) in address.iter_mut().enumerate() {
            let bits = left.min(8);
            left -= bits;
            if bits == 0 {
                break;
            }
            *byte ^= self.flips(&before[..at], address_kind(before.len()), *byte, bits);
        }
    }

    /// The flips for the first `bits` bits of a byte, given the bytes before it.
    fn flips(&self, before: &[u8], kind: u8, byte: u8, bits: u8) -> u8 {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&[kind]).update(before);
        let tree = hasher.finalize();
        let mut flips = 0;
        // The prefix tree is stored level by level, with the root at 1.
        let mut node = 1_usize;
        for bit in 0..bits {
            let flip = tree.as_bytes()[node / 8] >> (node % 8) & 1;
            flips |= flip << (7 - bit);
            node = 2 * node + usize::from(byte >> (7 - bit) & 1);
        }
        flips
    }
}

/// Keeps the permutations of IPv4, IPv6 and MAC addresses apart.
fn address_kind(bytes: usize) -> u8 {
    match bytes {
        4 => 4,
        6 => MAC_BITS,
        _ => 6,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn permutation(key: u8) -> Permutation {
        Permutation { key: [key; 32] }
    }

    fn applied(key: u8, mut address: Vec<u8>, bits: u8) -> Vec<u8> {
        permutation(key).apply(&mut address, bits);
        address
    }

    fn common(one: &[u8], other: &[u8]) -> u32 {
        let differ = one.iter().zip(other).position(|(one, other)| one != other);
        differ.map_or(8 * one.len() as u32, |at| {
            8 * at as u32 + (one[at] ^ other[at]).leading_zeros()
        })
    }

    #[test]
    fn as_many_first_bits_are_common_before_and_behind() {
        println!("seed 7");
        let mut random = fastrand::Rng::with_seed(7);
        for size in [4, 16] {
            for _ in 0..2000 {
                let one: Vec<_> = (0..size).map(|_| random.u8(..)).collect();
                let mut other = one.clone();
                let bit = random.usize(..8 * size);
                other[bit / 8] ^= 0x80 >> (bit % 8);
                other[bit / 8..].iter_mut().skip(1).for_each(|byte| *byte = random.u8(..));
                let bits = 8 * size as u8;
                let (mapped, beside) =
                    (applied(1, one.clone(), bits), applied(1, other.clone(), bits));
                assert_eq!(common(&mapped, &beside), common(&one, &other));
                // A prefix alone is mapped like the prefix of an address.
                let kept = random.u8(..=bits);
                let mut prefix = one.clone();
                for at in usize::from(kept)..8 * size {
                    prefix[at / 8] &= !(0x80 >> (at % 8));
                }
                let short = applied(1, prefix, kept);
                assert!(common(&short, &mapped) >= u32::from(kept));
                let behind = usize::from(kept)..8 * size;
                assert!(behind.into_iter().all(|at| short[at / 8] & (0x80 >> (at % 8)) == 0));
            }
        }
    }

    #[test]
    fn mac_addresses_are_mapped_too() {
        let spec: KeySpec = "source-mac+vlan".parse().unwrap_or_else(|error| panic!("{error}"));
        let mapped = |text: &str| {
            let mut key = spec.parse_flow(text).unwrap_or_else(|error| panic!("{error}"));
            Anonymizer(permutation(1)).key(spec, &mut key);
            spec.fields(key.as_bytes())
        };
        let [one, other] = ["02:00:00:00:00:01", "02:00:00:00:00:02"].map(|mac| {
            let fields = mapped(&format!("source_mac={mac},vlan=7"));
            assert_eq!(fields.vlan, Some(7));
            let text = fields.source_mac.map(|mac| mac.to_string());
            assert_ne!(text.as_deref(), Some(mac));
            text
        });
        assert_ne!(one, other);
    }

    #[test]
    fn it_is_a_permutation_and_another_one_under_another_key() {
        let all = |key| -> Vec<_> {
            (0..=u16::MAX)
                .map(|it| applied(key, vec![10, 0, (it >> 8) as u8, it as u8], 32))
                .collect()
        };
        let (one, other) = (all(1), all(2));
        assert_eq!(one.iter().collect::<BTreeSet<_>>().len(), 65_536);
        let equal = one.iter().zip(&other).filter(|(one, other)| one == other).count();
        assert!(equal < 10, "{equal}");
        // Half of the bits change on average: 16 of 32, of 65,536 addresses with a common half.
        let flipped: u32 = one
            .iter()
            .zip(0..=u16::MAX)
            .map(|(mapped, it)| (u16::from_be_bytes([mapped[2], mapped[3]]) ^ it).count_ones())
            .sum();
        let mean = f64::from(flipped) / 65_536.0;
        assert!((mean - 8.0).abs() < 1.5, "{mean}");
    }
}
