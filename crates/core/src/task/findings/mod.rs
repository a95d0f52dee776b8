//! `findings`: what stands out in an epoch, as a starting point for an operator.
//!
//! A finding rests on three sources: the exact flows of a table, the [`Series`] of packets over
//! time, and the [`Sample`] of packets with their TCP flags.
//!
//! - [`hosts`]: scans (a source that tries many hosts at one port, or many ports of one host),
//!   flooded hosts, and hosts with most of the traffic;
//! - [`traffic`]: seconds with far more or far fewer packets than usual, small packets, one
//!   protocol or port with most packets, entropy near its limits.
//!
//! Every threshold is a constant next to the rule that uses it. All rules but those for scans need
//! 1,000 packets.
//!
//! Time: a few passes over the flows, and up to 33,000 lookups for the sample.
//!
//! [`Series`]: crate::timeline::Series
//! [`Sample`]: crate::timeline::Sample

mod hosts;
mod scene;
mod traffic;

use super::exact;
use super::order;
use super::registry::TaskEntry;
use super::{EpochContext, Lane, Lists, Report, Task, USE_TABLE, Unsupported};
use crate::key::{CanonicalKey, KeyKind};
use crate::summary::{Estimate, SizeEstimate};
use crate::terms::Measure;
use crate::timeline::Timeline;
use scene::Scene;

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "findings",
    question: "what stands out: floods, scans, sudden changes, dominant hosts",
    by_default: false,
    timeline: true,
    build: |options| Ok(Box::new(Findings { spread: options.spread })),
};

/// Maximum number of listed findings of one kind.
const LISTED: usize = 5;

/// A finding: something that stands out in an epoch.
///
/// ```
/// use flowgauge_core::key::CanonicalKey;
/// use flowgauge_core::task::{Finding, FindingKind};
///
/// let host = CanonicalKey::new(&[192, 0, 2, 1]);
/// let flood = Finding { destination: Some(host), ..Finding::new(FindingKind::Flood) };
/// assert_eq!(flood.kind.name(), "flood");
/// assert!(FindingKind::Flood < FindingKind::HostScan);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The kind of finding.
    pub kind: FindingKind,
    /// The source that the finding is about, or that it comes from.
    pub source: Option<CanonicalKey>,
    /// The destination that the finding is about, or that it goes to.
    pub destination: Option<CanonicalKey>,
    /// IP protocol.
    pub protocol: Option<u8>,
    /// The destination port; for a reflection, the source port.
    pub port: Option<u16>,
    /// Its packets and bytes, where the finding has its own.
    pub size: SizeEstimate,
    /// Its share of the keyed weight.
    pub share: f64,
    /// Distinct hosts or ports on the other side.
    pub peers: Option<Estimate>,
    /// Times of its first and its last packet, in nanoseconds since the UNIX epoch.
    pub span_ns: Option<(i64, i64)>,
    /// Whether the span is exact. Otherwise it is that of sampled packets, or of whole bins of the
    /// series.
    pub span_is_exact: bool,
    /// The most common TCP flags.
    pub flags: Option<u8>,
    /// The usual value and the value found: packets a second for a rise or fall, bytes a packet for
    /// small packets, maximum and actual bits for entropy.
    pub usual: Option<(f64, f64)>,
}

/// The kinds of findings, the most serious first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// Many sources send flows of few packets, without data or without answers, to one host.
    Flood,
    /// Many servers of a service such as DNS send answers to a host that sent no requests.
    Reflection,
    /// One source tries many hosts at one port.
    HostScan,
    /// One source tries many ports of one host.
    PortScan,
    /// The packet rate rises suddenly.
    Rise,
    /// The packet rate falls suddenly.
    Fall,
    /// One source sends most of the traffic.
    Source,
    /// One destination gets most of the traffic.
    Destination,
    /// Nearly all packets are small, at a high packet rate.
    SmallPackets,
    /// A protocol other than TCP and UDP carries most packets.
    Protocol,
    /// One port other than a web port carries nearly all packets.
    Service,
    /// The entropy of flows is near its maximum: all flows are of similar size.
    EvenFlows,
    /// The entropy of flows is near zero: a few flows carry nearly everything.
    FewFlows,
}

