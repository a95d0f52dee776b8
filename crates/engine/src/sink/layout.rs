//! Columns and paragraphs, never wider than [`WIDTH`].

use super::units;

/// Columns of a page.
pub const WIDTH: usize = 100;
const INDENT: usize = 2;
const GUTTER: usize = 2;
/// A bar shorter than this tells nothing.
const SHORTEST_BAR: usize = 4;
const LONGEST_BAR: usize = 24;

/// Columns that `text` takes at most: of what is not ASCII only the page's own signs are surely
/// narrow.
pub fn width(text: &str) -> usize {
    let narrow = |c: char| c.is_ascii() || matches!(c, '\u{2010}'..='\u{25ff}' | '·' | '±' | 'µ');
    text.chars().map(|c| if narrow(c) { 1 } else { 2 }).sum()
}

/// Where the cells of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// At the left edge.
    Left,
    /// At the right edge.
    Right,
}

/// Rows under titles, with a bar at the end of each row where there is room.
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<TableRow>,
}

struct TableRow {
    cells: Vec<Cell>,
    bar: f64,
}

/// The text of a cell, and what stands below it where it needs a second line.
pub struct Cell {
    text: String,
    below: Option<String>,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, below: None }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Cell {
    /// A cell with a second line.
    pub fn two_lines(text: String, below: String) -> Self {
        Self { text, below: Some(below) }
    }
}

impl Table {
    /// A table with these titles; where all are empty, no line of titles is written.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        let columns = columns.iter().map(|(title, align)| ((*title).to_owned(), *align)).collect();
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row; `bar` is relative to the other rows', 0 for none.
    pub fn row(&mut self, cells: Vec<Cell>, bar: f64) {
        self.rows.push(TableRow { cells, bar });
    }

    /// Rows so far.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row yet.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Leaves the column out if the table is too wide with it.
    pub fn spare(&mut self, title: &str) {
        let Some(at) = self.columns.iter().position(|(column, _)| column == title) else { return };
        if Self::used(&self.widths()) > WIDTH + GUTTER {
            self.columns.remove(at);
            self.rows.iter_mut().for_each(|row| drop(row.cells.remove(at)));
        }
    }

    /// Writes titles and rows.
    pub fn write(&self, page: &mut String) {
        let widths = self.widths();
        let room = WIDTH.saturating_sub(Self::used(&widths)).min(LONGEST_BAR);
        let longest = self.rows.iter().map(|row| row.bar).fold(0.0, f64::max);
        let titles: Vec<&str> = self.columns.iter().map(|(title, _)| title.as_str()).collect();
        if titles.iter().any(|title| !title.is_empty()) {
            self.line(page, &widths, &titles, "");
        }
        for row in &self.rows {
            let bar = if room >= SHORTEST_BAR && longest > 0.0 {
                units::bar(row.bar / longest, room)
            } else {
                String::new()
            };
            let cells: Vec<&str> = row.cells.iter().map(|cell| cell.text.as_str()).collect();
            self.line(page, &widths, &cells, &bar);
            if row.cells.iter().any(|cell| cell.below.is_some()) {
                let below = row.cells.iter().map(|cell| cell.below.as_deref().unwrap_or_default());
                self.line(page, &widths, &below.collect::<Vec<_>>(), "");
            }
        }
    }

    fn widths(&self) -> Vec<usize> {
        (0..self.columns.len()).map(|column| self.width(column)).collect()
    }

    /// Columns that these and the gutters behind them take.
    fn used(widths: &[usize]) -> usize {
        INDENT + widths.iter().map(|width| width + GUTTER).sum::<usize>()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().flat_map(|row| {
            let cell = &row.cells[column];
            [width(&cell.text), cell.below.as_deref().map_or(0, width)]
        });
        cells.chain([width(&self.columns[column].0)]).max().unwrap_or_default()
    }

    fn line(&self, page: &mut String, widths: &[usize], cells: &[&str], bar: &str) {
        let mut line = " ".repeat(INDENT);
        for ((cell, room), (_, align)) in cells.iter().zip(widths).zip(&self.columns) {
            let space = " ".repeat(room - width(cell));
            match align {
                Align::Left => line.extend([cell, space.as_str()]),
                Align::Right => line.extend([space.as_str(), cell]),
            }
            line += &" ".repeat(GUTTER);
        }
        line += bar;
        page.push_str(line.trim_end());
        page.push('\n');
    }
}

/// Writes `text` under `first`, broken between words where that is possible.
pub fn paragraph(page: &mut String, first: &str, text: &str) {
    let indent = width(first);
    let mut line = first.to_owned();
    let mut at = indent;
    for word in text.split(' ') {
        let mut word = word;
        if at > indent && at + 1 + width(word) > WIDTH {
            page.push_str(line.trim_end());
            page.push('\n');
            (line, at) = (" ".repeat(indent), indent);
        }
        if at > indent {
            line.push(' ');
            at += 1;
        }
        while at + width(word) > WIDTH {
            let (head, tail) = word.split_at(fitting(word, WIDTH - at));
            line += head;
            page.push_str(line.trim_end());
            page.push('\n');
            (line, at, word) = (" ".repeat(indent), indent, tail);
        }
        line += word;
        at += width(word);
    }
    page.push_str(line.trim_end());
    page.push('\n');
}

/// Bytes of the longest head of `word` that takes at most `room` columns.
fn fitting(word: &str, room: usize) -> usize {
    let mut used = 0;
    for (at, c) in word.char_indices() {
        used += width(c.encode_utf8(&mut [0; 4]));
        if used > room {
            return at;
        }
    }
    word.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_break_between_words_and_inside_long_ones() {
        let mut page = String::new();
        let long = "x".repeat(250);
        paragraph(
            &mut page,
            "  note  ",
            &format!("{} {long} {}", "word ".repeat(30), "日".repeat(80)),
        );
        assert!(page.lines().all(|line| width(line) <= WIDTH), "{page}");
        assert!(page.lines().skip(1).all(|line| line.starts_with("        ")), "{page}");
        assert_eq!(page.matches('x').count(), 250);
        assert_eq!(page.matches('日').count(), 80);
    }

    #[test]
    fn columns_align_and_bars_fill_the_rest() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        table.row(vec!["a".into(), "10".into()], 2.0);
        table.row(vec![Cell::two_lines("bc".into(), "below".into()), "5".into()], 1.0);
        let mut page = String::new();
        table.write(&mut page);
        let full = "█".repeat(LONGEST_BAR);
        let half = "█".repeat(LONGEST_BAR / 2);
        assert_eq!(
            page,
            format!("  name    n\n  a      10  {full}\n  bc      5  {half}\n  below\n")
        );
    }
}
