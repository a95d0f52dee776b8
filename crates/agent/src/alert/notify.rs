//! Notifies programs, web hooks and the log of changes, on a thread of its own.

mod post;
pub(crate) mod run;

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use flowgauge_engine::sink::visible;
use serde_json::Value;

pub use post::Target;

use crate::sandbox::Helper;

/// How long a program or a web hook may take.
pub const LIMIT: Duration = Duration::from_secs(10);

/// Changes that wait for the notifier at most.
const QUEUED: usize = 64;

/// A change of an alert.
#[derive(Clone, Debug)]
pub struct Notice {
    /// The alert.
    pub alert: String,
    /// `firing` or `cleared`.
    pub state: &'static str,
    /// One line for the log.
    pub line: String,
    /// What programs read.
    pub json: Value,
    /// The program, with arguments.
    pub run: Option<String>,
    /// The web hook.
    pub post: Option<Target>,
}

/// The notifier's handle. Dropping it tells what is queued, for as long as one program may take, and
/// then logs the rest only.
pub struct Notifier {
    queue: Option<SyncSender<Notice>>,
    thread: Option<JoinHandle<()>>,
    ended: Arc<Mutex<Option<Instant>>>,
    missed: Arc<AtomicU64>,
}

impl Notifier {
    /// Starts the thread, which writes its log to `log`. In a sandbox, the helper runs programs.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub fn start(
        log: Box<dyn Write + Send>,
        limit: Duration,
        helper: Option<Helper>,
    ) -> io::Result<Self> {
        let (queue, notices) = sync_channel(QUEUED);
        let ended = Arc::new(Mutex::new(None));
        let own = Arc::clone(&ended);
        let thread = Builder::new().name("notifier".to_owned());
        let thread = thread.spawn(move || serve(&notices, log, limit, &own, helper.as_ref()))?;
        let missed = Arc::default();
        Ok(Self { queue: Some(queue), thread: Some(thread), ended, missed })
    }

    /// Queues a change. Where the queue is full it is counted as missed: measuring never waits.
    pub fn tell(&self, notice: Notice) {
        let Some(queue) = &self.queue else { return };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = queue.try_send(notice) {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Changes that found the queue full.
    pub fn missed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.missed)
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn serve(
    notices: &Receiver<Notice>,
    mut log: Box<dyn Write + Send>,
    limit: Duration,
    ended: &Mutex<Option<Instant>>,
    helper: Option<&Helper>,
) {
    // A log that cannot be written has no other place to say so.
    let mut say = |line: &str| drop(writeln!(log, "{}", visible(line)).and_then(|()| log.flush()));
    for notice in notices {
        say(&notice.line);
        let ended = *ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.is_some_and(|since| since.elapsed() > limit) {
            continue;
        }
        let body = notice.json.to_string();
        if let Some(program) = &notice.run
            && let Err(error) = run_program(program, &notice, &body, limit, helper)
        {
            say(&format!("alert {}: cannot run '{program}': {error}", notice.alert));
        }
        if let Some(target) = &notice.post
            && let Err(error) = target.post(&body, limit)
        {
            say(&format!("alert {}: cannot post to '{target}': {error}", notice.alert));
        }
    }
}

/// Runs a program, through the helper in a sandbox.
fn run_program(
    program: &str,
    notice: &Notice,
    body: &str,
    limit: Duration,
    helper: Option<&Helper>,
) -> Result<(), String> {
    match helper {
        Some(helper) => helper.run(program, &notice.alert, notice.state, body),
        None => run::run(program, &notice.alert, notice.state, body, None, limit)
            .map_err(|fault| fault.to_string()),
    }
}
