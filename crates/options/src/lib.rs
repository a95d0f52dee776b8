//! Measurements as text: the options that every program of flowgauge shares, and its YAML files.
#![forbid(unsafe_code)]

mod measurement;
mod running;
mod text;
pub mod values;

use clap::builder::{PossibleValuesParser, TypedValueParser};

pub use measurement::{Measurement, check_flows};
pub use running::{Asked, Preset, Refusal, Running};
pub use text::{Entries, Named, complaint, parse, parse_yaml};

/// The name of the measurement that options describe where no other is named.
pub const MAIN: &str = "main";

/// The heading of options that say what is read.
pub const INPUT: &str = "Input";

/// The heading of options that say what is written.
pub const OUTPUT: &str = "Output";

/// The heading of options that say what to measure.
pub const WHAT: &str = "What to measure";

/// The heading of options that say how.
pub const HOW: &str = "How to measure";

/// One of a few values, by name.
pub fn choice<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [(&'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.map(|(name, _)| name)).try_map(move |given| {
        let found = all.iter().find(|(name, _)| *name == given);
        found.map(|(_, value)| *value).ok_or("no such value")
    })
}

/// A refusal of clap as one sentence.
pub fn sentence(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(joined);
    let mut message = paragraphs.next().unwrap_or_default();
    let tip = paragraphs.find_map(|text| Some(text.strip_prefix("tip: ")?.to_owned()));
    // A word that may be passed behind `--` would be the name of a file, which a mistyped option is not.
    if let Some(tip) = tip.filter(|tip| !tip.starts_with("to pass")) {
        message = format!("{message}; {}", suggestion(&tip));
    }
    // Rust's words for text that is not a number.
    let message = message.replace("invalid digit found in string", "write a whole number");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    in_words(message).unwrap_or_else(|| message.to_owned())
}

/// The names that a tip of clap suggests.
fn suggestion(tip: &str) -> String {
    match tip.split_once(" exists: ").or_else(|| tip.split_once(" exist: ")) {
        Some((what, names)) if what.contains("similar") => format!("did you mean {names}?"),
        _ => tip.to_owned(),
    }
}

/// A refusal that ends with a range of Rust, such as `0 is not in 1..=256`, with the range in words.
fn in_words(message: &str) -> Option<String> {
    let (given, range) = message.split_once(" is not in ")?;
    let (low, high) = range.split_once("..")?;
    Some(match high.trim_start_matches('=') {
        high if high == u64::MAX.to_string() => format!("{given} is not {low} or more"),
        high => format!("{given} is not from {low} to {high}"),
    })
}

/// The lines of a paragraph as one.
fn joined(paragraph: &str) -> String {
    paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}
