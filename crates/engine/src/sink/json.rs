//! Reports as JSON, one object a line. `docs/report.schema.json` describes every field.

use std::io::{self, Write};

use flowgauge_core::key::{CanonicalKey, Field, Fields, KeyKind, KeySpec, Mac, TcpFlags};
use flowgauge_core::summary::{Estimate, Seen, Setting, SizeEstimate};
use flowgauge_core::task::{
    AddressItem, Finding, FindingKind, HierarchyItem, Report, Selection, Side, SizeItem, SpreadItem,
};
use flowgauge_core::terms::{Measure, Size};
use flowgauge_core::timeline::Series;
use serde_json::{Map, Value, json};

use super::{Directions, Format, escape, findings, names, rfc3339};
use crate::account::Account;
use crate::report::{
    Audit, Breakdown, EpochReport, Gap, LeftOut, Network, SummaryInfo, TotalReport, Traffic,
};
use crate::source::Counter;

/// One line of JSON for each item. Lists are written item by item.
///
/// ```
/// use flowgauge_engine::report::TotalReport;
/// use flowgauge_engine::sink::{Format, Json};
///
/// let mut page = Vec::new();
/// Json.total(&TotalReport::new("main".into()), &mut page)?;
/// let page = String::from_utf8(page)?;
/// assert!(page.starts_with(r#"{"type":"total""#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Json;

impl Format for Json {
    fn epoch(&self, report: &EpochReport, out: &mut dyn Write) -> io::Result<()> {
        line(out, |line| {
            line.field("type", if report.update { "update" } else { "epoch" })?;
            line.field("measurement", &*report.measurement)?;
            line.field("epoch", report.epoch)?;
            line.field("start", time(report.start_ns))?;
            line.field("end", time(report.end_ns))?;
            line.field("coverage", report.coverage)?;
            if let Some(of) = &report.network {
                line.field("network", network(of))?;
            }
            line.field("key", report.key.to_string())?;
            line.field("by", report.by.name())?;
            line.object("seed", |seed| {
                seed.field("kind", report.seed.kind())?;
                seed.field("id", report.seed.to_string())
            })?;
            line.field("account", account(&report.account))?;
            traffic(line, report.traffic, &report.account)?;
            line.field("summary", summary(&report.summary))?;
            line.object("tasks", |tasks| {
                report.tasks.iter().try_for_each(|(name, answer)| {
                    tasks.object(name, |object| task(object, answer, report))
                })
            })?;
            if let Some(of) = &report.audit {
                line.field("audit", audit(of))?;
            }
            line.field("breakdown", report.breakdown.as_ref().map(breakdown))?;
            line.field("series", report.series.as_deref().map(series))?;
            line.field("notes", report.notes.clone())?;
            line.field("undelivered", report.undelivered)
        })
    }

    fn gap(&self, gap: &Gap, out: &mut dyn Write) -> io::Result<()> {
        line(out, |line| {
            line.field("type", "gap")?;
            line.field("measurement", &*gap.measurement)?;
            line.field("epoch", gap.epoch)?;
            line.field("epochs", gap.epochs)?;
            line.field("start", rfc3339(gap.start_ns))?;
            line.field("end", rfc3339(gap.end_ns))
        })
    }

    fn total(&self, report: &TotalReport, out: &mut dyn Write) -> io::Result<()> {
        let mut account = account(&report.account);
        account["irregular"] = report.irregular.into();
        line(out, |line| {
            line.field("type", "total")?;
            line.field("measurement", &*report.measurement)?;
            line.field("files", report.files.clone())?;
            line.field("epochs", report.epochs)?;
            line.field("start", time(report.start_ns))?;
            line.field("end", time(report.end_ns))?;
            line.field("account", account)?;
            traffic(line, report.traffic, &report.account)?;
            line.field("counters", counters(&report.counters))?;
            line.field("problems", report.problems.clone())?;
            line.field("notes", report.notes.clone())?;
            line.field("undelivered", report.undelivered)
        })
    }
}

