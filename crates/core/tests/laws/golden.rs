//! Golden files of the stored form: summaries that were stored once stay readable.
//!
//! `FLOWGAUGE_GOLDEN=write` rewrites them after an intended change of the form.

use std::path::PathBuf;
use std::{env, fs};

use flowgauge_core::catalog::stored::{decode, encode};
use flowgauge_core::catalog::{self, ALGORITHMS};
use flowgauge_core::key::{FlowKey, Key4, Key8, Key16};
use flowgauge_core::summary::{BuildErrorKind, Info, Options, Parameters};

use super::UNSEEDED;
use super::stream::{feed, packets};

/// The memory limit of decoding a golden file.
pub(crate) const LIMIT: usize = 1 << 20;

/// The file of an algorithm.
fn path(info: &Info) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(format!("{}.fgsm", info.name))
}

/// The bytes of the file.
pub(crate) fn golden(info: &Info) -> Vec<u8> {
    let path = path(info);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The stored form after a fixed stream; `None` if the algorithm refuses the keys or the memory.
fn stored<K: FlowKey>(info: &Info, options: &Options) -> Option<Vec<u8>> {
    let mut summary = match catalog::build::<K>(info.name, options) {
        Ok(summary) => summary,
        Err(error)
            if matches!(
                error.kind(),
                BuildErrorKind::Unfit { .. } | BuildErrorKind::TooLittleMemory { .. }
            ) =>
        {
            return None;
        }
        Err(error) => panic!("{}: {error}", info.name),
    };
    feed(&mut *summary, &packets(1500, 120, 29), 256);
    Some(encode(info, options, &*summary))
}

/// Writes the file for the first key width that is accepted, with the least memory that suffices.
fn write(info: &Info) {
    let least = |bytes: fn(&Info, &Options) -> Option<Vec<u8>>| {
        (11..15).find_map(|log| bytes(info, &Options::new(1 << log, 1)))
    };
    let bytes = least(stored::<Key8>).or_else(|| least(stored::<Key4>));
    let bytes = bytes.or_else(|| least(stored::<Key16>)).unwrap();
    assert!(bytes.len() <= 10 << 10, "{}: {} bytes", info.name, bytes.len());
    fs::write(path(info), bytes).unwrap();
}

/// The file decodes to itself, and the same stream gives the same bytes.
fn holds<K: FlowKey>(info: &Info, bytes: &[u8]) {
    let decoded = decode::<K>(bytes, LIMIT).unwrap();
    assert_eq!(decoded.info.name, info.name);
    assert!(encode(info, &decoded.options, &*decoded.summary) == bytes, "{}", info.name);
    if info.name != UNSEEDED {
        let mut options = Options::new(LIMIT, 1);
        let parameters = decoded.summary.parameters();
        options.parameters = Parameters::new(parameters);
        let again = stored::<K>(info, &options).unwrap();
        assert!(again == bytes, "{} is stored otherwise than it was", info.name);
    }
}

/// Calls `$test` with the key type of the file.
macro_rules! of_its_keys {
    ($info:ident, $bytes:ident, $test:ident($($argument:expr),*)) => {
        match $bytes[7 + $info.name.len()] {
            4 => $test::<Key4>($($argument),*),
            8 => $test::<Key8>($($argument),*),
            _ => $test::<Key16>($($argument),*),
        }
    };
}
pub(crate) use of_its_keys;

#[test]
fn what_was_stored_long_ago_is_read() {
    for info in ALGORITHMS {
        if env::var("FLOWGAUGE_GOLDEN").is_ok_and(|what| what == "write") {
            write(info);
        }
        let bytes = golden(info);
        of_its_keys!(info, bytes, holds(info, &bytes));
    }
}

#[test]
fn no_file_is_of_no_algorithm() {
    let files = fs::read_dir(path(&ALGORITHMS[0]).parent().unwrap()).unwrap().count();
    assert_eq!(files, ALGORITHMS.len());
}
