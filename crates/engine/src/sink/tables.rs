//! Reports as tables, for programs that load columns: one table for each task, and the tables of
//! the run itself.
//!
//! A table has the same columns in every epoch of a measurement. The first columns are
//! `measurement`, `epoch` and `start`, so each row shows where it belongs. An estimate takes four
//! columns: its value, `_low`, `_high` and `_confidence`; the last is empty if the bounds always
//! hold.

use std::borrow::Cow;
use std::io;

use flowgauge_core::key::{CanonicalKey, Field, Fields, KeyKind, KeySpec, TcpFlags};
use flowgauge_core::summary::{Estimate, Seen, SizeEstimate};
use flowgauge_core::task::{Finding, HierarchyItem, Report, Selection};
use flowgauge_core::terms::Measure;

use super::{Directions, Item, findings, names};
use crate::account::Account;
use crate::report::{Audit, Breakdown, EpochReport, Gap, TotalReport, Traffic};

/// A receiver of tables. A table ends when the next one begins.
///
/// ```
/// use std::{io, sync::Arc};
/// use flowgauge_engine::report::TotalReport;
/// use flowgauge_engine::sink::{Item, tables::{self, Column, Tables, Value}};
///
/// struct Names(Vec<String>);
/// impl Tables for Names {
///     fn table(&mut self, _: &str, name: &str, _: &[Column]) -> io::Result<()> {
///         Ok(self.0.push(name.to_owned()))
///     }
///     fn row(&mut self, _: &[Value]) -> io::Result<()> { Ok(()) }
/// }
/// let mut names = Names(Vec::new());
/// tables::write(&Item::Total(Arc::new(TotalReport::new("main".into()))), &mut names)?;
/// assert!(names.0.contains(&"total".to_owned()));
/// # Ok::<(), io::Error>(())
/// ```
pub trait Tables {
    /// Begins a table of a measurement. A table without rows is empty.
    ///
    /// # Errors
    /// When it cannot be written.
    fn table(&mut self, measurement: &str, name: &str, columns: &[Column]) -> io::Result<()>;

    /// Adds a row to the current table: a value for each column.
    ///
    /// # Errors
    /// When it cannot be written.
    fn row(&mut self, values: &[Value]) -> io::Result<()>;
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: Cow<'static, str>,
    /// The kind of its values.
    pub kind: Kind,
}

/// The kind of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text from outside, which may contain anything.
    Text,
    /// A whole number of at least 0.
    Whole,
    /// A number.
    Real,
    /// Nanoseconds since the UNIX epoch.
    Time,
}

/// A value of a row; `None` if the row has none.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of [`Kind::Text`].
    Text(Option<String>),
    /// Of [`Kind::Whole`].
    Whole(Option<u64>),
    /// Of [`Kind::Real`].
    Real(Option<f64>),
    /// Of [`Kind::Time`].
    Time(Option<i64>),
}

impl Value {
    /// Its kind, which is that of its column.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Text(_) => Kind::Text,
            Self::Whole(_) => Kind::Whole,
            Self::Real(_) => Kind::Real,
            Self::Time(_) => Kind::Time,
        }
    }
}

/// Writes the tables of an item. An update has none, since its rows could not be told from those of
/// the epoch.
///
/// # Errors
/// When a table cannot be written.
pub fn write(item: &Item, to: &mut dyn Tables) -> io::Result<()> {
    match item {
        Item::Epoch(report) if !report.update => epoch(report, to),
        Item::Gap(item) => gap(item, to),
        Item::Total(report) => total(report, to),
        Item::Epoch(_) | Item::Snapshot(_) => Ok(()),
    }
}

/// The values of a row, with their columns.
struct Row {
    columns: Vec<Column>,
    values: Vec<Value>,
}

/// The tables of one epoch, or of the total.
struct Within<'a> {
    to: &'a mut dyn Tables,
    measurement: &'a str,
    /// The first columns of each row.
    place: (Option<u64>, Option<i64>),
}

