//! CSV: tables that any reader splits, with cells that no spreadsheet runs.

use std::collections::BTreeMap;

use flowgauge_core::key::KeyKind;
use flowgauge_core::terms::Measure;
use flowgauge_engine::sink::Csv;
use proptest::prelude::*;

use crate::{Page, assert_golden, fixture, run};

fn rendered(write: impl FnOnce(&mut Page<Csv>)) -> String {
    Page::rendered(Csv, write)
}

/// The tables of a run by name, those of all epochs joined: header and rows, as a strict reader sees
/// them.
fn tables(text: &str) -> BTreeMap<String, Vec<Vec<String>>> {
    let mut tables = BTreeMap::<_, Vec<Vec<String>>>::new();
    for table in text.strip_suffix("\n\n").unwrap().split("\n\n") {
        let mut reader =
            ::csv::ReaderBuilder::new().has_headers(false).from_reader(table.as_bytes());
        let rows: Vec<Vec<String>> = reader
            .records()
            .map(|record| record.unwrap().iter().map(str::to_owned).collect())
            .collect();
        assert_eq!(rows[0][..3], ["measurement", "epoch", "table"]);
        for row in &rows[1..] {
            assert_eq!(row[2], rows[1][2]);
        }
        let name = rows.get(1).map_or_else(|| rows[0].join(","), |row| row[2].clone());
        match tables.get_mut(&name) {
            Some(table) => {
                assert_eq!(table[0], rows[0]);
                table.extend(rows.into_iter().skip(1));
            }
            None => drop(tables.insert(name, rows)),
        }
    }
    tables
}

#[test]
fn looks_as_it_should() {
    let text = rendered(run);
    assert_golden("run.csv", &text);
    let tables = tables(&text);
    let epochs: Vec<_> = tables["heavy-hitters"].iter().map(|row| row[1].as_str()).collect();
    assert_eq!(epochs, ["epoch", "0", "0", "0", "0", "7", "7", "7", "7"]);
    assert_eq!(tables["total"][1][1], "");
}

#[test]
fn updates_are_left_out() {
    let text = |updates: usize| {
        rendered(|sink| {
            (0..updates).for_each(|_| sink.epoch(&fixture::update()).unwrap());
            sink.epoch(&fixture::plausible()).unwrap();
            sink.total(&fixture::total(&[], 1)).unwrap();
        })
    };
    assert_eq!(text(2), text(0));
}

#[test]
fn tables_of_empty_and_wide_epochs_are_sound() {
    let text = rendered(|sink| {
        sink.epoch(&fixture::empty()).unwrap();
        sink.total(&fixture::total(&[], 1)).unwrap();
    });
    tables(&text);
    // The header of an empty table is that of a full one.
    let full = rendered(|sink| {
        sink.epoch(&fixture::plausible()).unwrap();
        sink.epoch(&fixture::all_tasks()).unwrap();
        sink.total(&fixture::total(&[], 2)).unwrap();
    });
    for header in text.lines().filter(|line| line.starts_with("measurement,")) {
        assert!(full.lines().any(|line| line == header), "{header}");
    }
    for (_, kind) in KeyKind::ALL {
        for by in [Measure::Packets, Measure::Bytes] {
            let text = rendered(|sink| {
                let mut report = fixture::widest(kind, by);
                // Both dimensions of the hierarchy are in the fixture, but not in any real run.
                report.tasks.pop();
                sink.epoch(&report).unwrap();
                sink.total(&fixture::total(&[], 1)).unwrap();
            });
            assert_eq!(tables(&text)["top"].len(), 1201);
        }
    }
}

/// What [`Csv`] documents: an apostrophe guards, a backslash escapes.
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
        let mut total = fixture::total(&[], 1);
        total.problems = vec![text.clone(), text.clone()];
        let csv = rendered(|sink| {
            sink.epoch(&report).unwrap();
            sink.total(&total).unwrap();
        });
        prop_assert!(csv.chars().all(|c| c == '\n' || !c.is_control()));
        let tables = tables(&csv);
        prop_assert_eq!(read_back(&tables["notes"][1][3]), text.clone());
        prop_assert_eq!(read_back(&tables["problems"][2][3]), text);
        for cell in tables.values().flatten().flatten() {
            let formula = cell.starts_with(['=', '+', '-', '@']) && cell.parse::<f64>().is_err();
            prop_assert!(!formula, "{cell:?}");
        }
    }
}
