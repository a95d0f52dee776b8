//! Ports of an installed DPDK as sources of packets: the process polls the network card itself,
//! without the kernel.
//!
//! `Dpdk::start` starts DPDK once per process, and `open` returns one `DpdkQueue` for each queue of
//! each port. With the feature `dpdk`, the crate links to the DPDK that pkg-config finds (22.11 or
//! later); without it, the crate is empty. Only `shim` has `unsafe` code, and calls `shim.c`.
#![cfg(feature = "dpdk")]
#![deny(unsafe_code)]

mod fault;
mod port;
mod queue;
#[expect(unsafe_code, reason = "functions of DPDK, and file descriptors of the process")]
mod shim;

pub use fault::{DpdkError, PortFault};
pub use port::{PortOptions, open};
pub use queue::DpdkQueue;
pub use shim::Dpdk;
