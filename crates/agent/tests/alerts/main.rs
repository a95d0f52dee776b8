//! Tests of alerts, from the bytes of generated captures to programs, web hooks and the log.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod rules;
mod traffic;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, thread};

use flowgauge_agent::alert::notify::{LIMIT, Notice, Notifier, Target};
use flowgauge_agent::alert::{Alerts, Board, Rule};
use flowgauge_capture::Captures;
use flowgauge_engine::report::EpochReport;
use flowgauge_engine::sink::Each;
use flowgauge_engine::source::Source;
use flowgauge_engine::{Config, Plan};
use flowgauge_synthetic as synthetic;
use serde_json::{Value, json};

/// A log that the test reads.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn rules(yaml: &str) -> BTreeMap<String, Rule> {
    serde_saphyr::from_str(yaml).unwrap()
}

/// Measures generated traffic with these alerts. Returns the log, and the final state of the
/// alerts.
fn watch(config: Config, yaml: &str, traffic: synthetic::Config) -> (Vec<String>, Board) {
    let bytes = synthetic::to_pcap_bytes(synthetic::Traffic::new(traffic).unwrap());
    watch_source(config, yaml, &mut Captures::from_bytes("test.pcap", bytes))
}

/// Like [`watch`], for the packets of a source.
fn watch_source(config: Config, yaml: &str, source: &mut dyn Source) -> (Vec<String>, Board) {
    let rules = rules(yaml);
    for rule in rules.values() {
        rule.check(std::slice::from_ref(&config)).unwrap();
    }
    let log = Log::default();
    let notifier = Notifier::start(Box::new(log.clone()), LIMIT, None).unwrap();
    let mut alerts = Alerts::new(rules, notifier);
    let board = alerts.board();
    let plan = Plan::new(config).unwrap();
    flowgauge_engine::run(plan, source, &mut alerts, &mut |_| {}).unwrap();
    drop(alerts);
    (log.lines(), board)
}

/// The report of a thousand packets, with the number of their flows.
fn sample() -> EpochReport {
    let config = Config { tasks: Some(vec!["cardinality".to_owned()]), ..Config::seeded(1) };
    let traffic = synthetic::Config { packets: 1_000, ..synthetic::Config::default() };
    let bytes = synthetic::to_pcap_bytes(synthetic::Traffic::new(traffic).unwrap());
    let mut source = Captures::from_bytes("test.pcap", bytes);
    let mut kept = None;
    let mut sink = Each(|report: &EpochReport| {
        kept = Some(report.clone());
        Ok(())
    });
    let plan = Plan::new(config).unwrap();
    flowgauge_engine::run(plan, &mut source, &mut sink, &mut |_| {}).unwrap();
    kept.unwrap()
}

// Programs, web hooks and the log.

fn notice(run: Option<String>, post: Option<&str>) -> Notice {
    Notice {
        alert: "flood".to_owned(),
        state: "firing",
        line: "alert flood firing: \u{1b}[31m".to_owned(),
        json: json!({ "alert": "flood", "state": "firing", "items": [] }),
        run,
        post: post.map(|target| Target::try_from(target.to_owned()).unwrap()),
    }
}

/// Delivers one notification, and returns the log.
fn tell(notice: Notice, limit: Duration) -> Vec<String> {
    let log = Log::default();
    let notifier = Notifier::start(Box::new(log.clone()), limit, None).unwrap();
    notifier.tell(notice);
    drop(notifier);
    log.lines()
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn program(folder: &Path, text: &str) -> String {
    let path = folder.join("notify.sh");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_program_gets_its_arguments_environment_and_json() {
    let folder = folder("notified");
    let out = folder.join("out");
    let run = program(
        &folder,
        "printf '%s %s %s ' \"$FLOWGAUGE_ALERT\" \"$FLOWGAUGE_STATE\" \"$2\" > $1; cat >> $1",
    );
    let log =
        tell(notice(Some(format!("{run} {} $HOME", out.display())), None), Duration::from_secs(10));
    assert_eq!(log, ["alert flood firing: \\u{1b}[31m"], "the log is escaped");
    let written = fs::read_to_string(out).unwrap();
    let json = written.strip_prefix("flood firing $HOME ").expect(&written);
    assert_eq!(serde_json::from_str::<Value>(json).unwrap()["alert"], "flood");
}

#[test]
fn a_program_that_hangs_is_killed_with_its_children() {
    let folder = folder("hangs");
    let out = folder.join("pid");
    let run = program(&folder, "sleep 600 & echo $! > $1; wait");
    let started = Instant::now();
    let log = tell(notice(Some(format!("{run} {}", out.display())), None), Duration::from_secs(1));
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(log[1].ends_with("killed after 1 s"), "{log:?}");
    let pid = fs::read_to_string(out).unwrap();
    // The system takes a moment to end a killed process.
    loop {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        if stat.is_empty() || stat.contains(") Z ") {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(10), "{stat}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_program_that_is_missing_or_fails_is_logged() {
    let missing = tell(notice(Some("/no/such/program".to_owned()), None), Duration::from_secs(1));
    assert!(missing[1].contains("cannot run '/no/such/program': No such file"), "{missing:?}");
    let fails = tell(notice(Some("false".to_owned()), None), Duration::from_secs(1));
    assert!(fails[1].contains("exit status: 1"), "{fails:?}");
}

/// A web server for one request: its address, and the request it receives.
fn hook(answer: &'static str) -> (String, thread::JoinHandle<(Vec<String>, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook?a=b", listener.local_addr().unwrap());
    let serve = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line == "\r\n" {
                break;
            }
            lines.push(line.trim_end().to_owned());
        }
        let length = lines.iter().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
        (lines, String::from_utf8(body).unwrap())
    });
    (url, serve)
}

#[test]
fn a_post_reaches_its_listener() {
    let (url, serve) = hook("HTTP/1.1 204 No Content\r\n\r\n");
    let log = tell(notice(None, Some(&url)), Duration::from_secs(10));
    let (lines, body) = serve.join().unwrap();
    assert_eq!(lines[0], "POST /hook?a=b HTTP/1.1");
    assert!(lines.contains(&"Content-Type: application/json".to_owned()));
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["state"], "firing");
    assert_eq!(log.len(), 1, "{log:?}");
}

#[test]
fn an_answer_that_is_no_success_is_logged() {
    let (url, serve) = hook("HTTP/1.1 500 Broken\x1b\r\n\r\n");
    let log = tell(notice(None, Some(&url)), Duration::from_secs(10));
    serve.join().unwrap();
    assert!(log[1].ends_with("it answered 'HTTP/1.1 500 Broken\\u{1b}'"), "{log:?}");
}

#[test]
fn a_hook_that_never_answers_takes_no_longer_than_the_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let started = Instant::now();
    let log = tell(notice(None, Some(&url)), Duration::from_millis(300));
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(log[1].contains("cannot post to"), "{log:?}");
}

#[test]
fn a_queue_that_is_full_loses_changes_and_counts_them() {
    let notifier =
        Notifier::start(Box::new(Log::default()), Duration::from_millis(100), None).unwrap();
    for _ in 0..200 {
        notifier.tell(notice(Some("sleep 5".to_owned()), None));
    }
    let missed = notifier.missed().load(std::sync::atomic::Ordering::Relaxed);
    assert!((100..=136).contains(&missed), "{missed}");
}
