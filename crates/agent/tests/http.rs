//! The server of metrics and console with many kinds of clients.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowgauge_agent::Failure;
use flowgauge_agent::alert::Board;
use flowgauge_agent::http::{Access, Health, Server, metrics};
use flowgauge_agent::prometheus::Metrics;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn access(listen: &str, token_file: Option<PathBuf>) -> Access {
    Access { listen: listen.parse().unwrap(), token_file }
}

fn start(health: &Health, access: &Access) -> Result<Server, Failure> {
    let routes = metrics(Metrics::new(10, Board::default(), Arc::default())).merge(health.routes());
    Server::start("prometheus", access, routes)
}

/// The server's answer to these bytes, until it closes or is silent for long.
fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

/// The status of the answer to a request with these header lines.
fn status(address: SocketAddr, first: &str, lines: &[&str]) -> String {
    let lines = [lines, &["Connection: close", "", ""]].concat().join("\r\n");
    let answer = ask(address, &format!("{first} HTTP/1.1\r\n{lines}"));
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn only_readers_of_this_host_are_answered() {
    let server = start(&Health::default(), &access("127.0.0.1:0", None)).unwrap();
    let of = |first: &str, lines: &[&str]| status(server.address(), first, lines);
    for host in ["localhost", "127.0.0.1", "127.0.0.1:9469", "[::1]:80", "LOCALHOST:1"] {
        assert_eq!(of("GET /metrics", &[&format!("Host: {host}")]), "200", "{host}");
    }
    for host in ["example.org", "127.0.0.1.example.org", "localhost.example", "10.0.0.1", ""] {
        assert_eq!(of("GET /metrics", &[&format!("Host: {host}")]), "403", "{host}");
    }
    assert_eq!(of("GET /metrics", &[]), "403");
    assert_eq!(of("HEAD /metrics", &["Host: localhost"]), "200");
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        assert_eq!(of(&format!("{method} /metrics"), &["Host: localhost"]), "405");
    }
    assert_eq!(of("GET /metrics", &["Host: localhost", "Content-Length: 10000000"]), "413");
    assert_eq!(of("GET /none", &["Host: localhost"]), "404");
    let long = "x".repeat(100_000);
    assert_eq!(of("GET /metrics", &["Host: localhost", &format!("Long: {long}")]), "431");
}

#[test]
fn metrics_come_in_both_texts() {
    let server = start(&Health::default(), &access("127.0.0.1:0", None)).unwrap();
    let get = |accept: &str| {
        let head = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
        ask(server.address(), &format!("{head}Accept: {accept}\r\n\r\n"))
    };
    let open = get("application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    assert!(open.contains("content-type: application/openmetrics-text"), "{open}");
    assert!(open.ends_with("# EOF\n"), "{open}");
    let classic = get("text/plain");
    assert!(classic.contains("content-type: text/plain"), "{classic}");
    assert!(!classic.contains("# EOF"), "{classic}");
}

#[test]
fn an_agent_that_reads_its_sources_is_ready() {
    let health = Health::default();
    let server = start(&health, &access("127.0.0.1:0", None)).unwrap();
    let of = |path: &str| status(server.address(), &format!("GET {path}"), &["Host: localhost"]);
    assert_eq!((of("/healthz"), of("/readyz")), ("200".to_owned(), "503".to_owned()));
    health.alive();
    assert_eq!(of("/readyz"), "200");
}

#[test]
fn an_address_for_other_hosts_needs_a_token() {
    let folder = std::env::temp_dir();
    let file = folder.join(format!("flowgauge-token-{}", std::process::id()));
    let refused = |token_file: Option<PathBuf>| {
        let failure = start(&Health::default(), &access("0.0.0.0:0", token_file)).err().unwrap();
        assert_eq!(failure.code(), 2);
        failure.to_string()
    };
    assert!(refused(None).contains("0.0.0.0:0 is open to other hosts; name a token-file"));
    assert!(refused(Some(file.clone())).contains("cannot read"));
    fs::write(&file, "0123456789abcdef\n").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    assert!(refused(Some(file.clone())).contains("is accessible to other users; run 'chmod 600"));
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let server = start(&Health::default(), &access("0.0.0.0:0", Some(file.clone()))).unwrap();
    let here = SocketAddr::from(([127, 0, 0, 1], server.address().port()));
    let of = |lines: &[&str]| status(here, "GET /metrics", lines);
    assert_eq!(of(&["Host: monitor.example"]), "401");
    assert_eq!(of(&["Host: monitor.example", "Authorization: Bearer 0123456789abcdee"]), "401");
    assert_eq!(of(&["Host: monitor.example", "Authorization: Bearer 0123456789abcdef"]), "200");
    fs::write(&file, "short").unwrap();
    assert!(refused(Some(file.clone())).contains("fewer than 16 characters"));
    fs::remove_file(file).unwrap();
}

#[test]
fn a_thousand_connections_and_those_that_say_nothing_end() {
    let server = start(&Health::default(), &access("127.0.0.1:0", None)).unwrap();
    // Both ends of each connection take a descriptor of this process; the initial limit may be
    // 1,024.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let begin = Instant::now();
    let streams: Vec<_> =
        (0..1000).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    let mut closed = 0;
    for mut stream in streams {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // All end: most at once, the others when their head is too late.
        let read = stream.read(&mut [0; 100]);
        closed +=
            usize::from(read.is_ok() || read.is_err_and(|error| error.raw_os_error() == Some(104)));
    }
    assert_eq!(closed, 1000);
    assert!(begin.elapsed() < Duration::from_secs(15));
    assert_eq!(status(server.address(), "GET /healthz", &["Host: localhost"]), "200");
}

#[test]
fn a_port_is_free_when_its_server_is_gone_and_taken_before() {
    let server = start(&Health::default(), &access("127.0.0.1:0", None)).unwrap();
    let address = server.address();
    let taken = start(&Health::default(), &access(&address.to_string(), None)).err().unwrap();
    assert_eq!(taken.code(), 5);
    assert!(taken.to_string().contains("cannot listen on"), "{taken}");
    // A client that holds its connection does not block the server.
    let _idle = TcpStream::connect(address).unwrap();
    drop(server);
    TcpListener::bind(address).unwrap();
}
