//! Tables of reports: CSV that any reader can split, with cells that no spreadsheet runs, and lines
//! of the same columns, without a space in a cell.

use std::collections::BTreeMap;
use std::io;

use flowgauge_core::terms::Measure;
use flowgauge_engine::report::{EpochReport, TotalReport};
use flowgauge_engine::sink::tables::{self, Column, Tables, Value};
use flowgauge_engine::sink::{Format, Item, Line, csv};
use proptest::prelude::*;

use crate::{Page, assert_golden, fixture, run};

/// The text of each table, by its name.
#[derive(Default)]
struct Texts {
    written: BTreeMap<String, Vec<u8>>,
    open: String,
    columns: Vec<Column>,
}

impl Tables for Texts {
    fn table(&mut self, measurement: &str, name: &str, columns: &[Column]) -> io::Result<()> {
        assert_eq!(measurement, "main");
        let mut header = Vec::new();
        csv::header(columns, &mut header)?;
        let text = self.written.entry(name.to_owned()).or_insert_with(|| header.clone());
        assert!(text.starts_with(&header), "{name} has the same columns each time");
        (self.open, self.columns) = (name.to_owned(), columns.to_vec());
        Ok(())
    }

    fn row(&mut self, values: &[Value]) -> io::Result<()> {
        let kinds: Vec<_> = values.iter().map(Value::kind).collect();
        assert_eq!(kinds, self.columns.iter().map(|column| column.kind).collect::<Vec<_>>());
        csv::row(values, self.written.get_mut(&self.open).unwrap())
    }
}

fn epoch(report: EpochReport) -> Item {
    Item::Epoch(report.into())
}

fn total(report: TotalReport) -> Item {
    Item::Total(report.into())
}

fn texts(items: &[Item]) -> BTreeMap<String, String> {
    let mut texts = Texts::default();
    for item in items {
        tables::write(item, &mut texts).unwrap();
    }
    let text = |(name, text)| (name, String::from_utf8(text).unwrap());
    texts.written.into_iter().map(text).collect()
}

/// The tables of a run by name: header and rows, as a strict reader sees them.
fn tables(texts: &BTreeMap<String, String>) -> BTreeMap<&str, Vec<Vec<String>>> {
    let read = |text: &str| {
        let mut reader =
            ::csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
        let records = reader.records();
        let rows: Vec<Vec<String>> =
            records.map(|record| record.unwrap().iter().map(str::to_owned).collect()).collect();
        assert_eq!(rows[0][..3], ["measurement", "epoch", "start"]);
        rows
    };
    texts.iter().map(|(name, text)| (name.as_str(), read(text))).collect()
}

#[test]
fn looks_as_it_should() {
    let items = [
        epoch(fixture::plausible()),
        Item::Gap(fixture::gap()),
        epoch(fixture::all_tasks()),
        total(fixture::total(&["a.pcap", "cut.pcap"], 2)),
    ];
    let texts = texts(&items);
    let whole: Vec<_> = texts.iter().map(|(name, text)| format!("{name}.csv\n{text}\n")).collect();
    assert_golden("run.csv", &whole.concat());
    let tables = tables(&texts);
    let epochs: Vec<_> = tables["heavy-hitters"].iter().map(|row| row[1].as_str()).collect();
    assert_eq!(epochs, ["epoch", "0", "0", "0", "0", "7", "7", "7", "7"]);
    assert_eq!(tables["total"][1][1], "");
}

#[test]
fn updates_are_left_out() {
    let texts = |updates: usize| {
        let mut items = vec![epoch(fixture::update()); updates];
        items.push(epoch(fixture::plausible()));
        texts(&items)
    };
    assert_eq!(texts(2), texts(0));
}

