//! A progress bar on a terminal, for input that takes its time.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use flowgauge_engine::sink::{Item, Sink, SinkError, Takes};
use flowgauge_engine::source::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Input that is read faster needs no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// The bar, which stays hidden until [`PATIENCE`] is over, and for good where standard error is no
/// terminal.
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

    /// Shows how far reading is.
    pub(crate) fn tick(&mut self, progress: &Progress) {
        if !self.shown && self.begun.elapsed() > PATIENCE {
            self.shown = true;
            let template = match progress.total {
                Some(_) => "{wide_bar} {decimal_bytes} of {decimal_total_bytes}, {eta} left",
                None => "{spinner} {decimal_bytes}",
            };
            // Where the template were wrong, the default is as good.
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

    /// A sink that takes the bar away while it writes, since both may be on one terminal.
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
