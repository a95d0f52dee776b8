//! Completion scripts and the manual page; `make install` installs them.

use std::io;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use flowgauge_core::catalog::{ACCELERATORS, ALGORITHMS};
use flowgauge_core::key::KeyKind;
use flowgauge_core::task::TASKS;

use crate::args::Cli;
use crate::failure::Failure;
use crate::output;

/// Prints the completion script for `shell`.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let (mut script, all) = (Vec::new(), Cli::command());
    // Scripts would complete hidden commands, too.
    let visible = all.get_subcommands().filter(|command| !command.is_hide_set());
    let mut command = Command::new("flowgauge")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .args(all.get_arguments())
        .subcommands(visible.cloned());
    for name in ["analyze", "live", "explain", "query"] {
        command = command.mut_subcommand(name, named);
    }
    clap_complete::generate(shell, &mut command, "flowgauge", &mut script);
    output::write(None, &String::from_utf8_lossy(&script))
}

/// The command with the possible names of algorithms, tasks and so on as values, so that shells
/// complete them.
fn named(command: Command) -> Command {
    let algorithms = ALGORITHMS.iter().map(|info| info.name).chain(["auto"]);
    let accelerators = ACCELERATORS.iter().map(|info| info.name).chain(["none"]);
    let keys = KeyKind::NAMED.map(|(name, _)| name);
    let tasks = TASKS.iter().map(|task| task.name);
    let lists: [(&str, Vec<&'static str>); 4] = [
        ("algorithm", algorithms.collect()),
        ("accelerator", accelerators.collect()),
        ("key", keys.to_vec()),
        ("task", tasks.collect()),
    ];
    lists.into_iter().fold(command, |command, (option, names)| {
        // 'query' has only two of these options.
        let has = command.get_arguments().any(|argument| argument.get_id() == option);
        let list = |argument: Arg| argument.value_parser(PossibleValuesParser::new(names));
        if has { command.mut_arg(option, list) } else { command }
    })
}

/// Prints the manual page: one page, with a section for each command.
pub(crate) fn man() -> Result<(), Failure> {
    let page = page().map_err(|error| Failure::output("the manual page", &error))?;
    output::write(None, &String::from_utf8_lossy(&page))
}

fn page() -> io::Result<Vec<u8>> {
    // The page is for any machine, so it does not name the instruction set of this one.
    let mut command = Cli::command().version(env!("CARGO_PKG_VERSION"));
    command.build();
    let commands: Vec<_> =
        command.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let main = Man::new(command);
    let mut page = Vec::new();
    main.render_title(&mut page)?;
    main.render_name_section(&mut page)?;
    main.render_synopsis_section(&mut page)?;
    main.render_description_section(&mut page)?;
    for command in commands {
        let heading = command.get_name().to_uppercase();
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let (man, mut options) = (Man::new(command), Vec::new());
        page.extend(format!(".SH {heading}\n{about}.\n.PP\n").bytes());
        man.render_options_section(&mut options)?;
        man.render_extra_section(&mut options)?;
        let options =
            String::from_utf8_lossy(&options).replace(".SH EXTRA\nExamples:", ".SH EXAMPLES");
        page.extend(options.replace(".SH ", ".SS ").bytes());
    }
    let mut extra = Vec::new();
    main.render_extra_section(&mut extra)?;
    page.extend(String::from_utf8_lossy(&extra).replace(".SH EXTRA", ".SH NOTES").bytes());
    main.render_version_section(&mut page)?;
    Ok(page)
}
