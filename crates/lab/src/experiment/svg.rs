//! Charts as one SVG picture, readable on light and dark grounds.

use std::fmt::Write;

use super::chart::{Chart, Line};
use super::scale::{Scale, label};
use super::table::Table;

/// Size of a panel without its legend.
const WIDTH: f64 = 500.0;
const HEIGHT: f64 = 310.0;

/// More names than these along an axis need a panel of twice the width.
const MANY: usize = 12;

/// The plot within its panel: what is left and right of it, and where it ends.
const LEFT: f64 = 68.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 250.0;

/// Height of a line of the legend, and width of a letter.
const LEGEND: f64 = 17.0;
const LETTER: f64 = 6.4;

/// Colours that are told apart by most eyes, on white and on black.
const COLOURS: [&str; 10] = [
    "#2f7fd1", "#e0700f", "#16a06c", "#d33f6a", "#8e63ce", "#a58200", "#1fa3ad", "#7f7f7f",
    "#b0563a", "#5f8f1f",
];

const STYLE: &str = "<style>\
:root{--ground:#fff;--ink:#1c1e21;--faint:#d9dce0}\
@media(prefers-color-scheme:dark){:root{--ground:#14171a;--ink:#e4e6e8;--faint:#3a3f45}}\
text{font:12px system-ui,sans-serif;fill:var(--ink)}\
.title{font-weight:600;font-size:13px}\
.ground{fill:var(--ground)}\
.grid{stroke:var(--faint);stroke-width:1}\
.axis{stroke:var(--ink);stroke-width:1}\
.line{fill:none;stroke-width:1.8}\
.dashed{stroke-dasharray:5 3}\
</style>";

/// Draws panels, two beside each other.
pub(crate) fn draw(charts: &[Chart], table: &Table) -> String {
    let panels: Vec<Panel<'_>> = charts.iter().map(|chart| Panel::new(chart, table)).collect();
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

/// A chart with what it draws.
struct Panel<'a> {
    chart: &'a Chart,
    places: Vec<&'a str>,
    lines: Vec<Line>,
    width: f64,
    x: Scale,
    y: Scale,
}

impl<'a> Panel<'a> {
    fn new(chart: &'a Chart, table: &'a Table) -> Self {
        let (places, lines) = (chart.places(table), chart.lines(table));
        let points = || lines.iter().flat_map(|line| &line.points);
        let width = if places.len() > MANY { 2.0 * WIDTH } else { WIDTH };
        let right = width - RIGHT;
        let x = match places.len() {
            0 => Scale::around(points().map(|point| point.0), chart.x_axis.log, LEFT, right),
            count => Scale::between(-0.5, count as f64 - 0.5, LEFT, right),
        };
        let y = Scale::of(points().map(|point| point.1), chart.y_axis.log, BOTTOM, TOP);
        if chart.y_axis.alike {
            let both = || points().flat_map(|point| [point.0, point.1]);
            let x = Scale::of(both(), chart.x_axis.log, LEFT, right);
            let y = Scale::of(both(), chart.y_axis.log, BOTTOM, TOP);
            return Self { chart, places, lines, width, x, y };
        }
        Self { chart, places, lines, width, x, y }
    }

    /// Where the plot ends.
    fn right(&self) -> f64 {
        self.width - RIGHT
    }

