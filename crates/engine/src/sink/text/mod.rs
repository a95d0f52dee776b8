//! Reports as pages for people: plain text of a given width.

mod tasks;

use std::fmt::Write as _;
use std::io::{self, Write};

use flowgauge_core::summary::Estimate;
use flowgauge_core::task::Report;
use flowgauge_core::terms::{Measure, Size};
use flowgauge_core::timeline::Series;
use flowgauge_kernel::SeedId;

use super::layout::{Align, Look, Page, Table, paragraph};
use super::{Format, escape, names, rfc3339, units};
use crate::account::Account;
use crate::report::{Audit, Breakdown, EpochReport, Gap, TotalReport, Traffic};

/// A page for each epoch and each update, and the totals at the end. Shows at most `rows` items of
/// a list.
///
/// ```
/// use flowgauge_engine::report::TotalReport;
/// use flowgauge_engine::sink::layout::Look;
/// use flowgauge_engine::sink::{Format, Text};
///
/// let text = Text { rows: 10, look: Look::default() };
/// let mut page = Vec::new();
/// text.total(&TotalReport::new("main".into()), &mut page)?;
/// assert!(String::from_utf8(page)?.lines().all(|line| line.chars().count() <= text.look.width));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Text {
    /// Most items shown of a list.
    pub rows: usize,
    /// The look of the pages.
    pub look: Look,
}

impl Format for Text {
    fn epoch(&self, report: &EpochReport, out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.look);
        let (start, end) = (report.start_ns, report.end_ns);
        let so_far = if report.update { " so far" } else { "" };
        let observed = match report.coverage {
            1.0.. => String::new(),
            part => format!(", {} observed", units::percent(part)),
        };
        let title = format!("epoch {}{so_far} · {}{observed}", report.epoch, span(start, end));
        page.rule(&named(&report.measurement, &title));
        let summary = &report.summary;
        let accelerator = match summary.accelerator.as_str() {
            "none" => String::new(),
            name => format!(" behind {name}"),
        };
        let measured = format!(
            "{} by {} · {}{accelerator} in {}",
            report.key,
            report.by.name(),
            summary.algorithm,
            units::memory(summary.memory_bytes)
        );
        paragraph(&mut page, "", &measured);
        let known = match report.seed {
            SeedId::Number(_) => ", known: bounds hold unless senders craft colliding packets",
            SeedId::Random(_) | SeedId::File(_) => "",
        };
        paragraph(&mut page, "", &format!("seed {} {}{known}", report.seed.kind(), report.seed));
        if let Some(network) = &report.network {
            let agents = units::plural(network.agents, "agent");
            paragraph(&mut page, "", &format!("{} of {agents}", network.reported));
        }
        undelivered(&mut page, report.undelivered, " before this one");
        let findings = |at: &usize| matches!(report.tasks[*at].1, Report::Findings { .. });
        let (first, rest): (Vec<_>, Vec<_>) = (0..report.tasks.len()).partition(findings);
        for at in first {
            tasks::write(&mut page, report, at, self.rows);
        }
        page.heading("Traffic");
        let seconds = report.coverage * seconds(start, end);
        totals(&mut page, &report.account, report.traffic, seconds);
        account(&mut page, &report.account, 0);
        sparkline(&mut page, report.series.as_deref());
        for at in rest {
            tasks::write(&mut page, report, at, self.rows);
        }
        if let Some(of) = &report.audit {
            audit(&mut page, of, report.by);
        }
        if let Some(traffic) = &report.breakdown {
            breakdown(&mut page, traffic, report);
        }
        notes(&mut page, &report.notes);
        page.push_str("\n");
        out.write_all(page.into_text().as_bytes())
    }

    fn gap(&self, gap: &Gap, out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.look);
        let span = span(Some(gap.start_ns), Some(gap.end_ns));
        let last = gap.epoch + gap.epochs.saturating_sub(1);
        let epochs = match gap.epochs {
            1 => format!("epoch {last}"),
            _ => format!("epochs {} to {last}", gap.epoch),
        };
        page.rule(&named(&gap.measurement, &format!("{epochs} · {span}")));
        page.push_str("no packets\n\n");
        out.write_all(page.into_text().as_bytes())
    }

    fn total(&self, report: &TotalReport, out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.look);
        let epochs = units::plural(report.epochs, "epoch");
        let files = units::plural(report.files.len() as u64, "file");
        page.rule(&named(&report.measurement, &format!("total · {files} · {epochs}")));
        for file in report.files.iter().take(FILES) {
            paragraph(&mut page, "  ", &escape::visible(file));
        }
        if report.files.len() > FILES {
            let more = units::count((report.files.len() - FILES) as f64);
            paragraph(&mut page, "  ", &format!("… and {more} more (JSON lists all)"));
        }
        undelivered(&mut page, report.undelivered, "");
        // The totals of a single epoch are shown above.
        if report.epochs != 1 || report.undelivered > 0 {
            if report.start_ns.is_some() {
                paragraph(&mut page, "  ", &span(report.start_ns, report.end_ns));
            }
            page.push_str("\n");
            let seconds = seconds(report.start_ns, report.end_ns);
            totals(&mut page, &report.account, report.traffic, seconds);
            account(&mut page, &report.account, report.irregular);
        } else if report.irregular > 0 {
            let records = units::plural(report.irregular, "record");
            let text = format!("{records} accepted although their lengths contradict");
            paragraph(&mut page, "  ", &text);
        }
        if !report.problems.is_empty() {
            page.heading("Problems");
            for problem in &report.problems {
                page.alert("  ! ", &escape::visible(problem));
            }
        }
        notes(&mut page, &report.notes);
        out.write_all(page.into_text().as_bytes())
    }
}

