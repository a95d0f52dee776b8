//! What the fuzz targets run; the second reader of captures is the one of the tests, and so are the
//! questions to summaries.
#![allow(dead_code, reason = "the tests need more of what is shared than the targets do")]

#[path = "../../crates/capture/tests/readers/naive.rs"]
mod naive;
pub mod records;
pub mod snapshots;
#[path = "../../crates/engine/tests/snapshot/stored.rs"]
mod stored;
#[path = "../../crates/core/tests/laws/stream.rs"]
mod stream;
pub mod summaries;
#[path = "../../crates/capture/tests/readers/support.rs"]
mod support;
pub mod targets;
