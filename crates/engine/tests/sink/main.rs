//! Reports as readers see them.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod fixture;
mod json;
mod outlets;
mod tables;
mod text;

use std::io;
use std::net::Ipv6Addr;

use flowgauge_core::key::Field;
use flowgauge_engine::report::{EpochReport, Gap, TotalReport};
use flowgauge_engine::sink::Format;

/// Compares `actual` with a file in `tests/golden`, which `UPDATE_GOLDEN=1` rewrites.
fn assert_golden(name: &str, actual: &str) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(actual, expected, "{name} differs; look at it, then run with UPDATE_GOLDEN=1");
}

/// A format with its output.
struct Page<F> {
    format: F,
    out: Vec<u8>,
}

impl<F: Format> Page<F> {
    fn rendered(format: F, write: impl FnOnce(&mut Self)) -> String {
        let mut page = Self { format, out: Vec::new() };
        write(&mut page);
        String::from_utf8(page.out).unwrap()
    }

    fn epoch(&mut self, report: &EpochReport) -> io::Result<()> {
        self.format.epoch(report, &mut self.out)
    }

    fn gap(&mut self, gap: &Gap) -> io::Result<()> {
        self.format.gap(gap, &mut self.out)
    }

    fn total(&mut self, report: &TotalReport) -> io::Result<()> {
        self.format.total(report, &mut self.out)
    }
}

/// A run of an epoch, a gap, an epoch with the other tasks, and the end.
fn run(sink: &mut Page<impl Format>) {
    sink.epoch(&fixture::plausible()).unwrap();
    sink.gap(&fixture::gap()).unwrap();
    sink.epoch(&fixture::all_tasks()).unwrap();
    sink.total(&fixture::total(&["a.pcap", "cut.pcap"], 2)).unwrap();
}

/// The longest text of a field.
fn widest_value(field: Field) -> String {
    match field {
        Field::Source | Field::Destination | Field::Host => Ipv6Addr::from(u128::MAX).to_string(),
        Field::SourcePort | Field::DestinationPort => "65535".to_owned(),
        Field::Protocol | Field::TcpFlags => "255".to_owned(),
        Field::Vlan => "4095".to_owned(),
        Field::SourceMac | Field::DestinationMac | Field::Mac => "ff:ff:ff:ff:ff:ff".to_owned(),
    }
}
