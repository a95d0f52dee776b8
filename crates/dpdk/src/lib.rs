//! Ports of an installed DPDK as sources of packets: the process polls the network card itself, without
//! the kernel.
//!
//! `Dpdk::start` starts DPDK once in a process, and `open` gives one `DpdkQueue` for each queue of
//! each port. The crate is empty without its feature `dpdk`, with which it links to the DPDK that
//! pkg-config finds (22.11 or later). `unsafe` code is in `shim` and `printed` only, and in what
//! `shim.c` does.
#![cfg(feature = "dpdk")]
#![deny(unsafe_code)]

mod clock;
mod fault;
mod port;
#[expect(unsafe_code, reason = "file descriptors of the process")]
mod printed;
mod queue;
#[expect(unsafe_code, reason = "functions of DPDK")]
mod shim;

pub use fault::{DpdkError, PortFault};
pub use port::{PortOptions, open};
pub use queue::DpdkQueue;
pub use shim::Dpdk;
