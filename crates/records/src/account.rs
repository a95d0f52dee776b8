//! What became of the datagrams of an exporter, or of all.

use flowgauge_engine::source::{Counter, CounterKind};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Datagrams that came.
    Datagrams,
    /// Flow records and flow samples that were lent out as packets.
    Records,
    /// The packets that they stand for.
    Packets,
    /// Datagrams that end too early or contradict themselves; what was read before counts.
    Malformed,
    /// Datagrams of another format.
    UnknownVersion,
    /// Sets of records whose template is not known, or not yet.
    UnknownTemplate,
    /// Records without addresses or packets.
    NoFlow,
    /// Samples without the header of a packet of a known kind.
    NoHeader,
    /// Records that stand for more packets than one may.
    TooLarge,
    /// Datagrams that did not come, by their numbers.
    LostDatagrams,
    /// Records that did not come, by their numbers.
    LostRecords,
    /// Jumps of these numbers that are no loss: a restart, or datagrams out of order.
    Restarts,
    /// Templates that are not kept: too many, too long, or of no bytes.
    RefusedTemplates,
    /// Exporters forgotten, since there are too many.
    ForgottenExporters,
}

const COUNTS: [(Count, &str, CounterKind); 14] = [
    (Count::Datagrams, "record_datagrams", CounterKind::Other),
    (Count::Records, "records", CounterKind::Other),
    (Count::Packets, "record_packets", CounterKind::Other),
    (Count::Malformed, "records_malformed", CounterKind::Other),
    (Count::UnknownVersion, "records_unknown_version", CounterKind::Other),
    (Count::UnknownTemplate, "records_unknown_template", CounterKind::Other),
    (Count::NoFlow, "records_no_flow", CounterKind::Other),
    (Count::NoHeader, "records_no_header", CounterKind::Other),
    (Count::TooLarge, "records_too_large", CounterKind::Other),
    (Count::LostDatagrams, "records_lost_datagrams", CounterKind::Lost),
    (Count::LostRecords, "records_lost", CounterKind::Lost),
    (Count::Restarts, "records_restarts", CounterKind::Other),
    (Count::RefusedTemplates, "records_refused_templates", CounterKind::Other),
    (Count::ForgottenExporters, "records_forgotten_exporters", CounterKind::Other),
];

/// Counts of the datagrams of an exporter, or of all, and what came of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account([Counter; COUNTS.len()]);

impl Default for Account {
    fn default() -> Self {
        Self(COUNTS.map(|(_, name, kind)| Counter::new(name, kind)))
    }
}

impl Account {
    /// One count.
    pub fn get(&self, count: Count) -> u64 {
        self.0[count as usize].count
    }

    /// All of them, by name.
    pub fn counters(&self) -> &[Counter] {
        &self.0
    }

    pub(crate) fn add(&mut self, count: Count, more: u64) {
        self.0[count as usize].count += more;
    }

    /// Adds what another account has more than it had `before`.
    pub(crate) fn add_since(&mut self, now: &Self, before: &Self) {
        for ((own, now), before) in self.0.iter_mut().zip(&now.0).zip(&before.0) {
            own.count += now.count - before.count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_stands_in_its_place() {
        for (place, (count, ..)) in COUNTS.into_iter().enumerate() {
            assert_eq!(count as usize, place);
        }
    }
}
