//! `flowgauge cut`: the parts of a capture, for readers in other processes.

use std::ops::Range;

use flowgauge_capture::{Whole, cut};
use flowgauge_engine::sink::layout::{Align, Page, Table, paragraph};
use serde_json::json;

use crate::args::Cutting;
use crate::failure::Failure;
use crate::output;
use crate::values::Format;

/// Runs the command.
pub(crate) fn run(cutting: &Cutting) -> Result<(), Failure> {
    let Cutting { file, parts, output } = cutting;
    output.text_or_json("the parts of a capture")?;
    let name = file.display().to_string();
    let (parts, reason) = match cut(file, *parts) {
        Ok(found) => (found.iter().map(|part| Some(part.bytes())).collect(), None),
        Err(error @ (Whole::NoFile | Whole::Unreadable(_))) => {
            return Err(Failure::Failed(format!("cannot cut {name}: {error}")));
        }
        Err(whole) => (vec![None], (*parts > 1).then(|| whole.to_string())),
    };
    let path = output.path.as_deref();
    let text = match output.format.unwrap_or_default() {
        Format::Json => lines(&name, &parts, reason.as_deref()),
        _ => page(Page::new(output.look(path)), &parts, reason.as_deref()),
    };
    output::write(path, &text)
}

/// Bytes of a part; `None` if it is the whole file.
type Bytes = Option<Range<u64>>;

fn offset(part: &Bytes) -> u64 {
    part.as_ref().map_or(0, |bytes| bytes.start)
}

fn length(part: &Bytes) -> Option<u64> {
    part.as_ref().map(|bytes| bytes.end - bytes.start)
}

/// The parts as lines of JSON.
fn lines(file: &str, parts: &[Bytes], reason: Option<&str>) -> String {
    let line = |(number, part): (usize, &Bytes)| {
        let line = json!({
            "file": file,
            "part": number,
            "parts": parts.len(),
            "offset": offset(part),
            "length": length(part),
            "reason": reason,
        });
        format!("{line}\n")
    };
    parts.iter().enumerate().map(line).collect()
}

/// The parts as text.
fn page(mut page: Page, parts: &[Bytes], reason: Option<&str>) -> String {
    let mut table =
        Table::new(&[("part", Align::Right), ("offset", Align::Right), ("length", Align::Right)]);
    for (number, part) in parts.iter().enumerate() {
        let length = length(part).map_or("all".to_owned(), |length| length.to_string());
        let cells = [number.to_string(), offset(part).to_string(), length];
        table.row(cells.map(Into::into).into(), 0.0);
    }
    table.write(&mut page);
    if let Some(reason) = reason {
        paragraph(&mut page, "", &format!("One part: {reason}."));
    }
    page.into_text()
}
