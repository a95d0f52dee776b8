//! When a flow is seen to be heavy, and which flows are not.

use flowgauge_core::batch::Batch;
use flowgauge_core::summary::{Measure, Size};

use super::lab::*;
use super::zipf::Zipf;

/// A heavy hitter exceeds this share: of the packets or bytes, or of what the link can carry in a
/// second.
const SHARE: f64 = 0.0005;

/// The smallest frames of a link of 1 Gbit/s.
const LINK_PACKETS: f64 = 1_488_095.0;

/// False positives among the flows that are not heavy, and how many of the heavy ones are missed.
/// One that is reported and just below the threshold is a false positive like any other.
pub(crate) fn false_positives(summary: &Summary, truth: &[Size]) {
    for (by, limit) in [(Measure::Packets, 0.001), (Measure::Bytes, 0.002)] {
        let threshold = SHARE * truth.iter().map(|size| size.by(by) as f64).sum::<f64>();
        let (mut heavy, mut missed, mut wrong) = (0.0, 0.0, 0.0);
        for (flow, size) in truth.iter().enumerate() {
            let reported = estimate(summary, flow).by(by).unwrap().value > threshold;
            let is_heavy = size.by(by) as f64 > threshold;
            heavy += f64::from(is_heavy);
            missed += f64::from(is_heavy && !reported);
            wrong += f64::from(!is_heavy && reported);
        }
        println!("heavy by {by:?}: {heavy} flows, {missed} missed, {wrong} others reported");
        assert!(wrong / (truth.len() as f64 - heavy) < limit, "{wrong} false positives");
    }
}

#[test]
fn few_light_flows_are_reported() {
    let mut summaries =
        [8 << 10, 256 << 10].map(|sketch| build("insta-measure", 1, &[("sketch", sketch)]));
    let truth = feed(&mut summaries, 2_000_000, 40_000, 3, |_, random| mixed(random));
    for summary in &summaries {
        false_positives(summary, &truth);
    }
}

/// Flows of 10 to 200 thousand packets a second, each in a background of a million a second, from
/// the packet with which they exceed the threshold to the one with which the summary says so. The
/// delay in packets is the same at each rate; an early crossing counts as a delay of zero.
#[test]
fn detection_takes_as_long_as_95_packets() {
    let threshold = SHARE * LINK_PACKETS;
    let (mut delays, mut early, mut flows, mut signed) = (0.0, 0.0, 0.0, 0.0);
    for seed in 0..32 {
        let mut summary = build("insta-measure", seed, &[]);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut background = Zipf::new(100_000, 1.1, seed);
        let mut batch = Batch::new();
        // Attackers are the numbers behind the background's: packets so far, and when detected.
        let rates = [10e3, 20e3, 50e3, 100e3, 130e3, 200e3];
        let mut sent = [0.0; 6];
        let mut detected = [None; 6];
        let all = 1e6 + rates.iter().sum::<f64>();
        let mut packets = 0;
        while detected.iter().any(Option::is_none) {
            packets += 1;
            assert!(packets < 1_000_000, "{detected:?}");
            let mut draw = random.f64() * all;
            let attacker = rates.iter().position(|rate| {
                draw -= rate;
                draw < 0.0
            });
            let Some(number) = attacker.filter(|_| packets > 50_000) else {
                batch.push(key(background.next().unwrap()), 100, packets * 1000);
                if batch.len() == 256 {
                    summary.ingest(&mut batch);
                    batch.clear();
                }
                continue;
            };
            let flow = 100_000 + number;
            batch.push(key(flow as u32), 100, packets * 1000);
            summary.ingest(&mut batch);
            batch.clear();
            sent[number] += 1.0;
            if detected[number].is_none()
                && estimate(&summary, flow).packets.unwrap().value > threshold
            {
                detected[number] = Some(sent[number]);
            }
        }
        for at in detected.iter().flatten() {
            let delay = at - threshold.floor() - 1.0;
            flows += 1.0;
            signed += delay;
            early += f64::from(delay < 0.0);
            delays += delay.max(0.0);
        }
    }
    let (mean, signed) = (delays / flows, signed / flows);
    println!(
        "{flows} flows: mean delay {mean:.1} packets ({signed:.1} if early ones count as negative), {early} early"
    );
    assert!(mean <= 95.0);
    assert!(early < 0.6 * flows);
}
