//! A helper process outside of the sandbox with two tasks: it opens packet sockets, and runs the
//! programs that the agent's file names for alerts.
//!
//! It takes no part in measuring. It starts before the agent enters the sandbox, reads only
//! requests and the agent's file, and ends with the agent. Each request is one packet on a Unix
//! socket: for a packet socket on standard input, for a program on standard output.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use nix::unistd::User;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
    socket_with, socketpair,
};
use rustix::thread::{CapabilitySet, clear_ambient_capability_set};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

use super::user;
use crate::Failure;
use crate::agent::Origin;
use crate::alert::Rule;
use crate::alert::notify::{self, LIMIT};

/// Maximum size of a request in bytes.
const MOST: usize = 256 << 10;

/// A request to run a program.
#[derive(Serialize, Deserialize)]
struct Program {
    alert: String,
    state: String,
    command: String,
    body: String,
}

/// The agent's end of the connection to the helper.
#[derive(Clone, Debug)]
pub struct Helper {
    sockets: Arc<Mutex<OwnedFd>>,
    programs: Arc<Mutex<OwnedFd>>,
}

impl Helper {
    /// Starts the helper with a command that calls [`help`].
    ///
    /// # Errors
    /// When the helper cannot be started.
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        let pair = || {
            let flags = SocketFlags::CLOEXEC;
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        };
        let ((sockets, input), (programs, output)) = (pair()?, pair()?);
        command.stdin(Stdio::from(input)).stdout(Stdio::from(output)).spawn()?;
        let shared = |end| Arc::new(Mutex::new(end));
        Ok(Self { sockets: shared(sockets), programs: shared(programs) })
    }

    /// Requests a packet socket that receives nothing yet.
    ///
    /// # Errors
    /// The system's answer to the helper, or the helper has ended.
    pub fn packet_socket(&self) -> io::Result<OwnedFd> {
        let end = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        send(&*end, b"?", SendFlags::NOSIGNAL)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut code = [0; 4];
        let mut parts = [IoSliceMut::new(&mut code)];
        let received = recvmsg(&*end, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let socket = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
            _ => None,
        });
        match socket {
            Some(socket) => Ok(socket),
            None if received.bytes == code.len() => {
                Err(io::Error::from_raw_os_error(i32::from_ne_bytes(code)))
            }
            None => Err(gone()),
        }
    }

    /// Runs the program that the agent's file names for this alert.
    ///
    /// # Errors
    /// The reason, in one line.
    pub(crate) fn run(
        &self,
        program: &str,
        alert: &str,
        state: &str,
        body: &str,
    ) -> Result<(), String> {
        let request = Program {
            alert: alert.to_owned(),
            state: state.to_owned(),
            command: program.to_owned(),
            body: body.to_owned(),
        };
        let request = serde_json::to_vec(&request).map_err(|error| error.to_string())?;
        let end = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |error: rustix::io::Errno| io::Error::from(error).to_string();
        send(&*end, &request, SendFlags::NOSIGNAL).map_err(failed)?;
        let mut answer = vec![0; MOST];
        let (bytes, _) = recv(&*end, &mut answer, RecvFlags::empty()).map_err(failed)?;
        match &answer[..bytes] {
            b"done" => Ok(()),
            b"" => Err(gone().to_string()),
            error => Err(String::from_utf8_lossy(error).into_owned()),
        }
    }
}

fn gone() -> io::Error {
    io::Error::other("the helper outside the sandbox ended; restart the agent")
}

/// Answers requests on standard input and output until the agent ends.
///
/// # Errors
/// When the agent's file cannot be read, or the system refuses.
pub fn help(origin: &Origin) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::Failed(format!("helper: {error}"));
    // The helper ends with the agent, not with these signals: until then, the agent may have
    // programs to run.
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGUSR1] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).map_err(failed)?;
    }
    let needed = CapabilitySet::NET_RAW
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::KILL
        | CapabilitySet::SETUID
        | CapabilitySet::SETGID;
    // Programs must inherit no capabilities.
    clear_ambient_capability_set().map_err(|error| failed(error.into()))?;
    user::keep(needed).map_err(|error| failed(error.into()))?;
    let configuration = origin.read()?;
    let user = configuration.agent.user.as_deref().map(user::find).transpose()?;
    let mut programs = Programs { origin, rules: configuration.alerts, user };
    thread::Builder::new().name("sockets".to_owned()).spawn(sockets).map_err(failed)?;
    let mut request = vec![0; MOST];
    let end = io::stdout();
    loop {
        let bytes = match recv(end.as_fd(), &mut request, RecvFlags::empty()) {
            Ok((bytes @ 1.., _)) => bytes,
            Err(rustix::io::Errno::INTR) => continue,
            Ok(_) | Err(_) => return Ok(()),
        };
        let answer = programs.run(&request[..bytes]);
        let answer = answer.err().unwrap_or_else(|| "done".to_owned());
        // If the agent has ended, the next check notices it.
        let _ = send(end.as_fd(), answer.as_bytes(), SendFlags::NOSIGNAL);
    }
}

