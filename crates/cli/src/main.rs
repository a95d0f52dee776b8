//! The `flowgauge` command.
#![forbid(unsafe_code)]

mod agent;
mod analyze;
mod args;
mod config;
mod cut;
mod dpdk;
mod explain;
mod failure;
mod generate;
mod list;
mod live;
mod output;
mod progress;
mod shell;
mod signals;
mod snapshots;
mod tap;
mod values;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use flowgauge_kernel::Isa;

use args::{Cli, Command};
use failure::{FINE, Failure, USAGE};

fn main() -> ExitCode {
    if let Err(error) = Isa::selected() {
        return Failure::Usage(error.to_string()).report();
    }
    let mut cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => FINE,
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => USAGE,
                _ => return failure::refused(&error).report(),
            };
            // Help that is not read to its end is not a failure.
            let _ = error.print();
            return code.into();
        }
    };
    if let Err(failure) = cli.command.settle() {
        return failure.report();
    }
    let done = match &cli.command {
        Command::Analyze(reading) => analyze::run(reading),
        Command::Live(live) => live::run(live),
        Command::Generate(generation) => generate::run(generation).map(|()| FINE),
        Command::Cut(cutting) => cut::run(cutting).map(|()| FINE),
        Command::List(listing) => list::run(listing).map(|()| FINE),
        Command::Query(query) => snapshots::query(query).map(|()| FINE),
        Command::Merge(merging) => snapshots::merge(merging).map(|()| FINE),
        Command::Explain(reading) => explain::run(reading).map(|()| FINE),
        Command::Run(options) => agent::run(options),
        Command::Collect(options) => agent::collect(options),
        Command::Helper(options) => agent::help(options),
        Command::Top(options) => agent::top(options).map(|()| FINE),
        Command::Check(options) => agent::check(options),
        Command::Completions { shell } => shell::completions(*shell).map(|()| FINE),
        Command::Man => shell::man().map(|()| FINE),
    };
    done.map_or_else(Failure::report, ExitCode::from)
}
