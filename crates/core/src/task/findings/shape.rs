//! The shape of the traffic as a whole: small packets, one protocol or port with most packets, entropy
//! near its limits.

use super::scene::{Common, LEAST_PACKETS, Scene, TCP, UDP};
use super::{Finding, FindingKind};
use crate::summary::Estimate;

/// Packets of at most so many bytes are small.
const SMALL_BYTES: u32 = 100;
/// This share of the packets is small.
const SMALL: f64 = 0.9;
/// Small packets are a burden from so many packets a second on.
const FAST: f64 = 10_000.0;
/// Among fewer flows one protocol or port is no surprise.
const LEAST_SAMPLED_FLOWS: usize = 100;
/// A protocol beside TCP and UDP with this share stands out.
const PROTOCOL: f64 = 0.5;
/// A port with this share stands out, unless it is one of the web.
const SERVICE: f64 = 0.9;
const WEB: [u16; 2] = [80, 443];
/// So many flows have an entropy worth judging.
const LEAST_FLOWS: u64 = 1000;
/// Entropy over its maximum, from which on flows are even, and up to which a few have everything.
const EVEN: f64 = 0.98;
const FEW: f64 = 0.1;

pub(super) fn find(scene: &Scene<'_>, found: &[Finding]) -> Vec<Finding> {
    if scene.epoch.keyed.packets < LEAST_PACKETS {
        return Vec::new();
    }
    let common = Common::of(scene.sample.iter().copied());
    // What an attack explains needs no second line.
    let attacked =
        found.iter().any(|finding| finding.kind <= FindingKind::PortScan && finding.share >= 0.5);
    let few = common.flows.len() < LEAST_SAMPLED_FLOWS;
    let services =
        if attacked || few { [None, None] } else { [protocol(&common), service(&common)] };
    let all = services.into_iter().chain([small(scene, &common), entropy(scene)]);
    all.flatten().map(|finding| Finding { span_is_exact: true, ..finding }).collect()
}

fn small(scene: &Scene<'_>, common: &Common<'_>) -> Option<Finding> {
    let series = scene.timeline.series();
    let seconds = series.bins().count() as f64 * series.width_ns() as f64 / 1e9;
    let rate = scene.epoch.keyed.packets as f64 / seconds.max(1e-3);
    let small = scene.sample.iter().filter(|packet| packet.wire <= SMALL_BYTES).count();
    let share = scene.share(small);
    (share >= SMALL && rate >= FAST).then(|| Finding {
        usual: Some((f64::from(SMALL_BYTES), common.mean_bytes())),
        share,
        ..Finding::new(FindingKind::SmallPackets)
    })
}

fn protocol(common: &Common<'_>) -> Option<Finding> {
    let ((protocol, _), share) = common.service()?;
    (![TCP, UDP].contains(&protocol) && share >= PROTOCOL).then(|| Finding {
        protocol: Some(protocol),
        share,
        ..Finding::new(FindingKind::Protocol)
    })
}

fn service(common: &Common<'_>) -> Option<Finding> {
    let ((protocol, port), share) = common.lower_port()?;
    let has_ports = [TCP, UDP].contains(&protocol);
    (has_ports && share >= SERVICE && !WEB.contains(&port)).then(|| Finding {
        protocol: Some(protocol),
        port: Some(port),
        share,
        ..Finding::new(FindingKind::Service)
    })
}

fn entropy(scene: &Scene<'_>) -> Option<Finding> {
    let flows = scene.flows();
    if flows < LEAST_FLOWS || scene.untracked().packets > 0 {
        return None;
    }
    let by = scene.epoch.by;
    let total = scene.epoch.keyed.by(by) as f64;
    let mut logs = 0.0;
    for lane in &scene.lanes {
        lane.flows.for_each(&mut |_, size| {
            let weight = size.by(by) as f64;
            if weight > 1.0 {
                logs += weight * weight.log2();
            }
        });
    }
    let (bits, most) = ((total.log2() - logs / total).max(0.0), (flows as f64).log2());
    let kind = match bits / most {
        EVEN.. => FindingKind::EvenFlows,
        ..=FEW => FindingKind::FewFlows,
        _ => return None,
    };
    Some(Finding {
        share: bits / most,
        peers: Some(Estimate::exact(flows)),
        usual: Some((most, bits)),
        ..Finding::new(kind)
    })
}
