//! The measuring core of flowgauge: headers, keys, batches, summaries and tasks.
//!
//! No I/O, no threads, no clock and no unsafe code. The modules stand in the packet's way:
//! [`packet`] turns bytes into headers, [`key`] headers into keys, a [`batch`] carries them to a
//! [`summary`], an [`accelerator`] before it if asked for, and at the close of an epoch the tasks of [`task`] read what the summary answers.
#![forbid(unsafe_code)]

pub mod accelerator;
pub mod batch;
pub mod catalog;
pub mod key;
pub mod packet;
pub mod summary;
pub mod task;
