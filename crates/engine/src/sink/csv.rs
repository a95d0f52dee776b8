//! CSV whose cells any reader can split and no spreadsheet runs as formulas.

use std::io::{self, Write};

use super::tables::{Column, Value};
use super::{escape, rfc3339};

/// Writes the header line: the names of the columns.
///
/// # Errors
/// When `out` cannot be written.
pub fn header(columns: &[Column], out: &mut dyn Write) -> io::Result<()> {
    line(columns.iter().map(|column| quoted(&column.name)), out)
}

/// Writes the values of a row as a line. A missing value is an empty cell. Times follow RFC 3339.
///
/// Text is escaped and can be read back: an apostrophe is put before text that a spreadsheet would
/// take for a formula, or that begins with an apostrophe. Control characters become escapes, and
/// backslashes are doubled.
///
/// # Errors
/// When `out` cannot be written.
pub fn row(values: &[Value], out: &mut dyn Write) -> io::Result<()> {
    line(values.iter().map(cell), out)
}

fn line(cells: impl Iterator<Item = String>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", cells.collect::<Vec<_>>().join(","))
}

fn cell(value: &Value) -> String {
    match value {
        Value::Text(text) => text.as_deref().map(quoted),
        Value::Whole(number) => number.map(|number| number.to_string()),
        Value::Real(number) => number.map(|number| number.to_string()),
        Value::Time(ns) => ns.map(rfc3339),
    }
    .unwrap_or_default()
}

fn quoted(text: &str) -> String {
    let text = text.replace('\\', r"\\");
    let text = escape::visible(&text);
    let formula = text.trim_start().starts_with(['=', '+', '-', '@', '\'']);
    let guard = if formula { "'" } else { "" };
    // Quotes also protect leading and trailing spaces from readers that trim.
    if text.contains(['"', ',']) || text.trim().len() < text.len() {
        format!("\"{guard}{}\"", text.replace('"', "\"\""))
    } else {
        format!("{guard}{text}")
    }
}