/// Most inputs named at the end.
const FILES: usize = 10;

/// A rate over less time, in seconds, or from fewer packets says nothing about a whole second.
const SHORT: f64 = 0.1;
const FEW: f64 = 1000.0;

/// Writes how many reports are missing here.
fn undelivered(page: &mut Page, undelivered: u64, which: &str) {
    if undelivered > 0 {
        let reports = units::plural(undelivered, "report");
        let text = format!("{reports}{which} could not be written in time");
        page.alert("  ! ", &text);
    }
}

/// Notes: what else a reader must know.
fn notes(page: &mut Page, notes: &[String]) {
    if !notes.is_empty() {
        page.heading("Notes");
        for note in notes {
            paragraph(page, "  · ", &escape::visible(note));
        }
    }
}

/// Start and end, to the millisecond (to the second if it spans days), and the length.
fn span(start_ns: Option<i64>, end_ns: Option<i64>) -> String {
    let (Some(start), Some(end)) = (start_ns, end_ns) else { return "no packets".to_owned() };
    let (from, to) = (rfc3339(start), rfc3339(end));
    let (day, from) = from.split_once('T').unwrap_or_default();
    let (last_day, to) = to.split_once('T').unwrap_or_default();
    // Of "13:00:00.000000000Z".
    let (to_day, digits) =
        if day == last_day { (String::new(), 12) } else { (format!("{last_day} "), 8) };
    let (from, to) = (&from[..digits], &to[..digits]);
    let length = units::duration(i128::from(end) - i128::from(start));
    format!("{day} {from} to {to_day}{to} UTC · {length}")
}

/// The seconds between two times.
fn seconds(start_ns: Option<i64>, end_ns: Option<i64>) -> f64 {
    match (start_ns, end_ns) {
        (Some(start), Some(end)) => (i128::from(end) - i128::from(start)) as f64 / 1e9,
        _ => 0.0,
    }
}

/// Writes the totals of a span of time.
fn totals(page: &mut Page, account: &Account, traffic: Option<Traffic>, seconds: f64) {
    let bytes_a_packet = account.keyed_bytes as f64 / account.keyed.max(1) as f64;
    let traffic = traffic.map(|traffic| traffic.estimate(account));
    let packets = traffic.map_or(account.keyed as f64, |packets| packets.value);
    let bytes = packets * bytes_a_packet;
    let mut text = match traffic {
        None => format!("{}, {}", units::plural(account.keyed, "packet"), units::bytes(bytes)),
        Some(Estimate { value, low, high, .. }) => {
            let [value, low, high] = [value, low, high].map(units::count);
            format!("about {value} packets ({low} to {high}), {}", units::bytes(bytes))
        }
    };
    if seconds >= SHORT || (seconds > 0.0 && packets >= FEW) {
        let rate = units::rate(packets / seconds);
        let bits = units::bits(bytes * 8.0 / seconds);
        let _ = write!(text, " · {rate} packets/s, {bits}/s");
    }
    if account.keyed > 0 {
        let _ = write!(text, " · {} per packet", units::bytes(bytes_a_packet));
    }
    paragraph(page, "  ", &text);
}

