//! A progress bar on a terminal, for input that takes its time.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

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
    pub(crate) fn new() -> Self {
        let drawn = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        Self { drawn, begun: Instant::now(), shown: !io::stderr().is_terminal() }
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

    /// A writer that takes the bar away while it writes, since both may be on one terminal.
    pub(crate) fn around<W: Write + Send>(&self, out: W) -> impl Write + Send + use<W> {
        Beside { bar: self.drawn.clone(), out }
    }

    pub(crate) fn finish(&self) {
        self.drawn.finish_and_clear();
    }
}

struct Beside<W> {
    bar: ProgressBar,
    out: W,
}

impl<W: Write> Write for Beside<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bar.suspend(|| self.out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
