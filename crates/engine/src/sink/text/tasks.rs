//! The answers of tasks, each as a section of the page.

use flowgauge_core::key::{CanonicalKey, Field, Fields, TcpFlags};
use flowgauge_core::summary::{Estimate, QuantileOf};
use flowgauge_core::task::{
    AddressItem, ChangeItem, Finding, HierarchyItem, Report, Selection, Side, SizeItem, SpreadItem,
};
use flowgauge_core::terms::{Measure, SpreadOf};

use super::{entropy, is_exact, size_distribution};
use crate::report::EpochReport;
use crate::sink::layout::{Align, Cell, Look, Page, Table, paragraph};
use crate::sink::units::clock;
use crate::sink::{Directions, findings, names, units};

/// Columns of a table beside its flow. On a page of 100 this leaves 51 for the flow: two IPv4
/// endpoints, or one IPv6 endpoint with a prefix.
const BESIDE_FLOW: usize = 49;

/// Follows the number of listed items if others may be over the threshold too.
const MAY_MISS: &str = " Others may be missing.";

/// Writes answer number `at` of `report`, with at most `rows` items of a list.
pub(super) fn write(page: &mut Page, report: &EpochReport, at: usize, rows: usize) {
    let (_, answer) = &report.tasks[at];
    let (items, truncated) = answer.listed().unwrap_or_default();
    let all = items + truncated;
    let section = Section { report, rows, all, truncated, look: page.look() };
    match answer {
        Report::Sizes { selection: Selection::Largest, items, complete_to, .. } => {
            let (_, keys) = names::key_words(report.key.kind());
            page.heading(&format!("Top {keys} by {}", report.by.name()));
            section.sizes(page, items);
            section.complete(page, items, *complete_to);
        }
        Report::Sizes { selection: Selection::Over(threshold), items, complete_to, .. } => {
            if section.heavy_hitters(page, *threshold, items, *complete_to) {
                section.complete(page, items, *complete_to);
            }
        }
        Report::Sizes { selection: Selection::Asked, items, .. } => {
            page.heading("Sizes of given flows");
            section.sizes(page, items);
        }
        Report::Findings { items, truncated } => section.findings(page, items, *truncated),
        Report::Addresses { side, items, .. } => section.addresses(page, *side, items),
        Report::Spread { side, of, threshold, items, .. } => {
            section.spread(page, (*side, *of), *threshold, items);
        }
        Report::Changes { threshold, items, untracked, .. } => {
            section.changes(page, *threshold, items, *untracked);
        }
        Report::Cardinality { flows } => {
            let words = names::key_words(report.key.kind());
            page.heading(&format!("Number of {}", words.1));
            paragraph(page, "  ", &number_of_keys(flows, words));
        }
        Report::Entropy { bits, normalized } => entropy(page, bits, *normalized),
        Report::SizeDistribution { bins } => {
            size_distribution(page, bins, section.report.account.untracked.packets);
        }
        Report::Quantiles { of, sizes, keys } => section.quantiles(page, *of, sizes, keys),
        Report::Hierarchical { threshold, items, .. } => {
            section.hierarchical(page, *threshold, items);
        }
    }
}

/// The common state of the sections.
struct Section<'a> {
    report: &'a EpochReport,
    rows: usize,
    /// Items of the answer, including those left out.
    all: u64,
    /// Items that the answer leaves out.
    truncated: u64,
    /// The style sheet of the page.
    look: Look,
}

