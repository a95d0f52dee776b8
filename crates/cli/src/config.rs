//! From the options to the configurations that the engine runs, with the choice of --algorithm
//! auto.

use std::path::{Path, PathBuf};

use flowgauge_capture::Captures;
use flowgauge_engine::auto::{Choice, Sample, Tried, choose};
use flowgauge_engine::sink::layout::{Align, Page, Table, paragraph};
use flowgauge_engine::sink::units::{count, percent};
use flowgauge_engine::{Config, EpochLength};
use flowgauge_options::{Asked, Refusal};
use serde_json::{Value, json};

use crate::args::Run;
use crate::failure::{Failure, complain};
use crate::values::{Destination, Format};

/// The measurements of the options. The default epoch is `epoch`. If an algorithm is replaced
/// because it does not answer the tasks, standard error names the new one.
pub(crate) fn configs(run: &Run, epoch: EpochLength) -> Result<Vec<Asked>, Failure> {
    let all = run.running.configs(epoch, run.stores())?;
    let tables =
        |output: &Destination| matches!(output.format, Some(Format::Csv | Format::Parquet));
    if all.iter().any(|asked| asked.measurement.updates.is_some())
        && run.destinations().iter().any(tables)
    {
        let message = "csv and parquet cannot hold updates; use --format json or text with \
                       --updates";
        return Err(Failure::Usage(message.to_owned()));
    }
    if !run.quiet {
        all.iter().filter_map(|asked| asked.note.as_ref()).for_each(|note| complain(note));
    }
    Ok(all)
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Usage(message) => Self::Usage(message),
            Refusal::Unreadable(message) => Self::Failed(message),
        }
    }
}

/// Most candidates that an explanation lists.
const LISTED: usize = 15;

/// The configurations, with the algorithm of `auto` chosen. Each choice is noted on standard error.
pub(crate) fn decided(asked: Vec<Asked>, files: &[PathBuf]) -> Result<Vec<Config>, Failure> {
    let decide = |asked: Asked| {
        Ok(match chosen(&asked, files)? {
            Some(choice) => {
                complain(&choice_line(&choice));
                choice.config
            }
            None => asked.config,
        })
    };
    asked.into_iter().map(decide).collect()
}

/// The choice of `auto`, if it is asked for: on the first of the files that can be read twice, or
/// on generated packets like those of a backbone.
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

/// Whether the file can be opened again with the same bytes.
fn again(file: &Path) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file())
}

/// The choice in one line.
fn choice_line(choice: &Choice) -> String {
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

/// Writes the candidates into an explanation.
pub(crate) fn choice_section(page: &mut Page, choice: &Choice) {
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

/// The candidates as JSON.
pub(crate) fn choice_value(choice: &Choice) -> Value {
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
