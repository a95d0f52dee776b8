//! Reports as CSV: one table for each task, over all epochs.
//!
//! Every table begins with the columns `epoch` and `table`, so that its rows say by themselves
//! where they belong. An estimate takes four columns: its value, `_low`, `_high` and
//! `_confidence`, the last empty where the bounds always hold. Tables are separated by an empty
//! line, which stands nowhere else: a line break in a cell is written as an escape.

use std::fmt::Display;
use std::io::{self, Write};

use flowgauge_core::key::{Fields, KeyKind, KeySpec};
use flowgauge_core::summary::{Estimate, Measure, SizeEstimate};
use flowgauge_core::task::Report;

use super::{Sink, escape, names, rfc3339};
use crate::account::Account;
use crate::report::{Breakdown, EpochReport, Gap, TotalReport};

/// Collects rows and writes all tables at the end of the run, when updates are of no use any more:
/// it leaves them out. Its memory grows with what is reported; JSON is the format for runs without an
/// end.
pub struct CsvSink<W> {
    out: W,
    tables: Vec<Table>,
}

/// One table: its header line and its rows, as they will be written.
struct Table {
    name: &'static str,
    text: String,
}

/// The cells of a row, with the names of their columns.
struct Row {
    columns: Vec<String>,
    cells: Vec<String>,
}

impl<W: Write> CsvSink<W> {
    /// Writes to `out` at the end of the run.
    pub fn new(out: W) -> Self {
        Self { out, tables: Vec::new() }
    }

    /// Makes the table, unless it is there already, and with it the header line that its rows
    /// have: an empty table says that nothing was found.
    fn table(&mut self, name: &'static str, columns: &Row) -> &mut Table {
        let at = self.tables.iter().position(|table| table.name == name).unwrap_or_else(|| {
            let text = format!("epoch,table,{}\n", columns.columns.join(","));
            self.tables.push(Table { name, text });
            self.tables.len() - 1
        });
        &mut self.tables[at]
    }

    /// Adds rows; `empty` gives the columns where there is no row.
    fn rows(
        &mut self,
        name: &'static str,
        epoch: Option<u64>,
        rows: impl Iterator<Item = Row>,
        empty: impl FnOnce() -> Row,
    ) {
        let mut rows = rows.peekable();
        if rows.peek().is_none() {
            self.table(name, &empty());
        }
        for row in rows {
            let table = self.table(name, &row);
            let epoch = epoch.map_or_else(String::new, |epoch| epoch.to_string());
            table.text.extend([&epoch, ",", name, ",", &row.cells.join(","), "\n"]);
        }
    }

    fn row(&mut self, name: &'static str, epoch: Option<u64>, row: Row) {
        self.rows(name, epoch, std::iter::once(row), Row::new);
    }
}

impl<W: Write + Send> Sink for CsvSink<W> {
    fn epoch(&mut self, report: &EpochReport) -> io::Result<()> {
        if report.update {
            return Ok(());
        }
        let summary = &report.summary;
        let mut row = times(report.start_ns, report.end_ns)
            .text("key", &report.key.to_string())
            .text("by", report.by.name())
            .text("algorithm", summary.algorithm)
            .text("accelerator", &summary.accelerator)
            .cell("memory_bytes", summary.memory_bytes);
        row = account(row, &report.account);
        self.row("epochs", Some(report.epoch), row);
        for (name, answer) in &report.tasks {
            self.task(name, answer, report);
        }
        if let Some(breakdown) = &report.breakdown {
            self.breakdown(report.epoch, breakdown);
        }
        for note in &report.notes {
            self.row("notes", Some(report.epoch), Row::new().text("note", note));
        }
        Ok(())
    }

    fn gap(&mut self, gap: &Gap) -> io::Result<()> {
        let row = times(Some(gap.start_ns), Some(gap.end_ns)).cell("epochs", gap.epochs);
        self.row("gaps", Some(gap.epoch), row);
        Ok(())
    }