impl Section<'_> {
    fn sizes(&self, page: &mut Page, items: &[SizeItem]) {
        let by = self.report.by;
        if items.is_empty() {
            return paragraph(page, "  ", &format!("No {}.", self.keys()));
        }
        let held = |measure| items.iter().any(|item| item.size.by(measure).is_some());
        let measures: Vec<Measure> =
            [Measure::Packets, Measure::Bytes].into_iter().filter(|m| held(*m)).collect();
        let inexact = items.iter().any(|item| !item.size.by(by).is_none_or(|size| is_exact(&size)));
        let mut columns = vec![("", Align::Right), (self.key(), Align::Left)];
        columns.extend(measures.iter().map(|measure| (measure.name(), Align::Right)));
        if inexact {
            columns.push(("between", Align::Right));
        }
        columns.push(("share", Align::Right));
        let detailed = items.iter().any(|item| item.seen.is_some());
        if detailed {
            columns.extend(self.detail_columns());
        }
        let mut table = Table::new(&columns);
        for (index, item) in items.iter().take(self.rows).enumerate() {
            let mut cells: Vec<Cell> = vec![(index + 1).to_string().into(), self.flow(&item.key)];
            for measure in &measures {
                let value = item.size.by(*measure).map(|size| units::size(*measure, size.value));
                cells.push(value.unwrap_or_default().into());
            }
            if inexact {
                cells
                    .push(item.size.by(by).map(|size| range(by, &size)).unwrap_or_default().into());
            }
            cells.push(units::percent(item.share).into());
            if detailed {
                cells.extend(self.details(item));
            }
            table.row(cells, item.share);
        }
        // Bounds matter more than the other measure.
        let other = match by {
            Measure::Packets => "bytes",
            Measure::Bytes => "packets",
        };
        let spared =
            ["packet", "first seen", other, "lasting", "between", "flags", "back", "", "share"];
        table.spare(&spared);
        self.finish(page, &table);
    }

    /// The columns of when and how flows were seen.
    fn detail_columns(&self) -> Vec<(&'static str, Align)> {
        let back = Directions::has(self.report.key.kind()).then_some(("back", Align::Right));
        let columns = [
            ("packet", Align::Right),
            ("first seen", Align::Left),
            ("lasting", Align::Right),
            ("flags", Align::Left),
        ];
        back.into_iter().chain(columns).collect()
    }

    /// The cells of these columns: traffic back, mean packet size, start and duration, TCP flags.
    fn details(&self, item: &SizeItem) -> Vec<Cell> {
        let (by, kind) = (self.report.by, self.report.key.kind());
        let Some(seen) = &item.seen else {
            return self.detail_columns().iter().map(|_| Cell::from("")).collect();
        };
        let ways = Directions::of(seen, &item.size, kind);
        let back = ways.map(|ways| units::size(by, ways.back.by(by) as f64).into());
        let mean = Directions::mean(&item.size);
        let cells = [
            mean.map(|mean| units::bytes(mean.round())).unwrap_or_default().into(),
            clock(seen.first_ns).into(),
            units::duration(i128::from(seen.last_ns) - i128::from(seen.first_ns)).into(),
            TcpFlags(seen.tcp_flags).to_string().into(),
        ];
        back.into_iter().chain(cells).collect()
    }

    fn findings(&self, page: &mut Page, items: &[Finding], truncated: u64) {
        page.heading("What stands out");
        if items.is_empty() {
            return paragraph(page, "  ", "Nothing stands out.");
        }
        for item in items {
            let service = |port| self.look.service(port);
            page.alert("  ! ", &findings::sentence_with(item, self.report, &service));
            let details = findings::details(item);
            if !details.is_empty() {
                paragraph(page, "    ", &details);
            }
            if let Some(filter) = findings::filter(item, self.report.key) {
                paragraph(
                    page,
                    "    ",
                    &format!("more: flowgauge analyze --filter '{filter}' FILE"),
                );
            }
        }
        if truncated > 0 {
            paragraph(page, "  ", &format!("… and {} more.", units::count(truncated as f64)));
        }
    }

    fn addresses(&self, page: &mut Page, side: Side, items: &[AddressItem]) {
        let (title, column) = match side {
            Side::Source => ("Top sources", "source"),
            Side::Destination => ("Top destinations", "destination"),
        };
        page.heading(&format!("{title} by {}", self.report.by.name()));
        if items.is_empty() {
            return paragraph(page, "  ", "No flows.");
        }
        let right = |title| (title, Align::Right);
        let columns = [
            right(""),
            (column, Align::Left),
            right("packets"),
            right("bytes"),
            right("flows"),
            right("share"),
        ];
        let mut table = Table::new(&columns);
        for (index, item) in items.iter().take(self.rows).enumerate() {
            let fields = names::address_fields(self.report.key, side, &item.address);
            let value = |measure| {
                let value = item.size.by(measure).map(|size| units::size(measure, size.value));
                value.unwrap_or_default().into()
            };
            let cells = vec![
                (index + 1).to_string().into(),
                self.address(&fields).into(),
                value(Measure::Packets),
                value(Measure::Bytes),
                units::count(item.flows as f64).into(),
                units::percent(item.share).into(),
            ];
            table.row(cells, item.share);
        }
        table.spare(&["flows", "", "share", "bytes"]);
        self.finish(page, &table);
    }

    /// Writes how many of the largest are certainly listed, if they are fewer than the items shown.
    fn complete(&self, page: &mut Page, items: &[SizeItem], complete_to: u64) {
        let shown = items.len().min(self.rows) as u64;
        let (key, keys) = (self.key(), self.keys());
        let text = match complete_to {
            to if to >= shown => return,
            0 => format!("Even the largest {key} may be missing."),
            1 => format!("The largest {key} is listed; smaller ones may be missing."),
            to => {
                let to = units::count(to as f64);
                format!("The {to} largest {keys} are listed; smaller ones may be missing.")
            }
        };
        paragraph(page, "  ", &text);
    }

    /// Writes the list, unless an equal list is above.
    fn heavy_hitters(
        &self,
        page: &mut Page,
        threshold: f64,
        items: &[SizeItem],
        complete_to: u64,
    ) -> bool {
        let by = self.report.by;
        page.heading("Heavy hitters");
        let over = weight(by, threshold);
        if items.is_empty() {
            paragraph(page, "  ", &format!("No {} {} more than {over}.", self.key(), self.has()));
            return false;
        }
        // Sum the counts, since shares are rounded.
        let together: f64 = items.iter().filter_map(|item| item.size.by(by)).map(|e| e.value).sum();
        let all = self.report.keyed().by(by);
        // Estimates of samples may add up to more than there is.
        let part = (together / all as f64).min(1.0);
        let share = format!("{} of all {}", units::percent(part), by.name());
        let count = |flows: usize| units::count(flows as f64);
        let text = match (items.len(), self.all) {
            (n, all) if threshold > 0.0 && threshold < 1.0 && n as u64 == all => format!(
                "The threshold is below one {}: {} {} {} it, with {share}.",
                unit(by),
                count(n),
                if n == 1 { self.key() } else { self.keys() },
                if n == 1 { "exceeds" } else { "exceed" },
            ),
            (1, 1) => format!("1 {} has more than {over}: {share}.", self.key()),
            (n, all) if n as u64 == all => {
                let keys = self.keys();
                format!("{} {keys} have more than {over} each, together {share}.", count(n))
            }
            (n, all) => format!(
                "{} {} have more than {over} each; the {} largest together have {share}.",
                units::count(all as f64),
                self.keys(),
                count(n)
            ),
        };
        let is_over = |item: &&SizeItem| item.size.by(by).is_some_and(|e| e.low > threshold);
        let surely = items.iter().filter(is_over).count();
        let words = (self.key(), self.keys());
        let mut text = self.at_least(surely, items.len(), words, &over).unwrap_or(text);
        // Do not show the same flows twice on a page.
        let top = self.report.tasks.iter().find_map(|(_, answer)| match answer {
            Report::Sizes { selection: Selection::Largest, items, .. } => Some(items.as_slice()),
            _ => None,
        });
        let shown = items.len().min(self.rows);
        let is_above = top.is_some_and(|top| top.len() >= shown && top[..shown] == items[..shown]);
        // If it is complete to an item that may be below the threshold, no other flow is over it.
        let may_miss = complete_to < items.len() as u64 && complete_to <= surely as u64;
        // Otherwise the line below the list says so.
        if may_miss && (is_above || complete_to >= shown as u64) {
            text.push_str(MAY_MISS);
        }
        paragraph(page, "  ", &text);
        if is_above {
            let keys = self.keys();
            let which = match (shown, self.all) {
                (1, 1) => "It leads".to_owned(),
                (shown, all) if shown as u64 == all => "They lead".to_owned(),
                (shown, _) => format!("The first {shown} are"),
            };
            paragraph(page, "  ", &format!("{which} the top {keys} above."));
            return false;
        }
        self.sizes(page, items);
        true
    }

    /// The sentence on items over a threshold, if only the bounds of `surely` of the listed ones are
    /// over it.
    fn at_least(
        &self,
        surely: usize,
        listed: usize,
        (one, many): (&str, &str),
        over: &str,
    ) -> Option<String> {
        let count = |items: u64| units::count(items as f64);
        (surely < listed).then(|| match (surely as u64, self.all) {
            (0, 1) => format!("1 {one} may have more than {over}."),
            (0, all) => format!("{} {many} may have more than {over} each.", count(all)),
            (1, all) => format!("At least 1 {one} has more than {over}; {} may.", count(all)),
            (n, all) => format!(
                "At least {} {many} have more than {over} each; {} may.",
                count(n),
                count(all)
            ),
        })
    }

    fn spread(
        &self,
        page: &mut Page,
        (side, of): (Side, SpreadOf),
        threshold: u64,
        items: &[SpreadItem],
    ) {
        let (title, one, many) = match side {
            Side::Source => ("Superspreaders", "source", "sources"),
            Side::Destination => ("Victims", "destination", "destinations"),
        };
        let peers = match (side, of) {
            (Side::Source, SpreadOf::Address) => "destinations",
            (Side::Source, SpreadOf::Port) => "destination ports",
            (Side::Source, SpreadOf::Endpoint) => "destination endpoints",
            (Side::Destination, SpreadOf::Address) => "sources",
            (Side::Destination, SpreadOf::Port) => "source ports",
            (Side::Destination, SpreadOf::Endpoint) => "source endpoints",
        };
        page.heading(title);
        let over = format!("{} {peers}", units::count(threshold as f64));
        if items.is_empty() {
            let text = format!("No {one} {} more than {over}.", self.has());
            return paragraph(page, "  ", &text);
        }
        let surely = items.iter().filter(|item| item.distinct.low > threshold as f64).count();
        let text = self.at_least(surely, items.len(), (one, many), &over);
        let mut text = text.unwrap_or_else(|| match self.all {
            1 => format!("1 {one} has more than {over}."),
            n => format!("{} {many} have more than {over} each.", units::count(n as f64)),
        });
        let inexact = items.iter().any(|item| !is_exact(&item.distinct));
        if inexact {
            text.push_str(MAY_MISS);
        }
        paragraph(page, "  ", &text);
        let mut columns = vec![("", Align::Right), (one, Align::Left), (peers, Align::Right)];
        if inexact {
            columns.push(("between", Align::Right));
        }
        let mut table = Table::new(&columns);
        for (index, item) in items.iter().take(self.rows).enumerate() {
            let fields = names::address_fields(self.report.key, side, &item.address);
            let mut cells = vec![
                (index + 1).to_string().into(),
                self.address(&fields).into(),
                units::count(item.distinct.value).into(),
            ];
            if inexact {
                cells.push(range(Measure::Packets, &item.distinct).into());
            }
            table.row(cells, item.distinct.value);
        }
        table.spare(&["", "between"]);
        self.finish(page, &table);
    }

    fn changes(
        &self,
        page: &mut Page,
        threshold: Option<f64>,
        items: &[ChangeItem],
        untracked: u64,
    ) {
        page.heading(&format!("Changes in {}", self.report.by.name()));
        let by = self.report.by;
        let Some(threshold) = threshold else {
            return paragraph(
                page,
                "  ",
                "No forecast yet: changes need an epoch before this one.",
            );
        };
        if items.is_empty() {
            let over = weight(by, threshold);
            paragraph(
                page,
                "  ",
                &format!("No flow deviates from its forecast by more than {over}."),
            );
        } else {
            let right = |title| (title, Align::Right);
            let mut table = Table::new(&[
                ("flow", Align::Left),
                right("before"),
                right("forecast"),
                right("now"),
                right("change"),
            ]);
            for item in items.iter().take(self.rows) {
                let change = item.now.value - item.forecast.value;
                let sign = if change > 0.0 { "+" } else { "" };
                let cells = vec![
                    self.flow(&item.key),
                    units::size(by, item.before.value).into(),
                    units::size(by, item.forecast.value).into(),
                    units::size(by, item.now.value).into(),
                    format!("{sign}{}", units::size(by, change)).into(),
                ];
                table.row(cells, 0.0);
            }
            table.spare(&["forecast", "before", "now"]);
            self.finish(page, &table);
        }
        if untracked > 0 {
            let flows = units::plural(untracked, "flow");
            paragraph(page, "  ", &format!("The history was full for {flows}."));
        }
    }

    fn quantiles(
        &self,
        page: &mut Page,
        of: QuantileOf,
        sizes: &[(f64, Estimate)],
        keys: &[(f64, CanonicalKey)],
    ) {
        let (title, whose) = match of {
            QuantileOf::FlowPackets => ("Sizes of flows in packets", "flows"),
            QuantileOf::FlowBytes => ("Sizes of flows in bytes", "flows"),
            QuantileOf::Key | QuantileOf::PacketBytes => ("Sizes of packets in bytes", "packets"),
            QuantileOf::GapNs if self.report.key.lanes().len() > 1 => {
                ("Times between packets of the same IP version", "packets")
            }
            QuantileOf::GapNs => ("Times between packets", "packets"),
        };
        let written = |size: f64| match of {
            QuantileOf::FlowPackets => units::size(Measure::Packets, size),
            QuantileOf::GapNs => format!("{} µs", units::count(size / 1e3)),
            _ => units::size(Measure::Bytes, size),
        };
        if of != QuantileOf::Key {
            page.heading(title);
            if sizes.is_empty() {
                return paragraph(page, "  ", &format!("No {whose}."));
            }
            let mut columns = vec![(whose, Align::Right), ("at most", Align::Right)];
            let inexact = sizes.iter().any(|(_, size)| !is_exact(size));
            columns.extend(inexact.then_some(("between", Align::Right)));
            let mut table = Table::new(&columns);
            for (q, size) in sizes {
                let mut cells = vec![units::percent(*q).into(), written(size.value).into()];
                if inexact {
                    cells.push(format!("{}–{}", written(size.low), written(size.high)).into());
                }
                table.row(cells, 0.0);
            }
            table.write(page);
        }
        if keys.is_empty() {
            return;
        }
        page.heading("Flows, in order of their keys, that divide the traffic");
        let mut table = Table::new(&[("traffic", Align::Right), ("up to flow", Align::Left)]);
        for (q, key) in keys {
            table.row(vec![units::percent(*q).into(), self.flow(key)], 0.0);
        }
        table.write(page);
    }

    fn hierarchical(&self, page: &mut Page, threshold: f64, items: &[HierarchyItem]) {
        let by = self.report.by;
        page.heading(&format!("Heavy prefixes by {}", by.name()));
        if items.is_empty() {
            let over = weight(by, threshold);
            let text = format!("No prefix {} more than {over} of its own.", self.has());
            return paragraph(page, "  ", &text);
        }
        let right = |title| (title, Align::Right);
        let mut columns = vec![("prefix", Align::Left), right("in all"), right("its own")];
        let inexact = items.iter().any(|item| !is_exact(&item.discounted));
        columns.extend(inexact.then_some(right("between")));
        columns.push(right("share"));
        let mut table = Table::new(&columns);
        let keyed = self.report.keyed().by(by);
        for item in items.iter().take(self.rows) {
            let share = item.discounted.value / keyed.max(1) as f64;
            let source = names::prefix(&item.source, item.source_bits);
            let prefix = match &item.destination {
                Some((address, bits)) => self.joined(source, "→", &names::prefix(address, *bits)),
                None => source.into(),
            };
            let mut cells = vec![
                prefix,
                units::size(by, item.total.value).into(),
                units::size(by, item.discounted.value).into(),
            ];
            if inexact {
                cells.push(range(by, &item.discounted).into());
            }
            cells.push(units::percent(share).into());
            table.row(cells, share);
        }
        table.spare(&["in all", "between", "share"]);
        self.finish(page, &table);
        paragraph(page, "  ", "Its own: without the longer prefixes that are listed here.");
    }

    /// The word for a key, singular and plural.
    fn key(&self) -> &'static str {
        names::key_words(self.report.key.kind()).0
    }
    fn keys(&self) -> &'static str {
        names::key_words(self.report.key.kind()).1
    }

    /// The verb for an empty list. Untracked packets may have belonged on it.
    fn has(&self) -> &'static str {
        if self.report.account.untracked.packets > 0 { "is known to have" } else { "has" }
    }

    /// A flow on one line if it fits, otherwise on two.
    fn flow(&self, key: &CanonicalKey) -> Cell {
        let fields = self.report.key.fields(key.as_bytes());
        let protocol = fields.protocol.map(names::protocol);
        let behind: Vec<_> = protocol.into_iter().chain(names::others(&fields)).collect();
        let with_others =
            |end: String| behind.iter().fold(end, |end, other| format!("{end} {other}"));
        match self.endpoints(&fields) {
            [Some(source), Some(destination)] => {
                let both_ways = self.report.key.kind().is_in_order();
                let arrow = if both_ways { "↔" } else { "→" };
                self.joined(source, arrow, &with_others(destination))
            }
            [Some(end), None] | [None, Some(end)] => with_others(end).into(),
            [None, None] => behind.join(" ").into(),
        }
    }

    /// The address of an item that is a single address.
    fn address(&self, fields: &Fields) -> String {
        names::addresses(fields)
            .map(|(field, address)| names::address(self.report.key, field, address))
            .collect()
    }

    /// Source and destination with their ports, if the key has them.
    fn endpoints(&self, fields: &Fields) -> [Option<String>; 2] {
        // Two zero ports are those of a protocol without ports; leave them out.
        let no_ports =
            fields.source_port.unwrap_or(0) == 0 && fields.destination_port.unwrap_or(0) == 0;
        [
            if fields.host.is_some() {
                (Field::Host, fields.host, None)
            } else {
                (Field::Source, fields.source, fields.source_port)
            },
            (Field::Destination, fields.destination, fields.destination_port),
        ]
        .map(|(field, address, port)| {
            let text = |address| names::address(self.report.key, field, address);
            match (address, port) {
                (Some(address), Some(port)) if !no_ports && address.is_ipv6() => {
                    Some(format!("[{}]:{port}", text(address)))
                }
                (Some(address), Some(port)) if !no_ports => {
                    Some(format!("{}:{port}", text(address)))
                }
                (Some(address), _) => Some(text(address)),
                (None, Some(port)) => Some(match self.look.service(port) {
                    Some(name) => format!("port {port} {name}"),
                    None => format!("port {port}"),
                }),
                (None, None) => None,
            }
        })
    }

    /// Both ends on one line if they fit, otherwise on two.
    fn joined(&self, source: String, arrow: &str, destination: &str) -> Cell {
        let line = format!("{source} {arrow} {destination}");
        if line.chars().count() <= self.look.width.saturating_sub(BESIDE_FLOW) {
            line.into()
        } else {
            Cell::two_lines(source, format!("{arrow} {destination}"))
        }
    }

    /// Writes the table, and the number of items that it does not show.
    fn finish(&self, page: &mut Page, table: &Table) {
        table.write(page);
        let more = self.all.saturating_sub(table.len() as u64);
        if more > 0 {
            let hint = if more == self.truncated {
                "--limit lists more"
            } else {
                "--top shows more, JSON lists more"
            };
            let more = units::count(more as f64);
            paragraph(page, "  ", &format!("… and {more} more ({hint})"));
        }
    }
}