/// Writes packets per second over time, a block for each interval, and the busiest second, for any
/// width of the page. Without a whole second, the busiest interval is shown instead.
fn sparkline(page: &mut Page, series: Option<&Series>) {
    /// Columns beside the blocks.
    const BESIDE: usize = 40;
    const BLOCKS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
    let Some(series) = series else { return };
    let drawn = series.within(page.width().saturating_sub(BESIDE));
    let bins: Vec<_> = drawn.bins().collect();
    let highest = bins.iter().map(|bin| bin.size.packets).max().unwrap_or_default() as f64;
    let seconds = Some(series.widened(1_000_000_000)).filter(|seconds| seconds.bins().count() > 2);
    let counted = seconds.as_ref().unwrap_or(&drawn);
    let Some(peak) = counted.bins().max_by_key(|bin| bin.size.packets) else { return };
    if bins.len() < 2 {
        return;
    }
    let block = |packets: u64| BLOCKS[(packets as f64 / highest * 8.0).ceil() as usize];
    let line: String = bins.iter().map(|bin| block(bin.size.packets)).collect();
    let rate = peak.size.packets as f64 / (counted.width_ns() as f64 / 1e9);
    let time = rfc3339(peak.start_ns);
    let text = format!("  {line}  peak {} packets/s at {}\n", units::rate(rate), &time[11..19]);
    page.push_str(&text);
}

/// Writes how far the sizes of audited flows are off.
fn audit(page: &mut Page, Audit { one_in, observed }: &Audit, by: Measure) {
    page.heading(&format!("Audit of 1 flow in {}", units::count(f64::from(*one_in))));
    let size = match by {
        Measure::Packets => units::plural(observed.weight, "packet"),
        Measure::Bytes => units::bytes(observed.weight as f64),
    };
    let flows = units::plural(observed.flows, "flow");
    paragraph(page, "  ", &format!("compared with an exact count: {flows}, {size}"));
    let bias = observed.bias();
    let (sign, bias) = (if bias < 0.0 { "-" } else { "+" }, deviation(by, bias.abs()));
    let rmse = deviation(by, observed.rmse());
    paragraph(
        page,
        "  ",
        &format!("error: {sign}{bias} on average (bias), root mean square {rmse}"),
    );
    let (violated, allowed) = (observed.violated_share(), observed.allowed_share());
    let (violated, allowed) = (units::percent(violated), units::percent(allowed));
    paragraph(
        page,
        "  ",
        &format!("outside their bounds: {violated} of the flows (allowed: {allowed})"),
    );
}

/// An error such as `0.12 packets`.
fn deviation(by: Measure, value: f64) -> String {
    match by {
        _ if value < 9.995 => format!("{value:.2} {}", by.name()),
        Measure::Packets => format!("{} packets", units::count(value)),
        Measure::Bytes => units::bytes(value),
    }
}

/// A title after the name of the measurement, if it has one.
fn named(measurement: &str, title: &str) -> String {
    match measurement {
        "main" => title.to_owned(),
        name => format!("{name} · {title}"),
    }
}

