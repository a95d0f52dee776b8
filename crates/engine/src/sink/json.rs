//! Reports as JSON, one object a line. `docs/report.schema.json` describes every field.

use std::io::{self, Write};

use flowgauge_core::key::{CanonicalKey, Fields, KeyKind, KeySpec};
use flowgauge_core::summary::{Estimate, Measure, Setting, Size};
use flowgauge_core::task::{HierarchyItem, Report, SizeItem, SpreadItem};
use serde_json::{Map, Value, json};

use super::{Sink, escape, names, rfc3339};
use crate::account::Account;
use crate::report::{Breakdown, EpochReport, Gap, SummaryInfo, TotalReport};

/// Writes each report as one line of JSON.
pub struct JsonSink<W> {
    out: W,
}

impl<W: Write> JsonSink<W> {
    /// Writes to `out`, and flushes it at the end of each line.
    pub fn new(out: W) -> Self {
        Self { out }
    }

    fn line(&mut self, value: &Value) -> io::Result<()> {
        let mut line = escape::visible_json(value.to_string());
        line.push('\n');
        self.out.write_all(line.as_bytes())?;
        self.out.flush()
    }
}

impl<W: Write + Send> Sink for JsonSink<W> {
    fn epoch(&mut self, report: &EpochReport) -> io::Result<()> {
        let tasks: Map<String, Value> = report
            .tasks
            .iter()
            .map(|(name, answer)| ((*name).to_owned(), task(name, answer, report.key, report.by)))
            .collect();
        self.line(&json!({
            "type": if report.update { "update" } else { "epoch" },
            "measurement": &*report.measurement,
            "epoch": report.epoch,
            "start": time(report.start_ns),
            "end": time(report.end_ns),
            "key": report.key.to_string(),
            "by": report.by.name(),
            "account": account(&report.account),
            "summary": summary(&report.summary),
            "tasks": tasks,
            "breakdown": report.breakdown.as_ref().map(breakdown),
            "notes": report.notes,
        }))
    }

    fn gap(&mut self, gap: &Gap) -> io::Result<()> {
        self.line(&json!({
            "type": "gap",
            "measurement": &*gap.measurement,
            "epoch": gap.epoch,
            "epochs": gap.epochs,
            "start": rfc3339(gap.start_ns),
            "end": rfc3339(gap.end_ns),
        }))
    }

    fn total(&mut self, report: &TotalReport) -> io::Result<()> {
        let mut account = account(&report.account);
        account["irregular"] = json!(report.irregular);
        self.line(&json!({
            "type": "total",
            "measurement": &*report.measurement,
            "files": report.files,
            "epochs": report.epochs,
            "start": time(report.start_ns),
            "end": time(report.end_ns),
            "account": account,
            "problems": report.problems,
            "notes": report.notes,
        }))
    }
}

fn time(time_ns: Option<i64>) -> Value {
    time_ns.map(rfc3339).into()
}

fn account(account: &Account) -> Value {
    let malformed = account.reasons.malformed_reasons().map(|(layer, fault, count)| {
        (format!("{}-{}", names::layer(layer).0, names::fault(fault).0), json!(count))
    });
    let no_key = account
        .reasons
        .no_key_reasons()
        .map(|(reason, count)| (names::no_key(reason).0.to_owned(), json!(count)));
    json!({
        "read": account.read,
        "filtered": account.filtered,
        "malformed": account.malformed,
        "no_key": account.no_key,
        "keyed": account.keyed,
        "keyed_bytes": account.keyed_bytes,
        "untracked": account.untracked.packets,
        "untracked_bytes": account.untracked.bytes,
        "dropped": account.dropped.packets,
        "dropped_bytes": account.dropped.bytes,
        "lost": account.lost,
        "saturated": account.saturated.packets,
        "saturated_bytes": account.saturated.bytes,
        "late": account.late,
        "backwards": account.backwards,
        "jumps": account.jumps,
        "malformed_reasons": malformed.collect::<Map<_, _>>(),
        "no_key_reasons": no_key.collect::<Map<_, _>>(),
    })
}

fn summary(summary: &SummaryInfo) -> Value {
    json!({
        "algorithm": summary.algorithm,
        "accelerator": summary.accelerator,
        "memory_bytes": summary.memory_bytes,
        "parameters": parameters(&summary.parameters),
    })
}

/// The parameters in force, as an object.
pub fn parameters(parameters: &[(String, Setting)]) -> Value {
    let parameters = parameters.iter().map(|(name, setting)| {
        let value = match setting {
            Setting::Integer(value) => json!(value),
            Setting::Fraction(value) => json!(value),
            Setting::Word(word) => json!(word),
        };
        (name.clone(), value)
    });
    Value::Object(parameters.collect())
}

