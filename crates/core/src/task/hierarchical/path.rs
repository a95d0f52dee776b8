//! The way from the root of a prefix tree to the address at hand.

/// A prefix that is open: addresses below it are still arriving.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Node {
    /// Weight of all flows below it.
    pub(super) total: u64,
    /// Weight of those that no reported descendant covers.
    pub(super) uncovered: u64,
    /// Number of the first flow below it, in the order of arrival.
    pub(super) start: usize,
}

/// A prefix whose last flow has arrived.
pub(super) struct Closed<'a> {
    /// Its level, counted from the root.
    pub(super) level: usize,
    /// An address below it, its first bit the highest.
    pub(super) address: u128,
    /// Its weights.
    pub(super) node: &'a mut Node,
    /// Number of the flow after its last one.
    pub(super) end: usize,
}

/// Walks a prefix tree over sorted addresses, from left to right and from the leaves to the root,
/// with one open prefix for each level.
///
/// Time: for each address, the levels that it does not share with the one before.
pub(super) struct Path<'a> {
    levels: &'a [u8],
    open: Vec<Node>,
    address: Option<u128>,
}

impl<'a> Path<'a> {
    /// A tree whose levels have these prefix lengths, from the root's 0 upwards.
    pub(super) fn new(levels: &'a [u8]) -> Self {
        Self { levels, open: vec![Node::default(); levels.len()], address: None }
    }

    /// Levels whose prefix both addresses share.
    pub(super) fn shared(levels: &[u8], a: u128, b: u128) -> usize {
        let bits = (a ^ b).leading_zeros();
        levels.partition_point(|&level| u32::from(level) <= bits)
    }

    /// Takes flow number `flow`, whose address is not below the last one's. Calls `close` for each
    /// prefix that ends before it, which returns whether the prefix covers its flows from now on.
    pub(super) fn push(
        &mut self,
        address: u128,
        weight: u64,
        flow: usize,
        close: impl FnMut(Closed<'_>) -> bool,
    ) {
        let shared = self.address.map_or(0, |last| Self::shared(self.levels, last, address));
        if shared < self.levels.len() {
            self.close_from(shared, flow, close);
            self.open[shared..].fill(Node { start: flow, ..Node::default() });
            self.address = Some(address);
        }
        if let Some(leaf) = self.open.last_mut() {
            leaf.total += weight;
            leaf.uncovered += weight;
        }
    }

    /// Closes all prefixes, `flows` flows having arrived.
    pub(super) fn finish(&mut self, flows: usize, close: impl FnMut(Closed<'_>) -> bool) {
        self.close_from(0, flows, close);
        self.address = None;
    }

    fn close_from(&mut self, shared: usize, end: usize, mut close: impl FnMut(Closed<'_>) -> bool) {
        let Some(address) = self.address else { return };
        for level in (shared..self.levels.len()).rev() {
            let (above, below) = self.open.split_at_mut(level);
            let node = &mut below[0];
            let covers = close(Closed { level, address, node, end });
            if let Some(parent) = above.last_mut() {
                parent.total += node.total;
                parent.uncovered += if covers { 0 } else { node.uncovered };
            }
        }
    }
}
