//! What tasks ask of a lane: its flows, and where the fields of its keys stand.

use std::ops::Range;

use super::{Lane, Unsupported};
use crate::key::Field;
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
            "{task} needs {instead}, or a table of every flow; use --algorithm linear-table"
        ))
    })?;
    if u32::try_from(flows.len()).is_err() {
        return Err(Unsupported(format!(
            "{task} supports at most 4294967295 flows; use shorter epochs"
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

    /// The field that has the address of this end.
    pub fn address(self) -> Field {
        match self {
            Self::Source => Field::Source,
            Self::Destination => Field::Destination,
        }
    }

    /// The field that has its port.
    pub(super) fn port(self) -> Field {
        match self {
            Self::Source => Field::SourcePort,
            Self::Destination => Field::DestinationPort,
        }
    }
}

impl Lane<'_> {
    /// Where a field of one end stands in the lane's keys; `None` where they lack it, or do not tell the
    /// ends apart.
    pub(super) fn place(&self, field: Field) -> Option<Range<usize>> {
        self.key.place(field, self.key_bytes).filter(|_| !self.key.kind().is_in_order())
    }
}