fn breakdown(breakdown: &Breakdown) -> Value {
    let sized = |mut item: Value, size: &Size| {
        item["packets"] = json!(size.packets);
        item["bytes"] = json!(size.bytes);
        item
    };
    let protocols = breakdown.protocols.iter().map(|(protocol, size)| {
        let name = names::protocol_name(*protocol);
        sized(json!({ "protocol": protocol, "name": name }), size)
    });
    let ports = breakdown.ports.iter().map(|(protocol, port, size)| {
        let name = names::service_name(*port);
        sized(json!({ "protocol": protocol, "port": port, "name": name }), size)
    });
    json!({ "protocols": protocols.collect::<Vec<_>>(), "ports": ports.collect::<Vec<_>>() })
}

fn task(name: &str, report: &Report, spec: KeySpec, by: Measure) -> Value {
    match report {
        Report::Sizes { threshold, items } => {
            // A flow that was asked for is not one of many: no share.
            let shared = name != "flow-size";
            let items = list(items, |item| size_item(item, spec, shared));
            match threshold {
                Some(threshold) => json!({ "threshold": number(*threshold), "items": items }),
                None => json!({ "items": items }),
            }
        }
        Report::Spread { threshold, items } => {
            let kind = if name == "victims" { KeyKind::Destination } else { KeyKind::Source };
            json!({ "threshold": threshold, "items": list(items, |item| spread_item(item, spec, kind)) })
        }
        Report::Changes { threshold, items, untracked } => json!({
            "threshold": threshold.map(number),
            "items": list(items, |item| json!({
                "key": key(spec, &item.key),
                "before": estimate(&item.before),
                "forecast": estimate(&item.forecast),
                "now": estimate(&item.now),
            })),
            "untracked": untracked,
        }),
        Report::Cardinality { flows } => json!({ "flows": estimate(flows) }),
        Report::Entropy { bits, normalized } => {
            json!({ "bits": estimate(bits), "normalized": normalized })
        }
        Report::SizeDistribution { bins } => json!({
            "bins": list(bins, |(size, flows)| json!({ "size": size, "flows": estimate(flows) })),
        }),
        Report::Quantiles { of, sizes, keys } => json!({
            "of": names::quantiles(*of),
            "items": list(sizes, |(q, size)| json!({ "q": q, "size": estimate(size) })),
            "keys": list(keys, |(q, flow)| json!({ "q": q, "key": key(spec, flow) })),
        }),
        Report::Hierarchical { threshold, items } => json!({
            "threshold": number(*threshold),
            "items": list(items, |item| hierarchy_item(item, by)),
        }),
    }
}

fn list<T>(items: &[T], each: impl Fn(&T) -> Value) -> Value {
    Value::Array(items.iter().map(each).collect())
}

fn size_item(item: &SizeItem, spec: KeySpec, shared: bool) -> Value {
    let mut value = json!({
        "key": key(spec, &item.key),
        "packets": item.size.packets.as_ref().map(estimate),
        "bytes": item.size.bytes.as_ref().map(estimate),
    });
    if shared {
        value["share"] = json!(item.share);
    }
    value
}

fn spread_item(item: &SpreadItem, spec: KeySpec, kind: KeyKind) -> Value {
    let fields = names::address_fields(spec, kind, &item.address);
    json!({ "key": fields_of(spec, &fields), "distinct": estimate(&item.distinct) })
}

fn hierarchy_item(item: &HierarchyItem, by: Measure) -> Value {
    let source = names::prefix(&item.source, item.source_bits);
    let mut value = match &item.destination {
        Some((address, bits)) => {
            json!({ "source": source, "destination": names::prefix(address, *bits) })
        }
        None => json!({ "prefix": source }),
    };
    let total = |measure| (measure == by).then(|| estimate(&item.total));
    value["packets"] = total(Measure::Packets).into();
    value["bytes"] = total(Measure::Bytes).into();
    value["discounted"] = estimate(&item.discounted);
    value
}

fn key(spec: KeySpec, key: &CanonicalKey) -> Value {
    fields_of(spec, &spec.fields(key.as_bytes()))
}

fn fields_of(spec: KeySpec, fields: &Fields) -> Value {
    let address = |address| Value::from(names::address(spec, address));
    let fields = [
        ("source", fields.source.map(address)),
        ("destination", fields.destination.map(address)),
        ("source_port", fields.source_port.map(Value::from)),
        ("destination_port", fields.destination_port.map(Value::from)),
        ("protocol", fields.protocol.map(Value::from)),
    ];
    let held = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    held.collect::<Map<_, _>>().into()
}

fn estimate(estimate: &Estimate) -> Value {
    let mut value = json!({
        "value": number(estimate.value),
        "low": number(estimate.low),
        "high": number(estimate.high),
    });
    if let Some(confidence) = estimate.confidence {
        value["confidence"] = json!(confidence);
    }
    value
}

/// A number, as an integer where it is one; `null` where it is not finite.
fn number(value: f64) -> Value {
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    if value.fract() == 0.0 && value.abs() < TWO_TO_63 {
        Value::from(value as i64)
    } else {
        Value::from(value)
    }
}
