//! Every task against a plain oracle, over both lanes, with ties, prefixes and full tables.
#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(unreachable_pub, reason = "a test has no public side")]
#![expect(clippy::float_cmp, reason = "counts are exact in 64-bit floats")]

mod addresses;
mod changes;
mod distribution;
mod hierarchical;
mod refusals;
mod sizes;
mod spread;
mod support;