impl FindingKind {
    /// Every kind with its name in reports.
    pub const ALL: [(&'static str, Self); 13] = [
        ("flood", Self::Flood),
        ("reflection", Self::Reflection),
        ("host-scan", Self::HostScan),
        ("port-scan", Self::PortScan),
        ("rise", Self::Rise),
        ("fall", Self::Fall),
        ("source", Self::Source),
        ("destination", Self::Destination),
        ("small-packets", Self::SmallPackets),
        ("protocol", Self::Protocol),
        ("service", Self::Service),
        ("even-flows", Self::EvenFlows),
        ("few-flows", Self::FewFlows),
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

impl Finding {
    /// A finding of this kind, without details.
    pub fn new(kind: FindingKind) -> Self {
        Self {
            kind,
            source: None,
            destination: None,
            protocol: None,
            port: None,
            size: SizeEstimate::default(),
            share: 0.0,
            peers: None,
            span_ns: None,
            span_is_exact: false,
            flags: None,
            usual: None,
        }
    }
}

struct Findings {
    /// Threshold of a scan: it tries more hosts or ports than this.
    spread: u64,
}

impl Task for Findings {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn scratch_bytes(&self, flows: usize) -> usize {
        order::bucketed_bytes(flows)
    }

    fn report_bytes(&self, _: Lists, _: usize) -> usize {
        // Includes the timeline of the epoch.
        Timeline::BYTES + FindingKind::ALL.len() * LISTED * size_of::<Finding>()
    }

    fn check(&self, _: Measure, lanes: &[Lane<'_>]) -> Result<(), Unsupported> {
        lanes.iter().try_for_each(|lane| {
            // With unequal prefix lengths, the key of the reverse direction finds no flow.
            if lane.key.kind() != KeyKind::FIVE_TUPLE || !lane.key.is_even() {
                return Err(Unsupported(format!(
                    "findings needs the key five-tuple (got {})",
                    lane.key
                )));
            }
            if lane.answers.flows().is_none() || lane.answers.size().is_none() {
                return Err(Unsupported(format!(
                    "findings needs a table of every flow; {USE_TABLE}"
                )));
            }
            exact(ENTRY.name, "a table", lane).map(drop)
        })
    }

    fn run(
        &mut self,
        epoch: &EpochContext<'_>,
        lanes: &[Lane<'_>],
        scratch: &mut [u64],
    ) -> Result<Report, Unsupported> {
        self.check(epoch.by, lanes)?;
        if epoch.keyed.packets == 0 {
            return Ok(listed(Vec::new()));
        }
        let timeline = epoch.timeline.ok_or_else(|| {
            Unsupported(
                "findings needs the times of packets, which a snapshot does not hold".to_owned(),
            )
        })?;
        let scene = Scene::new(epoch, lanes, timeline)?;
        let mut found = hosts::scans(&scene, self.spread, scratch);
        found.extend(hosts::heavy(&scene, &found, scratch));
        found.extend(traffic::rates(&scene));
        found.extend(traffic::shape(&scene, &found));
        Ok(listed(found))
    }
}

/// Sorts the findings by kind and packets, and keeps a few of each kind.
fn listed(mut found: Vec<Finding>) -> Report {
    let packets = |finding: &Finding| finding.size.packets.map_or(0.0, |packets| packets.value);
    crate::sorting::sort_by(&mut found, &|one, other| {
        let who = |finding: &Finding| (finding.source, finding.destination, finding.port);
        let by_kind = one.kind.cmp(&other.kind);
        by_kind.then(packets(other).total_cmp(&packets(one))).then(who(one).cmp(&who(other)))
    });
    let (mut items, mut truncated): (Vec<Finding>, u64) = (Vec::new(), 0);
    for finding in found {
        match items.iter().filter(|item| item.kind == finding.kind).count() {
            LISTED.. => truncated += 1,
            _ => items.push(finding),
        }
    }
    Report::Findings { items, truncated }
}
