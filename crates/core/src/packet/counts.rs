//! How many packets had no key, by reason.

use super::{Fault, Layer, LinkType, Malformed, NoKey};

/// Packets without a key, by reason. A fixed size, so that counting never allocates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeylessCounts {
    malformed: [[u64; Fault::ALL.len()]; Layer::ALL.len()],
    no_key: [u64; NoKey::ALL.len()],
    unread: Option<LinkType>,
}

impl KeylessCounts {
    /// Counts a malformed packet.
    #[cold]
    pub fn count_malformed(&mut self, malformed: Malformed) {
        *self.malformed_mut(malformed.layer, malformed.fault) += 1;
    }

    /// The malformed packets of one reason.
    pub fn malformed_mut(&mut self, layer: Layer, fault: Fault) -> &mut u64 {
        &mut self.malformed[layer as usize][fault as usize]
    }

    /// Counts a packet without a key.
    #[cold]
    pub fn count_no_key(&mut self, reason: NoKey) {
        *self.no_key_mut(reason) += 1;
    }

    /// Counts a packet of a link type that is not read.
    #[cold]
    pub fn count_unread(&mut self, link: LinkType) {
        *self.no_key_mut(NoKey::LinkType) += 1;
        self.unread = least(self.unread, Some(link));
    }

    /// A link type that is not read, the one with the lowest number of those met.
    pub fn unread(&self) -> Option<LinkType> {
        self.unread
    }

    /// The sound packets without a key of one reason.
    pub fn no_key_mut(&mut self, reason: NoKey) -> &mut u64 {
        &mut self.no_key[reason as usize]
    }

    /// All malformed packets.
    pub fn malformed(&self) -> u64 {
        self.malformed.iter().flatten().sum()
    }

    /// All sound packets without a key.
    pub fn no_key(&self) -> u64 {
        self.no_key.iter().sum()
    }

    /// Malformed packets by layer and fault, in their order; reasons without a packet are left out.
    pub fn malformed_reasons(&self) -> impl Iterator<Item = (Layer, Fault, u64)> {
        let of = |layer: Layer| {
            Fault::ALL.map(|fault| (layer, fault, self.malformed[layer as usize][fault as usize]))
        };
        Layer::ALL.into_iter().flat_map(of).filter(|(.., packets)| *packets > 0)
    }

    /// Sound packets without a key by reason, in their order; reasons without a packet are left out.
    pub fn no_key_reasons(&self) -> impl Iterator<Item = (NoKey, u64)> {
        let of = |reason: NoKey| (reason, self.no_key[reason as usize]);
        NoKey::ALL.into_iter().map(of).filter(|(_, packets)| *packets > 0)
    }

    /// Adds the counts of other packets.
    pub fn add(&mut self, other: &Self) {
        let own = self.malformed.iter_mut().flatten().chain(&mut self.no_key);
        let others = other.malformed.iter().flatten().chain(&other.no_key);
        own.zip(others).for_each(|(own, other)| *own += other);
        self.unread = least(self.unread, other.unread);
    }
}

/// The lowest-numbered link type.
fn least(one: Option<LinkType>, other: Option<LinkType>) -> Option<LinkType> {
    one.into_iter().chain(other).min_by_key(|link| link.0)
}
