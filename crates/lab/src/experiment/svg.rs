//! Draws charts as one SVG picture, readable on light and dark backgrounds.

use std::fmt::Write;

use super::chart::{Chart, Line, Point};
use super::chart::{Scale, label};
use super::table::Table;

/// Size of a panel without its legend.
const WIDTH: f64 = 500.0;
const HEIGHT: f64 = 310.0;

/// With more bars or names along an axis, a panel has twice the width.
const MANY: usize = 12;
const MANY_BARS: usize = 36;

/// The plot within its panel: minimum left margin, right margin, top and bottom.
const LEFT: f64 = 68.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 250.0;

/// Beyond this ratio of numbers, lines have a logarithmic axis.
const WIDE: f64 = 30.0;

/// Height of a legend line, and width of a letter.
const LEGEND: f64 = 17.0;
const LETTER: f64 = 6.4;

/// Extent of a letter in a slanted name, to the left and down, at 28 degrees.
const ASLANT: (f64, f64) = (0.883 * LETTER, 0.469 * LETTER);

/// Colours that most eyes can distinguish, on white and on black.
const COLOURS: [&str; 10] = [
    "#2f7fd1", "#e0700f", "#16a06c", "#d33f6a", "#8e63ce", "#a58200", "#1fa3ad", "#7f7f7f",
    "#b0563a", "#5f8f1f",
];

const STYLE: &str = "<style>\
text{font:12px system-ui,sans-serif;fill:#1c1e21}\
.title{font-weight:600;font-size:13px}\
.ground{fill:#fff}\
.grid{fill:none;stroke:#d9dce0;stroke-width:1}\
.axis{fill:none;stroke:#1c1e21;stroke-width:1}\
.mark{stroke:#1c1e21;stroke-width:1.2}\
.line{fill:none;stroke-width:1.8}\
.dashed{stroke-dasharray:5 3}\
.over{paint-order:stroke;stroke:#fff;stroke-width:3px}\
@media(prefers-color-scheme:dark){text{fill:#e4e6e8}.over{stroke:#14171a}.ground{fill:#14171a}.grid{stroke:#3a3f45}\
.axis,.mark{stroke:#e4e6e8}}\
</style>";

/// Maximum lines in a panel. A chart with more is split into several panels on the same axes.
const LINES: usize = 4;

/// Draws panels, two side by side.
pub(crate) fn draw(charts: &[Chart], table: &Table) -> String {
    let panels: Vec<Panel<'_>> = charts.iter().flat_map(|chart| panels(chart, table)).collect();
    let width = panels.iter().map(|panel| panel.width).fold(WIDTH, f64::max);
    let beside = if width > WIDTH { 1 } else { panels.len().clamp(1, 2) };
    let mut body = String::new();
    let mut top = 0.0;
    for row in panels.chunks(beside) {
        let height = row.iter().map(Panel::height).fold(0.0, f64::max);
        for (at, panel) in row.iter().enumerate() {
            let left = at as f64 * width;
            let _ = write!(body, r#"<g transform="translate({left} {top})">"#);
            panel.draw(&mut body);
            body.push_str("</g>\n");
        }
        top += height;
    }
    let width = beside as f64 * width;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {top}\" width=\"{width}\" \
         height=\"{top}\" role=\"img\">\n{STYLE}\n\
         <rect class=\"ground\" width=\"{width}\" height=\"{top}\"/>\n{body}</svg>\n"
    )
}

/// A chart with some of its lines.
struct Panel<'a> {
    chart: &'a Chart,
    title: String,
    places: Vec<&'a str>,
    lines: Vec<Line>,
    marks: Vec<(usize, f64, f64)>,
    left: f64,
    width: f64,
    x: Scale,
    y: Scale,
}

/// Whether the numbers vary so much that a linear axis would hide the small ones.
fn is_wide(numbers: &[f64]) -> bool {
    let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    least > 0.0 && numbers.iter().any(|number| *number > WIDE * least)
}

/// The most lines in any panel of a chart.
#[cfg(test)]
pub(super) fn most_lines(chart: &Chart, table: &Table) -> usize {
    let lines = panels(chart, table).into_iter().filter(|panel| panel.places.is_empty());
    lines.map(|panel| panel.lines.len()).max().unwrap_or(0)
}

