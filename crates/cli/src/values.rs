//! Types and parsers of option values that only the command has.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flowgauge_core::unknown::Unknown;
use flowgauge_engine::sink::parse_rfc3339;
use flowgauge_options::values::{size, time};

/// Why snapshots cannot go to standard output.
pub(crate) const BINARY: &str = "snapshots are binary; name a file or a directory";

/// One of the outputs of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    /// The format of reports; `None` for snapshots.
    pub(crate) format: Option<Format>,
    /// The file; `None` for standard output.
    pub(crate) path: Option<PathBuf>,
}

/// When text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

impl Color {
    pub(crate) const ALL: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("always", Self::Always), ("never", Self::Never)];
}

/// The profiles of generated traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProfileName {
    Zipf,
    Backbone,
}

impl ProfileName {
    pub(crate) const ALL: [(&'static str, Self); 2] =
        [("zipf", Self::Zipf), ("backbone", Self::Backbone)];
}

/// What `list` lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    Algorithms,
    Accelerators,
    Tasks,
    Keys,
}

impl Topic {
    pub(crate) const ALL: [(&'static str, Self); 4] = [
        ("algorithms", Self::Algorithms),
        ("accelerators", Self::Accelerators),
        ("tasks", Self::Tasks),
        ("keys", Self::Keys),
    ];
}

/// The formats of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    #[default]
    Text,
    Line,
    Json,
    Csv,
    Parquet,
    Html,
}

impl Format {
    /// All formats by name. `ndjson` is another name of JSON, which has one report per line.
    pub(crate) const ALL: [(&'static str, Self); 7] = [
        ("text", Self::Text),
        ("line", Self::Line),
        ("json", Self::Json),
        ("ndjson", Self::Json),
        ("csv", Self::Csv),
        ("parquet", Self::Parquet),
        ("html", Self::Html),
    ];

    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }
}

/// The memory of a ring: at least two blocks of 256 KiB, in which it is mapped.
pub(crate) fn ring(text: &str) -> Result<usize, String> {
    const LIMITS: std::ops::RangeInclusive<usize> = 512 << 10..=1 << 30;
    let bytes = size(text)?;
    let message = || "a ring has 512KiB to 1GiB".to_owned();
    LIMITS.contains(&bytes).then_some(bytes).ok_or_else(message)
}

/// An output such as `json:FILE`; '-' is standard output.
pub(crate) fn sink(text: &str) -> Result<Destination, String> {
    const SNAPSHOT: &str = "snapshot";
    let known = || {
        "write FORMAT:FILE, with the format text, line, json, csv, parquet, html or snapshot"
            .to_owned()
    };
    let (name, path) =
        text.split_once(':').filter(|(_, path)| !path.is_empty()).ok_or_else(known)?;
    let path = Some(PathBuf::from(path)).filter(|path| path != Path::new("-"));
    let format = Format::ALL.iter().find(|(format, _)| *format == name).map(|(_, format)| *format);
    if format.is_none() && name != SNAPSHOT {
        let names = Format::ALL.into_iter().map(|(format, _)| format).chain([SNAPSHOT]);
        return Err(Unknown::new("format", name, names).to_string());
    }
    if format.is_none() && path.is_none() {
        return Err(BINARY.to_owned());
    }
    Ok(Destination { format, path })
}

/// A time in nanoseconds since the UNIX epoch, given as RFC 3339 or as how long ago it was.
pub(crate) fn time_ns(text: &str) -> Result<i64, String> {
    if let Some(time_ns) = parse_rfc3339(text) {
        return Ok(time_ns);
    }
    let ago_ns = time(text).map_err(
        |_| "write a time such as 2026-11-25T06:30:00Z, or how long ago it was, such as 1h",
    )?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now_ns = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    Ok(now_ns.saturating_sub_unsigned(ago_ns))
}

/// A length of time above 0, in nanoseconds.
pub(crate) fn step(text: &str) -> Result<u64, String> {
    match time(text)? {
        0 => Err("a step must be longer than 0".to_owned()),
        length_ns => Ok(length_ns),
    }
}