    fn total(&mut self, report: &TotalReport) -> io::Result<()> {
        let row = times(report.start_ns, report.end_ns).cell("epochs", report.epochs);
        let row = account(row, &report.account).cell("irregular", report.irregular);
        self.row("total", None, row);
        for problem in &report.problems {
            self.row("problems", None, Row::new().text("problem", problem));
        }
        for note in &report.notes {
            self.row("notes", None, Row::new().text("note", note));
        }
        for (index, table) in self.tables.drain(..).enumerate() {
            if index > 0 {
                self.out.write_all(b"\n")?;
            }
            self.out.write_all(table.text.as_bytes())?;
        }
        self.out.flush()
    }
}

impl<W: Write> CsvSink<W> {
    fn task(&mut self, name: &'static str, answer: &Report, report: &EpochReport) {
        let (spec, epoch) = (report.key, Some(report.epoch));
        let nothing = Estimate::exact(0);
        // Columns without a row: those of a key that has every field of its kind.
        let no_key = || key_columns(spec.kind);
        match answer {
            Report::Sizes { threshold, items } => {
                let row = |key: Row, size: &SizeEstimate, share: f64| {
                    let row = key
                        .maybe_estimate("packets", size.packets.as_ref())
                        .maybe_estimate("bytes", size.bytes.as_ref());
                    let row = if name == "flow-size" { row } else { row.cell("share", share) };
                    match threshold {
                        Some(threshold) => row.cell("threshold", threshold),
                        None => row,
                    }
                };
                let rows = items
                    .iter()
                    .map(|i| row(key(spec, &spec.fields(i.key.as_bytes())), &i.size, i.share));
                self.rows(name, epoch, rows, || row(no_key(), &SizeEstimate::default(), 0.0));
            }
            Report::Spread { threshold, items } => {
                let kind = if name == "victims" { KeyKind::Destination } else { KeyKind::Source };
                let row = |key: Row, distinct: &Estimate| {
                    key.estimate("distinct", distinct).cell("threshold", threshold)
                };
                let rows = items.iter().map(|item| {
                    let fields = names::address_fields(spec, kind, &item.address);
                    row(key(spec, &fields), &item.distinct)
                });
                self.rows(name, epoch, rows, || row(key_columns(kind), &nothing));
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
                self.rows(name, epoch, rows, || row(no_key(), &nothing, &nothing, &nothing));
            }
            Report::Cardinality { flows } => {
                self.row(name, epoch, Row::new().estimate("flows", flows));
            }
            Report::Entropy { bits, normalized } => {
                let row = Row::new().estimate("bits", bits).cell("normalized", normalized);
                self.row(name, epoch, row);
            }
            Report::SizeDistribution { bins } => {
                let row = |size: u64, flows: &Estimate| {
                    Row::new().cell("size", size).estimate("flows", flows)
                };
                let rows = bins.iter().map(|(size, flows)| row(*size, flows));
                self.rows(name, epoch, rows, || row(0, &nothing));
            }
            Report::Quantiles { of, sizes, keys } => {
                let of = names::quantiles(*of).replace('-', "_");
                let row = |q: f64, size: &Estimate| Row::new().cell("q", q).estimate(&of, size);
                let rows = sizes.iter().map(|(q, size)| row(*q, size));
                self.rows(name, epoch, rows, || row(0.0, &nothing));
                for (q, flow) in keys {
                    let fields = spec.fields(flow.as_bytes());
                    self.row(
                        "key-quantiles",
                        epoch,
                        Row::new().cell("q", q).then(key(spec, &fields)),
                    );
                }
            }
            Report::Hierarchical { threshold, items } => {
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
                if !items.is_empty() {
                    self.rows(name, epoch, rows, Row::new);
                }
            }
        }
    }

    fn breakdown(&mut self, epoch: u64, breakdown: &Breakdown) {
        for (protocol, size) in &breakdown.protocols {
            let row = Row::new()
                .cell("protocol", protocol)
                .text("name", names::protocol_name(*protocol).unwrap_or_default())
                .cell("packets", size.packets)
                .cell("bytes", size.bytes);
            self.row("protocols", Some(epoch), row);
        }
        for (protocol, port, size) in &breakdown.ports {
            let row = Row::new()
                .cell("protocol", protocol)
                .cell("port", port)
                .text("name", names::service_name(*port).unwrap_or_default())
                .cell("packets", size.packets)
                .cell("bytes", size.bytes);
            self.row("ports", Some(epoch), row);
        }
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
