//! Uniform sampling: a random sample of one packet in N.
//!
//! As in routers, with the random sampling of Duffield, Lund, Thorup, "Estimating flow
//! distributions from sampled flow statistics" (SIGCOMM 2003), §2. Sizes are unbiased, but have
//! large relative errors for small flows and in short epochs.

use super::super::{Accelerate, AcceleratorInfo, headers};
use super::rate::Steps;
use super::{Kind, Rate, Sampled};
use crate::batch::Batch;
use crate::key::FlowKey;
use crate::summary::{Ability, BuildError, Laws, Options, Parameter, Parameters, Setting, Summary};
use crate::terms::Measure;

/// Default N: a common rate of routers on fast links.
const SAMPLE: u64 = 100;

/// Probability that a size is outside its bounds.
const DELTA: f64 = 0.01;

/// The uniform sampling accelerator.
///
/// Cost: a random draw for each sampled packet. Other packets cost only their share of the batch
/// and, by bytes, of summing the lengths. The error of a flow of f packets is at most √(2 n f
/// ln(2/δ)), and somewhat more where that exceeds f; by bytes, it grows by the square root of the
/// longest packet.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog::build_accelerated;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::{Options, Parameters};
///
/// let chain = [("uniform".to_owned(), Parameters::new([("sample", "10")]))];
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut summary = build_accelerated::<Key8>(&chain, "space-saving", &options).unwrap();
/// let (key, mut batch) = (Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), Batch::new());
/// batch.fill(&[key; 250], 60);
/// (0..400).for_each(|_| summary.ingest(&mut batch));
/// summary.settle();
/// let size = summary.answers().size().unwrap().estimate(key.canonical(4)).packets.unwrap();
/// assert!(size.low <= 100_000.0 && 100_000.0 <= size.high);
/// ```
pub struct Uniform;

fn sample(parameters: &Parameters) -> Result<u64, BuildError> {
    Ok(parameters.integer("sample", 1..=1 << 31)?.unwrap_or(SAMPLE))
}

impl Accelerate for Uniform {
    const INFO: AcceleratorInfo = AcceleratorInfo {
        name: "uniform",
        idea: "passes on one in N packets, chosen at random, weighted by N",
        paper: "Duffield et al. (SIGCOMM 2003), section 2",
        parameters: &[
            Parameter { name: "sample", help: "N, to pass on one in N packets (default: 100)" },
            headers::PARAMETER,
        ],
        memory: "256 x (key + 36)",
        samples: true,
    };

    fn fits(_: &Parameters, laws: &Laws) -> Result<(), &'static str> {
        super::fits(*laws)
    }

    fn answers(_: &Parameters, _: &Laws, ability: Ability) -> Option<Ability> {
        super::answers(ability)
    }

    fn memory_bytes<K: FlowKey>(_: &Options) -> Result<usize, BuildError> {
        Ok(Batch::<K>::BYTES)
    }

    fn build<K: FlowKey>(
        options: &Options,
        inner: Box<dyn Summary<K>>,
    ) -> Result<Box<dyn Summary<K>>, BuildError> {
        let sample = sample(&options.parameters)?;
        let kind = Kind {
            name: Self::INFO.name,
            settings: vec![("sample", Setting::Integer(sample))],
            rate: Rate::Steps(Steps::constant(sample)),
            units: Measure::Packets,
            delta: DELTA,
            headers: headers::requested(&options.parameters, options.by)?,
        };
        Sampled::before(kind, options, inner)
    }

    fn promise(parameters: &Parameters) -> Result<Option<String>, BuildError> {
        let sample = sample(parameters)?;
        let error = (2.0 * sample as f64 * (2.0 / DELTA).ln()).sqrt();
        Ok(Some(format!(
            "adds an error of {error:.1} √f to the size of a flow of f packets, exceeded with \
             probability {DELTA}"
        )))
    }
}
