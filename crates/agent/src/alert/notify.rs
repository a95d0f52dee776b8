//! Notifies programs, web hooks and the log of changes, on its own thread.

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

/// Time limit for a program or a web hook.
pub const LIMIT: Duration = Duration::from_secs(10);

/// Maximum number of queued notifications.
const QUEUED: usize = 64;

/// The notification of a change.
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

/// Handle of the notifier thread. On drop it delivers the queued notifications for at most the time
/// limit of one program, and only logs the rest.
pub struct Notifier {
    queue: Option<SyncSender<Notice>>,
    thread: Option<JoinHandle<()>>,
    ended: Arc<Mutex<Option<Instant>>>,
    missed: Arc<AtomicU64>,
}

impl Notifier {
    /// Starts the thread, which logs to `log`. In a sandbox, `helper` runs the programs.
    ///
    /// # Errors
    /// The operating system refuses a thread.
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

    /// Queues a notification. If the queue is full, counts it as missed: measuring never waits.
    pub fn tell(&self, notice: Notice) {
        let Some(queue) = &self.queue else { return };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = queue.try_send(notice) {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notifications lost because the queue was full.
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
    // If the log itself cannot be written, there is nowhere to report it.
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

/// Runs a program, in a sandbox through the helper.
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
