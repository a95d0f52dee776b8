//! Reports as Parquet, of a command that was built with it: `make agent-test` runs these.

use std::fs;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use crate::run::{file, flowgauge, folder, pcap, traffic};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Parquet has the tables of CSV, with the same columns and values.
#[test]
fn parquet_holds_the_values_of_csv() {
    let capture = file("parquet.pcap", &pcap(&traffic()));
    let folders = [folder("parquet-csv"), folder("parquet")];
    for (format, out) in ["csv", "parquet"].into_iter().zip(&folders) {
        let analyze = ["analyze", "--epoch", "50ms", "--format", format, "-o", text(out), &capture];
        let answer = flowgauge(&analyze);
        assert_eq!((answer.code, answer.out.as_str(), answer.err.as_str()), (0, "", ""));
    }
    let mut tables = 0;
    for entry in fs::read_dir(&folders[0]).unwrap() {
        let path = entry.unwrap().path();
        let csv = fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap();
        let file = fs::File::open(folders[1].join(name).with_extension("parquet")).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        let mut records = csv::Reader::from_reader(csv.as_bytes());
        let header = records.headers().unwrap().clone();
        let schema = reader.metadata().file_metadata().schema_descr().columns();
        assert_eq!(
            schema.iter().map(|column| column.name()).collect::<Vec<_>>(),
            header.iter().collect::<Vec<_>>()
        );
        let records: Vec<_> = records.records().map(Result::unwrap).collect();
        assert_eq!(rows.len(), records.len(), "{name:?}");
        for (row, record) in rows.iter().zip(&records) {
            for ((column, field), cell) in row.get_column_iter().zip(record) {
                let same = match field {
                    Field::Null => cell.is_empty(),
                    Field::Str(text) => text == cell,
                    Field::Double(number) => {
                        cell.parse().is_ok_and(|read: f64| read.to_bits() == number.to_bits())
                    }
                    Field::ULong(number) => cell.parse::<u64>().unwrap() == *number,
                    // Nanoseconds since the UNIX epoch; the cell is in RFC 3339.
                    Field::Long(ns) => cell.ends_with(&format!("{:09}Z", ns % 1_000_000_000)),
                    other => panic!("{column} is {other:?}"),
                };
                assert!(same, "{name:?} {column}: {field:?} is not {cell}");
            }
        }
        tables += 1;
    }
    assert!(tables >= 10, "{tables}");
}

#[test]
fn parquet_is_for_files_of_a_replay() {
    let capture = file("no-parquet.pcap", &pcap(&traffic()));
    let parquet = ["analyze", "--format", "parquet", "--task", "top", &capture];
    let answer = flowgauge(&parquet);
    assert_eq!((answer.code, answer.out.as_str()), (2, ""));
    assert!(answer.err.contains("parquet is binary"), "{}", answer.err);
    let out = folder("one-parquet").join("top.parquet");
    assert_eq!(flowgauge(&[&parquet[..], &["-o", text(&out)]].concat()).code, 0);
    let reader = SerializedFileReader::new(fs::File::open(&out).unwrap()).unwrap();
    assert_eq!(reader.metadata().file_metadata().num_rows(), 10);
}
