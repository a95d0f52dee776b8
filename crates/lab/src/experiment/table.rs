//! The measured numbers of an experiment: a table with named columns.

use std::fmt;
use std::io::{self, Write};

/// A cell. NaN is written as empty.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Text(String),
    Number(f64),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<usize> for Cell {
    fn from(number: usize) -> Self {
        Self::Number(number as f64)
    }
}

impl From<Option<f64>> for Cell {
    fn from(number: Option<f64>) -> Self {
        Self::Number(number.unwrap_or(f64::NAN))
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) if number.is_nan() => Ok(()),
            Self::Number(number) => f.write_str(&short(*number)),
        }
    }
}

/// A number with four significant digits; integers in full.
pub(crate) fn short(number: f64) -> String {
    if number == 0.0 || number.fract() == 0.0 && number.abs() < 1e15 {
        return format!("{number:.0}");
    }
    let digits = 3 - number.abs().log10().floor() as i32;
    format!("{number:.*}", digits.clamp(0, 9) as usize)
}

/// The relative variation of identical work during a measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Noise {
    /// Of means and rates.
    pub(crate) means: f64,
    /// Of tails.
    pub(crate) tails: f64,
}

/// Rows of equal length under named columns, whose names end in the unit.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
    noise: Noise,
}

/// A row, accessed by column name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    columns: &'a [String],
    cells: &'a [Cell],
}

impl<'a> Row<'a> {
    /// The cell in a column, or `None` if there is no such column.
    pub(crate) fn cell(&self, column: &str) -> Option<&'a Cell> {
        let at = self.columns.iter().position(|name| *name == column)?;
        self.cells.get(at)
    }

    /// The text in a column; empty if there is none.
    pub(crate) fn text(&self, column: &str) -> &'a str {
        match self.cell(column) {
            Some(Cell::Text(text)) => text,
            _ => "",
        }
    }

    /// The number in a column; NaN if there is none.
    pub(crate) fn number(&self, column: &str) -> f64 {
        match self.cell(column) {
            Some(Cell::Number(number)) => *number,
            _ => f64::NAN,
        }
    }
}

impl Table {
    /// An empty table.
    pub(crate) fn new(columns: impl IntoIterator<Item = &'static str>) -> Self {
        let columns = columns.into_iter().map(str::to_owned).collect();
        Self { columns, rows: Vec::new(), noise: Noise::default() }
    }

    /// Parses the output of [`Table::write`]. A column is numeric if all of its cells are numbers
    /// or empty. `None` if rows differ in length.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(|line| line.split('\t').collect::<Vec<&str>>());
        let columns: Vec<String> = lines.next()?.into_iter().map(str::to_owned).collect();
        let lines: Vec<Vec<&str>> = lines.collect();
        if lines.iter().any(|line| line.len() != columns.len()) {
            return None;
        }
        let number = |cell: &str| if cell.is_empty() { Some(f64::NAN) } else { cell.parse().ok() };
        let of_numbers: Vec<bool> = (0..columns.len())
            .map(|column| lines.iter().all(|line| number(line[column]).is_some()))
            .collect();
        let cell = |(cell, is_number): (&str, &bool)| match number(cell) {
            Some(number) if *is_number => Cell::Number(number),
            _ => Cell::Text(cell.to_owned()),
        };
        let row = |line: Vec<&str>| line.into_iter().zip(&of_numbers).map(cell).collect();
        Some(Self { columns, rows: lines.into_iter().map(row).collect(), noise: Noise::default() })
    }

    /// The relative variation of identical work during the measurement.
    pub(crate) fn noise(&self) -> Noise {
        self.noise
    }

    /// Records a variation of the work; the largest counts.
    pub(crate) fn add_noise(&mut self, noise: Noise) {
        self.noise.means = self.noise.means.max(noise.means);
        self.noise.tails = self.noise.tails.max(noise.tails);
    }

    /// Adds a row. Missing cells are empty, surplus ones are dropped.
    pub(crate) fn push(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let mut row: Vec<Cell> = cells.into_iter().take(self.columns.len()).collect();
        row.resize(self.columns.len(), Cell::Number(f64::NAN));
        self.rows.push(row);
    }

    /// Whether it has this column.
    pub(crate) fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|name| name == column)
    }

    /// All rows.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|cells| Row { columns: &self.columns, cells })
    }

    /// The rows with this text in a column.
    pub(crate) fn of<'a>(
        &'a self,
        column: &'a str,
        text: &'a str,
    ) -> impl Iterator<Item = Row<'a>> {
        self.rows().filter(move |row| row.text(column) == text)
    }

    /// The distinct texts of a column, in order.
    pub(crate) fn texts(&self, column: &str) -> Vec<&str> {
        let mut texts = Vec::new();
        for row in self.rows() {
            let text = row.text(column);
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        texts
    }

    /// The numbers in `y` of the rows with `text` in `column`, in row order.
    pub(crate) fn numbers(&self, column: &str, text: &str, y: &str) -> Vec<f64> {
        self.of(column, text).map(|row| row.number(y)).collect()
    }

    /// The table rounded to the digits that are written.
    pub(crate) fn rounded(mut self) -> Self {
        for cell in self.rows.iter_mut().flatten() {
            if let Cell::Number(number) = cell {
                *number = short(*number).parse().unwrap_or(f64::NAN);
            }
        }
        self
    }

    /// Writes it as tab-separated text.
    pub(crate) fn write(&self, mut out: impl Write) -> io::Result<()> {
        writeln!(out, "{}", self.columns.join("\t"))?;
        for cells in &self.rows {
            let cells: Vec<String> = cells.iter().map(Cell::to_string).collect();
            writeln!(out, "{}", cells.join("\t"))?;
        }
        out.flush()
    }
}