/// The panels of a chart. If there are too many lines, each column has its own panel, and then each
/// part of the series. Bars stand side by side, however many.
fn panels<'a>(chart: &'a Chart, table: &'a Table) -> Vec<Panel<'a>> {
    let lines = chart.lines(table);
    if !chart.places(table).is_empty() || lines.len() <= LINES {
        return on_same_axes(chart, chart.title, vec![lines], table);
    }
    let mut columns = vec![Vec::new(); chart.y.len()];
    for line in lines {
        columns[line.column].push(line);
    }
    let mut panels = Vec::new();
    for (mut lines, (_, suffix)) in columns.into_iter().zip(chart.y) {
        let title = match suffix.trim_start_matches([',', ' ']) {
            "" => chart.title.to_owned(),
            what => format!("{}, {what}", chart.title),
        };
        for line in &mut lines {
            line.column = 0;
            line.name.truncate(line.name.len() - suffix.len());
        }
        let each = lines.len().div_ceil(lines.len().div_ceil(LINES).max(1)).max(1);
        let parts = lines.chunks(each).map(<[Line]>::to_vec).collect();
        panels.extend(on_same_axes(chart, &title, parts, table));
    }
    panels
}

/// A panel for each of these parts of a chart's lines, with the same axes for comparison.
fn on_same_axes<'a>(
    chart: &'a Chart,
    title: &str,
    parts: Vec<Vec<Line>>,
    table: &'a Table,
) -> Vec<Panel<'a>> {
    let places = chart.places(table);
    let bars = parts.iter().flatten().filter(|line| line.column == 0);
    let bars: usize = bars.map(|line| line.points.len()).sum();
    let is_wide_panel = places.len() > MANY || !places.is_empty() && bars > MANY_BARS;
    let width = if is_wide_panel { 2.0 * WIDTH } else { WIDTH };
    let right = width - RIGHT;
    let room = (right - LEFT) / places.len().max(1) as f64;
    let longest = longest(&places) * LETTER;
    // The first name must not start outside.
    let left = if longest > room {
        (longest / LETTER * ASLANT.0 - room / 2.0 + 8.0).max(LEFT)
    } else {
        LEFT
    };
    let marks = chart.marks(table);
    let of_marks = || marks.iter().map(|(_, x, y)| (*x, *y));
    let points = || parts.iter().flatten().flat_map(|line| &line.points);
    let levels = || chart.levels().map(|(_, y)| y);
    let xs = || points().map(|point| point.x).chain(of_marks().map(|mark| mark.0));
    // An error bar that reaches zero does not fit a logarithmic axis.
    let ends = |point: &Point| [point.y - point.spread, point.y + point.spread];
    let drawn = |y: &f64| !chart.y_axis.log || *y > 0.0;
    let ys = || {
        let marks = of_marks().map(|mark| mark.1).chain(levels());
        points()
            .flat_map(|point| ends(point).into_iter().chain([point.y]))
            .chain(marks)
            .filter(drawn)
    };
    let both = || points().flat_map(|point| [point.x, point.y]);
    let (x, y) = match places.len() {
        _ if chart.y_axis.alike => (
            Scale::of(both(), chart.x_axis.log, left, right),
            Scale::of(both(), chart.y_axis.log, BOTTOM, TOP),
        ),
        0 => (
            Scale::around(xs(), chart.x_axis.log, left, right),
            Scale::of(ys(), chart.y_axis.log || is_wide(&ys().collect::<Vec<f64>>()), BOTTOM, TOP),
        ),
        count => (
            Scale::between(-0.5, count as f64 - 0.5, left, right),
            Scale::of(ys(), chart.y_axis.log, BOTTOM, TOP),
        ),
    };
    let panel = |lines: Vec<Line>| {
        let here = |mark: &&(usize, f64, f64)| lines.iter().any(|line| line.colour == mark.0);
        let marks = marks.iter().filter(here).copied().collect();
        let (title, places) = (title.to_owned(), places.clone());
        Panel { chart, title, places, lines, marks, left, width, x, y }
    };
    parts.into_iter().map(panel).collect()
}

/// Letters in the longest of these names.
fn longest(places: &[&str]) -> f64 {
    places.iter().map(|place| place.chars().count()).max().unwrap_or(0) as f64
}

