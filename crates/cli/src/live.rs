//! `flowgauge live`: packets of an interface in, a report each epoch out.

use std::io::{self, Write};

use flowgauge_engine::sink::visible;
use flowgauge_engine::{EpochLength, Pace, Plan};
use flowgauge_live::AfPacket;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::args::Live;
use crate::auto;
use crate::config::configs;
use crate::failure::{FAILED, FINE, Failure, complain};
use crate::output::{self, Flags};
use crate::signals;

/// How long an epoch is where nobody says.
const EPOCH: EpochLength = EpochLength::Time(10_000_000_000);

/// Runs the command until a signal or the limit ends it, and gives its exit code.
pub(crate) fn run(live: &Live) -> Result<u8, Failure> {
    let run = &live.run;
    if run.limit == 0 {
        let message = "--limit 0 is for analyze; give live a limit of 1 or more";
        return Err(Failure::Usage(message.to_owned()));
    }
    let mut configs = auto::decided(configs(run, EPOCH)?, &[])?;
    for config in &mut configs {
        config.pace = Pace::Live;
    }
    let rows = output::rows(&configs);
    let inputs: Vec<_> = run.inputs().collect();
    let save = output::save(run, &configs, &inputs)?;
    let plan = Plan::several(configs)?;
    let stop = signals::stop(&[SIGINT, SIGTERM])?;
    let interface = &live.interface;
    let mut source = AfPacket::open(interface, !live.no_promiscuous_mode, stop)
        .map_err(|error| Failure::Failed(error.to_string()))?;
    let flags = Flags { reopen: signals::reopen()?, ..Flags::default() };
    let sink = output::reports(&run.output, rows, &inputs, Pace::Live, flags)?;
    let mut sinks = vec![sink];
    sinks.extend(save);
    let mut outlets = output::outlets(Pace::Live, sinks)?;
    let ended = flowgauge_engine::run(plan, &mut source, &mut outlets, &mut |_| {});
    let (outcome, complete) = output::finish_live(outlets, ended)?;
    let account = &outcome.total.account;
    // For a person who waits, whatever the report's format and wherever it goes.
    let _ = writeln!(
        io::stderr(),
        "{}: {} packets received, {} dropped by the kernel, {} measured",
        visible(interface),
        account.read + account.lost,
        account.lost,
        account.keyed,
    );
    for problem in &outcome.problems {
        complain(&problem.to_string());
    }
    Ok(if outcome.problems.is_empty() && complete { FINE } else { FAILED })
}
