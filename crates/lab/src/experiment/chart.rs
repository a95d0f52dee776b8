//! Pictures of a table: what is drawn of it, by the names of its columns.

use super::table::{Row, Table};

/// An axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    /// What it says, with the unit.
    pub(crate) label: &'static str,
    /// Whether equal factors are equally far.
    pub(crate) log: bool,
    /// Whether it has the range of the other axis: points are compared with the line of y = x.
    pub(crate) alike: bool,
}

/// A panel: lines where `x` is a column of numbers, bars where it is one of texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chart {
    pub(crate) title: &'static str,
    /// The column of the horizontal axis.
    pub(crate) x: &'static str,
    pub(crate) x_axis: Axis,
    /// The columns that are drawn, with what the legend adds to the series' name. The second is drawn
    /// dashed, or as a tick above the bar.
    pub(crate) y: &'static [(&'static str, &'static str)],
    pub(crate) y_axis: Axis,
    /// The column whose texts are series.
    pub(crate) series: &'static str,
    /// The series that are drawn; all where there is none.
    pub(crate) only: &'static [&'static str],
    /// Numbers of the paper's text and tables.
    pub(crate) paper: &'static [Mark],
    /// What to look at, and what the paper sees there, in a sentence.
    pub(crate) see: &'static str,
}

/// A number of the paper.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    /// Of a series at a number of the horizontal axis.
    At(&'static str, f64, f64),
    /// Of a series at a text of the horizontal axis.
    Of(&'static str, &'static str, f64),
    /// All along the horizontal axis, with what it is.
    Level(&'static str, f64),
}

/// An axis with equal steps.
pub(crate) const fn linear(label: &'static str) -> Axis {
    Axis { label, log: false, alike: false }
}

/// An axis with equal factors.
pub(crate) const fn log(label: &'static str) -> Axis {
    Axis { label, log: true, alike: false }
}

/// A vertical axis with equal factors and the range of the horizontal one.
pub(crate) const fn log_alike(label: &'static str) -> Axis {
    Axis { label, log: true, alike: true }
}

/// A series of one column, as it is drawn.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) name: String,
    /// Which colour.
    pub(super) colour: usize,
    /// Which of the chart's columns.
    pub(super) column: usize,
    pub(super) points: Vec<Point>,
}

/// A point of a line, or the end of a bar.
#[derive(Clone, Copy)]
pub(super) struct Point {
    /// Where on the horizontal axis, and how high.
    pub(super) x: f64,
    pub(super) y: f64,
    /// How far rounds differ, to either side; 0 where the table does not say.
    pub(super) spread: f64,
}

impl Chart {
    /// The texts of the horizontal axis; none where it has numbers.
    pub(super) fn places<'a>(&self, table: &'a Table) -> Vec<&'a str> {
        let places = table.texts(self.x);
        if places.iter().all(|place| place.is_empty()) { Vec::new() } else { places }
    }

    /// Whether a series is drawn.
    fn draws(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.contains(&name)
    }

    /// The lines (or bars) of the table, those without a point left out.
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
        // A series has its colour in every panel.
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

    /// The paper's numbers of series that are drawn: the colour, where, and how high.
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

    /// The paper's numbers that are drawn all along, with what they are.
    pub(super) fn levels(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.paper.iter().filter_map(|mark| match *mark {
            Mark::Level(what, y) => Some((what, y)),
            Mark::At(..) | Mark::Of(..) => None,
        })
    }
}

/// Whether an axis has a place for a number.
fn fits(number: f64, axis: Axis) -> bool {
    number.is_finite() && (!axis.log || number > 0.0)
}

/// The column that says how far rounds differ in another.
pub(crate) fn spread_of(column: &str) -> String {
    format!("{column}_spread")
}
