//! `flowgauge.h` is what cbindgen generates, and the man page mentions everything in it.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::fs;
use std::path::Path;

/// `FLOWGAUGE_GOLDEN=write` writes the header instead, after an intended change.
#[test]
fn the_header_is_committed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new().with_config(config).with_src(folder.join("src/lib.rs"));
    let mut header = Vec::new();
    bindings.generate().unwrap().write(&mut header);
    let path = folder.join("flowgauge.h");
    if std::env::var_os("FLOWGAUGE_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(&path, &header).unwrap();
    }
    assert_eq!(fs::read_to_string(path).unwrap(), String::from_utf8(header).unwrap());
}
