//! Skipper: a sample that is large enough from the first packet on.
//!
//! Paper: Ben Basat, Einziger, Friedman et al., "Skipper: black-box acceleration of measurement
//! algorithms in software switches", sections III, IV and VII. Packet number N is sampled with
//! probability 1/⌈N/Γ⌉: all packets until a sample suffices, then ever fewer. The smallest Γ for
//! which Chernoff's bound holds is ⌈3 ε⁻² ln(2/δ)⌉. The paper has ln(1/(2δ)) instead, which samples
//! fewer packets and makes bounds wider. By bytes, byte number N is sampled, followed by the rest
//! of its packet. The draw is repeated when the probability changes, which is correct because
//! geometric draws are memoryless.

use super::super::{Accelerate, AcceleratorInfo, headers};
use super::levels::Leveled;
use super::rate::{Norm, OWN, Steps};
use super::{Kind, Rate, Sampled};
use crate::batch::Batch;
use crate::key::FlowKey;
use crate::summary::{
    Ability, BuildError, BuildErrorKind, Laws, Options, Parameter, Parameters, Setting, Summary,
};

/// Defaults: the error as a share of the total, and the probability of more.
const EPSILON: f64 = 0.01;
const DELTA: f64 = 0.01;

const CHERNOFF: &str = "chernoff";
const PAPER: &str = "paper";

/// The Skipper accelerator.
///
/// Cost: a random draw for each sampled packet, at most Γ (ln(N/Γ) + 2) on average. Other packets
/// cost only their share of the batch and, by bytes, of summing the lengths. The error of a size is
/// at most ε N, except with probability δ, and smaller for small flows, as their bounds show. The
/// weight that it passes on may exceed N by a share ε, so the `epsilon` of the summary behind it is
/// divided by 1 + ε (section IV).
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog::build_accelerated;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::{Options, Parameters};
///
/// let chain = [("skipper".to_owned(), Parameters::new([("epsilon", "0.05")]))];
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut summary = build_accelerated::<Key8>(&chain, "count-min", &options).unwrap();
/// let (key, mut batch) = (Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), Batch::new());
/// batch.fill(&[key; 250], 60);
/// (0..400).for_each(|_| summary.ingest(&mut batch));
/// summary.settle();
/// let size = summary.answers().size().unwrap().estimate(key.canonical(4)).packets.unwrap();
/// assert!(size.low <= 100_000.0 && 100_000.0 <= size.high);
/// ```
pub struct Skipper;

/// The parameters: an error as a share of the total, or of L2.
enum Target {
    L1(Share),
    L2(Norm),
}

impl Target {
    /// Reads the parameters, for keys of `bits` bits.
    fn new(parameters: &Parameters, bits: usize) -> Result<Self, BuildError> {
        if parameters.get("l2").is_some() {
            return Ok(Self::L2(Norm::new(parameters, bits)?));
        }
        if let Some(p) = parameters.get("p") {
            return Err(BuildErrorKind::OutOfRange {
                name: "p",
                value: p.to_owned(),
                range: format!("supported without l2={OWN}"),
            }
            .into());
        }
        Ok(Self::L1(Share::new(parameters)?))
    }
}

/// The refusal of `l2` before a summary without rows.
const NO_ROWS: &str = "l2 needs a sketch with rows of counters right behind it";

/// An error as a share of the total.
#[derive(Clone, Copy)]
struct Share {
    epsilon: f64,
    delta: f64,
    gamma: &'static str,
}

impl Share {
    fn new(parameters: &Parameters) -> Result<Self, BuildError> {
        let epsilon = parameters.fraction("epsilon")?.unwrap_or(EPSILON);
        let delta = parameters.fraction("delta")?.unwrap_or(DELTA);
        let gamma = parameters.word("gamma", &[CHERNOFF, PAPER])?;
        if gamma == PAPER && delta >= 0.5 {
            return Err(BuildErrorKind::OutOfRange {
                name: "delta",
                value: delta.to_string(),
                range: "less than 0.5 with gamma=paper".to_owned(),
            }
            .into());
        }
        Ok(Self { epsilon, delta, gamma })
    }

    fn settings(self) -> Vec<(&'static str, Setting)> {
        vec![
            ("epsilon", Setting::Fraction(self.epsilon)),
            ("delta", Setting::Fraction(self.delta)),
            ("gamma", Setting::Word(self.gamma)),
        ]
    }

    /// Γ: packets or bytes from one change of the probability to the next.
    fn step(self) -> u64 {
        let ratio = if self.gamma == PAPER { 0.5 / self.delta } else { 2.0 / self.delta };
        (3.0 / self.epsilon.powi(2) * ratio.ln()).ceil().max(1.0) as u64
    }
}

