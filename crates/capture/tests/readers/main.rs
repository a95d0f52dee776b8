//! The readers of captures: right on what is sound, exact on what is damaged.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod clocks;
mod compression;
mod corpus;
mod damage;
mod naive;
mod oracle;
mod parts;
mod several;
mod skips;
mod streams;
mod support;
