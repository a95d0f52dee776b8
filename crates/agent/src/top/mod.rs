//! `flowgauge top`: the latest reports in a terminal.

mod rows;
mod view;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use flowgauge_engine::sink::{Format, Item, Json, Sink, SinkError, Takes};
use flowgauge_engine::{Config, Pace, Plan};
use flowgauge_records::KeptPorts;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use serde_json::Value;

use crate::Failure;
use crate::config::SourceOptions;
use crate::sources::open;
use view::View;

/// Reports queued for display.
const WAITING: usize = 16;

/// Maximum delay before a report is shown.
const LOOK: Duration = Duration::from_millis(100);

/// Shows reports until the user quits. `from` names their origin.
///
/// # Errors
/// When standard output is not a terminal, or it fails.
pub fn show(from: String, reports: &Receiver<Value>) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let mut view = View::new(from);
    let mut run = || loop {
        loop {
            match reports.try_recv() {
                Ok(report) => view.add(report),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    view.end();
                    break;
                }
            }
        }
        terminal.draw(|frame| view.draw(frame))?;
        if !event::poll(LOOK)? {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        let ends = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
        if key.kind == KeyEventKind::Press && (ends || !view.key(key.code)) {
            return Ok(());
        }
    };
    let result = run();
    ratatui::restore();
    result
}

/// Passes reports on as JSON. Drops reports while the screen is busy.
struct Shown(SyncSender<Value>);

impl Sink for Shown {
    fn takes(&self) -> Takes {
        Takes::Reports
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        let Item::Epoch(_) = item else { return Ok(()) };
        let mut line = Vec::new();
        let failed = |error| SinkError::new("the terminal", error);
        Json.item(item, &mut line).map_err(failed)?;
        let report = serde_json::from_slice(&line).map_err(|error| failed(error.into()))?;
        match self.0.try_send(report) {
            Ok(()) | Err(TrySendError::Full(_)) => Ok(()),
            Err(TrySendError::Disconnected(_)) => Err(failed(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

/// Measures a source without an agent, on a separate thread, until the source ends.
///
/// # Errors
/// When the source cannot be opened, or the measurement is invalid.
pub fn measure(source: SourceOptions, config: Config) -> Result<Receiver<Value>, Failure> {
    let config = Config { queues: source.queues(), pace: Pace::Live, ..config };
    let plan = Plan::new(config).map_err(|error| Failure::Usage(error.to_string()))?;
    let (stop, kept) = (Arc::new(AtomicBool::new(false)), KeptPorts::default());
    let sources = open(&[source], "", &stop, None, &kept)?.queues;
    let (to, reports) = sync_channel(WAITING);
    // The thread ends with the process, or when the screen is closed.
    let run = move || drop(flowgauge_engine::run_queues(plan, sources, &mut Shown(to)));
    let thread = thread::Builder::new().name("run".to_owned()).spawn(run);
    thread.map_err(|error| Failure::Failed(format!("cannot start a thread: {error}")))?;
    Ok(reports)
}