/// Writes the account, with the reasons.
fn account(page: &mut Page, account: &Account, irregular: u64) {
    let malformed = account.reasons.malformed_reasons().map(|(layer, fault, count)| {
        (count, format!("{} {} header", names::fault(fault).1, names::layer(layer).1))
    });
    let no_key = account
        .reasons
        .no_key_reasons()
        .map(|(reason, count)| (count, names::no_key(reason).1.to_owned()));
    let bytes = |size: Size| units::bytes(size.bytes as f64);
    let share = account.keyed as f64 / account.read.max(1) as f64;
    let outages = match account.outages {
        1 => "epoch with an interface down: its packets are not counted",
        _ => "epochs with an interface down: its packets are not counted",
    };
    let lines = [
        (
            "skipped",
            account.skipped.packets,
            format!("{}, by the sampler before the headers", bytes(account.skipped)),
        ),
        ("filtered", account.filtered, "rejected by the filter".to_owned()),
        ("malformed", account.malformed, reasons(malformed)),
        ("no key", account.no_key, reasons(no_key)),
        ("measured", account.keyed, format!("{} of what was read", units::percent(share))),
        (
            "untracked",
            account.untracked.packets,
            format!(
                "of these, {}, in flows that the summary does not hold",
                bytes(account.untracked)
            ),
        ),
        (
            "dropped",
            account.dropped.packets,
            format!("of these, {}, because the workers were too slow", bytes(account.dropped)),
        ),
        ("lost", account.lost, "in addition, before they were read".to_owned()),
        (
            "saturated",
            account.saturated.packets.max(account.saturated.bytes),
            "increments lost to full counters".to_owned(),
        ),
        ("late", account.late, "older than the epoch that counts them".to_owned()),
        ("backwards", account.backwards, "older than the packet before them".to_owned()),
        ("jumps", account.jumps, "over an hour newer than the packet before them".to_owned()),
        ("outages", account.outages, outages.to_owned()),
        ("irregular", irregular, "records with contradictory lengths, read".to_owned()),
    ];
    let read = units::count(account.read as f64);
    if account.keyed == account.read && lines.iter().filter(|(_, n, _)| *n > 0).count() <= 1 {
        let all = if account.read == 0 { "" } else { ", all measured" };
        return paragraph(page, "  ", &format!("read {read}{all}"));
    }
    let shown = lines.iter().filter(|(label, n, _)| *n > 0 || *label == "measured");
    let shown: Vec<_> =
        shown.map(|(label, n, why)| (*label, units::count(*n as f64), why)).collect();
    let width = shown.iter().map(|(_, n, _)| n.len()).max().unwrap_or_default().max(read.len());
    paragraph(page, &format!("  {:<9}  {read:>width$}", "read"), "");
    for (label, n, why) in shown {
        paragraph(page, &format!("  {label:<9}  {n:>width$}  "), why);
    }
}

