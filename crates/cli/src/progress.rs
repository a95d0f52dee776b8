//! What a run shows on standard error: a progress bar on a terminal, and with -v what measures, in
//! how much memory, and how fast it was.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use flowgauge_engine::sink::{Item, Sink, SinkError, Takes, units, visible};
use flowgauge_engine::source::Progress;
use flowgauge_engine::{Config, Outcome, Plan};
use flowgauge_kernel::Isa;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::Run;

/// Reading that takes less time shows no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// The progress bar. It stays hidden until [`PATIENCE`] is over, and always if standard error is
/// not a terminal.
pub(crate) struct Bar {
    drawn: ProgressBar,
    begun: Instant,
    shown: bool,
}

impl Bar {
    pub(crate) fn new(quiet: bool) -> Self {
        let drawn = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        Self { drawn, begun: Instant::now(), shown: quiet || !io::stderr().is_terminal() }
    }

    /// Shows the progress of reading.
    pub(crate) fn tick(&mut self, progress: &Progress) {
        if !self.shown && self.begun.elapsed() > PATIENCE {
            self.shown = true;
            let template = match progress.total {
                Some(_) => "{wide_bar} {decimal_bytes} of {decimal_total_bytes}, {eta} left",
                None => "{spinner} {decimal_bytes}",
            };
            // If the template were wrong, the default would do.
            if let Ok(style) = ProgressStyle::with_template(template) {
                self.drawn.set_style(style);
            }
            self.drawn.set_draw_target(ProgressDrawTarget::stderr());
        }
        if let Some(total) = progress.total {
            self.drawn.set_length(total);
        }
        self.drawn.set_position(progress.read);
    }

    /// A sink that hides the bar while it writes, since both may be on the same terminal.
    pub(crate) fn around(&self, sink: Box<dyn Sink>) -> Box<dyn Sink> {
        Box::new(Beside { bar: self.drawn.clone(), sink })
    }

    pub(crate) fn finish(&self) {
        self.drawn.finish_and_clear();
    }
}

struct Beside {
    bar: ProgressBar,
    sink: Box<dyn Sink>,
}

impl Sink for Beside {
    fn takes(&self) -> Takes {
        self.sink.takes()
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        self.bar.suspend(|| self.sink.deliver(item))
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.sink.finish()
    }
}

/// A run with `-v`, and its start.
pub(crate) struct Verbose {
    begun: Instant,
}

impl Verbose {
    /// Prints what the plan runs, if the options ask for it.
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

    /// Prints the packet rate.
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
