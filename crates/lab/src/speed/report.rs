//! The table of speeds.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::failure::Failure;

/// One algorithm with its parameters.
pub(super) struct Row {
    pub(super) structure: &'static str,
    /// The accelerator before it.
    pub(super) accelerator: Option<&'static str>,
    /// The effective parameters.
    pub(super) parameters: String,
    /// Its traffic, unless it is only the backbone's packets.
    pub(super) traffic: &'static str,
    pub(super) memory_bytes: usize,
    /// Millions of updates per second.
    pub(super) rate: f64,
    /// The rate relative to the yardstick.
    pub(super) share: f64,
    pub(super) wanted_share: Option<f64>,
    /// The rate of the hand-written loop, and the algorithm's time relative to it.
    pub(super) by_hand: Option<(f64, f64)>,
    /// The maximum for that ratio.
    pub(super) most_ratio: f64,
    pub(super) rival: Option<Rivalry>,
}

/// Another implementation compared with an algorithm, or an algorithm alone compared with itself
/// accelerated.
pub(super) struct Rivalry {
    pub(super) name: &'static str,
    pub(super) rate: f64,
    /// The algorithm's rate over the other's.
    pub(super) speedup: f64,
    pub(super) wanted: Option<f64>,
}

const COLUMNS: [&str; 14] = [
    "structure",
    "parameters",
    "memory_bytes",
    "rate",
    "share",
    "wanted_share",
    "loop_rate",
    "loop_ratio",
    "most_ratio",
    "rival",
    "rival_rate",
    "speedup",
    "wanted_speedup",
    "met",
];

impl Row {
    /// The targets that are not met.
    fn short(&self) -> Vec<String> {
        let mut short = Vec::new();
        if let Some(wanted) = self.wanted_share.filter(|wanted| self.share < *wanted) {
            short.push(format!("share {:.2} < {wanted}", self.share));
        }
        if let Some((_, ratio)) = self.by_hand.filter(|(_, ratio)| *ratio > self.most_ratio) {
            short.push(format!("loop_ratio {ratio:.2} > {}", self.most_ratio));
        }
        if let Some(rival) = &self.rival
            && let Some(wanted) = rival.wanted.filter(|wanted| rival.speedup < *wanted)
        {
            short.push(format!("speedup {:.2} < {wanted}", rival.speedup));
        }
        short
    }

    fn wants(&self) -> bool {
        let speedup = self.rival.as_ref().and_then(|rival| rival.wanted);
        self.wanted_share.is_some() || self.by_hand.is_some() || speedup.is_some()
    }

    fn fields(&self) -> [String; COLUMNS.len()] {
        let number =
            |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
        let wanted = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        let rival = self.rival.as_ref();
        let met = match self.short() {
            short if !short.is_empty() => format!("no: {}", short.join("; ")),
            _ if self.wants() => "yes".to_owned(),
            _ => String::new(),
        };
        [
            self.structure.to_owned()
                + self.traffic
                + &self.accelerator.map_or(String::new(), |name| format!(" behind {name}")),
            self.parameters.clone(),
            self.memory_bytes.to_string(),
            format!("{:.1}", self.rate),
            number(Some(self.share)),
            wanted(self.wanted_share),
            number(self.by_hand.map(|(rate, _)| rate)),
            number(self.by_hand.map(|(_, ratio)| ratio)),
            wanted(self.by_hand.map(|_| self.most_ratio)),
            rival.map_or(String::new(), |rival| rival.name.to_owned()),
            number(rival.map(|rival| rival.rate)),
            number(rival.map(|rival| rival.speedup)),
            wanted(rival.and_then(|rival| rival.wanted)),
            met,
        ]
    }
}

/// All rows, with a description of the test and the machine.
pub(super) struct Report {
    pub(super) machine: String,
    pub(super) stream: String,
    /// Rate of the yardstick in millions of updates per second.
    pub(super) yardstick: f64,
    pub(super) rows: Vec<Row>,
}

impl Report {
    /// Whether all targets are met.
    pub(super) fn met(&self) -> bool {
        self.rows.iter().all(|row| row.short().is_empty())
    }

    /// Writes the table to standard output, and to the file at `path`.
    pub(super) fn write(&self, path: Option<&Path>) -> Result<(), Failure> {
        self.write_to(io::stdout().lock()).map_err(Failure::of("standard output"))?;
        let Some(path) = path else { return Ok(()) };
        let failed = Failure::of(path.display());
        let file = BufWriter::new(File::create(path).map_err(&failed)?);
        self.write_to(file).map_err(&failed)
    }

    fn write_to(&self, mut out: impl Write) -> io::Result<()> {
        writeln!(out, "# {}", self.machine)?;
        writeln!(out, "# {}", self.stream)?;
        writeln!(
            out,
            "# rates in million updates a second; the yardstick's is {:.1}: it copies its keys plainly, \
             while batches are filled with a prefetch of the keys behind (loop_rate of count-min is \
             that loop from such batches)",
            self.yardstick
        )?;
        writeln!(out, "{}", COLUMNS.join("\t"))?;
        for row in &self.rows {
            writeln!(out, "{}", row.fields().join("\t"))?;
        }
        let short = self.rows.iter().filter(|row| !row.short().is_empty()).count();
        let wanted = self.rows.iter().filter(|row| row.wants()).count();
        writeln!(out, "# {short} of {wanted} rows are not as wanted")?;
        out.flush()
    }
}
