//! Lines: of the same columns, without a space in a cell.

use flowgauge_core::terms::Measure;
use flowgauge_engine::sink::{Format, Line};

use crate::{Page, assert_golden, fixture, run};

#[test]
fn looks_as_it_should() {
    let lines = Page::rendered(Line, |sink| {
        sink.format.header(&mut sink.out).unwrap();
        run(sink);
    });
    assert_golden("run.line.txt", &lines);
}

#[test]
fn every_line_has_every_column() {
    for kind in fixture::kinds() {
        let lines = Page::rendered(Line, |sink| {
            sink.format.header(&mut sink.out).unwrap();
            sink.epoch(&fixture::widest(kind, Measure::Bytes)).unwrap();
            sink.epoch(&fixture::empty()).unwrap();
            run(sink);
        });
        let columns = |line: &str| line.split_whitespace().count();
        assert!(lines.lines().all(|line| columns(line) == 15), "{lines}");
    }
}

/// The titles are those of `docs/outputs.md`, in its order.
#[test]
fn columns_are_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/outputs.md");
    let page = std::fs::read_to_string(path).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with("Line")).unwrap();
    let documented = section.lines().filter(|line| line.starts_with("| `"));
    let names =
        documented.flat_map(|line| line.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
    let mut header = Vec::new();
    Line.header(&mut header).unwrap();
    let header = String::from_utf8(header).unwrap();
    assert_eq!(names.collect::<Vec<_>>(), header.split_whitespace().collect::<Vec<_>>());
}
