//! The layout of pages for people: tables and paragraphs, never wider than the page.

use std::fmt;

use super::{names, units};

const INDENT: usize = 2;
const GUTTER: usize = 2;
/// Shortest length of a bar in columns; a shorter one shows nothing.
const SHORTEST_BAR: usize = 4;
const LONGEST_BAR: usize = 24;

/// The look of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Columns of the page, at least 60.
    pub width: usize,
    /// Whether headings, alerts and bars are coloured with ANSI escapes.
    pub color: bool,
    /// Whether only ASCII is used, for terminals that show nothing else.
    pub ascii: bool,
    /// Whether ports are shown with the names of their services.
    pub services: bool,
}

impl Default for Look {
    fn default() -> Self {
        Self { width: 100, color: false, ascii: false, services: true }
    }
}

impl Look {
    /// The name of a port's service, if names are shown and it is well known.
    pub(super) fn service(self, port: u16) -> Option<&'static str> {
        names::service_name(port).filter(|_| self.services)
    }
}

/// ANSI escapes: bold, bold red, cyan, and the end of these.
const BOLD: &str = "\x1b[1m";
const ALERT: &str = "\x1b[1;31m";
const BAR: &str = "\x1b[36m";
const END: &str = "\x1b[0m";

/// A page of text being written.
pub struct Page {
    look: Look,
    text: String,
}

impl fmt::Write for Page {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text.push_str(text);
        Ok(())
    }
}

impl Page {
    /// An empty page.
    pub fn new(look: Look) -> Self {
        Self { look, text: String::new() }
    }

    /// Columns of the page.
    pub fn width(&self) -> usize {
        self.look.width
    }

    /// Its look.
    pub(super) fn look(&self) -> Look {
        self.look
    }

    /// Appends text unchanged.
    pub fn push_str(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Writes the full-width line that begins a page.
    pub fn rule(&mut self, title: &str) {
        let rest = self.look.width.saturating_sub(4 + width(title));
        self.colored_paragraph(BOLD, "━━ ", &format!("{title} {}", "━".repeat(rest)));
    }

    /// Writes the title of a section, after an empty line unless the page is empty.
    pub fn heading(&mut self, title: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.colored(BOLD, title);
    }

    /// Writes a paragraph that a reader must not miss.
    pub fn alert(&mut self, first: &str, text: &str) {
        self.colored_paragraph(ALERT, first, text);
    }

    fn colored_paragraph(&mut self, color: &str, first: &str, text: &str) {
        let mut lines = Self::new(self.look);
        paragraph(&mut lines, first, text);
        lines.text.lines().for_each(|line| self.colored(color, line));
    }

    fn colored(&mut self, color: &str, line: &str) {
        let line = line.trim_end();
        if self.look.color {
            self.text.extend([color, line, END, "\n"]);
        } else {
            self.text.extend([line, "\n"]);
        }
    }

    /// The text of the page.
    pub fn into_text(self) -> String {
        if !self.look.ascii || self.text.is_ascii() {
            return self.text;
        }
        self.text.chars().map(plain).collect()
    }
}

/// The ASCII replacement of a character: as wide as the character, except in text from outside.
fn plain(c: char) -> char {
    match c {
        c if c.is_ascii() => c,
        '━' | '▅' | '↔' => '=',
        '·' | '–' | '−' | '▏' | '▎' | '▍' | '▄' => '-',
        '→' => '>',
        '…' => '~',
        'µ' => 'u',
        '×' => 'x',
        '▁' => '_',
        '▂' => '.',
        '▃' => ':',
        '▆' => '+',
        '▇' => '*',
        '▌' | '▋' | '▊' | '▉' | '█' => '#',
        _ => '?',
    }
}

/// Most columns that `text` takes. Of the characters beyond ASCII, only the page's own are surely
/// narrow.
pub fn width(text: &str) -> usize {
    let narrow = |c: char| c.is_ascii() || matches!(c, '\u{2010}'..='\u{25ff}' | '·' | '±' | 'µ');
    text.chars().map(|c| if narrow(c) { 1 } else { 2 }).sum()
}

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// At the left edge.
    Left,
    /// At the right edge.
    Right,
}

/// A table with titles, and a bar at the end of each row if there is room.
///
/// ```
/// use flowgauge_engine::sink::layout::{Align, Look, Page, Table};
///
/// let mut table = Table::new(&[("flow", Align::Left), ("packets", Align::Right)]);
/// table.row(vec!["10.0.0.1".into(), "12,345".into()], 0.0);
/// let mut page = Page::new(Look::default());
/// table.write(&mut page);
/// assert!(page.into_text().contains("10.0.0.1   12,345"));
/// ```
pub struct Table {
    columns: Vec<(String, Align)>,
    /// Titles of the columns that are left out on narrow pages, in this order.
    spared: Vec<&'static str>,
    rows: Vec<TableRow>,
}

struct TableRow {
    cells: Vec<Cell>,
    bar: f64,
}

/// The text of a cell, with an optional second line.
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
    /// Its lines, broken if they take more columns than `room`.
    fn within(&self, room: usize) -> Vec<&str> {
        let mut lines = Vec::new();
        for text in [Some(self.text.as_str()), self.below.as_deref()].into_iter().flatten() {
            let mut rest = text;
            while width(rest) > room {
                let first = rest.chars().next().map_or(0, char::len_utf8);
                let (line, after) = rest.split_at(fitting(rest, room).max(first));
                lines.push(line);
                rest = after;
            }
            lines.push(rest);
        }
        lines
    }

    /// A cell with a second line.
    pub fn two_lines(text: String, below: String) -> Self {
        Self { text, below: Some(below) }
    }
}

