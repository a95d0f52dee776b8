//! Values of the options that only the command has, as people write them.

use std::path::{Path, PathBuf};

use flowgauge_core::unknown::Unknown;
use flowgauge_options::values::size;

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
