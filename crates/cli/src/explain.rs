//! `flowgauge explain`: what a run would do. It reserves all memory like a run, but reads no input.

use std::fmt::Write as _;

use flowgauge_core::catalog;
use flowgauge_core::task;
use flowgauge_engine::auto::Choice;
#[cfg(feature = "agent")]
use flowgauge_engine::sink::layout::Look;
use flowgauge_engine::sink::layout::{Align, Page, Table, paragraph};
use flowgauge_engine::sink::parameters;
use flowgauge_engine::sink::units::{count, memory, plural};
use flowgauge_engine::{Config, EpochLength, Explanation, Plan};
use serde_json::json;

use crate::args::Reading;
use crate::config;
use crate::config::configs as configs_asked;
use crate::failure::Failure;
use crate::output;
use crate::values::Format;

/// Runs the command.
pub(crate) fn run(reading: &Reading) -> Result<(), Failure> {
    let output = &reading.run.output;
    output.text_or_json("an explanation")?;
    let (mut configs, mut choices) = (Vec::new(), Vec::new());
    for asked in configs_asked(&reading.run, EpochLength::Whole)? {
        let choice = config::chosen(&asked, &reading.files)?;
        configs.push(choice.as_ref().map_or(asked.config, |choice| choice.config.clone()));
        choices.push(choice);
    }
    let plan = Plan::several(configs.clone())?;
    let explained: Vec<_> = plan.measurements().collect();
    let all_bytes: usize = explained.iter().map(Explanation::total_bytes).sum();
    let several = explained.len() > 1;
    let mut text = String::new();
    for ((config, explanation), choice) in configs.iter().zip(&explained).zip(&choices) {
        if output.format == Some(Format::Json) {
            text.push_str(&line(config, explanation, choice.as_ref()));
            continue;
        }
        if several {
            let _ = writeln!(text, "Measurement {}", config.name);
        }
        let mut page = Page::new(output.look(output.path.as_deref()));
        explain(&mut page, config, explanation);
        if let Some(choice) = choice {
            config::choice_section(&mut page, choice);
        }
        text.push_str(&page.into_text());
        if several {
            text.push('\n');
        }
    }
    if several {
        let measurements = explained.len();
        let _ = match output.format.unwrap_or_default() {
            Format::Json => {
                let kind = "sum";
                let sum =
                    json!({ "kind": kind, "measurements": measurements, "total_bytes": all_bytes });
                writeln!(text, "{sum}")
            }
            _ => writeln!(text, "{}", sum(measurements, all_bytes)),
        };
    }
    output::write(output.path.as_deref(), &text)
}

/// Explains the measurements of an agent's file as text.
#[cfg(feature = "agent")]
pub(crate) fn several(configs: &[Config], plan: &Plan) -> String {
    let mut text = String::new();
    let mut all_bytes = 0;
    for (config, explanation) in configs.iter().zip(plan.measurements()) {
        let mut page = Page::new(Look::default());
        explain(&mut page, config, &explanation);
        all_bytes += explanation.total_bytes();
        let _ = writeln!(text, "Measurement {}\n{}", config.name, page.into_text());
    }
    let _ = writeln!(text, "{}", sum(configs.len(), all_bytes));
    text
}

/// The memory of all measurements, as a sentence.
fn sum(measurements: usize, all_bytes: usize) -> String {
    let (measurements, bytes) = (plural(measurements as u64, "measurement"), memory(all_bytes));
    format!("All {measurements} take at most {bytes}.")
}

fn line(config: &Config, explanation: &Explanation, choice: Option<&Choice>) -> String {
    let summary = &explanation.summary;
    let lanes = explanation.lanes.iter().map(|lane| {
        json!({
            "key_bytes": lane.key_bytes,
            "memory_bytes": lane.memory_bytes,
            "flows": lane.flows,
        })
    });
    let line = json!({
        "kind": "explanation",
        "measurement": config.name,
        "key": config.key.to_string(),
        "by": config.by.name(),
        "epoch": config.epoch.to_string(),
        "updates": (config.updates != EpochLength::Whole).then(|| config.updates.to_string()),
        "algorithm": summary.algorithm,
        "accelerator": summary.accelerator,
        "parameters": parameters(&summary.parameters),
        "memory_bytes": summary.memory_bytes,
        "updates_bytes": explanation.updates_bytes,
        "workers": explanation.workers,
        "shared": explanation.shared,
        "dispatch": explanation.dispatch.name(),
        "parts": explanation.parts,
        "turns": explanation.turns,
        "same_numbers": explanation.workers == 1 || explanation.same,
        "lanes": lanes.collect::<Vec<_>>(),
        "audit_bytes": explanation.audit_bytes,
        "scratch_bytes": explanation.scratch_bytes,
        "history_bytes": explanation.history_bytes,
        "report_bytes": explanation.report_bytes,
        "saving_bytes": explanation.saving_bytes,
        "total_bytes": explanation.total_bytes(),
        "bounds": bounds(explanation),
        "tasks": explanation.tasks,
        "left_out": explanation.notes,
        "auto": choice.map(config::choice_value),
    });
    format!("{line}\n")
}

