//! Reports as CSV: a table for each task of an epoch.
//!
//! A table begins with a line of column names, ends with an empty line, and contains no other one: a
//! line break in a cell is written as an escape. Its first columns are `measurement`, `epoch`
//! and `table`, so that its rows say by themselves where they belong. An estimate takes four columns: its value, `_low`,
//! `_high` and `_confidence`, the last empty where the bounds always hold.

use std::fmt::Display;
use std::io::{self, Write};

use flowgauge_core::key::{CanonicalKey, Fields, KeyKind, KeySpec};
use flowgauge_core::summary::{Estimate, SizeEstimate};
use flowgauge_core::task::{Finding, Report, Selection};
use flowgauge_core::terms::Measure;

use super::{Format, escape, findings, names, rfc3339};
use crate::account::Account;
use crate::report::{Breakdown, EpochReport, Gap, TotalReport, Traffic};

/// Tables for each epoch as it closes. Updates are left out: nothing would tell their rows from those
/// of the epoch.
pub struct Csv;

/// The cells of a row, with the names of their columns.
struct Row {
    columns: Vec<String>,
    cells: Vec<String>,
}

/// Where tables of one epoch are written.
struct Tables<'a> {
    out: &'a mut dyn Write,
    /// The cells that each row begins with.
    measurement: String,
    epoch: String,
}

impl<'a> Tables<'a> {
    fn new(out: &'a mut dyn Write, measurement: &str, epoch: String) -> Self {
        Self { out, measurement: quoted(measurement), epoch }
    }

    /// Writes a table; `empty` gives the columns where there is no row: an empty table says that
    /// nothing was found.
    fn table(
        &mut self,
        name: &str,
        rows: impl IntoIterator<Item = Row>,
        empty: impl FnOnce() -> Row,
    ) -> io::Result<()> {
        let mut rows = rows.into_iter();
        let first = rows.next();
        let columns = first.as_ref().map_or_else(|| empty().columns, |row| row.columns.clone());
        writeln!(self.out, "measurement,epoch,table,{}", columns.join(","))?;
        for row in first.into_iter().chain(rows) {
            let cells = row.cells.join(",");
            writeln!(self.out, "{},{},{name},{cells}", self.measurement, self.epoch)?;
        }
        writeln!(self.out)
    }

    /// Writes a table, unless it is empty.
    fn filled(&mut self, name: &str, rows: impl IntoIterator<Item = Row>) -> io::Result<()> {
        let mut rows = rows.into_iter().peekable();
        match rows.peek() {
            Some(_) => self.table(name, rows, Row::new),
            None => Ok(()),
        }
    }

    fn row(&mut self, name: &str, row: Row) -> io::Result<()> {
        self.filled(name, [row])
    }

    /// Writes a table of texts, unless it is empty.
    fn texts(&mut self, name: &str, column: &str, texts: &[String]) -> io::Result<()> {
        self.filled(name, texts.iter().map(|text| Row::new().text(column, text)))
    }
}

impl Format for Csv {
    fn epoch(&self, report: &EpochReport, out: &mut dyn Write) -> io::Result<()> {
        if report.update {
            return Ok(());
        }
        let mut tables = Tables::new(out, &report.measurement, report.epoch.to_string());
        let summary = &report.summary;
        let row = times(report.start_ns, report.end_ns)
            .cell("coverage", report.coverage)
            .text("key", &report.key.to_string())
            .text("by", report.by.name())
            .text("algorithm", summary.algorithm)
            .text("accelerator", &summary.accelerator)
            .cell("memory_bytes", summary.memory_bytes);
        let row = account(row, &report.account)
            .traffic(report.traffic, &report.account)
            .cell("undelivered", report.undelivered);
        tables.row("epochs", row)?;
        for (name, answer) in &report.tasks {
            tables.task(name, answer, report)?;
        }
        if let Some(breakdown) = &report.breakdown {
            tables.breakdown(breakdown)?;
        }
        tables.texts("notes", "note", &report.notes)
    }

