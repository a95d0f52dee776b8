//! The options that all programs of flowgauge share, and measurements in YAML files.
#![forbid(unsafe_code)]

mod measurement;
mod running;
mod text;
pub mod values;

use clap::builder::{PossibleValuesParser, TypedValueParser};

pub use measurement::{Measurement, check_flows};
pub use running::{Asked, Preset, Refusal, Running};
pub use text::{Entries, Named, complaint, parse, parse_yaml};

/// The name of the only measurement if the options name none.
pub const MAIN: &str = "main";

/// The heading of input options.
pub const INPUT: &str = "Input";

/// The heading of output options.
pub const OUTPUT: &str = "Output";

/// The heading of options that select what to measure.
pub const WHAT: &str = "What to measure";

/// The heading of options that select how to measure.
pub const HOW: &str = "How to measure";

/// A parser for one of a few named values.
///
/// ```
/// use clap::{Arg, Command};
///
/// let measures = flowgauge_options::choice([("packets", 1), ("bytes", 2)]);
/// let by = Arg::new("by").long("by").value_parser(measures);
/// let matches = Command::new("measure").arg(by).get_matches_from(["measure", "--by", "bytes"]);
/// assert_eq!(matches.get_one("by"), Some(&2));
/// ```
pub fn choice<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [(&'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.map(|(name, _)| name)).try_map(move |given| {
        let found = all.iter().find(|(name, _)| *name == given);
        found.map(|(_, value)| *value).ok_or("no such value")
    })
}

/// An error of clap as one sentence.
pub fn sentence(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(joined);
    let mut message = paragraphs.next().unwrap_or_default();
    let tip = paragraphs.find_map(|text| Some(text.strip_prefix("tip: ")?.to_owned()));
    // Drop the tip to pass the word after `--`: a mistyped option is not a file name.
    if let Some(tip) = tip.filter(|tip| !tip.starts_with("to pass")) {
        message = format!("{message}; {}", suggestion(&tip));
    }
    // Replace Rust's words for text that is not a number.
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

/// A message that ends with a Rust range, such as `0 is not in 1..=256`, with the range in words.
fn in_words(message: &str) -> Option<String> {
    let (given, range) = message.split_once(" is not in ")?;
    let (low, high) = range.split_once("..")?;
    Some(match high.trim_start_matches('=') {
        high if high == u64::MAX.to_string() => format!("{given} is not {low} or more"),
        high => format!("{given} is not from {low} to {high}"),
    })
}

/// A paragraph as one line.
fn joined(paragraph: &str) -> String {
    paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}
