//! Values of the options that only the command has, as people write them.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flowgauge_core::unknown::Unknown;
use flowgauge_engine::sink::parse_rfc3339;
use flowgauge_options::values::{size, time};

use crate::args::{Destination, Format};

/// Memory of a ring, which is mapped by 256 KiB and has at least two such blocks.
pub(crate) fn ring(text: &str) -> Result<usize, String> {
    const LIMITS: std::ops::RangeInclusive<usize> = 512 << 10..=1 << 30;
    let bytes = size(text)?;
    let message = || "a ring has 512KiB to 1GiB".to_owned();
    LIMITS.contains(&bytes).then_some(bytes).ok_or_else(message)
}

/// An output: `json:FILE`, where '-' is standard output.
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
        return Err("snapshots are binary; name a file or a directory".to_owned());
    }
    Ok(Destination { format, path })
}

/// A time in nanoseconds since the UNIX epoch: as RFC 3339 writes it, or how long ago it was.
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
