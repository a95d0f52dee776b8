//! The `flowgauge-lab` command: measures the accuracy of every algorithm of the catalog at every
//! task it answers, and its speed, and guards against regressions.
//!
//! It measures what users get: the catalog builds the summaries, and the tasks read them. Traffic
//! is generated in memory, with the same packets on every run and machine, and counted exactly.
#![forbid(unsafe_code)]

mod accuracy;
mod args;
mod exact;
mod experiment;
mod failure;
mod keys;
mod machine;
mod peers;
mod score;
mod speed;
#[cfg(test)]
mod tests;
mod traffic;
mod trial;

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use flowgauge_kernel::Isa;

use accuracy::table::Row;
use accuracy::{gate, plan, table};
use args::{Accuracy, Cli, Command, Gate, Speed};
use failure::Failure;

fn main() -> ExitCode {
    answer(&Cli::parse().command, &mut io::stdout(), &mut io::stderr())
}

/// Executes a command, and returns its exit code; an error goes to `err`.
fn answer(command: &Command, out: &mut impl Write, err: &mut impl Write) -> ExitCode {
    let done = Isa::selected().map_err(|error| error.to_string());
    let done = done.and_then(|_| execute(command, out).map_err(|failure| failure.to_string()));
    done.unwrap_or_else(|error| {
        // If standard error is closed, there is nowhere to report it.
        let _ = writeln!(err, "flowgauge-lab: {error}");
        ExitCode::from(2)
    })
}

fn execute(command: &Command, out: &mut impl Write) -> Result<ExitCode, Failure> {
    match command {
        Command::Accuracy(accuracy) => write_accuracy(accuracy, out),
        Command::Gate(gate) => pass_gate(gate, out),
        Command::Speed(speed) => write_speed(speed),
        Command::Peers(peers) => peers::measure(peers).map(|()| ExitCode::SUCCESS),
        Command::List => experiment::list(out).map(|()| ExitCode::SUCCESS),
        Command::Judge(judge) => experiment::judge(judge).map(|()| ExitCode::SUCCESS),
        Command::Run(run) => experiment::run(run).map(|()| ExitCode::SUCCESS),
        Command::Sweep(sweep) => speed::sweep(sweep).map(|()| ExitCode::SUCCESS),
    }
}

fn write_accuracy(accuracy: &Accuracy, out: &mut impl Write) -> Result<ExitCode, Failure> {
    let mut rows = Vec::new();
    for form in accuracy.forms() {
        rows.extend(accuracy::rows(&form, &accuracy.selection)?);
    }
    match &accuracy.output {
        Some(path) => write_table(path, &rows)?,
        None => table::write(&rows, out).map_err(Failure::of("standard output"))?,
    }
    for finding in gate::broken(&rows) {
        eprintln!("flowgauge-lab: {finding}");
    }
    Ok(ExitCode::SUCCESS)
}

fn write_table(path: &Path, rows: &[Row]) -> Result<(), Failure> {
    let failed = Failure::of(path.display());
    let mut file = BufWriter::new(File::create(path).map_err(&failed)?);
    table::write(rows, &mut file).and_then(|()| file.flush()).map_err(&failed)
}

fn pass_gate(gate: &Gate, out: &mut impl Write) -> Result<ExitCode, Failure> {
    let path = &gate.baseline;
    let file = File::open(path).map_err(Failure::of(path.display()))?;
    let form = plan::Form::small(&gate.selection);
    let mut baseline = table::read(BufReader::new(file), path)?;
    baseline.retain(|row| form.has(row) && gate.selection.has(row));
    let rows = accuracy::rows(&form, &gate.selection)?;
    let findings = gate::compare(&baseline, &rows);
    findings
        .iter()
        .try_for_each(|finding| writeln!(out, "{finding}"))
        .and_then(|()| writeln!(out, "{} rows, {} findings", rows.len(), findings.len()))
        .map_err(Failure::of("standard output"))?;
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write_speed(speed: &Speed) -> Result<ExitCode, Failure> {
    let met = speed::measure(speed)?;
    Ok(if met || !speed.check { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