fn explain(page: &mut Page, config: &Config, explanation: &Explanation) {
    let summary = &explanation.summary;
    let length = match config.epoch {
        EpochLength::Whole => "the whole input as one epoch".to_owned(),
        other => format!("an epoch every {other}"),
    };
    let updates = match config.updates {
        EpochLength::Whole => String::new(),
        other => format!(", updated every {other}"),
    };
    paragraph(page, "", &format!("{} by {}, {length}{updates}", config.key, config.by.name()));

    page.heading("Algorithm");
    paragraph(page, &format!("  {}  ", summary.algorithm), "");
    if let Ok(info) = catalog::info(summary.algorithm) {
        paragraph(page, "  ", info.idea);
        paragraph(page, "  ", info.paper);
    }
    for (name, parameters) in &config.accelerators {
        if let Ok(info) = catalog::accelerator_info(name) {
            paragraph(page, "  ", &format!("behind {name}: {}", info.idea));
        }
        if let Ok(Some(promise)) = catalog::promise(name, parameters) {
            paragraph(page, "  ", &promise);
        }
    }
    for (name, value) in &summary.parameters {
        paragraph(page, "  ", &format!("{name} = {value}"));
    }
    paragraph(page, "  ", &format!("{}.", bounds(explanation)));

    if explanation.workers > 1 {
        page.heading("Workers");
        paragraph(page, "  ", &workers(explanation));
    }

    page.heading("Memory");
    let (left, right) = (("", Align::Left), ("", Align::Right));
    let mut table = Table::new(&[left, right, left]);
    for lane in &explanation.lanes {
        let name = match (explanation.lanes.len(), lane.key_bytes) {
            (1, _) => "flows",
            (_, bytes) if config.key.address_bytes(bytes) == 4 => "IPv4 flows",
            _ => "IPv6 flows",
        };
        let room = lane.flows.map(|flows| format!(", room for {}", plural(flows as u64, "flow")));
        let key = format!(
            "keys of {}{}",
            plural(lane.key_bytes as u64, "byte"),
            room.unwrap_or_default()
        );
        table.row(vec![name.into(), memory(lane.memory_bytes).into(), key.into()], 0.0);
    }
    for (name, bytes, what) in [
        ("audit", explanation.audit_bytes, "exact tables of the audited flows"),
        ("tasks", explanation.scratch_bytes, "working memory for the end of an epoch"),
        ("history", explanation.history_bytes, "history kept between epochs"),
        ("reserved", summary.memory_bytes, "at start, touched when used"),
        ("reports", explanation.report_bytes, "at most, with lists of full length"),
        ("snapshots", explanation.saving_bytes, "at most: one being written and one waiting"),
        ("in all", explanation.total_bytes(), ""),
    ] {
        if bytes > 0 {
            table.row(vec![name.into(), memory(bytes).into(), what.into()], 0.0);
        }
    }
    table.write(page);

    page.heading("Tasks");
    for name in &explanation.tasks {
        let question = task::find(name).map_or("", |entry| entry.question);
        paragraph(page, &format!("  {name:<17}  "), question);
    }
    if !explanation.notes.is_empty() {
        page.heading("Left out");
        for note in &explanation.notes {
            paragraph(page, "  · ", note);
        }
    }
}

/// How several workers divide the work, and how exact their numbers are.
fn workers(explanation: &Explanation) -> String {
    let sets = match (explanation.shared, explanation.sets) {
        (false, 1) => "each with summaries of its own",
        (false, _) => "each with two sets of summaries: one is filled while the other is read",
        (true, 1) => "which fill the same concurrent summaries",
        (true, _) => {
            "which fill the same two sets of concurrent summaries: one is filled while the other \
             is read"
        }
    };
    let numbers = if explanation.same {
        "the same numbers as one worker with the same parameters, unless a summary is full"
    } else {
        "numbers within the bounds, but not those of one worker"
    };
    let sums = match explanation.sums {
        0 => String::new(),
        sums => format!(
            ", and for updates {} to merge them: {} more than without",
            plural(sums as u64, "set"),
            memory(explanation.updates_bytes)
        ),
    };
    let (workers, dispatch) = (explanation.workers, explanation.dispatch.name());
    let parts = if explanation.parts {
        "each reads its own files or part of a file, where a file can be split; else "
    } else {
        ""
    };
    let way = if explanation.turns {
        "they read in turns"
    } else {
        &format!("one reads, and assigns packets to the others by {dispatch}")
    };
    format!("{workers} workers, {sets}{sums}; {parts}{way}; they give {numbers}.")
}

/// How exact the numbers of a run are.
fn bounds(explanation: &Explanation) -> String {
    let room: Option<usize> = explanation.lanes.iter().map(|lane| lane.flows).sum();
    match room {
        Some(flows) => format!(
            "Sizes are exact; packets of flows beyond the first {} are counted as untracked, and \
             widen the bounds of the answers they affect",
            count(flows as f64)
        ),
        None => "Sizes are estimates; reports give their bounds".to_owned(),
    }
}
