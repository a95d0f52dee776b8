//! Addresses of names, within a time limit that the system's resolver does not have.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::sync_channel;
use std::thread::Builder;
use std::time::Duration;

/// The addresses of a host and a port.
pub(crate) fn resolve(
    host: impl ToSocketAddrs + Send + 'static,
    limit: Duration,
) -> io::Result<Vec<SocketAddr>> {
    within(limit, move || host.to_socket_addrs().map(Iterator::collect))
}

/// Runs a task on a thread of its own, which is abandoned after `limit`.
fn within<T: Send + 'static>(
    limit: Duration,
    task: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (answer, answered) = sync_channel(1);
    // After the limit, there is no receiver.
    let run = move || drop(answer.send(task()));
    Builder::new().name("resolver".to_owned()).spawn(run)?;
    let late = |_| io::Error::new(ErrorKind::TimedOut, "no name server answers in time");
    answered.recv_timeout(limit).map_err(late)?
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_name_server_that_is_dead_is_not_waited_for() {
        let (_alive, dead) = channel::<()>();
        let task = move || dead.recv().map_err(io::Error::other);
        let error = within(Duration::from_millis(20), task).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let here = resolve("127.0.0.1:80", Duration::from_secs(30)).unwrap();
        assert_eq!(here, ["127.0.0.1:80".parse().unwrap()]);
    }
}