impl Within<'_> {
    /// Writes a table. `empty` gives the columns if there is no row.
    fn table(
        &mut self,
        name: &str,
        rows: impl IntoIterator<Item = Row>,
        empty: impl FnOnce() -> Row,
    ) -> io::Result<()> {
        let (epoch, start) = self.place;
        let row = |row: Row| {
            let place = Row::new().text("measurement", self.measurement);
            place.add("epoch", Value::Whole(epoch)).time("start", start).then(row)
        };
        let mut rows = rows.into_iter().map(row);
        let first = rows.next();
        match &first {
            Some(first) => self.to.table(self.measurement, name, &first.columns)?,
            None => self.to.table(self.measurement, name, &row(empty()).columns)?,
        }
        first.into_iter().chain(rows).try_for_each(|row| self.to.row(&row.values))
    }

    fn row(&mut self, name: &str, row: Row) -> io::Result<()> {
        self.table(name, [row], Row::new)
    }

    fn texts(&mut self, name: &str, column: &'static str, texts: &[String]) -> io::Result<()> {
        let row = |text: &str| Row::new().text(column, text);
        self.table(name, texts.iter().map(|text| row(text)), || row(""))
    }
}

fn epoch(report: &EpochReport, to: &mut dyn Tables) -> io::Result<()> {
    let place = (Some(report.epoch), report.start_ns);
    let mut within = Within { to, measurement: &report.measurement, place };
    let summary = &report.summary;
    let row = Row::new()
        .time("end", report.end_ns)
        .real("coverage", report.coverage)
        .text("key", &report.key.to_string())
        .text("by", report.by.name())
        .text("algorithm", summary.algorithm)
        .text("accelerator", &summary.accelerator)
        .whole("memory_bytes", summary.memory_bytes as u64);
    let row = row
        .account(&report.account)
        .traffic(report.traffic, &report.account)
        .whole("undelivered", report.undelivered);
    within.row("epochs", row)?;
    for (name, answer) in &report.tasks {
        within.task(name, answer, report)?;
    }
    if let Some(audit) = &report.audit {
        within.row("audit", Row::new().audit(audit))?;
    }
    if let Some(breakdown) = &report.breakdown {
        within.breakdown(breakdown)?;
    }
    within.texts("notes", "note", &report.notes)
}

fn gap(gap: &Gap, to: &mut dyn Tables) -> io::Result<()> {
    let place = (Some(gap.epoch), Some(gap.start_ns));
    let row = Row::new().time("end", Some(gap.end_ns)).whole("epochs", gap.epochs);
    Within { to, measurement: &gap.measurement, place }.row("gaps", row)
}

fn total(report: &TotalReport, to: &mut dyn Tables) -> io::Result<()> {
    let place = (None, report.start_ns);
    let mut within = Within { to, measurement: &report.measurement, place };
    let row = Row::new()
        .time("end", report.end_ns)
        .whole("epochs", report.epochs)
        .account(&report.account)
        .traffic(report.traffic, &report.account)
        .whole("irregular", report.irregular)
        .whole("undelivered", report.undelivered);
    within.row("total", row)?;
    within.texts("problems", "problem", &report.problems)?;
    within.texts("notes", "note", &report.notes)
}

