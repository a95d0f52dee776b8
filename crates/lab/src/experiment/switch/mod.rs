//! What measuring costs where packets are forwarded.

mod dpdk;
#[cfg(feature = "dpdk")]
mod port;

pub(super) use dpdk::DPDK;
