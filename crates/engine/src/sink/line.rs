//! Reports as one line each, for reading and for `grep`.

use std::io::{self, Write};

use flowgauge_core::key::{CanonicalKey, Field, KeySpec};
use flowgauge_core::summary::Estimate;
use flowgauge_core::task::{Finding, Report, Selection};

use super::{Format, names, rfc3339};
use crate::account::Account;
use crate::report::{EpochReport, Gap, TotalReport, Traffic};

/// A line with the same columns for each epoch, each run of empty epochs, and the total, after a
/// line of titles. No cell contains a space; `-` stands for a missing number.
///
/// ```
/// use flowgauge_engine::report::TotalReport;
/// use flowgauge_engine::sink::{Format, Line};
///
/// let mut page = Vec::new();
/// Line.total(&TotalReport::new("main".into()), &mut page)?;
/// let page = String::from_utf8(page)?;
/// assert!(page.contains("total"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Line;

/// The titles and the least widths of their columns; a negative width aligns to the left.
const COLUMNS: [(&str, isize); 15] = [
    ("measurement", -11),
    ("epoch", 5),
    ("start", -24),
    ("seconds", 9),
    ("packets", 11),
    ("bytes", 13),
    ("packets/s", 11),
    ("bits/s", 13),
    ("uncounted", 9),
    ("flows", 9),
    ("entropy", 7),
    ("findings", 8),
    ("first", -13),
    ("share", 6),
    ("top", 0),
];

const NONE: &str = "-";

/// The cells of a line.
#[derive(Default)]
struct Cells {
    measurement: String,
    epoch: String,
    times_ns: Option<(i64, i64)>,
    /// The part of that time that was observed.
    coverage: f64,
    packets: f64,
    bytes: f64,
    uncounted: u64,
    flows: Option<f64>,
    entropy: Option<f64>,
    findings: Option<(u64, Option<&'static str>)>,
    top: Option<(String, f64)>,
}

impl Format for Line {
    fn header(&self, out: &mut dyn Write) -> io::Result<()> {
        write(&COLUMNS.map(|(title, _)| title.to_owned()), out)
    }

    fn epoch(&self, report: &EpochReport, out: &mut dyn Write) -> io::Result<()> {
        let mut cells = Cells {
            measurement: report.measurement.to_string(),
            epoch: report.epoch.to_string(),
            times_ns: report.start_ns.zip(report.end_ns),
            coverage: report.coverage,
            ..counted(&report.account, report.traffic)
        };
        for (_, answer) in &report.tasks {
            match answer {
                Report::Cardinality { flows } if is_known(flows) => cells.flows = Some(flows.value),
                Report::Entropy { normalized, .. } => cells.entropy = Some(*normalized),
                Report::Findings { items, truncated } => {
                    let first = items.first().map(|item: &Finding| item.kind.name());
                    cells.findings = Some((items.len() as u64 + truncated, first));
                }
                Report::Sizes { selection: Selection::Largest, items, .. } => {
                    let item = items.first();
                    cells.top = item.map(|item| (flow(report.key, &item.key), item.share));
                }
                _ => {}
            }
        }
        cells.write(out)
    }

    fn gap(&self, gap: &Gap, out: &mut dyn Write) -> io::Result<()> {
        let last = gap.epoch + gap.epochs.saturating_sub(1);
        let epoch = match gap.epochs {
            1 => last.to_string(),
            _ => format!("{}-{last}", gap.epoch),
        };
        let measurement = gap.measurement.to_string();
        let times_ns = Some((gap.start_ns, gap.end_ns));
        Cells { measurement, epoch, times_ns, coverage: 1.0, ..Cells::default() }.write(out)
    }

