//! Flows in the order of a backbone link: heavy tails, locality in time, flows that come and go.
//!
//! Some flows are *active*; each has a rank, whose popularity stays while flows come and go.
//! Every packet is one of three:
//! - a **birth**: a new flow takes a rank, mostly a low one, from the flow that had it. Elephants
//!   therefore last, mice are replaced;
//! - an **echo**: the flow of a recent packet again, the lag drawn from a power law. Trains of
//!   packets and locality come from here. Only packets of the busier ranks are echoed: mice send
//!   their packets one by one;
//! - a **draw**: an active flow by popularity. Draws are stratified, since flows of a link send more
//!   regularly than chance: the range of the random number is cut into strata, and every one of
//!   them is drawn from once, in random order, before any is drawn from again.
//!
//! An echo repeats what draws chose, so in the long run popularity alone says how large flows are.
//!
//! The constants are fitted, by random search and then by hand, to statistics of a backbone link;
//! `tests/synthetic_backbone.rs` holds both side by side. Logarithms are not
//! needed: the exponents are chosen such that roots and products do, which are exact everywhere.

use super::random::Random;

/// Active flows, where the run has that many.
pub(super) const ACTIVE: u64 = 20_500;
/// Births a packet, unless the number of flows is given.
pub(super) const BIRTHS: f64 = 0.0312;
/// The most births a packet: the echoes take most of the rest.
pub(super) const MOST_BIRTHS: f64 = 0.5;
/// Echoes a packet.
const ECHOES: f64 = 0.437;
/// The longest lag of an echo, in packets of busy ranks. Its −0.4th power is 1 ÷ 16.
const LONGEST_LAG: usize = 1024;
/// Of 32 ranks, this many are busy enough to be echoed.
const BUSY_IN_32: u64 = 11;
/// Strata of a round of draws.
const STRATA: usize = 1 << 15;
/// Popularity falls as (rank + `FLAT`) to the power of −7 ÷ 8.
const FLAT: f64 = 6.8;

/// The state of the model: 8 bytes for each active flow, the recent packets, and 128 KiB of strata.
#[derive(Clone, Debug)]
pub(super) struct Backbone {
    /// The flow at each rank.
    active: Vec<u64>,
    /// Flows born so far, the first active ones included.
    born: u64,
    births: f64,
    /// Ranks below this one are echoed.
    busy: usize,
    /// Flows of the latest packets of busy ranks, a ring.
    recent: Box<[u64; LONGEST_LAG]>,
    /// Packets that entered the ring so far.
    entered: usize,
    /// Strata in an order that is shuffled as they are drawn from.
    strata: Box<[u32]>,
    /// Strata of this round that were drawn from.
    drawn: usize,
    /// The eighth roots of `FLAT` and of `FLAT` + active flows.
    roots: (f64, f64),
}

fn eighth_root(x: f64) -> f64 {
    x.sqrt().sqrt().sqrt()
}

impl Backbone {
    /// `active` ≥ 1 flows at the start, and `births` new ones a packet.
    pub(super) fn new(active: u64, births: f64) -> Self {
        Self {
            active: (0..active).collect(),
            born: active,
            births,
            busy: (active * BUSY_IN_32).div_ceil(32) as usize,
            recent: Box::new([0; LONGEST_LAG]),
            entered: 0,
            strata: (0..STRATA as u32).collect(),
            drawn: 0,
            roots: (eighth_root(FLAT), eighth_root(FLAT + active as f64)),
        }
    }

    /// The flow of the next packet, numbered from 0 in the order of birth.
    #[inline]
    pub(super) fn draw(&mut self, random: &mut Random) -> u64 {
        let choice = random.fraction();
        if choice < ECHOES {
            let lag = lag(random);
            if lag <= self.entered {
                let flow = self.recent[(self.entered - lag) % LONGEST_LAG];
                self.remember(flow);
                return flow;
            }
        }
        let rank = if choice >= 1.0 - self.births {
            // The larger of two uniform ranks: replaced with a chance ∝ rank.
            let ranks = self.active.len() as u64;
            let rank = random.below(ranks).max(random.below(ranks)) as usize;
            self.active[rank] = self.born;
            self.born += 1;
            rank
        } else {
            self.popular(random)
        };
        let flow = self.active[rank];
        if rank < self.busy {
            self.remember(flow);
        }
        flow
    }

    /// A rank by popularity: the inverse of its integral, (rank + flat)^⅛.
    #[inline]
    fn popular(&mut self, random: &mut Random) -> usize {
        let (from, to) = self.roots;
        let root = from + self.stratified(random) * (to - from);
        let square = root * root;
        let fourth = square * square;
        let rank = (fourth * fourth - FLAT).max(0.0) as usize;
        // Rounding may reach the end of the range, or pass it.
        rank.min(self.active.len() - 1)
    }

