//! Notifies programs, web hooks and the log of changes, on its own thread.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

use flowgauge_engine::sink::visible;
use nix::unistd::{Uid, User};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::Value;

use crate::resolve::resolve;
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
        None => run(program, &notice.alert, notice.state, body, None, limit)
            .map_err(|fault| fault.to_string()),
    }
}

/// Where changes are posted: `http://HOST[:PORT]/PATH`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Target {
    /// Host and port as written, for the `Host` header.
    authority: String,
    host: String,
    port: u16,
    path: String,
}

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = |what: &str| format!("cannot post to '{text}': {what}");
        if text.starts_with("https://") {
            return Err(wrong("TLS is not supported; post to a local proxy by http://"));
        }
        let Some(rest) = text.strip_prefix("http://") else {
            return Err(wrong("write http://HOST:PORT/PATH"));
        };
        if !rest.chars().all(|c| c.is_ascii_graphic()) {
            return Err(wrong("write spaces and characters other than ASCII as %XX"));
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(wrong("user names and passwords are not supported"));
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => (authority, "80"),
        };
        let port = port.parse().map_err(|_| wrong("the port is not a number up to 65535"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(wrong("it names no host"));
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        let path = path.split('#').next().unwrap_or_default();
        Ok(Self { authority: authority.to_owned(), host, port, path: format!("{slash}{path}") })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

impl Target {
    /// Posts a body within `limit`, and expects a 2xx answer.
    fn post(&self, body: &str, limit: Duration) -> io::Result<()> {
        let deadline = Instant::now() + limit;
        let addresses = resolve((self.host.clone(), self.port), left(deadline)?)?;
        let mut error = io::Error::new(ErrorKind::NotFound, "the host has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, left(deadline)?) {
                Ok(stream) => return self.send(stream, body, deadline),
                Err(refused) => error = refused,
            }
        }
        Err(error)
    }

    fn send(&self, mut stream: TcpStream, body: &str, deadline: Instant) -> io::Result<()> {
        stream.set_write_timeout(Some(left(deadline)?))?;
        let request = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: flowgauge/{}\r\nContent-Type: \
             application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.path,
            self.authority,
            env!("CARGO_PKG_VERSION"),
            body.len()
        );
        stream.write_all(request.as_bytes())?;
        let status = status_line(&mut stream, deadline)?;
        let code = status.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
        match code {
            Some(code) if code.len() == 3 && code.starts_with('2') => Ok(()),
            _ => Err(io::Error::other(format!("it answered '{status}'"))),
        }
    }
}

/// The first line of the answer, up to 128 bytes.
fn status_line(stream: &mut TcpStream, deadline: Instant) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < 128 {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut byte) {
            Ok(0) => break,
            Ok(_) if byte == *b"\n" => break,
            Ok(_) => line.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// Time until the deadline.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Interval between checks for the end of a program.
const LOOK: Duration = Duration::from_millis(10);

/// Why a program failed.
pub(crate) enum Fault {
    Io(io::Error),
    Exit(std::process::ExitStatus),
    Time(Duration),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Exit(status) => write!(f, "it ended with {status}"),
            Self::Time(limit) => write!(f, "killed after {} s", limit.as_secs_f64()),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Runs the program as `user`, if given. The environment holds the alert and its state, and
/// standard input the body. After `limit`, the program is killed together with all processes it
/// started.
pub(crate) fn run(
    program: &str,
    alert: &str,
    state: &str,
    body: &str,
    user: Option<&User>,
    limit: Duration,
) -> Result<(), Fault> {
    let mut words = program.split_whitespace();
    let started = Instant::now();
    let mut command = Command::new(words.next().unwrap_or_default());
    if let Some(user) = user.filter(|user| user.uid != Uid::effective()) {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    let mut child = command
        .args(words)
        .env("FLOWGAUGE_ALERT", alert)
        .env("FLOWGAUGE_STATE", state)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    // A notification fits into a pipe, so this write does not block. A program need not read its
    // input: an error is ignored.
    if let Some(mut stdin) = child.stdin.take() {
        drop(stdin.write_all(body.as_bytes()));
    }
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(Fault::Exit(status)),
            None if started.elapsed() >= limit => {
                kill(&mut child)?;
                return Err(Fault::Time(limit));
            }
            None => thread::sleep(LOOK),
        }
    }
}

fn kill(child: &mut Child) -> io::Result<()> {
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        kill_process_group(group, Signal::KILL)?;
    }
    child.wait().map(drop)
}
