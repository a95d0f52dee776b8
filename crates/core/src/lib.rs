//! The measurement core of flowgauge: headers, keys, batches, summaries and tasks.
//!
//! No I/O, no threads, no clock and no unsafe code. The modules in a packet's order: [`packet`]
//! reads headers, [`key`] makes keys of them, and the [`batcher`] collects the keys in a [`batch`]
//! that it passes to a [`summary`], through an [`accelerator`] if one is configured. At the close
//! of an epoch, the tasks of [`task`] read the answers of the summary. Other crates use batches and
//! summaries of [`any`] key width.
#![forbid(unsafe_code)]

// `any` instantiates every summary for every key width; unit tests do not compile it again.
#[cfg(not(test))]
pub mod any;
#[cfg(not(test))]
pub mod audit;
#[cfg(not(test))]
pub mod batcher;
#[cfg(not(test))]
pub mod block;

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
