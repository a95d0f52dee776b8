//! The experiments: the figures of each paper, of scaling and of a switch, and the choice of `auto`.

mod agg_evict;
mod auto;
mod insta_measure;
mod nitro;
mod scaling;
mod simple;
mod skipper;
mod switch;

use super::Experiment;

/// All experiments, in the order of the report.
#[rustfmt::skip]
pub(crate) const EXPERIMENTS: &[&Experiment] = &[
    &simple::FIG1,
    &simple::FIG2,
    &simple::ARRAY_SIZE,
    &simple::HIERARCHICAL,
    &simple::FIG3,
    &simple::FIG3C,
    &simple::FIG4,
    &simple::FIG5,
    &simple::FIG6,
    &simple::FIG7,
    &simple::FIG8,
    &simple::MERGE,
    &simple::CACHE,
    &simple::FIG9A,
    &simple::FIG9B,
    &simple::ZERO_LOSS,
    &agg_evict::FIG2,
    &agg_evict::FIG4,
    &agg_evict::FIG5,
    &agg_evict::FIG6,
    &agg_evict::FIG6C,
    &agg_evict::RECEIVE,
    &agg_evict::FIG7,
    &agg_evict::FIG7C,
    &agg_evict::FIG8A,
    &agg_evict::FIG8B,
    &agg_evict::AUTO,
    &nitro::FIG3A,
    &nitro::FIG3B,
    &nitro::TABLE1,
    &nitro::TABLE2,
    &nitro::STRAWMEN,
    &nitro::CONVERGENCE,
    &nitro::LOAD,
    &insta_measure::FIG1,
    &insta_measure::FIG6,
    &insta_measure::FIG7,
    &insta_measure::FIG8,
    &insta_measure::FIG9A,
    &insta_measure::FIG9B,
    &insta_measure::FIG10,
    &insta_measure::FIG11,
    &insta_measure::CSM,
    &insta_measure::FIG12,
    &insta_measure::FIG13,
    &insta_measure::FIG14,
    &insta_measure::WSAF,
    &skipper::FIG2,
    &skipper::FIG3,
    &skipper::UNIVMON,
    &skipper::CONVERGENCE,
    &skipper::WEIGHTED,
    &skipper::L2,
    &skipper::HIERARCHICAL,
    &auto::AUTO,
    &scaling::SEPARATE,
    &scaling::CONCURRENT,
    &scaling::UPDATES,
    &switch::DPDK,
    &switch::ZERO_LOSS,
    &switch::EMC_FEW,
    &switch::EMC_MANY,
    &switch::MEGAFLOW_FEW,
    &switch::MEGAFLOW_MANY,
    &switch::SIMPLE_FEW,
    &switch::SIMPLE_MANY,
    &switch::NITRO_FIG2,
    &switch::SKIPPER_FIG5,
    &switch::TODAY,
];
