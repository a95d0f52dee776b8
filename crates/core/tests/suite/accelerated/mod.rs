//! Accelerators: the results that they must not change, and the errors of samplers.

mod agg_evict;
mod nitro;
mod nitro_error;
mod sampler;
mod skipper;

use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_core::summary::{BuildErrorKind, Options, Parameters, Summary};

use crate::stream::key_of;

/// The key of a flow, its number spread over all of the key's bytes.
fn key<K: FlowKey>(flow: u32) -> K {
    key_of(flow, K::BYTES)
}

/// The same, of four bytes.
fn source(flow: u32) -> Key8 {
    key_of(flow, 4)
}

/// The algorithm behind one accelerator, or `None` where it refuses keys of this width.
fn build<K: FlowKey>(
    accelerator: Option<(&str, Parameters)>,
    name: &str,
    options: &Options,
) -> Option<Box<dyn Summary<K>>> {
    let accelerators: Vec<_> =
        accelerator.into_iter().map(|(name, parameters)| (name.to_owned(), parameters)).collect();
    match catalog::build_accelerated(&accelerators, name, options) {
        Ok(summary) => Some(summary),
        Err(error) if matches!(error.kind(), BuildErrorKind::Unfit { .. }) => None,
        Err(error) => panic!("{name}: {error}"),
    }
}