/// Writes an object on a line of its own.
fn line(
    out: &mut dyn Write,
    fill: impl FnOnce(&mut Object<'_>) -> io::Result<()>,
) -> io::Result<()> {
    object(out, fill)?;
    out.write_all(b"\n")
}

fn object(
    out: &mut dyn Write,
    fill: impl FnOnce(&mut Object<'_>) -> io::Result<()>,
) -> io::Result<()> {
    out.write_all(b"{")?;
    fill(&mut Object { out, empty: true })?;
    out.write_all(b"}")
}

/// A JSON object that is written field by field.
struct Object<'a> {
    out: &'a mut dyn Write,
    empty: bool,
}

impl Object<'_> {
    fn name(&mut self, name: &str) -> io::Result<()> {
        let comma = if self.empty { "" } else { "," };
        self.empty = false;
        write!(self.out, "{comma}\"{name}\":")
    }

    fn value(&mut self, value: &Value) -> io::Result<()> {
        self.out.write_all(escape::visible_json(value.to_string()).as_bytes())
    }

    fn field(&mut self, name: &str, value: impl Into<Value>) -> io::Result<()> {
        self.name(name)?;
        self.value(&value.into())
    }

    fn object(
        &mut self,
        name: &str,
        fill: impl FnOnce(&mut Object<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.name(name)?;
        object(self.out, fill)
    }

    fn list<T>(&mut self, name: &str, items: &[T], each: impl Fn(&T) -> Value) -> io::Result<()> {
        self.name(name)?;
        self.out.write_all(b"[")?;
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.out.write_all(b",")?;
            }
            self.value(&each(item))?;
        }
        self.out.write_all(b"]")
    }
}

/// The errors of the sizes of audited flows.
fn audit(Audit { one_in, observed }: &Audit) -> Value {
    json!({
        "one_in": one_in,
        "flows": observed.flows,
        "weight": observed.weight,
        "bias": observed.bias(),
        "rmse": observed.rmse(),
        "violated": observed.violated_share(),
        "allowed": observed.allowed_share(),
        "untracked": observed.untracked.packets,
        "untracked_bytes": observed.untracked.bytes,
    })
}

/// The agents of a network-wide report.
fn network(network: &Network) -> Value {
    let left_out = network.left_out.iter().map(|LeftOut { agent, field, reason }| {
        json!({ "agent": agent, "field": field, "reason": reason })
    });
    let late = network.late.iter().map(|(agent, snapshots)| (agent.clone(), json!(snapshots)));
    json!({
        "id": network.id,
        "revision": network.revision,
        "agents": network.agents,
        "reported": network.reported,
        "missing": network.missing,
        "left_out": left_out.collect::<Vec<_>>(),
        "late": late.collect::<Map<_, _>>(),
    })
}

/// The keyed traffic, if a sample of it was read.
fn traffic(line: &mut Object<'_>, traffic: Option<Traffic>, account: &Account) -> io::Result<()> {
    match traffic {
        Some(traffic) => line.field("traffic", estimate(&traffic.estimate(account))),
        None => Ok(()),
    }
}

fn counters(counters: &[Counter]) -> Value {
    let counter = |counter: &Counter| (counter.name.to_owned(), counter.count.into());
    Value::Object(counters.iter().map(counter).collect())
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
        "skipped": account.skipped.packets,
        "skipped_bytes": account.skipped.bytes,
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
        "outages": account.outages,
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
    json!({
        "protocols": protocols.collect::<Vec<_>>(),
        "ports": ports.collect::<Vec<_>>(),
        "untracked": breakdown.untracked.packets,
        "untracked_bytes": breakdown.untracked.bytes,
    })
}

/// Packets and bytes over time.
fn series(series: &Series) -> Value {
    let bins: Vec<_> = series.bins().collect();
    let column = |of: fn(&Size) -> u64| bins.iter().map(|bin| of(&bin.size)).collect::<Vec<_>>();
    json!({
        "start": bins.first().map(|bin| rfc3339(bin.start_ns)),
        "step_seconds": series.width_ns() as f64 / 1e9,
        "packets": column(|size| size.packets),
        "bytes": column(|size| size.bytes),
    })
}

/// Writes the answer of a task.
fn task(object: &mut Object<'_>, answer: &Report, epoch: &EpochReport) -> io::Result<()> {
    let spec = epoch.key;
    match answer {
        Report::Sizes { selection, items, truncated, complete_to } => {
            if let Some(threshold) = selection.threshold() {
                object.field("threshold", number(threshold))?;
            }
            // Flows named by the configuration have no share.
            let shared = *selection != Selection::Asked;
            object.list("items", items, |item| size_item(item, spec, shared))?;
            if !shared {
                return Ok(());
            }
            object.field("truncated", *truncated)?;
            object.field("complete_to", *complete_to)
        }
        Report::Findings { items, truncated } => {
            object.list("items", items, |item| finding(item, epoch))?;
            object.field("truncated", *truncated)
        }
        Report::Addresses { side, items, truncated } => {
            object.list("items", items, |item| address_item(item, spec, *side))?;
            object.field("truncated", *truncated)
        }
        Report::Spread { side, of, threshold, items, truncated } => {
            object.field("of", of.name())?;
            object.field("threshold", *threshold)?;
            object.list("items", items, |item| spread_item(item, spec, *side))?;
            object.field("truncated", *truncated)
        }
        Report::Changes { threshold, items, truncated, untracked } => {
            object.field("threshold", threshold.map(number))?;
            object.list("items", items, |item| {
                json!({
                    "key": key(spec, &item.key),
                    "before": estimate(&item.before),
                    "forecast": estimate(&item.forecast),
                    "now": estimate(&item.now),
                })
            })?;
            object.field("truncated", *truncated)?;
            object.field("untracked", *untracked)
        }
        Report::Cardinality { flows } => object.field("flows", estimate(flows)),
        Report::Entropy { bits, normalized } => {
            object.field("bits", estimate(bits))?;
            object.field("normalized", *normalized)
        }
        Report::SizeDistribution { bins } => object.list(
            "bins",
            bins,
            |(size, flows)| json!({ "size": size, "flows": estimate(flows) }),
        ),
        Report::Quantiles { of, sizes, keys } => {
            object.field("of", names::quantiles(*of))?;
            object.list("items", sizes, |(q, size)| json!({ "q": q, "size": estimate(size) }))?;
            object.list("keys", keys, |(q, flow)| json!({ "q": q, "key": key(spec, flow) }))
        }
        Report::Hierarchical { threshold, items, truncated } => {
            object.field("threshold", number(*threshold))?;
            object.list("items", items, |item| hierarchy_item(item, epoch.by))?;
            object.field("truncated", *truncated)
        }
    }
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
    if let Some(seen) = &item.seen {
        value["seen"] = seen_of(seen, &item.size, spec.kind());
    }
    value
}

