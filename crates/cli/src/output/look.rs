//! How text looks on the terminal that shows it.

use std::env;
use std::io::{self, IsTerminal};
use std::path::Path;

use flowgauge_engine::sink::layout::Look;
use terminal_size::{Width, terminal_size_of};

use crate::args::{Color, Output};

impl Output {
    /// The look of text that goes to `path`, or to standard output.
    pub(crate) fn look(&self, path: Option<&Path>) -> Look {
        let standard = path.is_none_or(|path| path == Path::new("-"));
        let terminal = standard && io::stdout().is_terminal();
        let columns = terminal.then(|| terminal_size_of(io::stdout())).flatten();
        let columns = columns.map(|(Width(columns), _)| usize::from(columns).clamp(60, 200));
        let default = Look::default();
        Look {
            width: self.width.or(columns).unwrap_or(default.width),
            color: match self.color {
                Color::Always => true,
                Color::Never => false,
                Color::Auto => terminal && !is_set("NO_COLOR") && is_capable(),
            },
            ascii: !is_utf8(),
            services: !self.numeric,
        }
    }
}

/// Whether a variable has a value, as <https://no-color.org> asks.
fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty())
}

fn is_capable() -> bool {
    env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Whether the locale shows more than ASCII: the first of these that is set decides.
fn is_utf8() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find(|name| is_set(name));
    let locale = locale.and_then(|name| env::var(name).ok()).unwrap_or_default().to_lowercase();
    locale.ends_with("utf-8") || locale.ends_with("utf8")
}
