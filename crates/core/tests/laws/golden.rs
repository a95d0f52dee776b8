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

/// The file of an algorithm in version 3.
fn version_3(info: &Info) -> PathBuf {
    let path = path(info);
    path.with_file_name("version-3").join(path.file_name().unwrap())
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
fn golden_files_are_read() {
    for info in ALGORITHMS {
        if env::var("FLOWGAUGE_GOLDEN").is_ok_and(|what| what == "write") {
            write(info);
        }
        let bytes = golden(info);
        of_its_keys!(info, bytes, holds(info, &bytes));
    }
}

/// A file of version 3, whose cells are as wide as in memory, decodes to the same summary.
fn is_stored_as_of_old<K: FlowKey>(info: &Info, bytes: &[u8]) {
    assert_eq!(bytes[4..6], [3, 0]);
    let decoded = decode::<K>(bytes, LIMIT).unwrap();
    assert!(encode(info, &decoded.options, &*decoded.summary) == golden(info), "{}", info.name);
}

#[test]
fn files_of_the_version_before_are_read() {
    for info in ALGORITHMS {
        let bytes = fs::read(version_3(info)).unwrap();
        of_its_keys!(info, bytes, is_stored_as_of_old(info, &bytes));
    }
}

#[test]
fn each_file_is_of_an_algorithm() {
    for file in [path, version_3].map(|path| path(&ALGORITHMS[0])) {
        let files = fs::read_dir(file.parent().unwrap()).unwrap();
        let names = files.map(|file| file.unwrap().path()).filter(|file| file.is_file());
        assert_eq!(names.count(), ALGORITHMS.len());
    }
}