/// A threshold in words. Packets are whole numbers, so a packet threshold can be rounded down.
fn weight(measure: Measure, threshold: f64) -> String {
    match measure {
        _ if threshold > 0.0 && threshold < 1.0 => format!("a fraction of a {}", unit(measure)),
        Measure::Packets => units::plural(threshold as u64, "packet"),
        Measure::Bytes => units::bytes(threshold),
    }
}

/// The unit of a measure.
fn unit(measure: Measure) -> &'static str {
    match measure {
        Measure::Packets => "packet",
        Measure::Bytes => "byte",
    }
}

fn range(measure: Measure, estimate: &Estimate) -> String {
    format!("{}–{}", units::size(measure, estimate.low), units::size(measure, estimate.high))
}

fn number_of_keys(flows: &Estimate, (one, many): (&str, &str)) -> String {
    let number = flows.value.round() as u64;
    let value = format!("{} {}", units::count(number as f64), if number == 1 { one } else { many });
    if is_exact(flows) {
        return format!("{value}.");
    }
    // If the bounds are this far apart, a single number would mislead.
    let wide = flows.high > 10.0 * flows.low;
    let sure = |confidence| format!(" with {} confidence", units::percent(confidence));
    let sure = flows.confidence.map(sure).unwrap_or_default();
    let (low, high) = (units::count(flows.low), units::count(flows.high));
    if wide {
        format!("Between {low} and {high} {many}{sure}.")
    } else {
        format!("About {value}: between {low} and {high}{sure}.")
    }
}
