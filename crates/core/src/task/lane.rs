//! What tasks ask of a lane: its flows, and where the fields of its keys stand.

use std::ops::Range;

use super::{Lane, Unsupported};
use crate::key::KeyKind;
use crate::summary::{Estimate, Flows};

/// Every flow of the lane with its exact size, at most 2³² of them. A summary that does not keep them
/// could have had `instead`, and has not.
pub(super) fn exact<'a>(
    task: &str,
    instead: &str,
    lane: &Lane<'a>,
) -> Result<&'a dyn Flows, Unsupported> {
    let flows = lane.answers.flows().ok_or_else(|| {
        Unsupported(format!(
            "{task} needs {instead}, or a table of every flow, such as the algorithm linear-table"
        ))
    })?;
    if u32::try_from(flows.len()).is_err() {
        return Err(Unsupported(format!(
            "{task} cannot number more than 4294967295 flows; close epochs sooner"
        )));
    }
    Ok(flows)
}

/// The sum of estimates that do not depend on each other.
pub(super) fn all_hold(parts: &[Estimate]) -> Estimate {
    let sum = |part: fn(&Estimate) -> f64| parts.iter().map(part).sum();
    Estimate {
        value: sum(|part| part.value),
        low: sum(|part| part.low),
        high: sum(|part| part.high),
        confidence: parts.iter().filter_map(|part| part.confidence).reduce(|a, b| a * b),
    }
}

/// One end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The source.
    Source,
    /// The destination.
    Destination,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }
}

/// Where the fields of a lane's keys stand in their canonical bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    kind: KeyKind,
    /// Bytes of an address: 4 or 16.
    pub(super) address_bytes: usize,
    /// Bits of an address that the key keeps.
    pub(super) address_bits: u8,
}

impl Layout {
    pub(super) fn of(lane: &Lane<'_>) -> Self {
        let (address_bytes, address_bits) = lane.key.address(lane.key_bytes);
        Self { kind: lane.key.kind, address_bytes, address_bits }
    }

    /// The address of this side, where the key has it.
    pub(super) fn address(&self, side: Side) -> Option<Range<usize>> {
        let size = self.address_bytes;
        match (self.kind, side) {
            (KeyKind::Source | KeyKind::Pair | KeyKind::FiveTuple, Side::Source)
            | (KeyKind::Destination, Side::Destination) => Some(0..size),
            (KeyKind::Pair | KeyKind::FiveTuple, Side::Destination) => Some(size..2 * size),
            _ => None,
        }
    }

    /// The port of this side, where the key has it beside the address.
    pub(super) fn port(&self, side: Side) -> Option<Range<usize>> {
        let at = 2 * self.address_bytes;
        match (self.kind, side) {
            (KeyKind::FiveTuple, Side::Source) => Some(at..at + 2),
            (KeyKind::FiveTuple, Side::Destination) => Some(at + 2..at + 4),
            _ => None,
        }
    }
}
