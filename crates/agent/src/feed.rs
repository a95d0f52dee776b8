//! Reports over a Unix socket, for programs on the same host such as `flowgauge top`.
//!
//! A reader receives the latest report of each measurement, then each new one, as lines of JSON. A
//! slow reader misses some.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flowgauge_engine::sink::{Format, Item, Sink, SinkError, Takes};
use serde_json::Value;

use crate::Failure;
use crate::lines::Lines;

/// Maximum number of simultaneous readers.
const READERS: usize = 16;

/// Reports queued per reader.
const WAITING: usize = 16;

/// Interval between checks for new readers and for the end of the agent.
const LOOK: Duration = Duration::from_millis(50);

/// Time limit for a reader to accept a line.
const PATIENCE: Duration = Duration::from_secs(5);

/// The latest reports, and the readers.
#[derive(Default)]
struct Broadcast {
    newest: BTreeMap<Arc<str>, Arc<[u8]>>,
    readers: Vec<SyncSender<Arc<[u8]>>>,
}

/// A sink that streams reports to the readers of a socket.
pub(crate) struct Feed {
    path: PathBuf,
    lines: Lines,
    broadcast: Arc<Mutex<Broadcast>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Feed {
    /// Listens at a path that no other agent uses.
    pub(crate) fn open(path: &Path, lines: Lines) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::Output(format!("cannot listen at {}: {error}", path.display()))
        };
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        fs::set_permissions(path, Permissions::from_mode(0o660)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let (broadcast, ends) = (Arc::<Mutex<Broadcast>>::default(), Arc::<AtomicBool>::default());
        let (own, end) = (Arc::clone(&broadcast), Arc::clone(&ends));
        let accept = move || {
            while !end.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => welcome(stream, &own),
                    Err(_) => thread::sleep(LOOK),
                }
            }
        };
        let thread = thread::Builder::new().name("feed".to_owned()).spawn(accept);
        let thread = Some(thread.map_err(failed)?);
        Ok(Self { lines, path: path.to_owned(), broadcast, ends, thread })
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
        // If this fails, the next agent removes the socket.
        let _ = fs::remove_file(&self.path);
    }
}

fn lock(broadcast: &Mutex<Broadcast>) -> MutexGuard<'_, Broadcast> {
    broadcast.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread for a reader, unless there are too many.
fn welcome(mut stream: UnixStream, broadcast: &Mutex<Broadcast>) {
    let mut broadcast = lock(broadcast);
    if broadcast.readers.len() >= READERS {
        return;
    }
    let (reader, lines) = sync_channel::<Arc<[u8]>>(WAITING);
    let newest: Vec<_> = broadcast.newest.values().cloned().collect();
    let serve = move || {
        let ready = stream.set_nonblocking(false).and(stream.set_write_timeout(Some(PATIENCE)));
        let mut all = newest.into_iter().chain(lines);
        // When the reader is gone, the channel closes, and the next report drops it.
        let _ = ready.and_then(|()| all.try_for_each(|line| stream.write_all(&line)));
    };
    // Without a thread, the reader is dropped.
    if thread::Builder::new().name("feed reader".to_owned()).spawn(serve).is_ok() {
        broadcast.readers.push(reader);
    }
}

impl Sink for Feed {
    fn takes(&self) -> Takes {
        Takes::Reports
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        let Item::Epoch(report) = item else { return Ok(()) };
        let mut line = Vec::new();
        let written = self.lines.item(item, &mut line);
        written.map_err(|error| SinkError::new(&self.path.display().to_string(), error))?;
        let line: Arc<[u8]> = line.into();
        let mut broadcast = lock(&self.broadcast);
        broadcast.newest.insert(Arc::clone(&report.measurement), Arc::clone(&line));
        broadcast.readers.retain(|reader| {
            !matches!(reader.try_send(Arc::clone(&line)), Err(TrySendError::Disconnected(_)))
        });
        Ok(())
    }
}

/// Receives the reports of the agent that listens at a path, on a separate thread. The channel
/// closes when the agent ends.
///
/// # Errors
/// When no agent listens there.
pub fn attach(path: &Path) -> io::Result<Receiver<Value>> {
    let stream = UnixStream::connect(path)?;
    let (to, reports) = sync_channel(WAITING);
    let read = move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let Ok(report) = serde_json::from_str(&line) else { return };
            if to.send(report).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("attached".to_owned()).spawn(read)?;
    Ok(reports)
}
