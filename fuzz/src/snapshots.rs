//! What must hold for any bytes that are read as a snapshot: run by the fuzz target, and by the engine's
//! tests on the inputs that are kept.

use std::io;

use flowgauge_engine::EngineError;
use flowgauge_engine::sink::layout::Look;
use flowgauge_engine::sink::tables::{self, Column, Tables, Value};
use flowgauge_engine::sink::{Format, Item, Json, Line, Sink, SinkError, Text, Written, csv};
use flowgauge_engine::snapshot::Snapshot;
use flowgauge_kernel::Seed;

use super::stored::{lanes, mended_whole};

/// What a summary may reserve.
const LIMIT: usize = 16 << 20;

/// The seed file that one of the golden files was made under.
pub fn seed_file() -> Seed {
    Seed::file(b"the seed file of a golden file").unwrap()
}

/// A snapshot. Its checksums are made to fit: no input that a fuzzer makes up would pass them.
pub fn snapshot(bytes: &[u8]) {
    if bytes.len() < 4 {
        return;
    }
    let bytes = mended_whole(bytes.to_vec(), &lanes(bytes).unwrap_or_default());
    let decode = |bytes: &[u8]| Snapshot::decode(bytes, LIMIT, Some(&seed_file()));
    if let Ok(mut read) = decode(&bytes) {
        bears_all_use(&mut read);
        // Packets that were counted are never counted again.
        assert!(read.merge(&decode(&bytes).unwrap()).is_err());
    }
}

/// What a snapshot holds is stored, whatever it was read from, and comes back; it is asked, by coarser
/// keys too.
pub fn bears_all_use(snapshot: &mut Snapshot) {
    let stored = snapshot.encode();
    let again = Snapshot::decode(&stored, LIMIT, Some(&seed_file()));
    assert!(again.unwrap().encode() == stored);
    ask(snapshot, Json, None);
    ask(snapshot, Line, None);
    ask(snapshot, Text { rows: 10, look: Look::default() }, None);
    ask_for(snapshot, &mut Rows { columns: 0, out: Vec::new() }, None);
    ask(snapshot, Json, Some("source/9,9"));
    ask(snapshot, Json, Some("protocol"));
}

/// Asks what the snapshot answers by default, and writes it.
fn ask(snapshot: &mut Snapshot, format: impl Format, key: Option<&str>) {
    let mut out = Vec::new();
    if ask_for(snapshot, &mut Written::new(format, &mut out), key) {
        assert!(str::from_utf8(&out).is_ok() && !out.is_empty());
    }
}

/// Whether the snapshot answers by this key; by its own it does, if it answers any default task.
fn ask_for(snapshot: &mut Snapshot, sink: &mut dyn Sink, key: Option<&str>) -> bool {
    let by = |config: &mut flowgauge_engine::Config| {
        config.key = key.map_or(config.key, |key| key.parse().unwrap());
    };
    let total = snapshot.query(by, sink);
    match &total {
        Ok(total) => assert_eq!(total.epochs, 1),
        // Sizes of given flows are all that some summaries tell.
        Err(EngineError::Nothing { .. }) => {}
        Err(error) => assert!(key.is_some(), "{error}"),
    }
    total.is_ok()
}

/// Takes tables whose rows have a value for each column.
struct Rows {
    columns: usize,
    out: Vec<u8>,
}

impl Tables for Rows {
    fn table(&mut self, _: &str, _: &str, columns: &[Column]) -> io::Result<()> {
        self.columns = columns.len();
        csv::header(columns, &mut self.out)
    }

    fn row(&mut self, values: &[Value]) -> io::Result<()> {
        assert_eq!(values.len(), self.columns);
        csv::row(values, &mut self.out)
    }
}

impl Sink for Rows {
    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        tables::write(item, self)?;
        assert!(str::from_utf8(&self.out).is_ok());
        Ok(())
    }
}