impl Within<'_> {
    fn task(&mut self, name: &str, answer: &Report, report: &EpochReport) -> io::Result<()> {
        let spec = report.key;
        let nothing = Estimate::exact(0);
        // The columns of an empty table: those of a key with every field of its kind.
        let no_key = || key_columns(spec);
        match answer {
            Report::Sizes { selection, items, .. } => {
                let detailed = report.summary.is_detailed();
                let row = |key: Row, size: &SizeEstimate, share: f64, seen: Option<&Seen>| {
                    let row = key.size(size);
                    let row = if detailed { row.seen(seen, size, spec.kind()) } else { row };
                    let asked = *selection == Selection::Asked;
                    let row = if asked { row } else { row.real("share", share) };
                    match selection.threshold() {
                        Some(threshold) => row.real("threshold", threshold),
                        None => row,
                    }
                };
                let rows = items.iter().map(|item| {
                    let key = key(spec, &spec.fields(item.key.as_bytes()));
                    row(key, &item.size, item.share, item.seen.as_ref())
                });
                self.table(name, rows, || row(no_key(), &SizeEstimate::default(), 0.0, None))
            }
            Report::Findings { items, .. } => {
                let rows = items.iter().map(|item| finding(Some(item), report));
                self.table(name, rows, || finding(None, report))
            }
            Report::Addresses { side, items, .. } => {
                let row = |key: Row, size: &SizeEstimate, flows: u64, share: f64| {
                    key.size(size).whole("flows", flows).real("share", share)
                };
                let rows = items.iter().map(|item| {
                    let fields = names::address_fields(spec, *side, &item.address);
                    row(key(spec, &fields), &item.size, item.flows, item.share)
                });
                let empty = || key_columns(spec.alone(side.address()));
                self.table(name, rows, || row(empty(), &SizeEstimate::default(), 0, 0.0))
            }
            Report::Spread { side, threshold, items, .. } => {
                let row = |key: Row, distinct: &Estimate| {
                    key.estimate("distinct", Some(distinct)).whole("threshold", *threshold)
                };
                let rows = items.iter().map(|item| {
                    let fields = names::address_fields(spec, *side, &item.address);
                    row(key(spec, &fields), &item.distinct)
                });
                let empty = || key_columns(spec.alone(side.address()));
                self.table(name, rows, || row(empty(), &nothing))
            }
            Report::Changes { items, .. } => {
                let row = |key: Row, before: &Estimate, forecast: &Estimate, now: &Estimate| {
                    key.estimate("before", Some(before))
                        .estimate("forecast", Some(forecast))
                        .estimate("now", Some(now))
                };
                let rows = items.iter().map(|i| {
                    let key = key(spec, &spec.fields(i.key.as_bytes()));
                    row(key, &i.before, &i.forecast, &i.now)
                });
                self.table(name, rows, || row(no_key(), &nothing, &nothing, &nothing))
            }
            Report::Cardinality { flows } => {
                self.row(name, Row::new().estimate("flows", Some(flows)))
            }
            Report::Entropy { bits, normalized } => {
                let row = Row::new().estimate("bits", Some(bits)).real("normalized", *normalized);
                self.row(name, row)
            }
            Report::SizeDistribution { bins } => {
                let row = |size: u64, flows: &Estimate| {
                    Row::new().whole("size", size).estimate("flows", Some(flows))
                };
                let rows = bins.iter().map(|(size, flows)| row(*size, flows));
                self.table(name, rows, || row(0, &nothing))
            }
            Report::Quantiles { of, sizes, keys } => {
                let of = names::quantiles(*of).replace('-', "_");
                let row =
                    |q: f64, size: &Estimate| Row::new().real("q", q).estimate(&of, Some(size));
                let rows = sizes.iter().map(|(q, size)| row(*q, size));
                self.table(name, rows, || row(0.0, &nothing))?;
                let row = |q: f64, key: Row| Row::new().real("q", q).then(key);
                let rows =
                    keys.iter().map(|(q, flow)| row(*q, key(spec, &spec.fields(flow.as_bytes()))));
                self.table("key-quantiles", rows, || row(0.0, no_key()))
            }
            Report::Hierarchical { threshold, items, .. } => {
                self.hierarchical(name, *threshold, items, report)
            }
        }
    }

    fn hierarchical(
        &mut self,
        name: &str,
        threshold: f64,
        items: &[HierarchyItem],
        report: &EpochReport,
    ) -> io::Result<()> {
        let row = |sides: (Option<&str>, Option<&str>),
                   total: Option<&Estimate>,
                   discounted: Option<&Estimate>| {
            let total = |measure| total.filter(|_| measure == report.by);
            Row::new()
                .maybe_text("source", sides.0)
                .maybe_text("destination", sides.1)
                .estimate("packets", total(Measure::Packets))
                .estimate("bytes", total(Measure::Bytes))
                .estimate("discounted", discounted)
                .real("threshold", threshold)
        };
        let rows = items.iter().map(|item| {
            let source = names::prefix(&item.source, item.source_bits);
            let destination = item.destination.as_ref();
            let destination = destination.map(|(address, bits)| names::prefix(address, *bits));
            let sides = match &destination {
                Some(destination) => (Some(&*source), Some(&**destination)),
                // A hierarchy of destinations alone holds them in place of sources.
                None if report.key.kind().has(Field::Source) => (Some(&*source), None),
                None => (None, Some(&*source)),
            };
            row(sides, Some(&item.total), Some(&item.discounted))
        });
        self.table(name, rows, || row((None, None), None, None))
    }

    fn breakdown(&mut self, breakdown: &Breakdown) -> io::Result<()> {
        let named = |row: Row, name: Option<&str>, packets: u64, bytes: u64| {
            row.maybe_text("name", name).whole("packets", packets).whole("bytes", bytes)
        };
        let protocol = |number: u8| Row::new().whole("protocol", number.into());
        let rows = breakdown.protocols.iter().map(|(number, size)| {
            named(protocol(*number), names::protocol_name(*number), size.packets, size.bytes)
        });
        self.table("protocols", rows, || named(protocol(0), None, 0, 0))?;
        let port = |number: u8, port: u16| protocol(number).whole("port", port.into());
        let rows = breakdown.ports.iter().map(|(number, at, size)| {
            named(port(*number, *at), names::service_name(*at), size.packets, size.bytes)
        });
        self.table("ports", rows, || named(port(0, 0), None, 0, 0))
    }
}

