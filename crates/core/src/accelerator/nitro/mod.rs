//! NitroSketch: each row of a sketch takes its own sample of the packets.
//!
//! Paper: Liu, Ben Basat, Einziger et al., "NitroSketch: robust and general sketch-based monitoring
//! in software switches" (SIGCOMM 2019), sections 4 and 5. A packet is d consecutive slots for a
//! sketch of d rows. A slot is sampled with probability p: its row gets the packet's weight times
//! 1/p. One random draw gives the number of slots to skip; skipped packets are neither digested nor
//! read. 1/p is a whole number, so that counters stay whole.
//!
//! The rows sample a packet independently. So the median of the rows has a smaller error than a
//! sample of the same size for all rows together.

mod interval;
mod levels;
mod sampled;

use self::interval::{Config, Mode};
use self::levels::Leveled;
use self::sampled::{Nitro, Taken};
use super::{Accelerate, AcceleratorInfo, headers};
use crate::batch::Batch;
use crate::key::FlowKey;
use crate::summary::{
    Ability, BuildError, BuildErrorKind, Laws, Options, Parameter, Parameters, Summary,
};

/// Separates these draws from those of summaries and other samplers with the same seed.
const SALT: u64 = 0x17c2_6b9d_e58f_03a4;

/// The NitroSketch accelerator.
///
/// Cost: a random draw and one counter update for each sampled slot. A packet without a sampled
/// slot costs only its share of the batch and, by bytes, of summing the lengths. Sizes are
/// unbiased, except for flows of fewer than 10/p packets, whose median of the rows is too low.
/// Memory: one batch.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog::build_accelerated;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::{Options, Parameters};
///
/// let chain = [("nitro".to_owned(), Parameters::new([("p", "0.1")]))];
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut summary = build_accelerated::<Key8>(&chain, "count-sketch", &options).unwrap();
/// let (key, mut batch) = (Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), Batch::new());
/// batch.fill(&[key; 250], 60);
/// (0..400).for_each(|_| summary.ingest(&mut batch));
/// summary.settle();
/// let size = summary.answers().size().unwrap().estimate(key.canonical(4)).packets.unwrap();
/// assert!((size.value / 100_000.0 - 1.0).abs() < 0.05);
/// ```
pub struct NitroSketch;

const NO_ROWS: &str = "it needs a sketch with unbiased rows of counters right behind it";

impl Accelerate for NitroSketch {
    const INFO: AcceleratorInfo = AcceleratorInfo {
        name: "nitro",
        idea: "a separate sample of packets for each row of a sketch",
        paper: "NitroSketch (SIGCOMM 2019), sections 4 and 5",
        parameters: &[
            Parameter {
                name: "p",
                help: "the probability that a row takes a packet, one over a whole number \
                       (default: 0.01); in other modes the minimum (default: 1/128)",
            },
            Parameter {
                name: "mode",
                help: "fixed (the default); line-rate (a constant number of packets per second, \
                       by packet timestamps); or correct (all packets until the error is below \
                       epsilon, then line-rate)",
            },
            Parameter {
                name: "epsilon",
                help: "the error, as a share of L2, at which mode=correct starts to sample, and \
                       for which 'flowgauge explain' gives the columns (default: 0.05)",
            },
            headers::PARAMETER,
        ],
        memory: "256 x (key + 37)",
        samples: true,
    };

    fn fits(_: &Parameters, laws: &Laws) -> Result<(), &'static str> {
        if laws.rows { Ok(()) } else { Err(NO_ROWS) }
    }

    /// A sample cannot answer the number of flows, unless deep levels count all of their packets.
    fn answers(parameters: &Parameters, laws: &Laws, ability: Ability) -> Option<Ability> {
        let config = Config::new(parameters).ok()?;
        match ability {
            _ if config.takes_all() || config.by_levels(laws.levels) => Some(ability),
            Ability::Size(_) | Ability::Candidates => Some(ability),
            Ability::Cells { sampled } => {
                Some(Ability::Cells { sampled: sampled || config.mode == Mode::Fixed })
            }
            _ => None,
        }
    }

    fn memory_bytes<K: FlowKey>(options: &Options) -> Result<usize, BuildError> {
        let whole =
            if Config::new(&options.parameters)?.by_levels(true) { Batch::<K>::BYTES } else { 0 };
        Ok(Taken::<K>::BYTES + whole)
    }

    fn build<K: FlowKey>(
        options: &Options,
        inner: Box<dyn Summary<K>>,
    ) -> Result<Box<dyn Summary<K>>, BuildError> {
        let config = Config::new(&options.parameters)?;
        headers::requested(&options.parameters, options.by)?;
        config.check()?;
        options.memory.take(Self::memory_bytes::<K>(options)?)?;
        let inner = if config.by_levels(true) {
            match Leveled::before(config, options, inner) {
                Ok(levels) => return Ok(Box::new(levels)),
                Err(inner) => inner,
            }
        } else {
            inner
        };
        match Nitro::before(config, options, inner) {
            Ok(nitro) => Ok(Box::new(nitro)),
            Err(_) => Err(BuildErrorKind::Unfit {
                algorithm: Self::INFO.name,
                reason: NO_ROWS.to_owned(),
            }
            .into()),
        }
    }

    fn promise(parameters: &Parameters) -> Result<Option<String>, BuildError> {
        let config = Config::new(parameters)?;
        if config.takes_all() {
            return Ok(None);
        }
        let Config { mode, most, epsilon, .. } = config;
        let (taken, share) = match mode {
            Mode::Fixed => ("one packet in", 8.0),
            _ => ("at least one packet in", 11.0),
        };
        let columns = (share * epsilon.powi(-2) / config.p()).ceil();
        let (converges, before) = match mode {
            Mode::Correct => (config.convergence().sqrt(), "; until then all packets are counted"),
            _ => (columns, ""),
        };
        // By Chebyshev's inequality: the variance is at most (2 - p)/8 of the squared error, for
        // weights of 1. Larger weights act like flows larger by that factor.
        Ok(Some(format!(
            "each row samples {taken} {most}; with {columns} columns, its error exceeds {epsilon} L2 (the \
             square root of the sum of squared sizes) at most one time in 4, and the median of the rows \
             far less often, once L2 is {converges:.0} times the largest weight of a packet (by packets \
             1){before}"
        )))
    }
}