    fn total(&self, report: &TotalReport, out: &mut dyn Write) -> io::Result<()> {
        let cells = Cells {
            measurement: report.measurement.to_string(),
            epoch: "total".to_owned(),
            times_ns: report.start_ns.zip(report.end_ns),
            coverage: 1.0,
            ..counted(&report.account, report.traffic)
        };
        cells.write(out)
    }
}

/// The packets of an account, and those missing from all other numbers.
fn counted(account: &Account, traffic: Option<Traffic>) -> Cells {
    let packets = traffic.map_or(account.keyed as f64, |traffic| traffic.estimate(account).value);
    let mean = account.keyed_bytes as f64 / account.keyed.max(1) as f64;
    let uncounted = account.malformed
        + account.no_key
        + account.lost
        + account.untracked.packets
        + account.dropped.packets;
    Cells { packets, bytes: packets * mean, uncounted, ..Cells::default() }
}

/// If the bounds are this far apart, a single number would mislead.
fn is_known(estimate: &Estimate) -> bool {
    estimate.high <= 10.0 * estimate.low
}

impl Cells {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let seconds = self
            .times_ns
            .map(|(start, end)| self.coverage * (i128::from(end) - i128::from(start)) as f64 / 1e9);
        let rate = |sum: f64| {
            let rate = seconds.filter(|seconds| *seconds > 0.0).map(|seconds| sum / seconds);
            rate.map_or(NONE.to_owned(), |rate| format!("{rate:.0}"))
        };
        let real = |value: Option<f64>, digits: usize| {
            value.map_or(NONE.to_owned(), |value| format!("{value:.digits$}"))
        };
        let (findings, first) = self.findings.unzip();
        write(
            &[
                self.measurement.clone(),
                self.epoch.clone(),
                // To the millisecond.
                self.times_ns
                    .map_or(NONE.to_owned(), |(start, _)| rfc3339(start)[..23].to_owned() + "Z"),
                real(seconds, 3),
                format!("{:.0}", self.packets),
                format!("{:.0}", self.bytes),
                rate(self.packets),
                rate(8.0 * self.bytes),
                self.uncounted.to_string(),
                real(self.flows, 0),
                real(self.entropy, 3),
                findings.map_or(NONE.to_owned(), |findings| findings.to_string()),
                first.flatten().unwrap_or(NONE).to_owned(),
                real(self.top.as_ref().map(|(_, share)| *share), 4),
                self.top.as_ref().map_or(NONE.to_owned(), |(flow, _)| flow.clone()),
            ],
            out,
        )
    }
}

fn write(cells: &[String; COLUMNS.len()], out: &mut dyn Write) -> io::Result<()> {
    let padded = cells.iter().zip(COLUMNS).map(|(cell, (_, width))| match width {
        ..0 => format!("{cell:<width$}", width = width.unsigned_abs()),
        _ => format!("{cell:>width$}", width = width.unsigned_abs()),
    });
    writeln!(out, "{}", padded.collect::<Vec<_>>().join(" ").trim_end())
}

/// A flow such as `10.0.0.1:80>10.0.0.2:1234/tcp`, without a space.
fn flow(spec: KeySpec, key: &CanonicalKey) -> String {
    let fields = spec.fields(key.as_bytes());
    let ends = [
        (Field::Source, fields.source, fields.source_port),
        (Field::Destination, fields.destination, fields.destination_port),
        (Field::Host, fields.host, None),
    ];
    let ends = ends.into_iter().filter_map(|(field, address, port)| {
        let name = |address| names::address(spec, field, address);
        match (address, port) {
            (Some(address), Some(port)) if address.is_ipv6() => {
                Some(format!("[{}]:{port}", name(address)))
            }
            (Some(address), Some(port)) => Some(format!("{}:{port}", name(address))),
            (Some(address), None) => Some(name(address)),
            (None, Some(port)) => Some(format!(":{port}")),
            (None, None) => None,
        }
    });
    let protocol = fields.protocol.map(|protocol| {
        names::protocol_name(protocol).map_or_else(|| protocol.to_string(), str::to_owned)
    });
    let arrow = if spec.kind().is_in_order() { "=" } else { ">" };
    let ends = ends.collect::<Vec<_>>().join(arrow);
    let parts = [Some(ends).filter(|ends| !ends.is_empty()), protocol];
    let others = names::others(&fields).into_iter().map(|part| part.replace(' ', ""));
    parts.into_iter().flatten().chain(others).collect::<Vec<_>>().join("/")
}
