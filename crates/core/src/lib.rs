//! The measuring core of flowgauge: headers, keys, batches, summaries and tasks.
//!
//! No I/O, no threads, no clock and no unsafe code. The modules stand in the packet's way:
//! [`packet`] turns bytes into headers, [`key`] headers into keys, and [`lanes`] put them into a
//! [`batch`] that carries them to a [`summary`], with an [`accelerator`] before it if asked for. At the
//! close of an epoch the tasks of [`task`] read what the summary answers. Other crates see batches and
//! summaries of [`any`] key width.
#![forbid(unsafe_code)]

// `any` makes every summary for every width of keys, which unit tests would compile once more.
#[cfg(not(test))]
pub mod any;
#[cfg(not(test))]
pub mod audit;
#[cfg(not(test))]
pub mod block;
#[cfg(not(test))]
pub mod lanes;

pub mod accelerator;
pub mod batch;
pub mod catalog;
pub mod key;
pub mod packet;
pub mod services;
pub mod sorting;
pub mod summary;
pub mod task;
pub mod terms;
pub mod timeline;
pub mod unknown;