impl Row {
    fn new() -> Self {
        Self { columns: Vec::new(), values: Vec::new() }
    }

    fn add(mut self, column: impl Into<Cow<'static, str>>, value: Value) -> Self {
        self.columns.push(Column { name: column.into(), kind: value.kind() });
        self.values.push(value);
        self
    }

    fn whole(self, column: &'static str, value: u64) -> Self {
        self.add(column, Value::Whole(Some(value)))
    }

    fn real(self, column: &'static str, value: f64) -> Self {
        self.add(column, Value::Real(Some(value)))
    }

    fn time(self, column: &'static str, ns: Option<i64>) -> Self {
        self.add(column, Value::Time(ns))
    }

    fn text(self, column: &'static str, value: &str) -> Self {
        self.maybe_text(column, Some(value))
    }

    fn maybe_text(self, column: &'static str, value: Option<&str>) -> Self {
        self.add(column, Value::Text(value.map(str::to_owned)))
    }

    fn estimate(self, column: &str, estimate: Option<&Estimate>) -> Self {
        self.add(column.to_owned(), Value::Real(estimate.map(|e| e.value)))
            .add(format!("{column}_low"), Value::Real(estimate.map(|e| e.low)))
            .add(format!("{column}_high"), Value::Real(estimate.map(|e| e.high)))
            .add(format!("{column}_confidence"), Value::Real(estimate.and_then(|e| e.confidence)))
    }

    fn size(self, size: &SizeEstimate) -> Self {
        self.estimate("packets", size.packets.as_ref()).estimate("bytes", size.bytes.as_ref())
    }

    /// When and how a flow was seen.
    fn seen(self, seen: Option<&Seen>, size: &SizeEstimate, kind: KeyKind) -> Self {
        let row = self
            .time("first_seen", seen.map(|seen| seen.first_ns))
            .time("last_seen", seen.map(|seen| seen.last_ns))
            .add("seconds", Value::Real(seen.map(Seen::seconds)))
            .add("packet_bytes", Value::Real(Directions::mean(size)))
            .maybe_text(
                "tcp_flags_seen",
                seen.map(|seen| TcpFlags(seen.tcp_flags).to_string()).as_deref(),
            );
        if !Directions::has(kind) {
            return row;
        }
        let ways = seen.and_then(|seen| Directions::of(seen, size, kind));
        let (forward, back) = ways.map(|ways| (ways.forward, ways.back)).unzip();
        row.add("forward_packets", Value::Whole(forward.map(|size| size.packets)))
            .add("forward_bytes", Value::Whole(forward.map(|size| size.bytes)))
            .add("back_packets", Value::Whole(back.map(|size| size.packets)))
            .add("back_bytes", Value::Whole(back.map(|size| size.bytes)))
    }

    /// The keyed traffic, if a sample of it was read.
    fn traffic(self, traffic: Option<Traffic>, account: &Account) -> Self {
        match traffic {
            Some(traffic) => self.estimate("traffic", Some(&traffic.estimate(account))),
            None => self,
        }
    }

