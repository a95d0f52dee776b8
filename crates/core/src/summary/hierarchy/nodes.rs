//! The prefixes that a hierarchy looks at: its nodes, from the keys themselves to the root.

use super::super::{BuildError, BuildErrorKind, Options};
use crate::key::{FlowKey, prefix_mask};
use crate::sorting::sort_by;
use crate::terms::Hierarchy;

/// The prefix lengths of a node, with the bits of a key that they keep.
#[derive(Clone, Copy)]
pub(super) struct Node<K> {
    /// Bits of the source, or of the only address.
    pub(super) source: u8,
    /// Bits of the destination; 0 where there is one address.
    pub(super) destination: u8,
    pub(super) mask: K,
}

impl<K: FlowKey> Node<K> {
    fn new(key_bytes: usize, address_bytes: usize, source: u8, destination: u8) -> Option<Self> {
        let mut mask = [0; 32];
        for (at, bits) in [(0, source), (address_bytes, destination)] {
            let bytes = prefix_mask(bits).to_be_bytes();
            mask[at..at + address_bytes].copy_from_slice(&bytes[..address_bytes]);
        }
        Some(Self { source, destination, mask: K::from_canonical(mask.get(..key_bytes)?)? })
    }

    /// Prefixes that there are, or more than can be counted.
    pub(super) fn prefixes(&self) -> usize {
        1usize
            .checked_shl(u32::from(self.source) + u32::from(self.destination))
            .unwrap_or(usize::MAX)
    }
}

/// Nodes at most: those of pairs of IPv6 addresses, by bytes.
pub(super) const MOST_NODES: usize = 17 * 17;

/// The number of nodes over IPv4 addresses.
pub(super) fn ipv4_nodes(hierarchy: Hierarchy) -> usize {
    match hierarchy {
        Hierarchy::Bytes => 5,
        Hierarchy::Bits => 33,
        Hierarchy::Pair => 5 * 5,
    }
}

/// Whether the keys of these options are those of the hierarchy.
pub(super) fn fits(algorithm: &'static str, options: &Options) -> Result<(), BuildError> {
    let (hierarchy, key_bytes) = (options.hierarchy, options.digester.key_bytes());
    let keys = match hierarchy {
        Hierarchy::Bytes | Hierarchy::Bits => [4, 16],
        Hierarchy::Pair => [8, 32],
    };
    if !keys.contains(&key_bytes) {
        let keys = match hierarchy {
            Hierarchy::Pair => "--hierarchy pair needs --key pair",
            _ if [8, 32].contains(&key_bytes) => {
                "this hierarchy is over one address; use --hierarchy pair, --key source or destination"
            }
            _ => "this hierarchy is over one address; use --key source or destination",
        };
        let reason = format!("{keys}, or linear-table, which answers for any key");
        return Err(BuildErrorKind::Unfit { algorithm, reason }.into());
    }
    Ok(())
}

/// The nodes of a hierarchy over keys of type `K`, each one after all that are below it.
pub(super) fn nodes<K: FlowKey>(
    algorithm: &'static str,
    options: &Options,
) -> Result<Vec<Node<K>>, BuildError> {
    let (hierarchy, key_bytes) = (options.hierarchy, options.digester.key_bytes());
    fits(algorithm, options)?;
    let step = if hierarchy == Hierarchy::Bits { 1 } else { 8 };
    let one_address = hierarchy != Hierarchy::Pair;
    let address_bytes = if one_address { key_bytes } else { key_bytes / 2 };
    let bits = 8 * address_bytes as u8;
    let mut nodes: Vec<Node<K>> = Vec::new();
    for source in (0..=bits).step_by(step) {
        let most = if one_address { 0 } else { bits };
        let destinations = (0..=most).step_by(step);
        let node = |bits| Node::new(key_bytes, address_bytes, source, bits);
        nodes.extend(destinations.filter_map(node));
    }
    let bits = |node: &Node<K>| u16::from(node.source) + u16::from(node.destination);
    sort_by(&mut nodes, &|one, other| bits(other).cmp(&bits(one)));
    Ok(nodes)
}