    fn gap(&self, gap: &Gap, out: &mut dyn Write) -> io::Result<()> {
        let row = times(Some(gap.start_ns), Some(gap.end_ns)).cell("epochs", gap.epochs);
        Tables::new(out, &gap.measurement, gap.epoch.to_string()).row("gaps", row)
    }

    fn total(&self, report: &TotalReport, out: &mut dyn Write) -> io::Result<()> {
        let mut tables = Tables::new(out, &report.measurement, String::new());
        let row = times(report.start_ns, report.end_ns).cell("epochs", report.epochs);
        let row = account(row, &report.account)
            .traffic(report.traffic, &report.account)
            .cell("irregular", report.irregular)
            .cell("undelivered", report.undelivered);
        tables.row("total", row)?;
        tables.texts("problems", "problem", &report.problems)?;
        tables.texts("notes", "note", &report.notes)
    }
}

impl Tables<'_> {
    fn task(&mut self, name: &str, answer: &Report, report: &EpochReport) -> io::Result<()> {
        let spec = report.key;
        let nothing = Estimate::exact(0);
        // Columns without a row: those of a key that has every field of its kind.
        let no_key = || key_columns(spec.kind);
        match answer {
            Report::Sizes { selection, items, .. } => {
                let row = |key: Row, size: &SizeEstimate, share: f64| {
                    let row = key
                        .maybe_estimate("packets", size.packets.as_ref())
                        .maybe_estimate("bytes", size.bytes.as_ref());
                    let asked = *selection == Selection::Asked;
                    let row = if asked { row } else { row.cell("share", share) };
                    match selection.threshold() {
                        Some(threshold) => row.cell("threshold", threshold),
                        None => row,
                    }
                };
                let rows = items
                    .iter()
                    .map(|i| row(key(spec, &spec.fields(i.key.as_bytes())), &i.size, i.share));
                self.table(name, rows, || row(no_key(), &SizeEstimate::default(), 0.0))
            }
            Report::Findings { items, .. } => {
                self.filled(name, items.iter().map(|item| finding(item, report)))
            }
            Report::Addresses { side, items, .. } => {
                let row = |key: Row, size: &SizeEstimate, flows: u64, share: f64| {
                    key.maybe_estimate("packets", size.packets.as_ref())
                        .maybe_estimate("bytes", size.bytes.as_ref())
                        .cell("flows", flows)
                        .cell("share", share)
                };
                let rows = items.iter().map(|item| {
                    let fields = names::address_fields(spec, *side, &item.address);
                    row(key(spec, &fields), &item.size, item.flows, item.share)
                });
                let empty = || key_columns(names::address_kind(*side));
                self.table(name, rows, || row(empty(), &SizeEstimate::default(), 0, 0.0))
            }
            Report::Spread { side, threshold, items, .. } => {
                let row = |key: Row, distinct: &Estimate| {
                    key.estimate("distinct", distinct).cell("threshold", threshold)
                };
                let rows = items.iter().map(|item| {
                    let fields = names::address_fields(spec, *side, &item.address);
                    row(key(spec, &fields), &item.distinct)
                });
                self.table(name, rows, || row(key_columns(names::address_kind(*side)), &nothing))
            }
            Report::Changes { items, .. } => {
                let row = |key: Row, before: &Estimate, forecast: &Estimate, now: &Estimate| {
                    key.estimate("before", before)
                        .estimate("forecast", forecast)
                        .estimate("now", now)
                };
                let rows = items.iter().map(|i| {
                    let key = key(spec, &spec.fields(i.key.as_bytes()));
                    row(key, &i.before, &i.forecast, &i.now)
                });
                self.table(name, rows, || row(no_key(), &nothing, &nothing, &nothing))
            }
            Report::Cardinality { flows } => self.row(name, Row::new().estimate("flows", flows)),
            Report::Entropy { bits, normalized } => {
                self.row(name, Row::new().estimate("bits", bits).cell("normalized", normalized))
            }
            Report::SizeDistribution { bins } => {
                let row = |size: u64, flows: &Estimate| {
                    Row::new().cell("size", size).estimate("flows", flows)
                };
                let rows = bins.iter().map(|(size, flows)| row(*size, flows));
                self.table(name, rows, || row(0, &nothing))
            }
            Report::Quantiles { of, sizes, keys } => {
                let of = names::quantiles(*of).replace('-', "_");
                let row = |q: f64, size: &Estimate| Row::new().cell("q", q).estimate(&of, size);
                let rows = sizes.iter().map(|(q, size)| row(*q, size));
                self.table(name, rows, || row(0.0, &nothing))?;
                let rows = keys.iter().map(|(q, flow)| {
                    Row::new().cell("q", q).then(key(spec, &spec.fields(flow.as_bytes())))
                });
                self.filled("key-quantiles", rows)
            }
            Report::Hierarchical { threshold, items, .. } => {
                let rows = items.iter().map(|item| {
                    let source = names::prefix(&item.source, item.source_bits);
                    let row = match &item.destination {
                        Some((address, bits)) => Row::new()
                            .text("source", &source)
                            .text("destination", &names::prefix(address, *bits)),
                        None => Row::new().text("prefix", &source),
                    };
                    let total = |measure| (measure == report.by).then_some(&item.total);
                    row.maybe_estimate("packets", total(Measure::Packets))
                        .maybe_estimate("bytes", total(Measure::Bytes))
                        .estimate("discounted", &item.discounted)
                        .cell("threshold", threshold)
                });
                // Without an item nothing tells one dimension from two: no table.
                self.filled(name, rows)
            }
        }
    }

    fn breakdown(&mut self, breakdown: &Breakdown) -> io::Result<()> {
        let protocols = breakdown.protocols.iter().map(|(protocol, size)| {
            Row::new()
                .cell("protocol", protocol)
                .text("name", names::protocol_name(*protocol).unwrap_or_default())
                .cell("packets", size.packets)
                .cell("bytes", size.bytes)
        });
        self.filled("protocols", protocols)?;
        let ports = breakdown.ports.iter().map(|(protocol, port, size)| {
            Row::new()
                .cell("protocol", protocol)
                .cell("port", port)
                .text("name", names::service_name(*port).unwrap_or_default())
                .cell("packets", size.packets)
                .cell("bytes", size.bytes)
        });
        self.filled("ports", ports)
    }
}

