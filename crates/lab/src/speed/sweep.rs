//! Where Agg-Evict pays: by traffic, run length, rows, and the cost of the structure behind it.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use flowgauge_core::accelerator::{Accelerate, AggEvict};
use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_core::summary::codec::{DecodeError, Reader, Writer};
use flowgauge_core::summary::{Answers, Incompatible, Ingest, Options, Parameters, Reads, Summary};
use flowgauge_kernel::{Digester, Isa, Seed};

use super::contestant::{Cataloged, Contestant, ENTRIES, FRAME_BYTES};
use super::median;
use super::stream::{ORDERS, Stream};
use crate::args::Sweep;
use crate::failure::Failure;
use crate::machine::thread_seconds;

/// Numbers of rows with 16 pairs each.
const ROWS: [usize; 7] = [256, 1024, 2048, 4096, 8192, 16_384, 32_768];

/// The nine solutions of the paper.
const NINE: [&str; 9] = [
    "count-min",
    "flow-radar",
    "univmon",
    "reversible-sketch",
    "two-level",
    "space-saving",
    "mrac",
    "fm",
    "linear-counting",
];

/// The one of them that needs elements.
const TELLS_ELEMENTS: &str = "two-level";

/// Structures that are cheap already: these also get runs of packets.
const CHEAP: [&str; 3] = ["count-min", "count-array", "linear-table"];

/// Consecutive packets per flow, as a multiple of the traffic's own.
const RUNS: [usize; 3] = [1, 4, 16];

/// Ethernet links in Gbit/s, with their minimum-size packets in millions per second.
const LINKS: [(u32, f64); 5] = [(200, 297.6), (100, 148.8), (40, 59.5), (25, 37.2), (10, 14.88)];

/// One structure on one stream.
struct Row {
    structure: &'static str,
    traffic: &'static str,
    run: usize,
    /// `None` if it is alone.
    rows: Option<usize>,
    /// The share of packets that reaches the structure as a sum.
    evicted: f64,
    /// Millions of updates a second.
    rate: f64,
    /// The rate over the rate alone.
    speedup: f64,
    best: bool,
}

/// Counts the sums it receives. Flows may be distinguished by their elements as well.
struct Counted {
    rows: u64,
    elements: bool,
}

impl Answers for Counted {}

impl Ingest<Key8> for Counted {
    fn ingest(&mut self, batch: &mut Batch<Key8>) {
        self.rows += batch.len() as u64;
    }
    fn reads(&self) -> Reads {
        Reads { elements: self.elements, ..Reads::NOTHING }
    }
}

impl Summary<Key8> for Counted {
    fn answers(&self) -> &dyn Answers {
        self
    }
    fn merge(&mut self, _: &dyn Summary<Key8>) -> Result<(), Incompatible> {
        Err(Incompatible("these are not for merging"))
    }
    fn save(&self, _: &mut Writer) {}
    fn load(&mut self, _: &mut Reader<'_>) -> Result<(), DecodeError> {
        Ok(())
    }
    fn clear(&mut self) {
        self.rows = 0;
    }
    fn memory_bytes(&self) -> usize {
        0
    }
}

fn rows_parameter(rows: usize) -> Parameters {
    Parameters::new([("rows", rows.to_string())])
}

/// The share of packets passed on as sums for each number of rows, with elements or without.
fn evicted(stream: &Stream, elements: bool, digester: Digester) -> Result<Vec<f64>, Failure> {
    let share = |rows: usize| {
        let parameters = rows_parameter(rows);
        let options = Options { parameters, digester, ..Options::new(1 << 30, 1) };
        let counted = Box::new(Counted { rows: 0, elements });
        let failed =
            |error| Failure::Build { algorithm: "agg-evict", asked: rows.to_string(), error };
        let mut aggregator = AggEvict::build::<Key8>(&options, counted).map_err(failed)?;
        let mut batch = Batch::new();
        let batches = stream.keys.chunks(BATCH_PACKETS).zip(stream.elements.chunks(BATCH_PACKETS));
        for (keys, elements) in batches {
            batch.fill_with_elements(keys, elements, FRAME_BYTES);
            aggregator.ingest(&mut batch);
        }
        aggregator.settle();
        let counted = aggregator.downcast_ref::<Counted>();
        Ok(counted.map_or(0, |counted| counted.rows) as f64 / stream.keys.len() as f64)
    };
    ROWS.into_iter().map(share).collect()
}

