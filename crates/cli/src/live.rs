//! `flowgauge live`: measures the packets of an interface, with a report for each epoch.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flowgauge_engine::sink::{units, visible};
use flowgauge_engine::source::Source;
use flowgauge_engine::{Config, EpochLength, Outcome, Overrun, Pace, Plan};
use flowgauge_live::{Fanout, LiveError, Options, Sockets, XdpOptions};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::args::Live;
use crate::config;
use crate::config::configs;
use crate::dpdk;
use crate::failure::{FAILED, FINE, Failure, complain};
use crate::output::{self, Flags};
use crate::progress::Verbose;
use crate::signals;
use crate::tap::Tap;

/// The default length of an epoch.
const EPOCH: EpochLength = EpochLength::Time(10_000_000_000);

/// The queues of all interfaces.
pub(crate) type Sources = Vec<Box<dyn Source + Send>>;

/// How packets are received from an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    AfPacket,
    AfXdp,
    Dpdk,
}

impl Engine {
    /// All of them, by name.
    pub(crate) const ALL: [(&'static str, Self); 3] =
        [("af-packet", Self::AfPacket), ("af-xdp", Self::AfXdp), ("dpdk", Self::Dpdk)];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, engine)| *engine == self).map_or("", |(name, _)| name)
    }

    /// Whether it takes incoming packets away from the host. DPDK takes them from network cards,
    /// whose names look like `0000:03:00.0`.
    fn takes(self, names: &[&str]) -> bool {
        match self {
            Self::AfPacket => false,
            Self::AfXdp => true,
            Self::Dpdk => names.iter().any(|name| name.contains(':')),
        }
    }
}

/// Runs the command until a signal or the limit ends it; returns its exit code.
pub(crate) fn run(live: &Live) -> Result<u8, Failure> {
    if live.list_interfaces {
        let names: Vec<_> =
            flowgauge_live::interfaces().iter().map(|name| visible(name).to_string()).collect();
        return output::write(None, &(names.join("\n") + "\n")).map(|()| FINE);
    }
    let run = &live.run;
    if run.running.limit == 0 {
        let message = "live needs a --limit of 1 or more (got 0)";
        return Err(Failure::Usage(message.to_owned()));
    }
    let mut configs = config::decided(configs(run, EPOCH)?, &[])?;
    let queues = queues(live)?;
    for config in &mut configs {
        config.pace = Pace::Live;
        config.queues = queues * live.interface.len();
        config.workers = run.running.workers / queues;
        // A thread that polls must not wait for a page.
        config.lock_memory = live.engine == Engine::Dpdk;
    }
    let inputs: Vec<_> = run.inputs().collect();
    let plan = Plan::several(configs.clone())?;
    let verbose = Verbose::begin(run, &configs, &plan);
    let stop = signals::stop(&[SIGINT, SIGTERM])?;
    let tap = Tap::new(run, &configs, &inputs)?;
    let sources = sources(live, queues, &configs, &stop)?;
    let sources: Sources = sources.into_iter().map(|source| tap.on_source(source)).collect();
    let flags = || Ok(Flags { reopen: signals::reopen()?, ..Flags::default() });
    let sinks = output::sinks(run, &configs, &inputs, Pace::Live, flags)?;
    if !run.quiet {
        announce(live, &configs);
    }
    let mut outlets = output::outlets(Pace::Live, sinks)?;
    let ended = flowgauge_engine::run_queues(plan, sources, &mut outlets);
    let (outcome, complete) = output::finish_live(outlets, ended)?;
    let written = tap.finish(outcome.problems.is_empty());
    if let Some(verbose) = verbose {
        verbose.end(&outcome);
    }
    if !run.quiet {
        summarize(live, &outcome);
    }
    for problem in &outcome.problems {
        complain(&problem.to_string());
    }
    Ok(if outcome.problems.is_empty() && complete && written { FINE } else { FAILED })
}

/// Opens the queues of all interfaces.
fn sources(
    live: &Live,
    queues: usize,
    configs: &[Config],
    stop: &Arc<AtomicBool>,
) -> Result<Sources, Failure> {
    let (ring_bytes, promiscuous) = (live.ring, !live.no_promiscuous_mode);
    match live.engine {
        Engine::AfPacket => {
            let fanout = live.fanout.unwrap_or(Fanout::Hash);
            let filter = match configs {
                [only] => only.filter.clone(),
                _ => None,
            };
            let sockets = Sockets::default();
            let options = Options { queues, fanout, ring_bytes, promiscuous, filter, sockets };
            each(live, |interface| flowgauge_live::open(interface, &options, stop))
        }
        Engine::AfXdp => {
            let busy_poll = live.busy_poll;
            let options = XdpOptions { queues, ring_bytes, promiscuous, busy_poll };
            each(live, |interface| flowgauge_live::open_xdp(interface, &options, stop))
        }
        Engine::Dpdk => dpdk::sources(live, queues, stop),
    }
}

