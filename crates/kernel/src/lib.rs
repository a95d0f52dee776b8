//! Batch kernels: the innermost loops of flowgauge, compiled once per instruction set; and the
//! rings through which threads hand each other batches and summaries, which `make loom` checks.
//!
//! Every vector kernel has a scalar twin without intrinsics. The instruction set is detected once
//! and is a value ([`Isa`]) that the callers hold.

mod captured;
#[cfg(feature = "counting")]
pub mod counting;
mod cut;
mod digest;
mod exchange;
mod group;
mod headers;
mod heap;
mod index;
mod isa;
mod memory;
mod ring;
pub mod scalar;
mod seed;
mod system;
#[cfg(target_arch = "x86_64")]
mod vector;

pub use captured::Captured;
pub use cut::Cut;
pub use digest::{Digester, Words};
pub use exchange::{Keeper, User, exchange};
pub use group::{Tags, equal_in_group, equal_in_line};
pub use headers::{ReadHeaders, ScalarHeaders, Tuple, WithHeaders};
pub use heap::reserve_heap;
pub use index::{GROUP, Home, guess_flows};
pub use isa::{Isa, UnusableIsa};
pub use memory::{Blank, Zeroed, prefetch};
pub use ring::{Consumer, Gone, Producer, ring};
pub use seed::{LEAST_SEED_BYTES, Seed, SeedId};
pub use system::{cycles, exit_at_once, is_available, stdout_was_closed};
