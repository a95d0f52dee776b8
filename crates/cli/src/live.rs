//! `flowgauge live`: packets of an interface in, a report each epoch out.

use std::io::{self, Write};

use flowgauge_engine::sink::visible;
use flowgauge_engine::source::Source;
use flowgauge_engine::{EpochLength, Outcome, Overrun, Pace, Plan};
use flowgauge_live::{Fanout, Options};
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
    let interfaces = &live.interface;
    let queues = queues(live)?;
    for config in &mut configs {
        config.pace = Pace::Live;
        config.queues = queues * interfaces.len();
        config.workers = run.workers / queues;
    }
    let inputs: Vec<_> = run.inputs().collect();
    let filter = match &configs[..] {
        [only] => only.filter.clone(),
        _ => None,
    };
    let options = Options {
        queues,
        fanout: live.fanout.unwrap_or(Fanout::Hash),
        ring_bytes: live.ring,
        promiscuous: !live.no_promiscuous_mode,
        filter,
    };
    let plan = Plan::several(configs.clone())?;
    let stop = signals::stop(&[SIGINT, SIGTERM])?;
    let mut sources: Vec<Box<dyn Source + Send>> = Vec::new();
    for interface in interfaces {
        let queues = flowgauge_live::open(interface, &options, &stop)
            .map_err(|error| Failure::Failed(error.to_string()))?;
        sources.extend(queues.into_iter().map(|queue| Box::new(queue) as _));
    }
    let flags = || Ok(Flags { reopen: signals::reopen()?, ..Flags::default() });
    let sinks = output::sinks(run, &configs, &inputs, Pace::Live, flags)?;
    let mut outlets = output::outlets(Pace::Live, sinks)?;
    let ended = flowgauge_engine::run_queues(plan, sources, &mut outlets);
    let (outcome, complete) = output::finish_live(outlets, ended)?;
    summarize(interfaces, &outcome);
    for problem in &outcome.problems {
        complain(&problem.to_string());
    }
    Ok(if outcome.problems.is_empty() && complete { FINE } else { FAILED })
}

/// Queues of each interface: one for each worker, or one whose packets are dealt to the workers.
fn queues(live: &Live) -> Result<usize, Failure> {
    let (run, interfaces) = (&live.run, live.interface.len());
    let queues = match live.fanout {
        None if interfaces == 1 => 1,
        _ => run.workers,
    };
    let refuse = |message: &str| Err(Failure::Usage(message.to_owned()));
    let names = &live.interface;
    if let Some(twice) = (1..interfaces).find(|at| names[..*at].contains(&names[*at])) {
        return refuse(&format!(
            "interface {} is named twice, and its packets would count twice; name it once",
            visible(&names[twice])
        ));
    }
    if interfaces > 1 && names.iter().any(|name| name == "any") {
        return refuse("-i any takes the packets of all interfaces; name no other one");
    }
    if queues * interfaces == 1 {
        return Ok(1);
    }
    if run.shared || run.dispatch.is_some() || run.overrun == Overrun::Drop {
        return refuse(
            "--shared, --dispatch and --overrun are for one queue: leave them out, or name one \
             interface without --fanout",
        );
    }
    if run.count.is_some() {
        return refuse(
            "-c counts the packets of one queue: leave it out, or name one interface without --fanout",
        );
    }
    Ok(queues)
}

/// Prints on standard error how many packets came, whatever the format and place of the report.
fn summarize(interfaces: &[String], outcome: &Outcome) {
    let account = &outcome.total.account;
    let _ = writeln!(
        io::stderr(),
        "{}: {} packets received, {} dropped by the kernel, {} measured",
        visible(&interfaces.join(", ")),
        account.read + account.lost,
        account.lost,
        account.keyed,
    );
}