/// Opens a packet socket for each request.
fn sockets() {
    let end = io::stdin();
    let mut request = [0];
    loop {
        match recv(end.as_fd(), &mut request, RecvFlags::empty()) {
            Ok((1.., _)) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Ok(_) | Err(_) => return,
        }
        let flags = SocketFlags::CLOEXEC;
        let opened = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None);
        let code = opened.as_ref().map_or_else(|error| error.raw_os_error(), |_| 0).to_ne_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let sockets: Vec<_> = opened.iter().map(AsFd::as_fd).collect();
        if !sockets.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&sockets));
        }
        let _ = sendmsg(end.as_fd(), &[IoSlice::new(&code)], &mut ancillary, SendFlags::NOSIGNAL);
    }
}

/// The programs that may be run.
struct Programs<'a> {
    origin: &'a Origin,
    rules: BTreeMap<String, Rule>,
    user: Option<User>,
}

impl Programs<'_> {
    fn run(&mut self, request: &[u8]) -> Result<(), String> {
        let request: Program =
            serde_json::from_slice(request).map_err(|error| format!("not a request: {error}"))?;
        if !self.names(&request) {
            // The agent may have reloaded its file.
            self.rules = self.origin.read().map_err(|error| error.to_string())?.alerts;
        }
        if !self.names(&request) {
            return Err("the agent's file does not name it for this alert".to_owned());
        }
        let user = self.user.as_ref();
        let Program { alert, state, command, body } = &request;
        notify::run(command, alert, state, body, user, LIMIT).map_err(|fault| fault.to_string())
    }

    /// Whether the agent's file names this program for the alert.
    fn names(&self, request: &Program) -> bool {
        self.rules
            .get(&request.alert)
            .is_some_and(|rule| rule.run.as_deref() == Some(&*request.command))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::fs;

    use super::*;

    /// An intruder in the sandbox must not run programs that the file does not name.
    #[test]
    fn only_programs_of_the_file_are_run() {
        let folder = std::env::temp_dir().join(format!("flowgauge-helper-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("agent.yaml");
        let write = |program: &str| {
            let text = format!(
                "sources: [{{ interface: lo }}]\nmeasurements: {{ flows: {{ epoch: 1s, tasks: [top] }} }}\n\
                 alerts: {{ any: {{ when: 'flows.top.packets > 1', run: '{program}' }} }}\n"
            );
            fs::write(&path, text).unwrap();
        };
        let marker = folder.join("marker");
        let touch = format!("touch {}", marker.display());
        write(&touch);
        let origin = Origin { path: path.clone(), sets: Vec::new() };
        let rules = origin.read().unwrap().alerts;
        let mut programs = Programs { origin: &origin, rules, user: None };
        let mut ask = |alert: &str, program: &str| {
            let request = Program {
                alert: alert.to_owned(),
                state: "firing".to_owned(),
                command: program.to_owned(),
                body: String::new(),
            };
            programs.run(&serde_json::to_vec(&request).unwrap())
        };
        let refused = Err("the agent's file does not name it for this alert".to_owned());
        assert_eq!(ask("any", "touch /tmp/other"), refused);
        assert_eq!(ask("other", &touch), refused);
        assert!(!marker.exists());
        assert_eq!(ask("any", &touch), Ok(()));
        assert!(marker.exists());
        // The file names another program from now on.
        write("false");
        assert_eq!(ask("any", "false"), Err("it ended with exit status: 1".to_owned()));
        assert_eq!(ask("any", &touch), refused);
        assert!(programs.run(b"nonsense").is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