impl Accelerate for Skipper {
    const INFO: AcceleratorInfo = AcceleratorInfo {
        name: "skipper",
        idea: "random sample whose rate falls as traffic grows, as far as the error allows",
        paper: "Skipper (Ben Basat et al.), sections III to VII",
        parameters: &[
            Parameter {
                name: "epsilon",
                help: "the error added, as a share of the total weight (default: 0.01)",
            },
            Parameter { name: "delta", help: "the probability of a larger error (default: 0.01)" },
            Parameter {
                name: "gamma",
                help: "packets (or bytes) until it samples one in two, then one in three, and so \
                       on: chernoff, 3 ln(2 / delta) / epsilon² (the default), or paper, 3 ln(1 \
                       / (2 delta)) / epsilon²",
            },
            Parameter {
                name: "l2",
                help: "sample by an error epsilon (default: 0.05) as a share of L2, the square \
                       root of the sum of squared sizes, before a sketch with such an error; L2 \
                       is estimated from the sketch (own), or its minimum is assumed (paper)",
            },
            Parameter {
                name: "p",
                help: "with l2, the minimum probability of a packet (default: 0.01); the sketch \
                       needs at least 1 / (p epsilon²) columns",
            },
            headers::PARAMETER,
        ],
        memory: "256 x (key + 36)",
        samples: true,
    };

    fn fits(parameters: &Parameters, laws: &Laws) -> Result<(), &'static str> {
        if parameters.get("l2").is_some() && !laws.rows {
            return Err(NO_ROWS);
        }
        super::fits(*laws)
    }

    fn answers(parameters: &Parameters, laws: &Laws, ability: Ability) -> Option<Ability> {
        match ability {
            _ if !laws.levels || headers::is_requested(parameters) => super::answers(ability),
            Ability::Cells { .. } => Some(Ability::Cells { sampled: true }),
            _ => Some(ability),
        }
    }

    fn memory_bytes<K: FlowKey>(_: &Options) -> Result<usize, BuildError> {
        Ok(Batch::<K>::BYTES)
    }

    fn build<K: FlowKey>(
        options: &Options,
        mut inner: Box<dyn Summary<K>>,
    ) -> Result<Box<dyn Summary<K>>, BuildError> {
        let (settings, rate, delta) =
            match Target::new(&options.parameters, 8 * options.digester.key_bytes())? {
                Target::L1(share) => {
                    (share.settings(), Rate::Steps(Steps::falling(share.step())), share.delta)
                }
                Target::L2(_) if inner.rows().is_none() => {
                    let (algorithm, reason) = (Self::INFO.name, NO_ROWS.to_owned());
                    return Err(BuildErrorKind::Unfit { algorithm, reason }.into());
                }
                Target::L2(norm) => (norm.settings(), Rate::Norm(norm), norm.delta),
            };
        let headers = headers::requested(&options.parameters, options.by)?;
        if headers && matches!(rate, Rate::Norm(_)) {
            return Err(headers::refused(
                "supported with l2, which depends on the summary: leave out l2, or use \
                 before=summary"
                    .to_owned(),
            ));
        }
        let kind =
            Kind { name: Self::INFO.name, settings, rate, units: options.by, delta, headers };
        match inner.levels().filter(|_| !headers).map(|levels| levels.levels()) {
            Some(count) => Leveled::before(kind, count, options, inner),
            None => Sampled::before(kind, options, inner),
        }
    }

    fn inflation(parameters: &Parameters) -> Result<f64, BuildError> {
        // Errors as a share of the norm add up without inflation.
        Ok(match Target::new(parameters, 64)? {
            Target::L1(share) => 1.0 + share.epsilon,
            Target::L2(_) => 1.0,
        })
    }

    fn promise(parameters: &Parameters) -> Result<Option<String>, BuildError> {
        let share = match Target::new(parameters, 64)? {
            Target::L1(share) => share,
            Target::L2(Norm { epsilon, delta, least, .. }) => {
                return Ok(Some(format!(
                    "adds an error of {epsilon} L2 (the square root of the sum of squared sizes) \
                     to that of the algorithm, exceeded with probability {delta} if the sketch \
                     has {:.0} columns; every packet is sampled with a probability of at least \
                     {least}",
                    (1.0 / (least * epsilon * epsilon)).ceil()
                )));
            }
        };
        Ok(Some(format!(
            "adds an error of {} of the total to that of the algorithm, at any time, exceeded \
             with probability {}; counts all of the first {}, then one in two of as many, then \
             one in three, and so on",
            share.epsilon,
            2.0 * share.delta,
            share.step()
        )))
    }
}