impl Row {
    fn new() -> Self {
        Self { columns: Vec::new(), cells: Vec::new() }
    }

    /// A number, or another cell that needs no quotes.
    fn cell(mut self, column: &str, value: impl Display) -> Self {
        self.columns.push(column.to_owned());
        self.cells.push(value.to_string());
        self
    }

    fn text(self, column: &str, value: &str) -> Self {
        self.cell(column, quoted(value))
    }

    fn estimate(self, column: &str, estimate: &Estimate) -> Self {
        self.maybe_estimate(column, Some(estimate))
    }

    fn maybe_estimate(self, column: &str, estimate: Option<&Estimate>) -> Self {
        let cell = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        self.cell(column, cell(estimate.map(|e| e.value)))
            .cell(&format!("{column}_low"), cell(estimate.map(|e| e.low)))
            .cell(&format!("{column}_high"), cell(estimate.map(|e| e.high)))
            .cell(&format!("{column}_confidence"), cell(estimate.and_then(|e| e.confidence)))
    }

    /// The keyed traffic, where a sample of it was read.
    fn traffic(self, traffic: Option<Traffic>, account: &Account) -> Self {
        match traffic {
            Some(traffic) => self.estimate("traffic", &traffic.estimate(account)),
            None => self,
        }
    }

    fn then(mut self, other: Self) -> Self {
        self.columns.extend(other.columns);
        self.cells.extend(other.cells);
        self
    }
}

