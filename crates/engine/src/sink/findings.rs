//! Findings in words, and the filters that select their traffic.

use std::net::IpAddr;

use flowgauge_core::key::{CanonicalKey, Field, KeyKind, KeySpec, TcpFlags};
use flowgauge_core::summary::Estimate;
use flowgauge_core::task::{Finding, FindingKind};

use super::{names, rfc3339, units};
use crate::report::EpochReport;

/// A finding as one sentence without a full stop, with the names of services.
pub(super) fn sentence(finding: &Finding, report: &EpochReport) -> String {
    sentence_with(finding, report, &names::service_name)
}

/// A finding as one sentence. `named` gives the names of ports.
pub(super) fn sentence_with(
    finding: &Finding,
    report: &EpochReport,
    named: &dyn Fn(u16) -> Option<&'static str>,
) -> String {
    use FindingKind as Kind;
    let (source, destination) = (
        host(report, Field::Source, finding.source.as_ref()),
        host(report, Field::Destination, finding.destination.as_ref()),
    );
    let service = service(finding, named);
    let peers = finding.peers.map_or_else(String::new, |peers| number(&peers));
    let packets = finding.size.packets.map_or_else(String::new, |packets| {
        format!("{} packets{}", number(&packets), volume(finding, report))
    });
    let share = units::percent(finding.share);
    let (usual, now) = finding.usual.unwrap_or_default();
    match finding.kind {
        Kind::Flood => {
            format!("flood: {destination}{service} gets {packets} from {peers} sources")
        }
        Kind::Reflection => {
            format!(
                "reflection: {destination} gets unrequested answers from {peers} hosts{service}: {packets}"
            )
        }
        Kind::HostScan => format!("host scan: {source} tries {peers} hosts{service}: {packets}"),
        Kind::PortScan => {
            let protocol = finding.protocol.map(names::protocol).unwrap_or_default();
            format!(
                "port scan: {source} tries {peers} {protocol} ports of {destination}: {packets}"
            )
        }
        Kind::Rise => format!(
            "sudden rise: {} packets/s, {:.1} times the usual {}{}",
            units::rate(now),
            now / usual,
            units::rate(usual),
            cause(finding, report, &service)
        ),
        Kind::Fall => format!(
            "sudden fall: {} packets/s instead of the usual {}",
            units::rate(now),
            units::rate(usual)
        ),
        Kind::Source => format!("one source: {source} sends {packets} to {peers} hosts"),
        Kind::Destination => {
            format!("one destination: {destination} gets {packets} from {peers} hosts")
        }
        Kind::SmallPackets => format!(
            "small packets: {share} of the packets have at most {usual:.0} bytes; the mean is {now:.0} bytes"
        ),
        Kind::Protocol => {
            let protocol = finding.protocol.map(names::protocol).unwrap_or_default();
            format!("one protocol: {protocol} has {share} of all packets")
        }
        Kind::Service => {
            let service = service.trim_start_matches(" on ");
            format!("one port: {service} has {share} of all packets")
        }
        Kind::EvenFlows => format!(
            "even flows: the entropy of {peers} flows is {share} of its maximum, so they all carry \
             about the same"
        ),
        Kind::FewFlows => format!(
            "few flows: the entropy of {peers} flows is {share} of its maximum, so a few carry nearly \
             everything"
        ),
    }
}

/// The time span and the TCP flags of a finding; empty if neither is known.
pub(super) fn details(finding: &Finding) -> String {
    let span = finding.span_ns.map(|(start_ns, end_ns)| {
        let about = if finding.span_is_exact { "" } else { "about " };
        // To the millisecond if it is exact, otherwise to the second.
        let digits = if finding.span_is_exact { 12 } else { 8 };
        let time = |ns: i64| {
            let rounded = if finding.span_is_exact { ns } else { ns.saturating_add(500_000_000) };
            let text = rfc3339(rounded);
            text.split_once('T').map(|(_, time)| time[..digits].to_owned()).unwrap_or_default()
        };
        format!(
            "from {about}{} to {} UTC ({})",
            time(start_ns),
            time(end_ns),
            units::duration(i128::from(end_ns) - i128::from(start_ns))
        )
    });
    let flags = finding.flags.map(|flags| format!("TCP {}", flag_names(flags)));
    span.into_iter().chain(flags).collect::<Vec<_>>().join(" · ")
}