/// Measures one structure alone and behind every number of rows, in turns.
fn structure(
    name: &'static str,
    stream: &mut Stream,
    run: usize,
    shares: &[f64],
    sweep: &Sweep,
) -> Result<Vec<Row>, Failure> {
    let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(Key8::BYTES);
    let Some(entry) = ENTRIES.iter().find(|entry| entry.name == name) else {
        return Ok(Vec::new());
    };
    // Sizes as in the table of speeds; there were no flows before.
    let build = |rows: Option<usize>| {
        let accelerator = rows.map(|rows| ("agg-evict".to_owned(), rows_parameter(rows)));
        Cataloged::behind(accelerator, entry, digester)
    };
    let all = || std::iter::once(None).chain(ROWS.map(Some));
    let mut contestants = all().map(build).collect::<Result<Vec<_>, _>>()?;
    let mut times = vec![Vec::new(); contestants.len()];
    // The first round touches the memory and is not counted.
    for round in 0..=sweep.rounds {
        for (contestant, times) in contestants.iter_mut().zip(&mut times) {
            contestant.begin(&[]);
            let start = thread_seconds();
            let packets = contestant.take(stream);
            if round > 0 {
                times.push((thread_seconds() - start) / packets as f64);
            }
        }
    }
    let mut table: Vec<Row> = all()
        .zip(&times)
        .zip(std::iter::once(&1.0).chain(shares))
        .map(|((rows, own), evicted)| Row {
            structure: name,
            traffic: stream.name(),
            run,
            rows,
            evicted: *evicted,
            rate: 1e-6 / median(own.iter().copied()),
            speedup: median(times[0].iter().zip(own).map(|(alone, own)| alone / own)),
            best: false,
        })
        .collect();
    if let Some(best) = table.iter_mut().max_by(|a, b| a.rate.total_cmp(&b.rate)) {
        best.best = true;
    }
    Ok(table)
}

/// Measures, prints and writes.
pub(crate) fn measure(sweep: &Sweep) -> Result<(), Failure> {
    let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(Key8::BYTES);
    let mut table = Vec::new();
    for order in &ORDERS {
        let stream = Stream::draw(order, sweep.packets as usize, &digester)?;
        for run in RUNS {
            let mut stream = stream.in_runs_of(run);
            let [shares, of_elements] =
                [false, true].map(|elements| evicted(&stream, elements, digester));
            let (shares, of_elements) = (shares?, of_elements?);
            let names = NINE.iter().chain(CHEAP.iter().filter(|name| !NINE.contains(name)));
            for name in names.filter(|name| run == 1 || CHEAP.contains(name)) {
                let shares = if *name == TELLS_ELEMENTS { &of_elements } else { &shares };
                table.extend(structure(name, &mut stream, run, shares, sweep)?);
            }
        }
    }
    let head = format!(
        "# {}\n# {} packets of each stream, {} rounds; rates in million updates a second",
        crate::machine::describe(),
        sweep.packets,
        sweep.rounds
    );
    write(&head, &table, io::stdout().lock()).map_err(Failure::of("standard output"))?;
    let Some(path) = &sweep.output else { return Ok(()) };
    let failed = Failure::of(path.display());
    let file = BufWriter::new(File::create(path).map_err(&failed)?);
    write(&head, &table, file).map_err(&failed)
}

fn write(head: &str, table: &[Row], mut out: impl Write) -> io::Result<()> {
    writeln!(out, "{head}")?;
    writeln!(out, "structure\ttraffic\trun\trows\tevicted\trate\tspeedup\tlink_gbit\tbest")?;
    for row in table {
        let link = LINKS.iter().find(|(_, packets)| row.rate >= *packets);
        writeln!(
            out,
            "{}\t{}\t{}\t{}\t{:.4}\t{:.1}\t{:.3}\t{}\t{}",
            row.structure,
            row.traffic,
            row.run,
            row.rows.map_or("alone".to_owned(), |rows| rows.to_string()),
            row.evicted,
            row.rate,
            row.speedup,
            link.map_or(String::new(), |(gbit, _)| gbit.to_string()),
            if row.best { "best" } else { "" },
        )?;
    }
    out.flush()
}
