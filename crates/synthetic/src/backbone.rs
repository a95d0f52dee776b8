//! Flows in the order of a backbone link: heavy tails, locality in time, flows that come and go.
//!
//! Some flows are *active*. Each has a rank; the popularity of a rank stays while flows come and
//! go. Every packet is one of three kinds:
//! - a **birth**: a new flow takes the rank of an active flow, mostly an unpopular one. So
//!   elephants last and mice are replaced;
//! - an **echo**: repeats the flow of a recent packet, with a lag drawn from a power law. This
//!   creates packet trains and locality. Only packets of the busier ranks are echoed: mice send
//!   their packets one by one;
//! - a **draw**: an active flow by popularity. Draws are stratified, because flows of a link send
//!   more regularly than at random: the range of the random number is divided into strata, and each
//!   stratum is used once, in random order, before any is used again.
//!
//! Echoes repeat flows that draws chose, so in the long run only popularity determines flow sizes.
//!
//! The constants were fitted to statistics of a backbone link, by random search and then by hand;
//! `tests/backbone.rs` compares both. The exponents are chosen so that roots and products suffice,
//! which are exact on all machines, unlike logarithms.

use super::random::Random;

/// Active flows, if the run has that many.
pub(super) const ACTIVE: u64 = 20_500;
/// Births per packet, unless the number of flows is given.
pub(super) const BIRTHS: f64 = 0.0312;
/// Maximum births per packet; echoes take most of the rest.
pub(super) const MOST_BIRTHS: f64 = 0.5;
/// Echoes per packet.
const ECHOES: f64 = 0.437;
/// The longest lag of an echo, in packets of busy ranks. Its −0.4th power is 1 ÷ 16.
const LONGEST_LAG: usize = 1024;
/// Of 32 ranks, the number that are busy enough to be echoed.
const BUSY_IN_32: u64 = 11;
/// Number of strata.
const STRATA: usize = 1 << 15;
/// Popularity falls as (rank + `FLAT`) to the power −7 ÷ 8.
const FLAT: f64 = 6.8;

/// The state of the model: 8 bytes for each active flow, the recent packets, and 128 KiB of strata.
#[derive(Clone, Debug)]
pub(super) struct Backbone {
    /// The flow at each rank.
    active: Vec<u64>,
    /// Number of flows born so far, including the initial ones.
    born: u64,
    births: f64,
    /// Ranks below this one are echoed.
    busy: usize,
    /// A ring with the flows of the latest packets of busy ranks.
    recent: Box<[u64; LONGEST_LAG]>,
    /// Number of packets that entered the ring so far.
    entered: usize,
    /// The strata, shuffled while they are used.
    strata: Box<[u32]>,
    /// Number of strata used in this round.
    drawn: usize,
    /// The eighth roots of `FLAT` and of `FLAT` + active flows.
    roots: (f64, f64),
}

fn eighth_root(x: f64) -> f64 {
    x.sqrt().sqrt().sqrt()
}

impl Backbone {
    /// A model with `active` ≥ 1 initial flows and `births` new flows per packet.
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
            // The larger of two uniform ranks: the chance of replacement is proportional to the
            // rank.
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

    /// Draws a rank by popularity, through the inverse of its integral, (rank + flat)^⅛.
    #[inline]
    fn popular(&mut self, random: &mut Random) -> usize {
        let (from, to) = self.roots;
        let root = from + self.stratified(random) * (to - from);
        let square = root * root;
        let fourth = square * square;
        let rank = (fourth * fourth - FLAT).max(0.0) as usize;
        // Rounding may reach or exceed the end of the range.
        rank.min(self.active.len() - 1)
    }

    /// A random fraction from the next stratum.
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

/// Draws a lag. The chance of a lag of at least x is proportional to x^−0.4, so the inverse is
/// v^−2.5.
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
    fn births_are_numbered_in_order_and_have_the_given_rate() {
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

    /// Each initial flow sends a packet unless it is replaced first, which is a Poisson process, or
    /// the run ends. The run is shorter than one round of strata, so at draw t a stratum is still
    /// unused with a chance of 1 − t ÷ `STRATA`. The limit is 5 standard deviations of independent
    /// flows (one false alarm in 2 million); stratified flows deviate less.
    #[test]
    fn a_run_has_the_flows_of_the_theory() {
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
            // The shares of the strata that belong to the rank only in part, and the number of
            // whole strata.
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
            // The chance to be drawn in each 64th of the run without being replaced before.
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