#[test]
fn tables_of_empty_and_wide_epochs_are_sound() {
    let empty = texts(&[epoch(fixture::empty()), total(fixture::total(&[], 1))]);
    let read = tables(&empty);
    for name in ["top", "findings", "protocols"] {
        assert!(read.get(name).is_none_or(|rows| rows.len() == 1), "{name} has a header alone");
    }
    assert_eq!(read["top"].len(), 1);
    // The header of an empty table is that of a full one.
    let full = texts(&[
        epoch(fixture::plausible()),
        epoch(fixture::all_tasks()),
        total(fixture::total(&[], 2)),
    ]);
    for (name, text) in &empty {
        assert_eq!(text.lines().next(), full[name].lines().next(), "{name}");
    }
    for kind in fixture::kinds() {
        for by in [Measure::Packets, Measure::Bytes] {
            let widest = [epoch(fixture::widest(kind, by)), total(fixture::total(&[], 1))];
            assert_eq!(tables(&texts(&widest))["top"].len(), 1201);
        }
    }
}

/// Each column is in `docs/outputs.md`, in the row of its table.
#[test]
fn columns_are_documented() {
    let texts = texts(&[
        epoch(fixture::audited()),
        Item::Gap(fixture::gap()),
        epoch(fixture::all_tasks()),
        total(fixture::total(&["a.pcap"], 2)),
    ]);
    assert!(texts["audit"].contains(",64,68,940,0.25,2.5,"), "{}", texts["audit"]);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/outputs.md");
    let page = std::fs::read_to_string(path).unwrap();
    let page = page.split("\n## ").find(|section| section.starts_with("CSV")).unwrap();
    let account = texts["epochs"].lines().next().unwrap().split(',').skip_while(|c| *c != "read");
    let account: Vec<_> = account.collect();
    let key = ["source", "destination", "source_port", "destination_port", "protocol"];
    for (name, text) in &texts {
        let named = |line: &&str| {
            line.split('|').nth(1).is_some_and(|cell| cell.contains(&format!("`{name}`")))
        };
        let row = page.lines().filter(|line| line.starts_with("| `")).find(named);
        let row = row.unwrap_or_else(|| panic!("{name} has no row in docs/outputs.md"));
        for column in text.lines().next().unwrap().split(',').skip(3) {
            let estimate = ["_low", "_high", "_confidence"];
            let column = estimate.iter().find_map(|end| column.strip_suffix(end)).unwrap_or(column);
            let known = row.contains(&format!("`{column}`"))
                || row.contains("the account") && account.contains(&column)
                || row.contains("fields of the key") && key.contains(&column)
                || row.contains("the size or the key");
            assert!(known, "{column} of {name} is not in docs/outputs.md");
        }
    }
}

/// What [`csv::row`] documents: an apostrophe guards, a backslash escapes.
fn read_back(cell: &str) -> String {
    let mut text = String::new();
    let mut rest = cell.strip_prefix('\'').unwrap_or(cell).chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        match rest.next().unwrap() {
            'n' => text.push('\n'),
            'r' => text.push('\r'),
            't' => text.push('\t'),
            'u' => {
                let code: String = rest.by_ref().skip(1).take_while(|c| *c != '}').collect();
                text.push(char::from_u32(u32::from_str_radix(&code, 16).unwrap()).unwrap());
            }
            c => text.push(c),
        }
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(16), ..ProptestConfig::default() })]

    #[test]
    fn hostile_text_reads_back_and_is_no_formula(
        text in "[=+@'\t\r-][\\x00-\\x20\"'\\\\=+@,;\u{7f}-\u{9f}\u{200b}-\u{202f}a-c]{0,24}|\\PC{0,24}|.{0,24}",
    ) {
        let mut report = fixture::plausible();
        report.notes = vec![text.clone()];
        let mut end = fixture::total(&[], 1);
        end.problems = vec![text.clone(), text.clone()];
        let texts = texts(&[epoch(report), total(end)]);
        for written in texts.values() {
            prop_assert!(written.chars().all(|c| c == '\n' || !c.is_control()));
        }
        let tables = tables(&texts);
        prop_assert_eq!(read_back(&tables["notes"][1][3]), text.clone());
        prop_assert_eq!(read_back(&tables["problems"][2][3]), text);
        for cell in tables.values().flatten().flatten() {
            let formula = cell.starts_with(['=', '+', '-', '@']) && cell.parse::<f64>().is_err();
            prop_assert!(!formula, "{cell:?}");
        }
    }
}

// Lines: of the same columns, without a space in a cell.

#[test]
fn lines_look_as_they_should() {
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
fn columns_of_lines_are_documented() {
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
