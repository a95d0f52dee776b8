//! One dimension: the prefixes of one address.

use std::iter::once;

use super::path::{Closed, Path};
use super::prefix::Address;
use crate::summary::Flows;
use crate::task::order;
use crate::terms::Measure;

/// Calls `report` with each prefix whose discounted weight exceeds `threshold`: address, level,
/// total and discounted weight.
///
/// Flows are sorted by address, in scratch of 8 bytes a flow; then one walk over the tree knows of
/// each prefix, when it closes, what its reported descendants left uncovered.
pub(super) fn walk(
    flows: &dyn Flows,
    by: Measure,
    address: &Address,
    threshold: f64,
    scratch: &mut [u64],
    mut report: impl FnMut(u128, usize, u64, u64),
) {
    let entries = &mut scratch[..flows.len()];
    order::number(entries);
    order::sort(entries, flows, &order::columns(once(address.field.clone())));

    let mut close = |closed: Closed<'_>| {
        let heavy = closed.node.uncovered as f64 > threshold;
        if heavy {
            report(closed.address, closed.level, closed.node.total, closed.node.uncovered);
        }
        heavy
    };
    let mut path = Path::new(&address.levels);
    for (place, &entry) in entries.iter().enumerate() {
        let (key, size) = flows.get(order::flow(entry));
        path.push(address.of(key), size.by(by), place, &mut close);
    }
    path.finish(flows.len(), &mut close);
}