impl Panel<'_> {
    /// The right end of the plot.
    fn right(&self) -> f64 {
        self.width - RIGHT
    }

    /// The lines' names, in rows that fit.
    fn legend(&self) -> Vec<Vec<&Line>> {
        let mut rows: Vec<Vec<&Line>> = vec![Vec::new()];
        let mut used = 0.0;
        for line in self.lines.iter().filter(|line| !line.name.is_empty()) {
            let width = entry_width(line);
            if used + width > self.width - 24.0 && used > 0.0 {
                rows.push(Vec::new());
                used = 0.0;
            }
            used += width;
            if let Some(row) = rows.last_mut() {
                row.push(line);
            }
        }
        rows
    }

    /// Whether names on the axis are too long and drawn slanted.
    fn aslant(&self) -> bool {
        let room = (self.right() - self.left) / self.places.len().max(1) as f64;
        longest(&self.places) * LETTER > room
    }

    /// Top of the legend.
    fn below(&self) -> f64 {
        if self.aslant() { self.label() + 24.0 } else { HEIGHT }
    }

    /// Position of the horizontal axis label.
    fn label(&self) -> f64 {
        if self.aslant() { BOTTOM + 36.0 + longest(&self.places) * ASLANT.1 } else { BOTTOM + 36.0 }
    }

    fn height(&self) -> f64 {
        let rows = self.legend().len() + usize::from(!self.marks.is_empty());
        self.below() + LEGEND * rows as f64
    }

    fn draw(&self, out: &mut String) {
        text(out, self.left, 20.0, "start", "title", &self.title);
        self.draw_axes(out);
        if self.chart.y_axis.alike {
            let (left, right) = (self.left, self.right());
            let _ =
                write!(out, r#"<path class="axis dashed" d="M{left} {BOTTOM}L{right} {TOP}"/>"#);
            text(out, right - 4.0, TOP + 26.0, "end", "", "y = x");
        }
        if self.places.is_empty() {
            for (line, above) in self.lines.iter().zip((0..self.lines.len()).rev()) {
                self.draw_line(out, line, above);
            }
        } else {
            self.draw_bars(out);
        }
        self.draw_levels(out);
        for &(colour, x, y) in &self.marks {
            let x = if self.places.is_empty() {
                self.x.place(x)
            } else {
                let (left, width) = self.bar(colour, x);
                left + width / 2.0
            };
            draw_mark(out, COLOURS[colour % COLOURS.len()], (x, self.y.place(y)));
        }
        self.draw_legend(out);
    }

    fn draw_axes(&self, out: &mut String) {
        let (left, right) = (self.left, self.right());
        for tick in self.y.ticks() {
            let y = self.y.place(tick);
            let _ = write!(out, r#"<path class="grid" d="M{left} {y:.1}H{right}"/>"#);
            text(out, self.left - 6.0, y + 4.0, "end", "", &label(tick));
        }
        if self.places.is_empty() {
            for tick in self.x.ticks() {
                let x = self.x.place(tick);
                let _ = write!(out, r#"<path class="axis" d="M{x:.1} {BOTTOM}v4"/>"#);
                text(out, x, BOTTOM + 17.0, "middle", "", &label(tick));
            }
        }
        let aslant = self.aslant();
        for (at, place) in self.places.iter().enumerate() {
            let (x, y) = (self.x.place(at as f64), BOTTOM + 15.0);
            if aslant {
                let _ = write!(out, r#"<g transform="translate({x:.1} {y}) rotate(-28)">"#);
                text(out, 4.0, 0.0, "end", "", place);
                out.push_str("</g>");
            } else {
                text(out, x, y + 2.0, "middle", "", place);
            }
        }
        let _ = write!(out, r#"<path class="axis" d="M{left} {BOTTOM}H{right}"/>"#);
        let middle = f64::midpoint(self.left, right);
        text(out, middle, self.label(), "middle", "", self.chart.x_axis.label);
        let (across, middle) = (self.left - LEFT + 16.0, f64::midpoint(TOP, BOTTOM));
        let _ = write!(out, r#"<g transform="translate({across} {middle}) rotate(-90)">"#);
        text(out, 0.0, 0.0, "middle", "", self.chart.y_axis.label);
        out.push_str("</g>");
    }

    /// Draws a line. `above` lines are drawn over it: its larger points remain visible where they
    /// overlap.
    fn draw_line(&self, out: &mut String, line: &Line, above: usize) {
        let radius = if line.points.len() > MANY { 1.8 } else { 2.6 + above as f64 };
        let colour = COLOURS[line.colour % COLOURS.len()];
        let dashed = if line.column > 0 { " dashed" } else { "" };
        let places = || line.points.iter().map(|p| (self.x.place(p.x), self.y.place(p.y)));
        if !self.chart.y_axis.alike {
            let path = places().map(|(x, y)| format!("{x:.1} {y:.1}"));
            let path = path.collect::<Vec<String>>().join("L");
            let _ = write!(out, r#"<path class="line{dashed}" stroke="{colour}" d="M{path}"/>"#);
        }
        for ((x, y), point) in places().zip(&line.points) {
            let _ =
                write!(out, r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius}" fill="{colour}"/>"#);
            self.draw_spread(out, colour, x, point);
        }
    }

    /// Draws the spread over rounds as an error bar.
    fn draw_spread(&self, out: &mut String, colour: &str, x: f64, point: &Point) {
        if point.spread <= 0.0 {
            return;
        }
        let low = point.y - point.spread;
        let low = if self.chart.y_axis.log && low <= 0.0 { BOTTOM } else { self.y.place(low) };
        let (high, left) = (self.y.place(point.y + point.spread), x - 3.0);
        let _ = write!(
            out,
            r#"<path class="line" stroke="{colour}" d="M{x:.1} {low:.1}V{high:.1}M{left:.1} {high:.1}h6M{left:.1} {low:.1}h6"/>"#
        );
    }

    /// Draws the paper's horizontal lines.
    fn draw_levels(&self, out: &mut String) {
        let (left, right) = (self.left, self.right());
        for (what, y) in self.chart.levels() {
            let y = self.y.place(y);
            let _ = write!(out, r#"<path class="axis dashed" d="M{left} {y:.1}H{right}"/>"#);
            text(out, right - 4.0, y - 4.0, "end", "over", what);
        }
    }

    /// Start and width of the bar of a colour. Bars stand side by side, in the order of series.
    fn bar(&self, colour: usize, place: f64) -> (f64, f64) {
        let at = |line: &Line| line.points.iter().any(|p| (p.x - place).abs() < 0.5);
        let mut here: Vec<usize> =
            self.lines.iter().filter(|line| at(line)).map(|line| line.colour).collect();
        here.dedup();
        let beside = here.iter().position(|one| *one == colour).unwrap_or(0);
        let room = (self.right() - self.left) / self.places.len() as f64 * 0.8;
        let width = room / here.len().max(1) as f64;
        (self.x.place(place) - room / 2.0 + width * beside as f64, width)
    }

    fn draw_bars(&self, out: &mut String) {
        for line in &self.lines {
            let colour = COLOURS[line.colour % COLOURS.len()];
            for point in &line.points {
                let (x, width) = self.bar(line.colour, point.x);
                let (y, wide) = (self.y.place(point.y), (width - 1.0).max(1.0));
                if line.column > 0 {
                    let _ = write!(
                        out,
                        r#"<path class="line" stroke="{colour}" d="M{x:.1} {y:.1}h{wide:.1}"/>"#
                    );
                    continue;
                }
                let base = self.y.place(0.0).min(BOTTOM);
                let (top, tall) = (y.min(base), (base - y).abs().max(0.5));
                let _ = write!(
                    out,
                    r#"<rect x="{x:.1}" y="{top:.1}" width="{wide:.1}" height="{tall:.1}" fill="{colour}"/>"#
                );
                self.draw_spread(out, "#7f7f7f", x + wide / 2.0, point);
            }
        }
    }

    fn draw_legend(&self, out: &mut String) {
        for (at, row) in self.legend().into_iter().enumerate() {
            let (mut x, y) = (24.0, self.below() + LEGEND * at as f64);
            for line in row {
                let colour = COLOURS[line.colour % COLOURS.len()];
                let dashed = if line.column > 0 { " dashed" } else { "" };
                let middle = y - 4.0;
                let _ = write!(
                    out,
                    r#"<path class="line{dashed}" stroke="{colour}" d="M{x:.1} {middle}h18"/>"#
                );
                text(out, x + 23.0, y, "start", "", &line.name);
                x += entry_width(line);
            }
        }
        if !self.marks.is_empty() {
            let y = self.below() + LEGEND * self.legend().len() as f64;
            draw_mark(out, "none", (33.0, y - 4.0));
            text(out, 47.0, y, "start", "", "the paper's number, in the colour of its line");
        }
    }
}

/// Draws a number of the paper as a diamond.
fn draw_mark(out: &mut String, colour: &str, (x, y): (f64, f64)) {
    let top = y - 5.5;
    let _ = write!(
        out,
        r#"<path class="mark" fill="{colour}" d="M{x:.1} {top:.1}l5.5 5.5l-5.5 5.5l-5.5 -5.5z"/>"#
    );
}

fn entry_width(line: &Line) -> f64 {
    36.0 + LETTER * line.name.chars().count() as f64
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, class: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = write!(
        out,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" class="{class}">{words}</text>"#
    );
}
