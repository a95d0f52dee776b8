//! Collectors, brokers and clients that are away, slow or send nonsense: the agent continues in its
//! memory, and counts what they miss.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

use super::{BINARY, Place, Running, files, text, wait};

/// Packets per second, of enough flows to make reports long.
const RATE: u64 = 40_000;

/// Growth of memory that the queues of all sinks and the reports on their way explain.
const GROWTH_KB: u64 = 96 << 10;

/// Held by the only subject: one takes more than a core, since the debug build writes slowly.
static ALONE: Mutex<()> = Mutex::new(());

/// An agent with every sink that others reach, and where these listen.
struct Subject {
    place: Place,
    running: Running,
    prometheus: SocketAddr,
    console: SocketAddr,
    started: Instant,
    begin: Instant,
    begin_kb: u64,
    _alone: MutexGuard<'static, ()>,
}

impl Subject {
    fn start(name: &str, collector: SocketAddr, broker: SocketAddr) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let place = Place::new(name);
        let capture = place.path("traffic.pcap");
        let (packets, rate) = (RATE.to_string(), RATE.to_string());
        let generate = ["generate", "--packets", &packets, "--rate", &rate, "--flows", "20000"];
        let made = Command::new(BINARY).args(generate).args(["-o", &capture]).status();
        assert!(made.unwrap().success());
        let (prometheus, console) = (free(), free());
        let (folder, data) = (place.path(""), place.path("data"));
        let text = format!(
            "agent: {{ name: edge, data: {data} }}\n\
             sources: [{{ replay: {capture} }}]\n\
             measurements:\n\
             \x20 flows: {{ epoch: 100ms, tasks: [top], memory: 4MiB, top: 10000 }}\n\
             sinks:\n\
             \x20 files: {{ path: '{folder}/reports/%Y%m%d.jsonl' }}\n\
             \x20 ipfix: {{ to: 'tcp://{collector}' }}\n\
             \x20 prometheus: {{ listen: '{prometheus}' }}\n\
             \x20 console: {{ listen: '{console}' }}\n"
        );
        let what = "topic: flows, what: [report, snapshot]";
        let kafka = format!("\x20 kafka: {{ brokers: ['{broker}'], {what} }}\n");
        let text = if cfg!(feature = "kafka") { text + &kafka } else { text };
        fs::write(place.path("agent.yaml"), text).unwrap();
        let started = Instant::now();
        let running = place.start();
        // The last line may be on its way.
        let lines = |path: &PathBuf| fs::read_to_string(path).unwrap().matches('\n').count();
        let reports = place.0.join("reports");
        wait("no report", || files(&reports, "jsonl").iter().map(&lines).sum::<usize>() > 5);
        let begin = Instant::now();
        let mut subject = Self {
            place,
            running,
            prometheus,
            console,
            started,
            begin,
            begin_kb: 0,
            _alone: alone,
        };
        subject.begin_kb = subject.status("VmRSS");
        subject
    }

    /// A number that the kernel reports for the process.
    fn status(&self, name: &str) -> u64 {
        let id = self.running.0.as_ref().unwrap().id();
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap().trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Waits for a while, in which memory stays within what is explained.
    fn go_on(&self, seconds: u64) {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(seconds) {
            let kb = self.status("VmRSS");
            assert!(kb < self.begin_kb + GROWTH_KB, "{} kB before, now {kb}", self.begin_kb);
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Whether the server at this address answers.
    fn answers(address: SocketAddr) -> bool {
        get(address, "/healthz").starts_with("HTTP/1.1 200")
    }

    /// Ends the agent, which has measured every packet and reported every epoch. Returns its last words.
    fn end(self) -> String {
        let measured = self.begin.elapsed().as_secs() * RATE;
        let begin = Instant::now();
        let ended = self.running.end("TERM");
        assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
        let err = text(&ended.stderr);
        assert!(ended.status.success(), "{err}");
        let lines = self.place.lines();
        let number = |value: &Value| value.as_u64().unwrap();
        let of =
            |kind: &str| -> Vec<_> { lines.iter().filter(|line| line["type"] == kind).collect() };
        let epochs = of("epoch");
        let reported: u64 = epochs.iter().map(|epoch| number(&epoch["account"]["keyed"])).sum();
        let [total] = of("total")[..] else { panic!("no total") };
        let [keyed, dropped, lost] =
            ["keyed", "dropped", "lost"].map(|name| number(&total["account"][name]));
        assert_eq!(number(&total["undelivered"]), 0);
        assert_eq!(number(&total["epochs"]), epochs.len() as u64, "a report is missing");
        assert_eq!((reported, dropped, lost), (keyed, 0, 0));
        // On a busy machine, it is late.
        assert!(keyed >= measured / 4, "{keyed} packets of {measured}");
        err
    }
}

/// The answer of a server; empty if there is none.
fn get(address: SocketAddr, path: &str) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = TcpStream::connect(address) {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let asked = stream.write_all(request.as_bytes());
        let read = asked.and_then(|()| stream.read_to_string(&mut answer));
        if read.is_err() {
            answer.clear();
        }
    }
    answer
}

/// An address of this host at which nothing listens.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Reports that the agent says it lost.
fn lost(err: &str) -> u64 {
    let lines = err.lines();
    let counts = lines.filter_map(|line| line.split_once("reports that could not be written: "));
    counts.map(|(_, count)| count.parse::<u64>().unwrap()).sum()
}

/// How often the agent says that the IPFIX collector takes no reports, and that it goes on trying.
fn complaints(err: &str) -> u64 {
    let complains = |line: &&str| line.contains("IPFIX") && line.ends_with("trying again");
    err.lines().filter(complains).count() as u64
}

/// The journal cannot be written for a while.
#[test]
fn a_sink_that_fails_is_named_and_shown_until_it_works_again() {
    let place = Place::new("failing");
    let (prometheus, console) = (free(), free());
    place.write(&format!(
        "\x20 prometheus: {{ listen: '{prometheus}' }}\n\x20 console: {{ listen: '{console}' }}\n"
    ));
    let running = place.start();
    let is_failing = |failing: u8| {
        let series = format!("flowgauge_sink_failing{{sink=\"journal\"}} {failing}");
        get(prometheus, "/metrics").contains(&series)
    };
    wait("no metrics", || is_failing(0));
    let journal = place.0.join("data/journal");
    // The agent makes its folder again.
    wait("the folder stays", || {
        let _ = fs::remove_dir_all(&journal);
        fs::write(&journal, "").is_ok()
    });
    wait("no failure in the metrics", || is_failing(1));
    let status = get(console, "/status");
    let status: Value = serde_json::from_str(status.split_once("\r\n\r\n").unwrap().1).unwrap();
    let of = |sink: &str| {
        let sinks = status["sinks"].as_array().unwrap();
        sinks.iter().find(|one| one["sink"] == sink).unwrap()["problem"].clone()
    };
    assert!(of("journal").as_str().unwrap().starts_with("cannot write to "), "{status}");
    assert_eq!(of("files"), Value::Null);
    fs::remove_file(&journal).unwrap();
    wait("it does not work again", || is_failing(0));
    let err = text(&running.end("TERM").stderr);
    let lines = |what: &str| err.lines().filter(|line| line.contains(what)).count();
    assert_eq!(lines("/journal: "), 1, "{err}");
    assert_eq!(lines("sink 'journal' works again"), 1, "{err}");
}

#[test]
fn a_collector_that_reads_nothing_holds_nothing_up() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = collector.local_addr().unwrap();
    let subject = Subject::start("silent", address, address);
    let started = subject.started;
    // Its buffers are full after some seconds, and the queue as long after that.
    subject.go_on(8);
    let err = subject.end();
    assert!(lost(&err) > 0, "{err}");
    // It waits for 5 s before each; a new connection takes reports until its buffers are full.
    assert!(complaints(&err) <= started.elapsed().as_secs() / 5, "{err}");
}

