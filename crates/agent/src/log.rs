//! The agent's log: a line on standard error per change of state, as text or JSON.
//!
//! A repeating fault cannot fill a disk: after a burst of a hundred lines, ten a second are
//! written, and the next line says how many were omitted.

use std::fmt::{Debug, Write as _};
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use flowgauge_engine::sink::{rfc3339, visible, visible_json};
use serde::Deserialize;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::replay::now_ns;

/// Size of a burst in lines, and lines per second after it.
const AT_ONCE: f64 = 100.0;
const EACH_SECOND: f64 = 10.0;

/// How lines are written.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// `flowgauge: MESSAGE`.
    #[default]
    Text,
    /// An object with `time`, `level` and `message`.
    Json,
}

/// Writes this process's events to standard error. Until this is called there is no log, as for a
/// program that embeds the agent and has its own subscriber.
pub fn start(format: Format) {
    let lines = Lines { format, pace: Mutex::new(Pace::new()), to: io::stderr };
    // If another subscriber was installed first, it receives the events.
    let _ = tracing::subscriber::set_global_default(Registry::default().with(lines));
}

/// Logs a change.
pub(crate) fn say(message: &str) {
    tracing::info!("{message}");
}

/// Logs a warning.
pub(crate) fn warn(message: &str) {
    tracing::warn!("{message}");
}

/// A writer that logs each line as a warning.
#[derive(Default)]
pub(crate) struct Warnings(Vec<u8>);

impl Write for Warnings {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.0.extend(part);
            if let Some(line) = self.0.strip_suffix(b"\n") {
                warn(&String::from_utf8_lossy(line));
                self.0.clear();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Rate limit of lines.
struct Pace {
    left: f64,
    at: Instant,
    left_out: u64,
}

impl Pace {
    fn new() -> Self {
        Self { left: AT_ONCE, at: Instant::now(), left_out: 0 }
    }

    /// Whether a line may be written now, and how many were omitted before it.
    fn next(&mut self, now: Instant) -> Option<u64> {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * EACH_SECOND).min(AT_ONCE);
        self.at = now;
        if self.left < 1.0 {
            self.left_out += 1;
            return None;
        }
        self.left -= 1.0;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Writes events as lines.
struct Lines<T> {
    format: Format,
    pace: Mutex<Pace>,
    to: fn() -> T,
}

impl<T: Write> Lines<T> {
    fn line(&self, level: Level, message: &str) -> String {
        match self.format {
            Format::Text => format!("flowgauge: {}\n", visible(message)),
            Format::Json => {
                let level = level.as_str().to_lowercase();
                let line = json!({ "time": rfc3339(now_ns()), "level": level, "message": message });
                format!("{}\n", visible_json(line.to_string()))
            }
        }
    }
}

impl<S: Subscriber, T: Write + 'static> Layer<S> for Lines<T> {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        // Libraries log every step.
        if !event.metadata().target().starts_with("flowgauge") {
            return;
        }
        let next = self.pace.lock().unwrap_or_else(PoisonError::into_inner).next(Instant::now());
        let Some(left_out) = next else { return };
        let mut message = Message::default();
        event.record(&mut message);
        if left_out > 0 {
            // Writing to a string cannot fail.
            let _ = write!(message.0, " ({left_out} lines before this one are left out)");
        }
        let line = self.line(*event.metadata().level(), &message.0);
        // If the log itself cannot be written, there is nowhere to report it.
        let _ = (self.to)().write_all(line.as_bytes());
    }
}

/// The message of an event.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::cell::RefCell;
    use std::time::Duration;

    use super::*;

    thread_local! {
        static WRITTEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    /// The lines of this thread.
    struct Written;

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            WRITTEN.with_borrow_mut(|written| written.write(bytes))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: Format, run: impl FnOnce()) -> Vec<String> {
        let lines = Lines { format, pace: Mutex::new(Pace::new()), to: || Written };
        tracing::subscriber::with_default(Registry::default().with(lines), run);
        let written = String::from_utf8(WRITTEN.take()).unwrap();
        written.lines().map(str::to_owned).collect()
    }

    #[test]
    fn lines_are_text_or_json_and_escape_control_characters() {
        let speak = || {
            say("measuring eth0");
            // In parts, as formatters write.
            let mut warnings = Warnings::default();
            for part in ["alert \u{1b}[31m", " fires", "\n"] {
                warnings.write_all(part.as_bytes()).unwrap();
            }
            tracing::info!(target: "hyper", "a step");
        };
        let text = logged(Format::Text, speak);
        assert_eq!(text, ["flowgauge: measuring eth0", "flowgauge: alert \\u{1b}[31m fires"]);
        let json = logged(Format::Json, speak);
        let of = |line: &String| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let json: Vec<_> = json.iter().map(of).collect();
        assert_eq!(json.len(), 2);
        assert_eq!(
            (&json[0]["level"], &json[0]["message"]),
            (&json!("info"), &json!("measuring eth0"))
        );
        assert_eq!(json[1]["level"], "warn");
        assert!(json[1]["time"].as_str().unwrap().ends_with('Z'));
    }

    #[test]
    fn a_flood_of_lines_is_cut_and_said_to_be() {
        let flood = || (0..1000).for_each(|line| say(&format!("line {line}")));
        let lines = logged(Format::Text, flood);
        assert!((100..120).contains(&lines.len()), "{}", lines.len());
        let mut pace = Pace::new();
        let now = Instant::now();
        let written = (0..1000).filter(|_| pace.next(now).is_some()).count();
        assert_eq!(written, 100);
        assert_eq!(pace.next(now + Duration::from_secs(1)), Some(900));
        assert_eq!(pace.next(now + Duration::from_secs(1)), Some(0));
    }
}
