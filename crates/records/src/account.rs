//! Counts of datagrams and records, of one exporter or of all.

use flowgauge_engine::source::{Counter, CounterKind};

/// The name of a count in an [`Account`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Datagrams received.
    Datagrams,
    /// Flow records and flow samples read.
    Records,
    /// The packets that they represent.
    Packets,
    /// Datagrams that are cut short or contradict themselves. Records before the fault count.
    Malformed,
    /// Datagrams of another format.
    UnknownVersion,
    /// Sets of records whose template is unknown, perhaps because it has not arrived yet.
    UnknownTemplate,
    /// Records without addresses or packets.
    NoFlow,
    /// Samples without a packet header of a known type.
    NoHeader,
    /// Records that represent more packets than the limit.
    TooLarge,
    /// Lost datagrams, by sequence numbers.
    LostDatagrams,
    /// Lost records, by sequence numbers.
    LostRecords,
    /// Jumps of sequence numbers that are not losses: restarts, or datagrams out of order.
    Restarts,
    /// Templates not kept: too many, too long, or empty.
    RefusedTemplates,
    /// Exporters evicted because there are too many.
    ForgottenExporters,
    /// Records that name a sampler whose rate is unknown, and count as not sampled.
    UnknownRate,
    /// Packets of records for which there was no time at the end.
    LostPackets,
    /// Datagrams that the kernel dropped, since the port was too slow.
    Dropped,
}

const COUNTS: [(Count, &str, CounterKind); 17] = [
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
    (Count::UnknownRate, "records_unknown_rate", CounterKind::Other),
    (Count::LostPackets, "record_packets_lost", CounterKind::Lost),
    (Count::Dropped, "records_dropped_datagrams", CounterKind::Lost),
];

/// The counts of one exporter, or of all.
///
/// ```
/// use flowgauge_records::{Collector, Count};
///
/// let mut collector = Collector::new(None);
/// collector.take(([192, 0, 2, 1], 2055).into(), b"not a flow record");
/// let account = collector.total();
/// assert_eq!((account.get(Count::Datagrams), account.get(Count::UnknownVersion)), (1, 1));
/// ```
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

    /// All counts, with their names.
    pub fn counters(&self) -> &[Counter] {
        &self.0
    }

    pub(crate) fn add(&mut self, count: Count, more: u64) {
        self.0[count as usize].count += more;
    }

    /// Adds the difference between two states of another account.
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
    fn counts_are_in_order() {
        for (index, (count, ..)) in COUNTS.into_iter().enumerate() {
            assert_eq!(count as usize, index);
        }
    }
}
