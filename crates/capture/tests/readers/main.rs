//! Readers of captures are correct on valid captures and exact on damaged ones.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod damage;
mod naive;
mod oracle;
mod parts;
mod streams;
mod support;
