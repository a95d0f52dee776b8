//! Lines of CSV: cells that any reader splits, and that no spreadsheet runs.

use std::io::{self, Write};

use super::tables::{Column, Value};
use super::{escape, rfc3339};

/// Writes the names of the columns as a line.
///
/// # Errors
/// When `out` cannot be written.
pub fn header(columns: &[Column], out: &mut dyn Write) -> io::Result<()> {
    line(columns.iter().map(|column| quoted(&column.name)), out)
}

/// Writes the values of a row as a line. Where there is none, the cell is empty; times are as in RFC 3339.
///
/// Text reads back where an apostrophe before it, and escapes in it, are undone: an apostrophe stands before
/// what a spreadsheet would take for a formula, and before an apostrophe; control characters are
/// escapes, and a backslash is doubled.
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
    // Quotes also keep spaces at the ends from readers who trim.
    if text.contains(['"', ',']) || text.trim().len() < text.len() {
        format!("\"{guard}{}\"", text.replace('"', "\"\""))
    } else {
        format!("{guard}{text}")
    }
}
