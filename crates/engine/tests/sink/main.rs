//! What readers of reports get to see.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod csv;
mod fixture;
mod json;
mod text;

use flowgauge_engine::sink::Sink;

/// Compares `actual` with a file in `tests/golden`, which `UPDATE_GOLDEN=1` writes anew.
fn assert_golden(name: &str, actual: &str) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(actual, expected, "{name} differs; look at it, then run with UPDATE_GOLDEN=1");
}

/// A run of an epoch, a gap, an epoch with the other tasks, and the end.
fn run(sink: &mut dyn Sink) {
    sink.epoch(&fixture::plausible()).unwrap();
    sink.gap(&fixture::gap()).unwrap();
    sink.epoch(&fixture::all_tasks()).unwrap();
    sink.total(&fixture::total(&["a.pcap", "cut.pcap"], 2)).unwrap();
}
