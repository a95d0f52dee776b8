//! The server of metrics and console with many kinds of clients, and the metrics of generated
//! traffic.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::float_cmp, reason = "whole numbers are exact")]

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::routing::get;
use flowgauge_agent::Failure;
use flowgauge_agent::alert::{Alerts, Board, Rule};
use flowgauge_agent::http::{Access, Health, Server, metrics};
use flowgauge_agent::journal::Counts;
use flowgauge_agent::prometheus::{Metrics, classic};
use flowgauge_capture::Captures;
use flowgauge_core::summary::Parameters;
use flowgauge_engine::{Config, EpochLength, Plan, run};
use flowgauge_synthetic::{Config as Generated, Profile, Traffic, to_pcap_bytes};
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
    assert_eq!(of("GET /metrics", &["Host: localhost", "Host: example.org"]), "403");
    assert_eq!(of("GET http://example.org/metrics", &["Host: localhost"]), "403");
    assert_eq!(of("GET http://localhost/metrics", &["Host: localhost"]), "200");
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

// Metrics of generated traffic.

/// The metrics after measuring this traffic.
fn measured(traffic: Generated, metrics: &Metrics) {
    let capture = to_pcap_bytes(Traffic::new(traffic).unwrap());
    let tasks = ["top", "heavy-hitters", "cardinality", "entropy", "superspreaders"];
    let config = Config {
        tasks: Some(tasks.map(str::to_owned).to_vec()),
        epoch: EpochLength::Packets(20_000),
        ..Config::seeded(1)
    };
    let plan = Plan::new(config).unwrap();
    let mut source = Captures::from_bytes("generated", capture);
    run(plan, &mut source, &mut metrics.clone(), &mut |_| {}).unwrap();
}

/// The series of a text with their values.
fn series(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let one = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    lines.map(one).collect()
}

