//! Finds the addresses of a report.

use std::net::IpAddr;

use flowgauge_core::key::{CanonicalKey, Field, Fields, KeyKind, KeySpec};
use flowgauge_core::task::{Report, Side};
use flowgauge_engine::report::EpochReport;

/// Receives an address and the text that the report uses for it.
type Visit<'a> = dyn FnMut(String, IpAddr) + 'a;

/// Visits each address of a report's lists, possibly more than once.
pub(super) fn visit(report: &EpochReport, visit: &mut Visit<'_>) {
    let spec = report.key;
    for (_, answer) in &report.tasks {
        let mut key = |key: &CanonicalKey| of_fields(spec, &spec.fields(key.as_bytes()), visit);
        match answer {
            Report::Sizes { items, .. } => items.iter().for_each(|item| key(&item.key)),
            Report::Changes { items, .. } => items.iter().for_each(|item| key(&item.key)),
            Report::Quantiles { keys, .. } => keys.iter().for_each(|(_, flow)| key(flow)),
            Report::Addresses { side, items, .. } => {
                for item in items {
                    alone(spec, *side, &item.address, visit);
                }
            }
            Report::Spread { side, items, .. } => {
                for item in items {
                    alone(spec, *side, &item.address, visit);
                }
            }
            Report::Findings { items, .. } => items.iter().for_each(|item| {
                let source = item.source.as_ref().and_then(address);
                let destination = item.destination.as_ref().and_then(address);
                of_fields(spec, &Fields { source, destination, ..Fields::default() }, visit);
            }),
            Report::Hierarchical { items, .. } => items.iter().for_each(|item| {
                let ends = [Some((item.source, item.source_bits)), item.destination];
                for (prefix, bits) in ends.into_iter().flatten() {
                    // The prefix of all addresses has no label.
                    if let Some(address) = address(&prefix).filter(|_| bits > 0) {
                        visit(format!("{address}/{bits}"), address);
                    }
                }
            }),
            Report::Cardinality { .. }
            | Report::Entropy { .. }
            | Report::SizeDistribution { .. } => {}
        }
    }
}

/// An item that is a single address, whatever the key is.
fn alone(spec: KeySpec, side: Side, address: &CanonicalKey, visit: &mut Visit<'_>) {
    of_fields(spec, &spec.alone(side.address()).fields(address.as_bytes()), visit);
}

fn of_fields(spec: KeySpec, fields: &Fields, visit: &mut Visit<'_>) {
    let all = [
        (Field::Source, fields.source),
        (Field::Destination, fields.destination),
        (Field::Host, fields.host),
    ];
    for (field, address) in all {
        let Some(address) = address else { continue };
        let text = match spec.prefix_of(field, address) {
            Some(bits) => format!("{address}/{bits}"),
            None => address.to_string(),
        };
        visit(text, address);
    }
}

fn address(key: &CanonicalKey) -> Option<IpAddr> {
    KeySpec::from(KeyKind::SOURCE).fields(key.as_bytes()).source
}