fn times(start_ns: Option<i64>, end_ns: Option<i64>) -> Row {
    let time = |ns: Option<i64>| ns.map_or_else(String::new, rfc3339);
    Row::new().cell("start", time(start_ns)).cell("end", time(end_ns))
}

fn account(row: Row, account: &Account) -> Row {
    row.cell("read", account.read)
        .cell("skipped", account.skipped.packets)
        .cell("skipped_bytes", account.skipped.bytes)
        .cell("filtered", account.filtered)
        .cell("malformed", account.malformed)
        .cell("no_key", account.no_key)
        .cell("keyed", account.keyed)
        .cell("keyed_bytes", account.keyed_bytes)
        .cell("untracked", account.untracked.packets)
        .cell("untracked_bytes", account.untracked.bytes)
        .cell("dropped", account.dropped.packets)
        .cell("dropped_bytes", account.dropped.bytes)
        .cell("lost", account.lost)
        .cell("saturated", account.saturated.packets)
        .cell("saturated_bytes", account.saturated.bytes)
        .cell("late", account.late)
        .cell("backwards", account.backwards)
        .cell("jumps", account.jumps)
}

fn key(spec: KeySpec, fields: &Fields) -> Row {
    let mut row = Row::new();
    for (column, address) in [("source", fields.source), ("destination", fields.destination)] {
        if let Some(address) = address {
            row = row.cell(column, names::address(spec, address));
        }
    }
    for (column, port) in
        [("source_port", fields.source_port), ("destination_port", fields.destination_port)]
    {
        if let Some(port) = port {
            row = row.cell(column, port);
        }
    }
    match fields.protocol {
        Some(protocol) => row.cell("protocol", protocol),
        None => row,
    }
}

fn finding(item: &Finding, report: &EpochReport) -> Row {
    let address = |key: Option<&CanonicalKey>| {
        findings::address(key).map_or_else(String::new, |address| address.to_string())
    };
    let (start_ns, end_ns) = item.span_ns.unzip();
    Row::new()
        .text("kind", item.kind.name())
        .text("text", &findings::sentence(item, report))
        .cell("source", address(item.source.as_ref()))
        .cell("destination", address(item.destination.as_ref()))
        .cell("protocol", item.protocol.map_or_else(String::new, |number| number.to_string()))
        .cell("port", item.port.map_or_else(String::new, |number| number.to_string()))
        .maybe_estimate("packets", item.size.packets.as_ref())
        .maybe_estimate("bytes", item.size.bytes.as_ref())
        .cell("share", item.share)
        .maybe_estimate("peers", item.peers.as_ref())
        .then(times(start_ns, end_ns))
        .text("tcp_flags", &item.flags.map(findings::flag_names).unwrap_or_default())
        .text("filter", &findings::filter(item, report.key).unwrap_or_default())
}

/// The columns of a key of this kind: those of its all-zero IPv4 key.
fn key_columns(kind: KeyKind) -> Row {
    let bytes = match kind {
        KeyKind::FiveTuple => 13,
        KeyKind::Pair => 8,
        KeyKind::Source | KeyKind::Destination | KeyKind::Protocol | KeyKind::DestinationPort => 4,
    };
    let spec = KeySpec::from(kind);
    key(spec, &spec.fields(&[0; 13][..bytes]))
}

/// A cell that reads back as `text` and that no spreadsheet takes for a formula. Where it would
/// begin like one, or with an apostrophe, an apostrophe stands before it; control characters are
/// escapes, and a backslash is doubled.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', r"\\");
    let text = escape::visible(&text);
    let formula = text.trim_start().starts_with(['=', '+', '-', '@', '\'']);
    let guard = if formula { "'" } else { "" };
    // Quotes also keep spaces at the ends from readers who trim.
    if text.contains(['"', ',']) || text.trim().len() < text.len() {
        format!("\"{guard}{}\"", text.replace('"', "\"\""))
    } else {
        format!("{guard}{text}")
    }
}
