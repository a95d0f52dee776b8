//! The table of accuracy: one row per line, tab-separated.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::str::FromStr;

use crate::failure::Failure;
use crate::score::{Bounds, Score};

/// One algorithm at one task on one profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Row {
    /// Its name, and the accelerator before it.
    pub(crate) algorithm: String,
    /// The requested parameters or memory.
    pub(crate) asked: String,
    pub(crate) task: String,
    pub(crate) profile: String,
    pub(crate) key: String,
    /// The effective parameters.
    pub(crate) parameters: String,
    pub(crate) memory_bytes: u64,
    pub(crate) packets: u64,
    /// True number of flows by the key, averaged over the seeds.
    pub(crate) flows: u64,
    pub(crate) seeds: u64,
    /// Seeds for which the task had an answer.
    pub(crate) answered: u64,
    pub(crate) bias: Option<f64>,
    pub(crate) rms: Option<f64>,
    pub(crate) worst: Option<f64>,
    pub(crate) precision: Option<f64>,
    pub(crate) recall: Option<f64>,
    pub(crate) sure: Bounds,
    pub(crate) likely: Bounds,
    pub(crate) confidence: Option<f64>,
}

const COLUMNS: [&str; 19] = [
    "algorithm",
    "asked",
    "task",
    "profile",
    "key",
    "parameters",
    "memory_bytes",
    "packets",
    "flows",
    "seeds",
    "answered",
    "bias",
    "rms",
    "worst",
    "precision",
    "recall",
    "sure",
    "likely",
    "confidence",
];

impl Row {
    /// The fields that identify the row.
    pub(crate) fn name(&self) -> [&str; 4] {
        [&self.algorithm, &self.asked, &self.task, &self.profile]
    }

    /// The algorithm without its accelerator.
    pub(crate) fn own_algorithm(&self) -> &str {
        self.algorithm.split(' ').next().unwrap_or_default()
    }

    /// The row with this score.
    pub(crate) fn scored(self, score: &Score) -> Self {
        Self {
            answered: score.answered,
            bias: score.bias(),
            rms: score.rms(),
            worst: score.worst(),
            precision: score.precision(),
            recall: score.recall(),
            sure: score.sure,
            likely: score.likely,
            confidence: score.confidence,
            ..self
        }
    }

    fn cells(&self) -> [String; COLUMNS.len()] {
        let number = |number: Option<f64>| number.map_or("-".to_owned(), |n| format!("{n:.6}"));
        let bounds = |bounds: Bounds| format!("{}/{}", bounds.broken, bounds.asked);
        [
            self.algorithm.clone(),
            self.asked.clone(),
            self.task.clone(),
            self.profile.clone(),
            self.key.clone(),
            self.parameters.clone(),
            self.memory_bytes.to_string(),
            self.packets.to_string(),
            self.flows.to_string(),
            self.seeds.to_string(),
            self.answered.to_string(),
            number(self.bias),
            number(self.rms),
            number(self.worst),
            number(self.precision),
            number(self.recall),
            bounds(self.sure),
            bounds(self.likely),
            number(self.confidence),
        ]
    }

    fn parse(line: &str) -> Result<Self, String> {
        let cells: Vec<&str> = line.split('\t').collect();
        let cells: [&str; COLUMNS.len()] = cells
            .try_into()
            .map_err(|cells: Vec<_>| format!("{} columns, not {}", cells.len(), COLUMNS.len()))?;
        let text = |at: usize| cells[at].to_owned();
        Ok(Self {
            algorithm: text(0),
            asked: text(1),
            task: text(2),
            profile: text(3),
            key: text(4),
            parameters: text(5),
            memory_bytes: number(6, cells[6])?,
            packets: number(7, cells[7])?,
            flows: number(8, cells[8])?,
            seeds: number(9, cells[9])?,
            answered: number(10, cells[10])?,
            bias: some_number(11, cells[11])?,
            rms: some_number(12, cells[12])?,
            worst: some_number(13, cells[13])?,
            precision: some_number(14, cells[14])?,
            recall: some_number(15, cells[15])?,
            sure: bounds(16, cells[16])?,
            likely: bounds(17, cells[17])?,
            confidence: some_number(18, cells[18])?,
        })
    }
}

fn number<T: FromStr>(column: usize, cell: &str) -> Result<T, String> {
    cell.parse().map_err(|_| format!("'{cell}' is no number for {}", COLUMNS[column]))
}

fn some_number(column: usize, cell: &str) -> Result<Option<f64>, String> {
    match cell {
        "-" => Ok(None),
        _ => number(column, cell).map(Some),
    }
}

fn bounds(column: usize, cell: &str) -> Result<Bounds, String> {
    let (broken, asked) = cell.split_once('/').unwrap_or((cell, ""));
    Ok(Bounds { broken: number(column, broken)?, asked: number(column, asked)? })
}

/// Writes a table.
///
/// # Errors
/// When `out` cannot be written.
pub(crate) fn write(rows: &[Row], mut out: impl Write) -> io::Result<()> {
    writeln!(out, "{}", COLUMNS.join("\t"))?;
    rows.iter().try_for_each(|row| writeln!(out, "{}", row.cells().join("\t")))
}

/// Reads a table; `name` is for errors.
///
/// # Errors
/// When it cannot be read, or is not in the format of [`write()`].
pub(crate) fn read(from: impl BufRead, name: &Path) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for (at, line) in from.lines().enumerate() {
        let line = line.map_err(Failure::of(name.display()))?;
        let parsed = match at {
            0 if line == COLUMNS.join("\t") => continue,
            0 => Err("the columns have other names".to_owned()),
            _ => Row::parse(&line),
        };
        rows.push(parsed.map_err(|reason| {
            let name = name.display().to_string();
            Failure::Table { name, line: at + 1, reason }
        })?);
    }
    Ok(rows)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A row with a value in every column.
    pub(crate) fn row() -> Row {
        let text = str::to_owned;
        Row {
            algorithm: text("count-array"),
            asked: text("memory=1048576"),
            task: text("heavy-hitters"),
            profile: text("zipf-1.1"),
            key: text("pair"),
            parameters: text("columns=131072"),
            memory_bytes: 1_048_576,
            packets: 200_000,
            flows: 60_000,
            seeds: 1,
            answered: 1,
            bias: Some(0.01),
            rms: Some(0.02),
            worst: Some(0.05),
            precision: Some(0.95),
            recall: Some(1.0),
            sure: Bounds { broken: 0, asked: 100 },
            likely: Bounds { broken: 3, asked: 100 },
            confidence: Some(0.95),
        }
    }

    #[test]
    fn tables_are_read_as_they_are_written() {
        let rows = [row(), Row { bias: None, confidence: None, ..row() }];
        let mut text = Vec::new();
        write(&rows, &mut text).expect("memory takes it");
        let read = |text: &[u8]| read(text, Path::new("t.tsv"));
        assert_eq!(read(&text).expect("it is a table"), rows);

        let text = String::from_utf8(text).expect("it is text");
        let damaged =
            |from, to| read(text.replacen(from, to, 1).as_bytes()).err().map(|e| e.to_string());
        let hint = "; write the table anew with 'make accuracy'";
        for (from, to, reason) in [
            ("bias", "biases", "line 1: the columns have other names"),
            ("0.010000", "x", "line 2: 'x' is no number for bias"),
            ("0/100", "100", "line 2: '' is no number for sure"),
            ("pair\t", "", "line 2: 18 columns, not 19"),
        ] {
            assert_eq!(damaged(from, to), Some(format!("t.tsv, {reason}{hint}")));
        }
    }
}