/// Reasons with their counts; a single reason needs no count.
fn reasons(reasons: impl Iterator<Item = (u64, String)>) -> String {
    let reasons: Vec<_> = reasons.collect();
    let single = reasons.len() == 1;
    let words = reasons.into_iter().map(|(count, reason)| {
        if single { reason } else { format!("{} {reason}", units::count(count as f64)) }
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Writes traffic by protocol and by port.
fn breakdown(page: &mut Page, breakdown: &Breakdown, report: &EpochReport) {
    let mut protocols: Vec<_> = breakdown
        .protocols
        .iter()
        .map(|(protocol, size)| (names::protocol(*protocol), "", size))
        .collect();
    let untracked = &breakdown.untracked;
    if untracked.packets > 0 {
        protocols.push((UNTRACKED.to_owned(), "", untracked));
    }
    sizes(page, "Protocols", protocols, *untracked, report);
    let ports = breakdown.ports.iter().map(|(protocol, port, size)| {
        let name = format!("{}/{port}", names::protocol(*protocol));
        (name, page.look().service(*port).unwrap_or_default(), size)
    });
    sizes(page, "Service ports", ports.collect(), *untracked, report);
}

/// The row of packets whose protocol is unknown.
const UNTRACKED: &str = "untracked";

/// Writes sizes. Untracked packets may belong to any of them.
fn sizes(
    page: &mut Page,
    title: &str,
    rows: Vec<(String, &str, &Size)>,
    untracked: Size,
    report: &EpochReport,
) {
    if rows.is_empty() {
        return;
    }
    page.heading(title);
    let (packets, bytes) = (("packets", Align::Right), ("bytes", Align::Right));
    let mut table = Table::new(&[
        ("", Align::Left),
        ("", Align::Left),
        packets,
        bytes,
        ("share", Align::Right),
    ]);
    let keyed = report.keyed();
    let of_all = |size: Size| size.by(report.by) as f64 / keyed.by(report.by).max(1) as f64;
    for (name, service, size) in rows {
        let share = of_all(*size);
        let written = match untracked.packets {
            0 => units::percent(share),
            _ if name == UNTRACKED => units::percent(share),
            _ => {
                let most = of_all(*size + untracked).min(1.0);
                format!("{} – {}", units::percent(share), units::percent(most))
            }
        };
        let cells = vec![
            name.into(),
            service.into(),
            units::count(size.packets as f64).into(),
            units::bytes(size.bytes as f64).into(),
            written.into(),
        ];
        table.row(cells, share);
    }
    table.spare(&[match report.by {
        Measure::Packets => "bytes",
        Measure::Bytes => "packets",
    }]);
    table.write(page);
}

/// Writes the entropy of the flow sizes, and how to read it.
fn entropy(page: &mut Page, bits: &Estimate, normalized: f64) {
    page.heading("Entropy");
    let about = if is_exact(bits) {
        String::new()
    } else {
        format!(" (between {:.3} and {:.3})", bits.low, bits.high)
    };
    if bits.high - bits.low > 0.1 * bits.value {
        let text = format!("{:.3} bits{about}: too wide to say more.", bits.value);
        return paragraph(page, "  ", &text);
    }
    let of_most = units::percent(normalized);
    let reading = match normalized {
        n if n >= 0.9 => "the traffic is spread over its flows almost evenly",
        n if n >= 0.7 => "some flows carry clearly more than others",
        n if n >= 0.4 => "a minority of the flows carries most of the traffic",
        n if n > 0.0 => "very few flows carry nearly all of the traffic",
        _ => "there is one flow, or none",
    };
    paragraph(
        page,
        "  ",
        &format!(
            "{:.3} bits{about}, {of_most} of the maximum for this number of flows: {reading}.",
            bits.value
        ),
    );
}

/// Writes the number of flows by their size, in powers of two. Flows of untracked packets may have any
/// size.
fn size_distribution(page: &mut Page, bins: &[(u64, Estimate)], untracked: u64) {
    page.heading("Packets per flow");
    if bins.is_empty() {
        return paragraph(page, "  ", "No flows.");
    }
    let (mut buckets, mut bounds) = ([0.0; 64], [(0.0, 0.0); 64]);
    for (size, flows) in bins {
        let power = size.max(&1).ilog2() as usize;
        buckets[power] += flows.value;
        bounds[power].0 += flows.low;
        bounds[power].1 += flows.high;
    }
    if untracked > 0 {
        for (power, (low, high)) in bounds.iter_mut().enumerate() {
            *high = *low + (untracked >> power) as f64;
        }
    }
    let all: f64 = buckets.iter().sum();
    let last = buckets.iter().rposition(|flows| *flows > 0.0).unwrap_or_default();
    let first = buckets.iter().position(|flows| *flows > 0.0).unwrap_or_default();
    let inexact = bounds[first..=last].iter().any(|(low, high)| low < high);
    let mut columns = vec![("packets", Align::Right), ("flows", Align::Right)];
    columns.extend(inexact.then_some(("between", Align::Right)));
    columns.push(("share", Align::Right));
    let mut table = Table::new(&columns);
    for (power, flows) in buckets.iter().enumerate().take(last + 1).skip(first) {
        let (low, high) = (1_u64 << power, u64::MAX >> (63 - power));
        let label = match power {
            0 => "1".to_owned(),
            _ => format!("{} – {}", units::count(low as f64), units::count(high as f64)),
        };
        let share = if all > 0.0 { flows / all } else { 0.0 };
        let mut cells = vec![label.into(), units::count(*flows).into()];
        if inexact {
            let (low, high) = bounds[power];
            cells.push(format!("{}–{}", units::count(low), units::count(high)).into());
        }
        cells.push(units::percent(share).into());
        table.row(cells, share);
    }
    table.write(page);
}

/// Whether the bounds of an estimate meet.
fn is_exact(estimate: &Estimate) -> bool {
    estimate.low >= estimate.high
}
