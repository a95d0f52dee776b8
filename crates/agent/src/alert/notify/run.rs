//! Runs the operator's programs, without a shell.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use nix::unistd::{Uid, User};
use rustix::process::{Pid, Signal, kill_process_group};

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
