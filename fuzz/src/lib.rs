//! What the fuzz targets run; the second reader of captures is the one of the tests.
#![allow(dead_code, reason = "the tests need more of what is shared than the targets do")]

#[path = "../../crates/capture/tests/readers/naive.rs"]
mod naive;
#[path = "../../crates/capture/tests/readers/support.rs"]
mod support;
pub mod targets;