impl Table {
    /// A table with these titles. If all are empty, no line of titles is written.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        let columns = columns.iter().map(|(title, align)| ((*title).to_owned(), *align)).collect();
        Self { columns, spared: Vec::new(), rows: Vec::new() }
    }

    /// Adds a row. The length of `bar` is relative to the other rows; 0 for none.
    pub fn row(&mut self, cells: Vec<Cell>, bar: f64) {
        self.rows.push(TableRow { cells, bar });
    }

    /// Number of rows so far.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row yet.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Sets the columns that are left out, in this order, until the table fits on its page.
    pub fn spare(&mut self, titles: &[&'static str]) {
        self.spared.extend(titles);
    }

    /// Writes titles and rows.
    pub fn write(&self, page: &mut Page) {
        let columns = self.fitting(page.width());
        let mut widths: Vec<_> = columns.iter().map(|column| self.width(*column)).collect();
        // If it still does not fit, break the widest column.
        let excess = used(&widths).saturating_sub(page.width() + GUTTER);
        if let Some(widest) = widths.iter_mut().max() {
            *widest = widest.saturating_sub(excess).max(1);
        }
        let room = page.width().saturating_sub(used(&widths)).min(LONGEST_BAR);
        let longest = self.rows.iter().map(|row| row.bar).fold(0.0, f64::max);
        let mut lines = |cells: &[Vec<&str>], bar: &str| {
            let height = cells.iter().map(Vec::len).max().unwrap_or_default();
            for at in 0..height {
                let mut line = " ".repeat(INDENT);
                for ((cell, room), column) in cells.iter().zip(&widths).zip(&columns) {
                    let cell = cell.get(at).copied().unwrap_or_default();
                    let space = " ".repeat(room.saturating_sub(width(cell)));
                    match self.columns[*column].1 {
                        Align::Left => line.extend([cell, &space]),
                        Align::Right => line.extend([space.as_str(), cell]),
                    }
                    line += &" ".repeat(GUTTER);
                }
                match bar {
                    bar if at > 0 || bar.is_empty() => page.push_str(line.trim_end()),
                    bar if page.look.color => page.text.extend([&line, BAR, bar, END]),
                    bar => page.text.extend([&line, bar]),
                }
                page.push_str("\n");
            }
        };
        if columns.iter().any(|column| !self.columns[*column].0.is_empty()) {
            let titles: Vec<_> =
                columns.iter().map(|column| vec![self.columns[*column].0.as_str()]).collect();
            lines(&titles, "");
        }
        for row in &self.rows {
            let bar = if room >= SHORTEST_BAR && longest > 0.0 {
                units::bar(row.bar / longest, room)
            } else {
                String::new()
            };
            let cells: Vec<_> = (columns.iter().zip(&widths))
                .map(|(column, width)| row.cells[*column].within(*width))
                .collect();
            lines(&cells, &bar);
        }
    }

    /// The columns that are written on a page of this width.
    fn fitting(&self, page: usize) -> Vec<usize> {
        let mut columns: Vec<_> = (0..self.columns.len()).collect();
        for title in &self.spared {
            let widths: Vec<_> = columns.iter().map(|column| self.width(*column)).collect();
            if used(&widths) <= page + GUTTER {
                break;
            }
            columns.retain(|column| self.columns[*column].0 != *title);
        }
        columns
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().flat_map(|row| {
            let cell = &row.cells[column];
            [width(&cell.text), cell.below.as_deref().map_or(0, width)]
        });
        cells.chain([width(&self.columns[column].0)]).max().unwrap_or_default()
    }
}

/// Columns that these columns and the gutters after them take.
fn used(widths: &[usize]) -> usize {
    INDENT + widths.iter().map(|width| width + GUTTER).sum::<usize>()
}

/// Writes a paragraph whose first line begins with `first`, broken between words if possible.
pub fn paragraph(page: &mut Page, first: &str, text: &str) {
    let (indent, most) = (width(first), page.width());
    let mut line = first.to_owned();
    let mut at = indent;
    for word in text.split(' ') {
        let mut word = word;
        if at > indent && at + 1 + width(word) > most {
            page.push_str(line.trim_end());
            page.push_str("\n");
            (line, at) = (" ".repeat(indent), indent);
        }
        if at > indent {
            line.push(' ');
            at += 1;
        }
        while at + width(word) > most {
            let (head, tail) = word.split_at(fitting(word, most - at));
            line += head;
            page.push_str(line.trim_end());
            page.push_str("\n");
            (line, at, word) = (" ".repeat(indent), indent, tail);
        }
        line += word;
        at += width(word);
    }
    page.push_str(line.trim_end());
    page.push_str("\n");
}

/// Bytes of the longest prefix of `word` that takes at most `room` columns.
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
        let mut page = Page::new(Look::default());
        let long = "x".repeat(250);
        paragraph(
            &mut page,
            "  note  ",
            &format!("{} {long} {}", "word ".repeat(30), "日".repeat(80)),
        );
        let page = page.into_text();
        assert!(page.lines().all(|line| width(line) <= 100), "{page}");
        assert!(page.lines().skip(1).all(|line| line.starts_with("        ")), "{page}");
        assert_eq!(page.matches('x').count(), 250);
        assert_eq!(page.matches('日').count(), 80);
    }

    #[test]
    fn columns_align_and_bars_fill_the_rest() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        table.row(vec!["a".into(), "10".into()], 2.0);
        table.row(vec![Cell::two_lines("bc".into(), "below".into()), "5".into()], 1.0);
        let mut page = Page::new(Look::default());
        table.write(&mut page);
        let full = "█".repeat(LONGEST_BAR);
        let half = "█".repeat(LONGEST_BAR / 2);
        assert_eq!(
            page.into_text(),
            format!("  name    n\n  a      10  {full}\n  bc      5  {half}\n  below\n")
        );
    }
}
