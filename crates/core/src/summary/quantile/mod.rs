//! Quantiles of what packets are, without keeping them.

mod kll;

pub use kll::{Kll, QuantileSketch};