/// The filter that selects the packets of a finding; `None` if it concerns all packets.
pub(super) fn filter(finding: &Finding, spec: KeySpec) -> Option<String> {
    let host = |what: &str, field: Field, key: Option<&CanonicalKey>| {
        address(key).map(|address| match spec.prefix_of(field, address) {
            Some(bits) => format!("{what} net {address}/{bits}"),
            None => format!("{what} host {address}"),
        })
    };
    let port = |what: &str| match (finding.protocol, finding.port) {
        (Some(6), Some(port)) => Some(format!("tcp {what} port {port}")),
        (Some(17), Some(port)) => Some(format!("udp {what} port {port}")),
        (Some(1), None) => Some("icmp".to_owned()),
        (Some(protocol), None) if finding.kind == FindingKind::Protocol => {
            Some(format!("ip proto {protocol} or ip6 proto {protocol}"))
        }
        _ => None,
    };
    let port = match finding.kind {
        FindingKind::Reflection => port("src"),
        FindingKind::Service => match (finding.protocol, finding.port) {
            (Some(6), Some(port)) => Some(format!("tcp port {port}")),
            (Some(17), Some(port)) => Some(format!("udp port {port}")),
            _ => None,
        },
        _ => port("dst"),
    };
    let parts = [
        host("src", Field::Source, finding.source.as_ref()),
        host("dst", Field::Destination, finding.destination.as_ref()),
        port,
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}

/// Names of TCP flags, such as `SYN+ACK`.
pub(super) fn flag_names(flags: u8) -> String {
    let names = TcpFlags(flags).to_string();
    if names.is_empty() { "without flags".to_owned() } else { names }
}

/// The address of a host.
pub(super) fn address(key: Option<&CanonicalKey>) -> Option<IpAddr> {
    KeySpec::from(KeyKind::SOURCE).fields(key?.as_bytes()).source
}

fn host(report: &EpochReport, field: Field, key: Option<&CanonicalKey>) -> String {
    address(key).map_or_else(String::new, |address| names::address(report.key, field, address))
}

/// ` on tcp/22 ssh`.
fn service(finding: &Finding, named: &dyn Fn(u16) -> Option<&'static str>) -> String {
    match (finding.protocol, finding.port) {
        (Some(protocol), Some(port)) => {
            let name = named(port).map(|name| format!(" {name}"));
            format!(" on {}/{port}{}", names::protocol(protocol), name.unwrap_or_default())
        }
        (Some(protocol), None) => format!(" by {}", names::protocol(protocol)),
        (None, _) => String::new(),
    }
}

/// The main part of a rise.
fn cause(finding: &Finding, report: &EpochReport, service: &str) -> String {
    let part =
        |word: &str, text: String| if text.is_empty() { text } else { format!("{word}{text}") };
    let from = part(" from ", host(report, Field::Source, finding.source.as_ref()));
    let to = part(" to ", host(report, Field::Destination, finding.destination.as_ref()));
    let all = format!("{from}{to}{service}");
    if all.is_empty() { all } else { format!(", mostly{all}") }
}

/// The share and the rates of a finding.
fn volume(finding: &Finding, report: &EpochReport) -> String {
    let share = format!("{} of all {}", units::percent(finding.share), report.by.name());
    let seconds =
        finding.span_ns.map_or(0.0, |(start_ns, end_ns)| (end_ns - start_ns) as f64 / 1e9);
    let size = &finding.size;
    let rates = match (&size.packets, &size.bytes) {
        // Less than a second, or the times of a few sampled packets, say little about a rate.
        (Some(packets), Some(bytes))
            if seconds >= 1.0 && (finding.span_is_exact || finding.share >= 0.01) =>
        {
            format!(
                ", {} packets/s, {}/s",
                units::rate(packets.value / seconds),
                units::bits(bytes.value * 8.0 / seconds)
            )
        }
        _ => String::new(),
    };
    format!(" ({share}{rates})")
}

fn number(estimate: &Estimate) -> String {
    if estimate.low < estimate.value || estimate.value < estimate.high {
        let text = units::count(estimate.value);
        if estimate.value <= estimate.low {
            format!("at least {text}")
        } else {
            format!("about {text}")
        }
    } else {
        units::count(estimate.value)
    }
}