/// A row of a [`Table`] from cells of any kind.
macro_rules! row {
    ($table:expr, $($cell:expr),+ $(,)?) => {
        $table.push([$($crate::experiment::table::Cell::from($cell)),+])
    };
}
pub(crate) use row;

#[cfg(test)]
impl Table {
    /// Mutable access to all cells, row by row.
    pub(crate) fn cells_mut(&mut self) -> &mut [Vec<Cell>] {
        &mut self.rows
    }

    /// A table with the columns of another, without rows.
    pub(crate) fn empty_of(other: &Self) -> Self {
        Self { rows: Vec::new(), ..other.clone() }
    }

    /// The same numbers, as if measured on a steady machine; 1 for missing ones, such as times of
    /// batches that were all interrupted.
    pub(crate) fn steady(&self) -> Self {
        let mut table = Self { noise: Noise::default(), ..self.clone() };
        for cell in table.rows.iter_mut().flatten() {
            if matches!(cell, Cell::Number(number) if number.is_nan()) {
                *cell = Cell::Number(1.0);
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_written_and_read() {
        let mut table = Table::new(["structure", "size_bytes", "mean_ns"]);
        row!(table, "a", 1024_usize, 1.23456);
        row!(table, "b", 2048_usize, None);
        row!(table, "a", 4096_usize, 1234.56);
        assert_eq!(table.texts("structure"), ["a", "b"]);
        assert_eq!(table.numbers("structure", "a", "mean_ns"), [1.23456, 1234.56]);
        let mut out = Vec::new();
        assert!(table.write(&mut out).is_ok());
        let text = String::from_utf8_lossy(&out);
        assert_eq!(
            text,
            "structure\tsize_bytes\tmean_ns\na\t1024\t1.235\nb\t2048\t\na\t4096\t1235\n"
        );
        let Some(read) = Table::read(&text) else { panic!("{text}") };
        let rounded = table.clone().rounded();
        assert_eq!(rounded.numbers("structure", "a", "mean_ns"), [1.235, 1235.0]);
        assert!(rounded.numbers("structure", "b", "mean_ns").iter().all(|none| none.is_nan()));
        let mut again = Vec::new();
        assert!(read.write(&mut again).is_ok() && again == out);
        assert_eq!(read.numbers("structure", "a", "mean_ns"), [1.235, 1235.0]);
        assert!(Table::read("a\tb\n1\n").is_none() && Table::read("").is_none());
        assert_eq!([short(0.000_123_46), short(-12.347)], ["0.0001235", "-12.35"]);
    }
}