/// More than the buffers of a connection hold, so that the server cannot finish its answer.
#[test]
fn clients_that_never_read_make_room_for_others() {
    let long = Bytes::from(vec![b'x'; 16 << 20]);
    let routes = Router::new().route("/", get(move || async move { long }));
    let routes = routes.merge(Health::default().routes());
    let server = Server::start("test", &access("127.0.0.1:0", None), routes).unwrap();
    let silent = || {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        // The answer has begun.
        stream.read_exact(&mut [0]).unwrap();
        stream
    };
    let silent: Vec<_> = (0..64).map(|_| silent()).collect();
    let begin = Instant::now();
    while status(server.address(), "GET /healthz", &["Host: localhost"]) != "200" {
        assert!(begin.elapsed() < Duration::from_secs(60), "other clients are not answered");
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(silent);
}

fn traffic(seed: u64, flows: u64, skew: f64) -> Generated {
    let profile = Profile::Zipf { flows, skew };
    Generated { profile, packets: 100_000, seed, ..Generated::default() }
}

#[test]
fn an_audit_has_metrics() {
    let metrics = Metrics::new(100, Board::default(), Arc::default());
    let capture = to_pcap_bytes(Traffic::new(traffic(2, 5000, 1.0)).unwrap());
    let config = Config {
        algorithm: "count-min".to_owned(),
        parameters: Parameters::new([("columns", 512)]),
        audit: Some(4),
        ..Config::seeded(2)
    };
    let mut source = Captures::from_bytes("generated", capture);
    run(Plan::new(config).unwrap(), &mut source, &mut metrics.clone(), &mut |_| {}).unwrap();
    let series = series(&metrics.encode());
    let of = |name: &str| series[&format!("flowgauge_audit_{name}{{measurement=\"main\"}}")];
    // A quarter of about 5,000 flows.
    assert!((1000.0..1400.0).contains(&of("flows")), "{}", of("flows"));
    // A Count-Min of 512 columns never underestimates; 100,000 packets give it a bias.
    assert!(of("bias") > 10.0 && of("rmse") > of("bias"));
    // The bounds allow 22 violations among 1,200 flows. More than 44 happen less than once in 10⁴
    // runs.
    let (violated, allowed) = (of("violated_ratio"), of("allowed_ratio"));
    assert!(violated < 2.0 * allowed && allowed > 0.0, "{violated} {allowed}");
    assert_eq!(of("untracked_packets"), 0.0);
}

#[test]
fn totals_are_those_of_the_traffic() {
    let metrics = Metrics::new(100, Board::default(), Arc::default());
    measured(traffic(1, 1000, 1.0), &metrics);
    let series = series(&metrics.encode());
    let of = |name: &str| series[&format!("{name}{{measurement=\"main\"}}")];
    assert_eq!(of("flowgauge_packets_total"), 100_000.0);
    assert_eq!(of("flowgauge_bytes_total"), 6_400_000.0);
    assert_eq!(of("flowgauge_epochs_total"), 5.0);
    assert!(of("flowgauge_flows") > 900.0);
    let top = |rank: u32| {
        let name = "flowgauge_ranked_packets{measurement=\"main\",task=\"top\"";
        let of = |(key, _): &(&String, &f64)| {
            key.starts_with(name) && key.contains(&format!("rank=\"{rank}\""))
        };
        *series.iter().find(of).unwrap().1
    };
    assert!((1..10).all(|rank| top(rank) >= top(rank + 1)));
}

/// Ten times 100,000 packets of new flows: a million names that must not reach Prometheus.
#[test]
fn a_million_random_flows_add_no_series() {
    let metrics = Metrics::new(50, Board::default(), Arc::default());
    let mut counts = Vec::new();
    for seed in 1..=10 {
        measured(traffic(seed, 1 << 30, 0.0), &metrics);
        counts.push(series(&metrics.encode()).len());
    }
    let named = |text: &str| text.matches("flow=\"").count();
    let text = metrics.encode();
    assert!(named(&text) <= 2 * 50 + 20, "{}", named(&text));
    assert!(counts[1..].iter().all(|count| count.abs_diff(counts[1]) <= 20), "{counts:?}");
    assert!(text.len() < 100_000, "{} bytes", text.len());
}

/// An alert's name is arbitrary text, and must not end its label.
#[test]
fn labels_are_escaped_once() {
    let rule = "{ 'say \"a\\b\"': { when: 'main.cardinality.flows.low > 10' } }";
    let rules: BTreeMap<String, Rule> = serde_saphyr::from_str(rule).unwrap();
    let mut alerts = Alerts::start(rules, None).unwrap();
    let metrics = Metrics::new(10, alerts.board(), Arc::default());
    let capture = to_pcap_bytes(Traffic::new(traffic(1, 1000, 1.0)).unwrap());
    let tasks = Some(vec!["cardinality".to_owned()]);
    let plan = Plan::new(Config { tasks, ..Config::seeded(1) }).unwrap();
    let mut source = Captures::from_bytes("generated", capture);
    run(plan, &mut source, &mut alerts, &mut |_| {}).unwrap();
    let text = metrics.encode();
    let firing = r#"flowgauge_alert_firing{alert="say \"a\\b\"",measurement="main"} 1.0"#;
    assert!(text.contains(firing), "{text}");
}

#[test]
fn epochs_that_are_kept_and_removed_are_counted() {
    let counts = Arc::new(Counts::default());
    counts.epochs.store(7, Ordering::Relaxed);
    counts.bytes.store(700, Ordering::Relaxed);
    counts.removed.store(3, Ordering::Relaxed);
    let text = Metrics::new(10, Board::default(), counts).encode();
    let series = series(&text);
    let of = |name: &str| series[&format!("flowgauge_journal_{name}{{}}")];
    assert_eq!([of("epochs"), of("bytes"), of("removed_total")], [7.0, 700.0, 3.0]);
}

#[test]
fn the_older_text_has_the_same_series() {
    let metrics = Metrics::new(100, Board::default(), Arc::default());
    measured(traffic(1, 1000, 1.0), &metrics);
    let text = metrics.encode();
    assert_eq!(series(&classic(&text)), series(&text));
}

/// Every metric is documented, and no other one.
#[test]
fn the_documentation_has_every_metric() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/prometheus.md");
    let docs = fs::read_to_string(docs).unwrap();
    let described: Vec<_> =
        docs.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let mut families: Vec<_> = flowgauge_agent::prometheus::families().collect();
    let mut described: Vec<_> = described.into_iter().map(str::to_owned).collect();
    families.sort();
    described.sort();
    assert_eq!(described, families);
}
