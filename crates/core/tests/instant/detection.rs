//! When a flow is seen to be heavy, and which flows are not.

use flowgauge_core::batch::Batch;
use flowgauge_core::terms::{Measure, Size};

use super::lab::*;
use super::zipf::Zipf;

/// A heavy hitter exceeds this share: of the packets or bytes, or of what the link can carry in a
/// second.
pub(crate) const SHARE: f64 = 0.0005;

/// The smallest frames of a link of 1 Gbit/s.
const LINK_PACKETS: f64 = 1_488_095.0;

/// Flows that are heavy, and those that are said to be.
#[derive(Debug, Default)]
pub(crate) struct Detected {
    pub(crate) heavy: f64,
    /// Heavy flows whose estimate is not over the threshold, and light ones whose is.
    missed: f64,
    wrong: f64,
    /// Light flows whose lower bound is over it, too: that are said to be heavy for sure.
    pub(crate) surely_wrong: f64,
    /// The same by theory.
    should: [f64; 3],
}

impl Detected {
    /// Adds what a summary says. One that is just below the threshold and is reported is a false
    /// positive like any other, so that by the estimate alone some 0.4 standard deviations of the flows
    /// near the threshold are: 0.5 % of the heavy ones at the paper's size, however good the sketch is.
    pub(crate) fn add(
        &mut self,
        summary: &Summary,
        truth: &[Size],
        (by, share): (Measure, f64),
        theory: &Theory,
    ) {
        let threshold = share * truth.iter().map(|size| size.by(by) as f64).sum::<f64>();
        let is_heavy = |size: &Size| size.by(by) as f64 > threshold;
        for (flow, size) in truth.iter().enumerate() {
            let estimate = estimate(summary, flow).by(by).unwrap();
            let (heavy, reported) = (is_heavy(size), estimate.value > threshold);
            self.heavy += f64::from(heavy);
            self.missed += f64::from(heavy && !reported);
            self.wrong += f64::from(!heavy && reported);
            self.surely_wrong += f64::from(!heavy && estimate.low > threshold);
        }
        let light = || truth.iter().filter(|size| !is_heavy(size));
        let heavy = || truth.iter().filter(|size| is_heavy(size));
        let over = |deviations| theory.over(light(), by, threshold, deviations);
        let missed = heavy().count() as f64 - theory.over(heavy(), by, threshold, 0.0);
        for (sum, more) in self.should.iter_mut().zip([missed, over(0.0), over(2.0)]) {
            *sum += more;
        }
    }

    /// No more than theory says, by four standard deviations of such numbers.
    pub(crate) fn check(&self) {
        println!("{self:.1?}");
        let are = [self.missed, self.wrong, self.surely_wrong];
        for (is, should) in are.into_iter().zip(self.should) {
            assert!(is <= should + 4.0 * (should + 0.25).sqrt(), "{self:?}");
        }
    }
}

/// Of a hundredth of the packets a ten times larger share is a tenth of the paper's heavy hitter.
#[test]
fn few_light_flows_are_reported() {
    for sketch in [8 << 10, 256 << 10] {
        let mut detected = [Detected::default(), Detected::default()];
        for seed in 0..4 {
            let mut summaries = [build("insta-measure", seed, &[("sketch", sketch)])];
            let truth = feed(&mut summaries, 1_000_000, 40_000, seed, |_, random| mixed(random));
            let theory = Theory::new(sketch as usize, &truth, true);
            for (detected, by) in detected.iter_mut().zip([Measure::Packets, Measure::Bytes]) {
                detected.add(&summaries[0], &truth, (by, 10.0 * SHARE), &theory);
            }
        }
        detected.iter().for_each(Detected::check);
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
