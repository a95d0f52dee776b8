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
pub(super) struct Line {
    pub(super) name: String,
    /// Which colour.
    pub(super) colour: usize,
    /// Which of the chart's columns.
    pub(super) column: usize,
    /// Where on the horizontal axis, and how high.
    pub(super) points: Vec<(f64, f64)>,
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
        let fits = |number: f64, axis: Axis| number.is_finite() && (!axis.log || number > 0.0);
        // A series has its colour in every panel.
        let names = table.texts(self.series).into_iter().enumerate();
        let mut lines = Vec::new();
        for (colour, name) in names.filter(|(_, name)| self.draws(name)) {
            for (column, (y, suffix)) in self.y.iter().enumerate() {
                let points = table.of(self.series, name).map(|row| (across(&row), row.number(y)));
                let points: Vec<_> = points
                    .filter(|(x, y)| {
                        (!places.is_empty() || fits(*x, self.x_axis)) && fits(*y, self.y_axis)
                    })
                    .collect();
                if !points.is_empty() {
                    let name = format!("{name}{suffix}");
                    lines.push(Line { name, colour, column, points });
                }
            }
        }
        lines
    }
}
