//! What `-v` says on standard error: what measures, in how much memory, and how fast it was.

use std::io::{self, Write};
use std::time::Instant;

use flowgauge_engine::sink::{units, visible};
use flowgauge_engine::{Config, Outcome, Plan};
use flowgauge_kernel::Isa;

use crate::args::Run;

/// The start of a run that says more.
pub(crate) struct Verbose {
    begun: Instant,
}

impl Verbose {
    /// Says what the plan runs, if the options ask for it.
    pub(crate) fn begin(run: &Run, configs: &[Config], plan: &Plan) -> Option<Self> {
        if !run.verbose {
            return None;
        }
        for (config, explanation) in configs.iter().zip(plan.measurements()) {
            let accelerators =
                config.accelerators.iter().map(|(name, _)| format!("{name} before "));
            say(&format!(
                "{}: {} by {}, {}{} in at most {}; tasks {}",
                config.name,
                config.key,
                config.by.name(),
                accelerators.collect::<String>(),
                explanation.summary.algorithm,
                units::memory(explanation.total_bytes()),
                explanation.tasks.join(", ")
            ));
        }
        let workers = units::plural(run.running.workers as u64, "worker");
        say(&format!("{workers}, instruction set {}", Isa::best()));
        Some(Self { begun: Instant::now() })
    }

    /// Says how fast the packets were read.
    pub(crate) fn end(self, outcome: &Outcome) {
        let elapsed = self.begun.elapsed();
        let read = outcome.total.account.read;
        let rate = units::rate(read as f64 / elapsed.as_secs_f64().max(1e-9));
        let time = units::duration(elapsed.as_nanos().cast_signed());
        say(&format!("read {} in {time}: {rate} packets/s", units::plural(read, "packet")));
    }
}

fn say(line: &str) {
    let _ = writeln!(io::stderr(), "flowgauge: {}", visible(line));
}
