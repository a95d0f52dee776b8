//! The picture of a report in the README is what the command prints, in colour.

use std::fmt::Write;
use std::fs;

use crate::book::{DOCS, GENERATE, print, repository};

/// Lines of the report up to the end of its lists.
const LINES: usize = 42;

/// Pixels of a character and of a line.
const CHARACTER: f64 = 8.4;
const LINE: usize = 18;
const MARGIN: usize = 16;

/// Attributes of text in the style of an escape sequence.
fn style(codes: &str) -> &'static str {
    match codes {
        "0" => "",
        "1" => " font-weight=\"bold\"",
        "36" => " fill=\"#56b6c2\"",
        "1;31" => " font-weight=\"bold\" fill=\"#f47067\"",
        other => panic!("no style for {other}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The words of a line, up to two spaces, each with its place and style.
fn words(line: &str) -> Vec<(usize, &str, &'static str)> {
    let mut words = Vec::new();
    let mut column = 0;
    let mut attributes = "";
    for (index, part) in line.split("\x1b[").enumerate() {
        let mut rest = part;
        if index > 0 {
            let (codes, behind) = part.split_once('m').unwrap();
            attributes = style(codes);
            rest = behind;
        }
        while !rest.is_empty() {
            let (word, behind) = rest.split_at(rest.find("  ").unwrap_or(rest.len()));
            if !word.trim().is_empty() {
                let indent = word.len() - word.trim_start().len();
                words.push((column + indent, word.trim(), attributes));
            }
            let spaces = behind.len() - behind.trim_start_matches(' ').len();
            column += word.chars().count() + spaces;
            rest = &behind[spaces..];
        }
    }
    words
}

/// A terminal that shows these lines, as SVG. Each word has its own place and width, so that columns
/// stand below each other in any font.
fn terminal(lines: &[&str]) -> String {
    let mut texts = String::new();
    let mut columns = 0;
    for (row, line) in lines.iter().enumerate() {
        for (column, word, attributes) in words(line) {
            let length = word.chars().count();
            columns = columns.max(column + length);
            writeln!(
                texts,
                "<text x=\"{:.1}\" y=\"{}\" textLength=\"{:.1}\" \
                 lengthAdjust=\"spacingAndGlyphs\"{attributes}>{}</text>",
                MARGIN as f64 + CHARACTER * column as f64,
                MARGIN + LINE * row + 13,
                CHARACTER * length as f64,
                escaped(word),
            )
            .unwrap();
        }
    }
    let width = 2 * MARGIN + (CHARACTER * columns as f64).ceil() as usize;
    let height = 2 * MARGIN + LINE * lines.len();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" \
         aria-label=\"A report of flowgauge on a terminal\" \
         font-family=\"Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"14\" \
         fill=\"#d5dae0\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#1c2128\"/>\n{texts}</svg>\n"
    )
}

/// `FLOWGAUGE_GOLDEN=write` redraws the committed picture after an intended change.
#[test]
fn the_report_in_the_readme_is_current() {
    let folder = repository("picture");
    print(GENERATE, &folder);
    let options = "--seed 1 --top 5";
    let report = print(&format!("flowgauge analyze {options} --color always trace.pcap"), &folder);
    let prompt = format!("$ flowgauge analyze {options} trace.pcap");
    let mut lines = vec![prompt.as_str()];
    lines.extend(report.lines().take(LINES));
    lines.push("…");
    let picture = terminal(&lines);
    let path = format!("{DOCS}/images/report.svg");
    if std::env::var_os("FLOWGAUGE_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(&path, &picture).unwrap();
    }
    assert_eq!(fs::read_to_string(path).unwrap(), picture);
}