    fn account(self, account: &Account) -> Self {
        self.whole("read", account.read)
            .whole("skipped", account.skipped.packets)
            .whole("skipped_bytes", account.skipped.bytes)
            .whole("filtered", account.filtered)
            .whole("malformed", account.malformed)
            .whole("no_key", account.no_key)
            .whole("keyed", account.keyed)
            .whole("keyed_bytes", account.keyed_bytes)
            .whole("untracked", account.untracked.packets)
            .whole("untracked_bytes", account.untracked.bytes)
            .whole("dropped", account.dropped.packets)
            .whole("dropped_bytes", account.dropped.bytes)
            .whole("lost", account.lost)
            .whole("saturated", account.saturated.packets)
            .whole("saturated_bytes", account.saturated.bytes)
            .whole("late", account.late)
            .whole("backwards", account.backwards)
            .whole("jumps", account.jumps)
    }

    fn audit(self, Audit { one_in, observed }: &Audit) -> Self {
        self.whole("one_in", u64::from(*one_in))
            .whole("flows", observed.flows)
            .whole("weight", observed.weight)
            .real("bias", observed.bias())
            .real("rmse", observed.rmse())
            .real("violated", observed.violated_share())
            .real("allowed", observed.allowed_share())
            .whole("untracked", observed.untracked.packets)
            .whole("untracked_bytes", observed.untracked.bytes)
    }

    fn then(mut self, other: Self) -> Self {
        self.columns.extend(other.columns);
        self.values.extend(other.values);
        self
    }
}

fn key(spec: KeySpec, fields: &Fields) -> Row {
    let mut row = Row::new();
    for (field, address) in names::addresses(fields) {
        row = row.text(field.name(), &names::address(spec, field, address));
    }
    for (column, port) in
        [("source_port", fields.source_port), ("destination_port", fields.destination_port)]
    {
        if let Some(port) = port {
            row = row.whole(column, port.into());
        }
    }
    for (column, number) in
        [("protocol", fields.protocol.map(u64::from)), ("vlan", fields.vlan.map(u64::from))]
    {
        if let Some(number) = number {
            row = row.whole(column, number);
        }
    }
    if let Some(flags) = fields.tcp_flags {
        row = row.text("tcp_flags", &flags.to_string());
    }
    for (column, mac) in [
        ("source_mac", fields.source_mac),
        ("destination_mac", fields.destination_mac),
        ("mac", fields.mac),
    ] {
        if let Some(mac) = mac {
            row = row.text(column, &mac.to_string());
        }
    }
    row
}

/// The columns of a key: those of its all-zero IPv4 key.
fn key_columns(spec: KeySpec) -> Row {
    key(spec, &spec.fields(&[0; CanonicalKey::MAX_BYTES][..spec.lanes()[0]]))
}

/// The row of a finding; without one, just the columns.
fn finding(item: Option<&Finding>, report: &EpochReport) -> Row {
    let address = |key: Option<&CanonicalKey>| findings::address(key).map(|one| one.to_string());
    let (start_ns, end_ns) = item.and_then(|item| item.span_ns).unzip();
    let size = item.map_or_else(SizeEstimate::default, |item| item.size);
    let flags = item.and_then(|item| item.flags).map(findings::flag_names);
    let filter = item.and_then(|item| findings::filter(item, report.key));
    Row::new()
        .maybe_text("kind", item.map(|item| item.kind.name()))
        .maybe_text("text", item.map(|item| findings::sentence(item, report)).as_deref())
        .maybe_text("source", item.and_then(|item| address(item.source.as_ref())).as_deref())
        .maybe_text(
            "destination",
            item.and_then(|item| address(item.destination.as_ref())).as_deref(),
        )
        .add("protocol", Value::Whole(item.and_then(|item| item.protocol).map(u64::from)))
        .add("port", Value::Whole(item.and_then(|item| item.port).map(u64::from)))
        .size(&size)
        .add("share", Value::Real(item.map(|item| item.share)))
        .estimate("peers", item.and_then(|item| item.peers.as_ref()))
        .time("from", start_ns)
        .time("to", end_ns)
        .maybe_text("tcp_flags", flags.as_deref())
        .maybe_text("filter", filter.as_deref())
}
