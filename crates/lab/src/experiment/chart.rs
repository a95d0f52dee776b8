//! Charts of a table, defined by column names, and the scales of their axes.

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

/// A range of numbers mapped to a range of the picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    log: bool,
    start: f64,
    end: f64,
}

impl Scale {
    /// A range that contains these numbers, all above 0 if it is logarithmic. A linear range starts
    /// at 0 unless a number is below.
    pub(super) fn of(numbers: impl Iterator<Item = f64>, log: bool, start: f64, end: f64) -> Self {
        let range = numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), number| {
            (least.min(number), most.max(number))
        });
        let (from, to) = match range {
            (least, most) if least > most => (1.0, 10.0),
            (least, most) if log => (least / 1.15, most * 1.15),
            (least, most) => (least.min(0.0), if most > 0.0 { most * 1.05 } else { 1.0 }),
        };
        Self { from, to, log, start, end }
    }

    /// Like [`of`](Self::of), but need not start at 0.
    pub(super) fn around(
        numbers: impl Iterator<Item = f64> + Clone,
        log: bool,
        start: f64,
        end: f64,
    ) -> Self {
        let scale = Self::of(numbers.clone(), log, start, end);
        let least = numbers.fold(f64::INFINITY, f64::min);
        if log || !least.is_finite() {
            return scale;
        }
        let margin = 0.05 * (scale.to - least);
        Self { from: least - margin, ..scale }
    }

    /// A linear range.
    pub(super) fn between(from: f64, to: f64, start: f64, end: f64) -> Self {
        Self { from, to, log: false, start, end }
    }

    /// The position of a number.
    pub(super) fn place(&self, number: f64) -> f64 {
        let share = if self.log {
            (number / self.from).ln() / (self.to / self.from).ln()
        } else {
            (number - self.from) / (self.to - self.from)
        };
        self.start + share * (self.end - self.start)
    }

    /// Round numbers within the range, about four to nine.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if !self.log {
            let step = round_step((self.to - self.from) / 6.0);
            let ends = ((self.from / step).ceil() as i64, (self.to / step).floor() as i64);
            return (ends.0..=ends.1).map(|i| i as f64 * step).collect();
        }
        let decades = (self.to / self.from).log10();
        if decades < 0.5 {
            return Self { log: false, ..*self }.ticks().into_iter().filter(|t| *t > 0.0).collect();
        }
        let within: &[f64] = if decades < 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let powers = self.from.log10().floor() as i32..=self.to.log10().ceil() as i32;
        let ticks = powers.flat_map(|power| within.iter().map(move |w| w * 10_f64.powi(power)));
        ticks.filter(|tick| (self.from..=self.to).contains(tick)).collect()
    }
}

/// The label of a tick, without trailing zeros; from ten thousand on in thousands, millions or
/// billions.
pub(super) fn label(tick: f64) -> String {
    let (number, unit) = match tick.abs() {
        large if large >= 1e9 => (tick / 1e9, "G"),
        large if large >= 1e6 => (tick / 1e6, "M"),
        large if large >= 1e4 => (tick / 1e3, "k"),
        _ => (tick, ""),
    };
    // Multiples of a step have rounding errors in the last digits.
    let text = format!("{number:.6}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= least * 0.999);
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_in_range() {
        let linear = Scale::of([3.0, 57.0].into_iter(), false, 0.0, 100.0);
        assert_eq!(linear.ticks(), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        assert!((linear.place(57.0) - 100.0 / 1.05).abs() < 1e-9);
        let log = Scale::of([0.02, 150.0].into_iter(), true, 0.0, 100.0);
        assert_eq!(log.ticks(), [0.1, 1.0, 10.0, 100.0]);
        let numbers = [0.1, 3.0 * 0.1, 200.0, 5000.0, 2e4, 1.5e6, 1e9];
        assert_eq!(numbers.map(label), ["0.1", "0.3", "200", "5000", "20k", "1.5M", "1G"]);
        let narrow = Scale::of([20.0, 22.0].into_iter(), true, 0.0, 1.0);
        assert!(narrow.ticks().len() > 2, "{:?}", narrow.ticks());
        assert!(!Scale::of(std::iter::empty(), true, 0.0, 1.0).ticks().is_empty());
        let skews = Scale::around([0.75, 1.75].into_iter(), false, 0.0, 100.0);
        let labels: Vec<String> = skews.ticks().into_iter().map(label).collect();
        assert_eq!(labels, ["0.8", "1", "1.2", "1.4", "1.6", "1.8"]);
        let still = Scale::of([0.0].into_iter(), false, 0.0, 1.0);
        assert!(still.place(0.0).is_finite() && !still.ticks().is_empty());
    }
}
