//! Replays the stored inputs of the fuzz target `records`.
#![allow(dead_code, unreachable_pub, reason = "what is shared serves the fuzz target too")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "formats/datagrams.rs"]
mod datagrams;
#[path = "../../../fuzz/src/records.rs"]
mod target;

use std::{fs, path::Path};

/// Datagrams in the input format of the target.
fn input(datagrams: &[Vec<u8>]) -> Vec<u8> {
    let each = datagrams.iter().map(|datagram| {
        let len = (datagram.len() as u16).to_be_bytes();
        [&[1], &len[..], &datagram[..]].concat()
    });
    each.collect::<Vec<_>>().concat()
}

/// `FLOWGAUGE_GOLDEN=write` rewrites the inputs named `made-…` after an intended change.
#[test]
fn records() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/records");
    if std::env::var_os("FLOWGAUGE_GOLDEN").is_some_and(|value| value == "write") {
        fs::create_dir_all(&folder).unwrap();
        let all = datagrams::every();
        for end in 1..=all.len() {
            fs::write(folder.join(format!("made-{end:02}")), input(&all[end - 1..end])).unwrap();
            fs::write(folder.join(format!("made-to-{end:02}")), input(&all[..end])).unwrap();
        }
    }
    let mut inputs = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        let input = fs::read(path).unwrap();
        target::records(&input);
        for length in (0..input.len()).step_by(input.len() / 24 + 1) {
            target::records(&input[..length]);
        }
        inputs += 1;
    }
    assert!(inputs >= 12, "{inputs} inputs");
}
