//! `--algorithm auto`: the engine chooses, and says why.

use std::path::{Path, PathBuf};

use flowgauge_capture::Captures;
use flowgauge_engine::Config;
use flowgauge_engine::auto::{Choice, Sample, Tried, choose};
use flowgauge_engine::sink::layout::{Align, Page, Table, paragraph};
use flowgauge_engine::sink::units::{count, percent};
use flowgauge_options::Asked;
use serde_json::{Value, json};

use crate::failure::{Failure, complain};

/// Candidates that an explanation lists at most.
const LISTED: usize = 15;

/// The configurations with an algorithm chosen where that is left to the engine; each choice is told on
/// standard error.
pub(crate) fn decided(asked: Vec<Asked>, files: &[PathBuf]) -> Result<Vec<Config>, Failure> {
    let decide = |asked: Asked| {
        Ok(match chosen(&asked, files)? {
            Some(choice) => {
                complain(&line(&choice));
                choice.config
            }
            None => asked.config,
        })
    };
    asked.into_iter().map(decide).collect()
}

/// What is chosen, where it is left to the engine: for the first of the files that can be read
/// twice, or for packets as on a backbone.
pub(crate) fn chosen(asked: &Asked, files: &[PathBuf]) -> Result<Option<Choice>, Failure> {
    let Some(wanted) = asked.wanted()? else { return Ok(None) };
    let sample = match files.iter().find(|file| again(file)) {
        Some(file) => Sample::of(&mut Captures::open([file])),
        None => backbone()?,
    };
    let sample = if sample.is_empty() { backbone()? } else { sample };
    Ok(Some(choose(&asked.config, wanted, sample)?))
}

fn backbone() -> Result<Sample, Failure> {
    Sample::backbone().map_err(|error| Failure::Failed(error.to_string()))
}

/// Whether the file gives the same bytes when it is opened once more.
fn again(file: &Path) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file())
}

/// The choice in a line.
fn line(choice: &Choice) -> String {
    let chosen = choice.tried.first().map_or_else(String::new, |tried| {
        format!("{}: {}, {:.1} ns per packet", tried.name, within(tried), tried.ns)
    });
    let second = choice
        .tried
        .get(1)
        .map_or_else(String::new, |tried| format!("; next is {} ({:.1} ns)", tried.name, tried.ns));
    format!("auto chose {chosen}{second}; see 'flowgauge explain' for the trials")
}

fn within(tried: &Tried) -> String {
    match tried.error {
        Some(0.0) => "exact".to_owned(),
        Some(error) => format!("within {}", percent(error)),
        None => "of unknown error".to_owned(),
    }
}

/// What was tried, for an explanation.
pub(crate) fn section(page: &mut Page, choice: &Choice) {
    page.heading("Chosen on this machine");
    let outlook = format!(
        "for epochs of {} packets and {} flows, estimated from a sample",
        count(choice.packets),
        count(choice.flows)
    );
    paragraph(page, "  ", &outlook);
    let (left, right) = (Align::Left, Align::Right);
    let mut table =
        Table::new(&[("", left), ("ns per packet", right), ("bounds", right), ("", left)]);
    for tried in choice.tried.iter().take(LISTED) {
        let reason = tried.reason.map_or("chosen".to_owned(), |reason| reason.to_string());
        let ns = format!("{:.1}", tried.ns);
        table.row(
            vec![tried.name.clone().into(), ns.into(), within(tried).into(), reason.into()],
            0.0,
        );
    }
    table.write(page);
    if choice.tried.iter().any(|tried| tried.error.is_none()) {
        let unknown = "the error is unknown where a table was full on the sample, the largest \
                       flow was not listed, or no flow was large enough to list; only the last \
                       is chosen, and only if nothing else can be";
        paragraph(page, "  ", unknown);
    }
}

/// What was tried, for programs.
pub(crate) fn value(choice: &Choice) -> Value {
    let tried = choice.tried.iter().map(|tried| {
        json!({
            "name": tried.name,
            "ns_per_packet": tried.ns,
            "error": tried.error,
            "refused": tried.reason.map(|reason| reason.to_string()),
        })
    });
    json!({
        "packets": choice.packets,
        "flows": choice.flows,
        "tried": tried.collect::<Vec<_>>(),
    })
}