    /// A random fraction, of the next stratum.
    #[inline]
    fn stratified(&mut self, random: &mut Random) -> f64 {
        let other = self.drawn + random.below((STRATA - self.drawn) as u64) as usize;
        self.strata.swap(self.drawn, other);
        let stratum = self.strata[self.drawn];
        self.drawn = (self.drawn + 1) % STRATA;
        (f64::from(stratum) + random.fraction()) / STRATA as f64
    }

    #[inline]
    fn remember(&mut self, flow: u64) {
        self.recent[self.entered % LONGEST_LAG] = flow;
        self.entered += 1;
    }
}

/// A lag of at least x with a chance ∝ x^−0.4 down to that of the longest: the inverse, v^−2.5.
#[inline]
fn lag(random: &mut Random) -> usize {
    // The −0.4th power of the longest lag: a smaller v gives a longer one.
    const LONGEST: f64 = 1.0 / 16.0;
    let v = LONGEST + random.fraction() * (1.0 - LONGEST);
    ((1.0 / (v * v * v.sqrt())) as usize).clamp(1, LONGEST_LAG)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::random::Stream;
    use super::*;

    #[test]
    fn births_are_numbered_in_order_and_as_many_as_asked_for() {
        let mut backbone = Backbone::new(100, 0.1);
        let mut random = Random::new(1, Stream::Order);
        let mut newest = 99;
        for _ in 0..100_000 {
            let flow = backbone.draw(&mut random);
            assert!(flow <= newest + 1);
            newest = newest.max(flow);
        }
        // 5 standard deviations of a binomial count.
        assert!((newest as f64 - 10_099.0).abs() < 5.0 * 95.0, "{newest} births");
    }

    /// Of the first flows, each is met unless it is replaced, which is a Poisson process, or the run
    /// ends before. The run is less than one round of strata, so that by draw t a stratum is still
    /// to come with a chance of 1 − t ÷ `STRATA`. The limit is 5 standard deviations of independent
    /// flows, which stratified ones do not reach: once in 2 million.
    #[test]
    fn a_run_meets_the_flows_that_theory_says() {
        let (active, births) = (ACTIVE, BIRTHS);
        let draws = 0.9 * STRATA as f64;
        let packets = draws / (1.0 - ECHOES - births);
        let mut backbone = Backbone::new(active, births);
        let mut random = Random::new(3, Stream::Order);
        let met: HashSet<u64> = (0..packets as u64).map(|_| backbone.draw(&mut random)).collect();
        let (from, to) = backbone.roots;
        let mut expected = births * packets;
        let mut variance = expected * (1.0 - births);
        for rank in 0..active {
            let rank = rank as f64;
            let stratum =
                |rank: f64| (eighth_root(rank + FLAT) - from) / (to - from) * STRATA as f64;
            let (first, last) = (stratum(rank), stratum(rank + 1.0));
            // Shares of the strata that are the rank's only in part, and the number of the others.
            let (parts, whole) = if first.ceil() > last {
                ([last - first, 0.0], 0.0)
            } else {
                ([first.ceil() - first, last - last.floor()], last.floor() - first.ceil())
            };
            let replaced = births * (2.0 * rank + 1.0) / (active as f64).powi(2);
            let undrawn = |share: f64| {
                let gone = share * draws / STRATA as f64;
                (1.0 - gone).powf(whole) * (1.0 - gone * parts[0]) * (1.0 - gone * parts[1])
            };
            // Drawn in each 64th of the run, and not replaced before.
            let chance: f64 = (0..64)
                .map(|step| (f64::from(step) / 64.0, f64::from(step + 1) / 64.0))
                .map(|(start, end)| {
                    let alive = (-replaced * packets * f64::midpoint(start, end)).exp();
                    alive * (undrawn(start) - undrawn(end))
                })
                .sum();
            expected += chance;
            variance += chance * (1.0 - chance);
        }
        let deviation = (met.len() as f64 - expected) / variance.sqrt();
        println!("met {}, expected {expected:.0}, {deviation:.1} deviations", met.len());
        assert!(deviation.abs() < 5.0);
    }

    #[test]
    fn one_flow_is_enough() {
        let mut backbone = Backbone::new(1, 0.0);
        let mut random = Random::new(2, Stream::Order);
        assert!((0..10_000).all(|_| backbone.draw(&mut random) == 0));
    }

    #[test]
    fn lags_stay_in_the_ring() {
        let mut random = Random::new(4, Stream::Order);
        let lags: Vec<usize> = (0..1_000_000).map(|_| lag(&mut random)).collect();
        assert_eq!(lags.iter().min(), Some(&1));
        assert!(lags.iter().max().is_some_and(|&lag| (1_000..=LONGEST_LAG).contains(&lag)));
    }
}
