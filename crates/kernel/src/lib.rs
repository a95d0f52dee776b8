//! Batch kernels: the innermost loops of flowgauge, each compiled once per instruction set; and what
//! threads hand each other batches and summaries by, which `make loom` checks.
//!
//! This crate is the only one with `unsafe` code. The digest has a scalar twin in [`scalar`] that
//! is free of intrinsics; the instruction set is detected once and is a value ([`Isa`]) that the
//! callers hold.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(feature = "counting")]
pub mod counting;
mod cycles;
mod detect;
mod digest;
mod exchange;
mod group;
mod headers;
#[cfg(target_arch = "x86_64")]
mod lanes;
mod memory;
mod prefetch;
mod ring;
pub mod scalar;
mod seed;
mod stdio;
mod tags;

pub use cycles::cycles;
pub use detect::Isa;
pub use digest::{Digester, Words};
pub use exchange::{Keeper, User, exchange};
pub use group::{equal_in_group, equal_in_line};
pub use headers::{ReadHeaders, ScalarHeaders, Tuple, WithHeaders};
pub use memory::{Blank, Zeroed, is_available};
pub use prefetch::prefetch;
pub use ring::{Consumer, Gone, Producer, ring};
pub use seed::{LEAST_SEED_BYTES, Seed, SeedId};
pub use stdio::stdout_was_closed;
pub use tags::Tags;
