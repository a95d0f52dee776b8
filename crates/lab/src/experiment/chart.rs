//! Charts of a table, defined by column names.

use super::table::{Row, Table};

/// An axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    /// Its label, with the unit.
    pub(crate) label: &'static str,
    /// Whether it is logarithmic.
    pub(crate) log: bool,
    /// Whether it has the range of the other axis, to compare points with the line y = x.
    pub(crate) alike: bool,
}

/// A panel: lines if `x` is a column of numbers, bars if it is one of texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chart {
    pub(crate) title: &'static str,
    /// The column of the horizontal axis.
    pub(crate) x: &'static str,
    pub(crate) x_axis: Axis,
    /// The plotted columns, each with a suffix for the series' name in the legend. The second one
    /// is drawn dashed, or as a tick above the bar.
    pub(crate) y: &'static [(&'static str, &'static str)],
    pub(crate) y_axis: Axis,
    /// The column that names the series.
    pub(crate) series: &'static str,
    /// The series to draw; empty for all.
    pub(crate) only: &'static [&'static str],
    /// Numbers from the paper's text and tables.
    pub(crate) paper: &'static [Mark],
    /// What the chart shows and what the paper reports, in one sentence.
    pub(crate) see: &'static str,
}

/// A number from the paper.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    /// For a series, at a number on the horizontal axis.
    At(&'static str, f64, f64),
    /// For a series, at a text on the horizontal axis.
    Of(&'static str, &'static str, f64),
    /// A horizontal line, with its label.
    Level(&'static str, f64),
}

/// A linear axis.
pub(crate) const fn linear(label: &'static str) -> Axis {
    Axis { label, log: false, alike: false }
}

/// A logarithmic axis.
pub(crate) const fn log(label: &'static str) -> Axis {
    Axis { label, log: true, alike: false }
}

/// A logarithmic vertical axis with the range of the horizontal one.
pub(crate) const fn log_alike(label: &'static str) -> Axis {
    Axis { label, log: true, alike: true }
}

/// A line of one series and one column.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) name: String,
    /// Colour index.
    pub(super) colour: usize,
    /// Index of the chart's column.
    pub(super) column: usize,
    pub(super) points: Vec<Point>,
}

/// A point of a line, or the end of a bar.
#[derive(Clone, Copy)]
pub(super) struct Point {
    /// Position on the horizontal axis, and height.
    pub(super) x: f64,
    pub(super) y: f64,
    /// Spread over rounds, to either side; 0 if the table has none.
    pub(super) spread: f64,
}

impl Chart {
    /// The texts on the horizontal axis; empty if it has numbers.
    pub(super) fn places<'a>(&self, table: &'a Table) -> Vec<&'a str> {
        let places = table.texts(self.x);
        if places.iter().all(|place| place.is_empty()) { Vec::new() } else { places }
    }

    /// Whether a series is drawn.
    fn draws(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.contains(&name)
    }

    /// The lines (or bars) of the table, without empty ones.
    pub(super) fn lines(&self, table: &Table) -> Vec<Line> {
        let places = self.places(table);
        let across =
            |row: &Row<'_>| match places.iter().position(|place| *place == row.text(self.x)) {
                Some(place) => place as f64,
                None => row.number(self.x),
            };
        let drawn = |point: &Point| {
            (!places.is_empty() || fits(point.x, self.x_axis)) && fits(point.y, self.y_axis)
        };
        // A series has the same colour in every panel.
        let names = table.texts(self.series).into_iter().enumerate();
        let mut lines = Vec::new();
        for (colour, name) in names.filter(|(_, name)| self.draws(name)) {
            for (column, (y, suffix)) in self.y.iter().enumerate() {
                let spread = spread_of(y);
                let point = |row: Row<'_>| {
                    let spread = row.number(&spread);
                    let spread = if spread.is_finite() { spread } else { 0.0 };
                    Point { x: across(&row), y: row.number(y), spread }
                };
                let points = table.of(self.series, name).map(point);
                let points: Vec<_> = points.filter(drawn).collect();
                if !points.is_empty() {
                    let name = format!("{name}{suffix}");
                    lines.push(Line { name, colour, column, points });
                }
            }
        }
        lines
    }

    /// The paper's numbers for drawn series: colour, position and height.
    pub(super) fn marks(&self, table: &Table) -> Vec<(usize, f64, f64)> {
        let (places, names) = (self.places(table), table.texts(self.series));
        let series =
            |name: &str| names.iter().position(|n| *n == name).filter(|_| self.draws(name));
        let mark = |mark: &Mark| match *mark {
            Mark::At(name, x, y) => Some((series(name)?, x, y)),
            Mark::Of(name, at, y) => {
                let place = places.iter().position(|place| *place == at)?;
                Some((series(name)?, place as f64, y))
            }
            Mark::Level(..) => None,
        };
        self.paper.iter().filter_map(mark).collect()
    }

    /// The paper's horizontal lines, with their labels.
    pub(super) fn levels(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.paper.iter().filter_map(|mark| match *mark {
            Mark::Level(what, y) => Some((what, y)),
            Mark::At(..) | Mark::Of(..) => None,
        })
    }
}

/// Whether a number can be drawn on an axis.
fn fits(number: f64, axis: Axis) -> bool {
    number.is_finite() && (!axis.log || number > 0.0)
}

/// The column with the spread of another column over rounds.
pub(crate) fn spread_of(column: &str) -> String {
    format!("{column}_spread")
}