#[test]
fn a_collector_that_closes_at_once_holds_nothing_up() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = collector.local_addr().unwrap();
    thread::spawn(move || collector.incoming().for_each(drop));
    let subject = Subject::start("closing", address, address);
    subject.go_on(3);
    subject.end();
}

#[test]
fn a_collector_that_comes_back_gets_reports_again() {
    let address = free();
    let subject = Subject::start("away", address, free());
    subject.go_on(3);
    let collector = TcpListener::bind(address).unwrap();
    let (mut stream, _) = collector.accept().unwrap();
    let read = thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        let mut sum = 0;
        while let Ok(read @ 1..) = stream.read(&mut bytes) {
            sum += read;
        }
        sum
    });
    subject.go_on(2);
    let err = subject.end();
    assert!(err.contains("sink 'ipfix' works again"), "{err}");
    assert_eq!(complaints(&err), 1, "{err}");
    assert!(read.join().unwrap() > 1 << 20);
}

#[test]
fn clients_that_read_nothing_or_speak_nonsense_hold_nothing_up() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let subject = Subject::start("clients", free(), free());
    let threads = subject.status("Threads");
    let servers = [subject.prometheus, subject.console];
    // Readers of every stream of reports that read nothing.
    let events = "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let idle: Vec<_> = (0..32)
        .map(|_| {
            let mut stream = TcpStream::connect(subject.console).unwrap();
            stream.write_all(events.as_bytes()).unwrap();
            stream
        })
        .collect();
    let socket = subject.place.path("data/socket");
    let feeds: Vec<_> = (0..32)
        .map(|number: u8| {
            let mut feed = UnixStream::connect(&socket).unwrap();
            // It is not asked, and may have no room for one more.
            let _ = feed.write_all(&[number; 1000]);
            feed
        })
        .collect();
    subject.go_on(2);
    // Requests of 10 MB: a body, a line and a header without an end, and what is no request at all.
    let long = vec![b'x'; 10_000_000];
    let body = "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n";
    for begin in [body, "GET /", "GET / HTTP/1.1\r\nHost: ", "\x16\x03\x01\0\r\n", "\0"] {
        for server in servers {
            let mut stream = TcpStream::connect(server).unwrap();
            stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
            // The server closes midway.
            let _ = stream.write_all(begin.as_bytes()).and_then(|()| stream.write_all(&long));
        }
    }
    let crowd: Vec<_> =
        (0..1000).map(|number| TcpStream::connect(servers[number % 2]).unwrap()).collect();
    subject.go_on(2);
    assert!(subject.status("Threads") <= threads + 16, "{} threads", subject.status("Threads"));
    drop((idle, feeds, crowd));
    for server in servers {
        wait("no answer", || Subject::answers(server));
    }
    subject.end();
}