/// Opens the queues of each interface.
fn each<Q: Source + Send + 'static>(
    live: &Live,
    open: impl Fn(&str) -> Result<Vec<Q>, LiveError>,
) -> Result<Sources, Failure> {
    let mut sources = Sources::new();
    for interface in &live.interface {
        let queues = open(interface).map_err(|error| Failure::Failed(error.to_string()))?;
        sources.extend(queues.into_iter().map(|queue| Box::new(queue) as _));
    }
    Ok(sources)
}

/// Number of queues of each interface: one for each worker, or one whose packets are dealt to the
/// workers.
fn queues(live: &Live) -> Result<usize, Failure> {
    let (run, interfaces) = (&live.run, live.interface.len());
    let queues = match (live.fanout, live.engine) {
        (None, Engine::AfPacket) if interfaces == 1 => 1,
        _ => run.running.workers,
    };
    let refuse = |message: &str| Err(Failure::Usage(message.to_owned()));
    let names: Vec<_> = live.interface.iter().map(|name| port_name(live.engine, name)).collect();
    if let Some(twice) = (1..interfaces).find(|at| names[..*at].contains(&names[*at])) {
        return refuse(&format!(
            "interface '{}' is named twice, so its packets would count twice; name it once",
            visible(names[twice])
        ));
    }
    if interfaces > 1 && names.contains(&"any") {
        return refuse("-i any already measures all interfaces; leave out the others");
    }
    match live.engine {
        Engine::AfPacket if live.takes_traffic => {
            return refuse("--takes-traffic needs --engine af-xdp or dpdk");
        }
        Engine::AfPacket | Engine::Dpdk if live.busy_poll => {
            return refuse("--busy-poll needs --engine af-xdp");
        }
        Engine::AfPacket | Engine::AfXdp if live.dpdk_args.is_some() => {
            return refuse("--dpdk-args needs --engine dpdk");
        }
        Engine::AfXdp | Engine::Dpdk if live.fanout.is_some() => {
            return refuse(
                "--fanout needs --engine af-packet; the other engines assign a worker to each queue",
            );
        }
        Engine::AfXdp | Engine::Dpdk if names.contains(&"any") => {
            return refuse("-i any needs --engine af-packet; name the interface instead");
        }
        engine if engine.takes(&names) && !live.takes_traffic => {
            return refuse(&format!(
                "--engine {} takes all incoming packets of {} from the host, including those of \
                 its connections; add --takes-traffic to agree",
                engine.name(),
                visible(&names.join(", "))
            ));
        }
        _ => {}
    }
    if queues * interfaces == 1 {
        return Ok(1);
    }
    let running = &run.running;
    if running.shared || running.dispatch.is_some() || running.overrun == Overrun::Drop {
        return refuse(
            "--shared, --dispatch and --overrun need one queue; leave them out, or name one \
             interface without --fanout",
        );
    }
    if running.count.is_some() {
        return refuse("-c needs one queue; leave it out, or name one interface without --fanout");
    }
    Ok(queues)
}

/// The name of an interface. Of a DPDK port, the name without its options.
fn port_name(engine: Engine, interface: &str) -> &str {
    match engine {
        Engine::Dpdk => interface.split(',').next().unwrap_or_default(),
        _ => interface,
    }
}

/// Prints on standard error where packets come from and when the first report is due.
fn announce(live: &Live, configs: &[Config]) {
    let epoch = match configs.first().map(|config| config.epoch) {
        Some(EpochLength::Time(length_ns)) => {
            format!("a report every {}", units::duration(length_ns.into()))
        }
        Some(EpochLength::Packets(packets)) => {
            format!("a report every {}", units::plural(packets, "packet"))
        }
        Some(EpochLength::Whole) | None => "a report at the end".to_owned(),
    };
    let _ = writeln!(
        io::stderr(),
        "{}: listening with {}, {epoch}; Ctrl-C ends",
        visible(&live.interface.join(", ")),
        live.engine.name()
    );
}

/// Prints on standard error how many packets came, for any format and output.
fn summarize(live: &Live, outcome: &Outcome) {
    let account = &outcome.total.account;
    let by = match live.engine {
        Engine::Dpdk => "lost by the port",
        _ => "dropped by the kernel",
    };
    let _ = writeln!(
        io::stderr(),
        "{}: {} packets received, {} {by}, {} measured",
        visible(&live.interface.join(", ")),
        account.read + account.lost,
        account.lost,
        account.keyed,
    );
}