/// When and how a flow was seen.
fn seen_of(seen: &Seen, size: &SizeEstimate, kind: KeyKind) -> Value {
    let mut value = json!({
        "first": rfc3339(seen.first_ns),
        "last": rfc3339(seen.last_ns),
        "seconds": seen.seconds(),
        "packet_bytes": Directions::mean(size),
        "tcp_flags": TcpFlags(seen.tcp_flags).to_string(),
    });
    if let Some(Directions { forward, back }) = Directions::of(seen, size, kind) {
        let size = |size: Size| json!({ "packets": size.packets, "bytes": size.bytes });
        value["forward"] = size(forward);
        value["back"] = size(back);
    }
    value
}

fn address_item(item: &AddressItem, spec: KeySpec, side: Side) -> Value {
    let fields = names::address_fields(spec, side, &item.address);
    json!({
        "key": fields_of(spec, &fields),
        "packets": item.size.packets.as_ref().map(estimate),
        "bytes": item.size.bytes.as_ref().map(estimate),
        "flows": item.flows,
        "share": item.share,
    })
}

fn finding(item: &Finding, epoch: &EpochReport) -> Value {
    let port = |reflected| (item.kind == FindingKind::Reflection) == reflected;
    let fields = Fields {
        source: findings::address(item.source.as_ref()),
        destination: findings::address(item.destination.as_ref()),
        source_port: item.port.filter(|_| port(true)),
        destination_port: item.port.filter(|_| port(false)),
        protocol: item.protocol,
        ..Fields::default()
    };
    let (start_ns, end_ns) = item.span_ns.unzip();
    let (usual, now) = item.usual.unzip();
    json!({
        "kind": item.kind.name(),
        "text": findings::sentence(item, epoch),
        "key": fields_of(epoch.key, &fields),
        "packets": item.size.packets.as_ref().map(estimate),
        "bytes": item.size.bytes.as_ref().map(estimate),
        "share": item.share,
        "peers": item.peers.as_ref().map(estimate),
        "start": start_ns.map(rfc3339),
        "end": end_ns.map(rfc3339),
        "exact_times": item.span_is_exact,
        "tcp_flags": item.flags.map(findings::flag_names),
        "usual": usual,
        "now": now,
        "filter": findings::filter(item, epoch.key),
    })
}

fn spread_item(item: &SpreadItem, spec: KeySpec, side: Side) -> Value {
    let fields = names::address_fields(spec, side, &item.address);
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
    let mac = |mac: Mac| Value::from(mac.to_string());
    let address = |field| move |address| Value::from(names::address(spec, field, address));
    let fields = [
        ("source", fields.source.map(address(Field::Source))),
        ("destination", fields.destination.map(address(Field::Destination))),
        ("host", fields.host.map(address(Field::Host))),
        ("source_port", fields.source_port.map(Value::from)),
        ("destination_port", fields.destination_port.map(Value::from)),
        ("protocol", fields.protocol.map(Value::from)),
        ("vlan", fields.vlan.map(Value::from)),
        ("tcp_flags", fields.tcp_flags.map(|flags| flags.to_string().into())),
        ("source_mac", fields.source_mac.map(mac)),
        ("destination_mac", fields.destination_mac.map(mac)),
        ("mac", fields.mac.map(mac)),
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

/// A number: an integer if it is whole, `null` if it is not finite.
fn number(value: f64) -> Value {
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    if value.fract() == 0.0 && value.abs() < TWO_TO_63 {
        Value::from(value as i64)
    } else {
        Value::from(value)
    }
}
