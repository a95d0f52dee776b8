//! Replays the stored inputs of the fuzz targets.
#![allow(dead_code, unreachable_pub, reason = "what is shared serves the fuzz targets too")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "readers/naive.rs"]
mod naive;
#[path = "readers/support.rs"]
mod support;
#[path = "../../../fuzz/src/targets.rs"]
mod targets;

use std::{fs, path::Path};

/// Runs `target` on each input of the folder and on each of its prefixes.
fn replay(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut inputs = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        let input = fs::read(path).unwrap();
        target(&input);
        for length in (0..input.len()).step_by(input.len() / 24 + 1) {
            target(&input[..length]);
        }
        inputs += 1;
    }
    assert!(inputs >= 12, "{inputs} inputs for {name}");
}

#[test]
fn pcap() {
    replay("pcap", targets::pcap);
}

#[test]
fn pcapng() {
    replay("pcapng", targets::pcapng);
}

#[test]
fn headers() {
    replay("headers", targets::headers);
}

#[test]
fn filter() {
    replay("filter", targets::filter);
}