    /// The lines' names, in rows that fit.
    fn legend(&self) -> Vec<Vec<&Line>> {
        let mut rows: Vec<Vec<&Line>> = vec![Vec::new()];
        let mut used = 0.0;
        for line in &self.lines {
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

    /// Whether the names of places are so long that they are written aslant.
    fn aslant(&self) -> bool {
        let room = (self.right() - LEFT) / self.places.len().max(1) as f64;
        self.places.iter().any(|place| place.len() as f64 * LETTER > room)
    }

    /// Where the legend begins.
    fn below(&self) -> f64 {
        if self.aslant() { HEIGHT + 20.0 } else { HEIGHT }
    }

    fn height(&self) -> f64 {
        self.below() + LEGEND * self.legend().len() as f64
    }

    fn draw(&self, out: &mut String) {
        text(out, LEFT, 20.0, "start", "title", self.chart.title);
        self.draw_axes(out);
        if self.chart.y_axis.alike {
            let right = self.right();
            let _ = write!(
                out,
                r#"<path class="line" stroke="var(--faint)" d="M{LEFT} {BOTTOM}L{right} {TOP}"/>"#
            );
        }
        if self.places.is_empty() {
            self.lines.iter().for_each(|line| self.draw_line(out, line));
        } else {
            self.draw_bars(out);
        }
        self.draw_legend(out);
    }

    fn draw_axes(&self, out: &mut String) {
        let right = self.right();
        for tick in self.y.ticks() {
            let y = self.y.place(tick);
            let _ = write!(out, r#"<path class="grid" d="M{LEFT} {y:.1}H{right}"/>"#);
            text(out, LEFT - 6.0, y + 4.0, "end", "", &label(tick));
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
        let _ = write!(out, r#"<path class="axis" d="M{LEFT} {BOTTOM}H{right}"/>"#);
        let below = if aslant { BOTTOM + 62.0 } else { BOTTOM + 36.0 };
        text(out, f64::midpoint(LEFT, right), below, "middle", "", self.chart.x_axis.label);
        let middle = f64::midpoint(TOP, BOTTOM);
        let _ = write!(out, r#"<g transform="translate(16 {middle}) rotate(-90)">"#);
        text(out, 0.0, 0.0, "middle", "", self.chart.y_axis.label);
        out.push_str("</g>");
    }

    fn draw_line(&self, out: &mut String, line: &Line) {
        let colour = COLOURS[line.colour % COLOURS.len()];
        let dashed = if line.column > 0 { " dashed" } else { "" };
        let places = line.points.iter().map(|&(x, y)| (self.x.place(x), self.y.place(y)));
        if !self.chart.y_axis.alike {
            let path = places.clone().map(|(x, y)| format!("{x:.1} {y:.1}"));
            let path = path.collect::<Vec<String>>().join("L");
            let _ = write!(out, r#"<path class="line{dashed}" stroke="{colour}" d="M{path}"/>"#);
        }
        for (x, y) in places {
            let _ = write!(out, r#"<circle cx="{x:.1}" cy="{y:.1}" r="2.6" fill="{colour}"/>"#);
        }
    }

    /// The bars of a place stand side by side, in the order of series.
    fn draw_bars(&self, out: &mut String) {
        let at =
            |line: &Line, place: f64| line.points.iter().any(|point| (point.0 - place).abs() < 0.5);
        let room = (self.right() - LEFT) / self.places.len() as f64 * 0.8;
        for line in &self.lines {
            let colour = COLOURS[line.colour % COLOURS.len()];
            for &(place, height) in &line.points {
                let mut here: Vec<usize> =
                    self.lines.iter().filter(|l| at(l, place)).map(|line| line.colour).collect();
                here.dedup();
                let beside = here.iter().position(|colour| *colour == line.colour).unwrap_or(0);
                let width = room / here.len().max(1) as f64;
                let x = self.x.place(place) - room / 2.0 + width * beside as f64;
                let y = self.y.place(height);
                let _ = if line.column == 0 {
                    let tall = (BOTTOM - y).max(0.5);
                    write!(
                        out,
                        r#"<rect x="{x:.1}" y="{y:.1}" width="{:.1}" height="{tall:.1}" fill="{colour}"/>"#,
                        (width - 1.0).max(1.0)
                    )
                } else {
                    write!(
                        out,
                        r#"<path class="line" stroke="{colour}" d="M{x:.1} {y:.1}h{:.1}"/>"#,
                        (width - 1.0).max(1.0)
                    )
                };
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
    }
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
