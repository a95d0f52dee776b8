//! Agents as processes: signals, kills, a full disk, and the messages to systemd.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "agent/outputs.rs"]
mod outputs;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_flowgauge");

/// The longest time that any step may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder with a capture and the file of an agent that replays it without end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("agent-{name}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let place = Self(folder);
        let capture = place.path("traffic.pcap");
        let generate = ["generate", "--packets", "20000", "--rate", "20000", "--flows", "300"];
        let made = Command::new(BINARY).args(generate).args(["-o", &capture]).status();
        assert!(made.unwrap().success());
        place.write("");
        place
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes the agent's file, with these lines at its end.
    fn write(&self, more: &str) {
        let folder = self.0.display();
        let text = format!(
            "agent: {{ name: edge, data: {folder}/data }}\n\
             sources: [{{ replay: {folder}/traffic.pcap }}]\n\
             measurements:\n\
             \x20 flows: {{ epoch: 100ms, tasks: [top], memory: 1MiB }}\n\
             \x20 hosts: {{ key: source, epoch: 50ms, tasks: [top], memory: 1MiB }}\n\
             sinks:\n\
             \x20 files: {{ path: '{folder}/reports/%Y%m%d.jsonl' }}\n{more}"
        );
        fs::write(self.0.join("agent.yaml"), text).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new(BINARY);
        command.args(["run", "-C", &self.path("agent.yaml")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    fn start(&self) -> Running {
        Running(Some(self.command().spawn().unwrap()))
    }

    /// The snapshots, each of which must be whole: their runs and epochs by measurement.
    fn kept(&self) -> Vec<(String, String)> {
        let mut kept = Vec::new();
        for measurement in ["flows", "hosts"] {
            let folder = self.0.join("data/journal").join(measurement);
            for file in files(&folder, "fgs") {
                let name = Path::new(&file).file_stem().unwrap().to_string_lossy().into_owned();
                let id = name.splitn(3, '-').nth(2).unwrap().to_owned();
                kept.push((measurement.to_owned(), id));
            }
        }
        kept
    }

    /// The report of a query with these arguments.
    fn query(&self, of: &[&str]) -> Value {
        let seed = self.path("data/seed");
        let query = ["query", "--seed-file", &seed, "--format", "json"];
        let answer = Command::new(BINARY).args(query).args(of).output().unwrap();
        let (out, err) = (text(&answer.stdout), text(&answer.stderr));
        assert!(answer.status.success(), "{err}");
        serde_json::from_str(out.lines().next().unwrap()).unwrap()
    }

    /// Packets in all snapshots of a measurement.
    fn queried(&self, measurement: &str) -> u64 {
        keyed(&self.query(&[&self.path("data"), "--measurement", measurement]))
    }

    /// The epochs that were reported.
    fn reported(&self) -> Vec<Value> {
        let mut lines = self.lines();
        lines.retain(|line| line["type"] == "epoch");
        lines
    }

    /// The lines of the reports, each of which must be whole.
    fn lines(&self) -> Vec<Value> {
        let files = files(&self.0.join("reports"), "jsonl");
        let all: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        all.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// The packets of a report.
fn keyed(report: &Value) -> u64 {
    report["account"]["keyed"].as_u64().unwrap()
}

/// The files below a folder with this extension.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|own| own == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until a condition holds.
fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A process that ends with the test.
struct Running(Option<Child>);

impl Running {
    fn signal(&self, name: &str) {
        let id = self.0.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    fn end(mut self, signal: &str) -> Output {
        self.signal(signal);
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Kills agents at many times. `FLOWGAUGE_LONG` has it do so 200 times.
#[test]
fn epochs_kept_before_a_kill_are_whole_and_named_once() {
    let place = Place::new("kill");
    let kills = if std::env::var_os("FLOWGAUGE_LONG").is_some() { 200 } else { 12 };
    let mut before = 0;
    for kill in 0..kills {
        let running = place.start();
        // From before the first epoch to a second behind it, at times that share no divisor.
        thread::sleep(Duration::from_millis(20 + kill * 137 % 1000));
        running.end("KILL");
        let kept = place.kept();
        assert!(kept.len() >= before, "an epoch is gone");
        before = kept.len();
        let ids: BTreeSet<_> = kept.iter().collect();
        assert_eq!(ids.len(), kept.len(), "an epoch is named twice");
    }
    // A last agent removes torn files, and keeps every epoch that it reports.
    let there = (place.kept().len(), place.reported().len());
    let torn = files(&place.0.join("data"), "part");
    let running = place.start();
    wait("no epoch", || place.kept().len() > there.0 + 4);
    let ended = running.end("TERM");
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    assert!(!torn.iter().any(|part| part.exists()));
    let reported = place.reported();
    assert_eq!(place.kept().len() - there.0, reported.len() - there.1);
    // Each kept epoch equals its report, and a query adds all of them up.
    for measurement in ["flows", "hosts"] {
        let (mut all, mut ahead) = (0, 0);
        for file in files(&place.0.join("data/journal").join(measurement), "fgs") {
            let kept = place.query(&[&file.display().to_string()]);
            let same = |line: &&Value| {
                line["measurement"] == measurement
                    && ["start", "epoch"].iter().all(|field| line[field] == kept[field])
            };
            let told: Vec<_> = reported.iter().filter(same).map(keyed).collect();
            assert!(told.is_empty() || told.contains(&keyed(&kept)), "{told:?} {kept}");
            all += keyed(&kept);
            ahead += u64::from(told.is_empty());
        }
        assert_eq!(place.queried(measurement), all);
        // At a kill, the journal may be an epoch or two ahead of the reports.
        assert!(all > 0 && ahead <= 2 * kills, "{ahead} kept epochs were not reported");
    }
}

#[test]
fn signals_at_any_time_end_it_or_have_it_read_its_file_again() {
    let place = Place::new("signals");
    let log = place.0.join("log");
    let mut command = place.command();
    let running = Running(Some(command.stderr(fs::File::create(&log).unwrap()).spawn().unwrap()));
    let says = |what: &str| fs::read_to_string(&log).unwrap().contains(what);
    wait("no report", || place.lines().len() > 3);
    let hashes = |place: &Place| -> BTreeSet<String> {
        place.lines().iter().map(|line| line["configuration"].to_string()).collect()
    };
    assert_eq!(hashes(&place).len(), 1);
    running.signal("USR1");
    place.write("  nonsense: {}\n");
    running.signal("HUP");
    wait("no error in the log", || says("unknown field 'nonsense'"));
    assert_eq!(hashes(&place).len(), 1, "the file with the error took effect");
    place.write("# a comment changes nothing\n");
    let sound = fs::read_to_string(place.0.join("agent.yaml")).unwrap();
    fs::write(place.0.join("agent.yaml"), sound.replace("tasks: [top]", "tasks: [cardinality]"))
        .unwrap();
    running.signal("HUP");
    wait("the new file does not take effect", || hashes(&place).len() == 2);
    let asked = |line: &Value| line["tasks"]["cardinality"].is_object();
    wait("no answer to the new task", || place.lines().iter().any(asked));
    // A file that passes the check but whose sources cannot be opened does not end it either.
    fs::write(
        place.0.join("agent.yaml"),
        sound.replace("replay: ", "interface: none0 }, { replay: "),
    )
    .unwrap();
    running.signal("HUP");
    wait("no failure in the log", || says("keeping the configuration: none0"));
    let epochs = place.lines().len();
    wait("it measures no more", || place.lines().len() > epochs + 6);
    let ended = running.end("INT");
    let err = fs::read_to_string(&log).unwrap();
    assert!(ended.status.success(), "{err}");
    assert!(err.contains("Top flows by packets"), "USR1 printed no report: {err}");
    // The epochs of both configurations add up: reloads lose only what came while sources were closed.
    assert!(place.queried("hosts") > 1000);
}

/// As when a terminal is closed after Ctrl-C. Brokers that are away keep the run from ending at once.
#[cfg(feature = "kafka")]
#[test]
fn a_hang_up_after_the_end_begins_no_other_run() {
    let place = Place::new("hang-up");
    place.write("  kafka: { brokers: ['127.0.0.1:1'], topic: none }\n");
    let mut running = place.start();
    wait("no report", || place.lines().len() > 3);
    running.signal("TERM");
    thread::sleep(Duration::from_millis(300));
    running.signal("HUP");
    let child = running.0.as_mut().unwrap();
    wait("it goes on", || child.try_wait().unwrap().is_some());
    assert!(child.wait().unwrap().success());
}

/// A capture that is none is a source that cannot be opened.
#[test]
fn a_replay_of_what_is_no_capture_ends_with_4() {
    let place = Place::new("no-capture");
    let file = place.0.join("agent.yaml");
    let text = fs::read_to_string(&file).unwrap().replace("traffic.pcap", "agent.yaml");
    fs::write(&file, text).unwrap();
    let mut running = place.start();
    let child = running.0.as_mut().unwrap();
    wait("it goes on", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(4));
}

/// A reload in the middle of an epoch waits for its end.
#[test]
fn a_reload_cuts_no_epoch_in_two() {
    let place = Place::new("reload");
    let file = place.0.join("agent.yaml");
    let long = fs::read_to_string(&file).unwrap().replace("100ms", "2s").replace("50ms", "1s");
    fs::write(&file, &long).unwrap();
    let running = place.start();
    let of_flows = |place: &Place| -> Vec<Value> {
        place.reported().into_iter().filter(|line| line["measurement"] == "flows").collect()
    };
    wait("no report", || of_flows(&place).len() > 1);
    // The next epoch has just begun.
    fs::write(&file, long.replace("tasks: [top]", "tasks: [cardinality]")).unwrap();
    let before = of_flows(&place).len();
    running.signal("HUP");
    let asked = |line: &Value| line["tasks"]["cardinality"].is_object();
    wait("the new file does not take effect", || of_flows(&place).iter().any(asked));
    let lines = of_flows(&place);
    assert!(lines[before]["coverage"].as_f64().unwrap_or(1.0) > 0.99, "{}", lines[before]);
    assert!(!asked(&lines[before]), "the old file ends with the epoch");
    running.end("TERM");
}

/// A reload finds neither the new source nor the old one: it waits for them.
#[test]
fn a_reload_waits_for_sources_that_are_gone() {
    let place = Place::new("gone");
    let log = place.0.join("log");
    let mut command = place.command();
    let running = Running(Some(command.stderr(fs::File::create(&log).unwrap()).spawn().unwrap()));
    let says = |what: &str| fs::read_to_string(&log).unwrap().matches(what).count();
    wait("no report", || place.lines().len() > 3);
    let (capture, away) = (place.path("traffic.pcap"), place.path("away.pcap"));
    fs::rename(&capture, &away).unwrap();
    let outage = "measuring nothing: cannot read ";
    running.signal("HUP");
    wait("the source is not waited for", || says(outage) == 1);
    // It still obeys, and goes on when the source is back.
    running.signal("HUP");
    wait("a second reload is not tried", || says("keeping the configuration: ") == 2);
    let there = place.lines().len();
    fs::rename(&away, &capture).unwrap();
    wait("it measures no more", || place.lines().len() > there + 3);
    assert_eq!(says(outage), 1, "an outage is one line");
    fs::rename(&capture, &away).unwrap();
    running.signal("HUP");
    wait("the source is not waited for", || says(outage) == 2);
    let ended = running.end("TERM");
    assert!(ended.status.success(), "{}", fs::read_to_string(&log).unwrap());
}

/// The messages that a service manager receives, over a socket like systemd's.
#[test]
fn systemd_hears_of_the_start_the_life_and_the_end() {
    let place = Place::new("systemd");
    let socket = place.path("notify");
    let listener = UnixDatagram::bind(&socket).unwrap();
    listener.set_read_timeout(Some(PATIENCE)).unwrap();
    let heard = || {
        let mut bytes = [0; 200];
        let length = listener.recv(&mut bytes).unwrap();
        text(&bytes[..length]).trim().to_owned()
    };
    let agent = format!("WATCHDOG_PID=$$ exec {BINARY} run -C {}", place.path("agent.yaml"));
    let mut command = Command::new("sh");
    command.args(["-c", &agent]).stderr(Stdio::null());
    command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "300000");
    let running = Running(Some(command.spawn().unwrap()));
    assert_eq!(heard(), "READY=1");
    assert_eq!(heard(), "WATCHDOG=1");
    assert_eq!(heard(), "WATCHDOG=1");
    running.signal("TERM");
    let mut last = heard();
    while last == "WATCHDOG=1" {
        last = heard();
    }
    assert_eq!(last, "STOPPING=1");
}

/// A line of a process's status, by its name.
fn status(id: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
    line.unwrap().to_owned()
}

/// The helper of an agent, which has no other child.
fn helper_of(agent: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{agent}/task/{agent}/children")).unwrap();
    children.trim().parse().unwrap()
}

/// Whether this process runs as root.
fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    text(&id.stdout).trim() == "0"
}

#[test]
fn an_agent_gives_up_privileges_and_its_helper_does_the_rest() {
    let place = Place::new("sandbox");
    let notify = place.path("notify.sh");
    fs::write(&notify, "#!/bin/sh\nid -un > \"$(dirname \"$0\")/data/told\"\n").unwrap();
    assert!(Command::new("chmod").args(["755", &notify]).status().unwrap().success());
    let alert = format!("alerts: {{ any: {{ when: flows.top.packets > 1, run: '{notify}' }} }}\n");
    place.write(&alert);
    let running = place.start();
    let id = running.0.as_ref().unwrap().id();
    wait("the program was not run", || place.0.join("data/told").exists());
    assert_eq!(status(id, "NoNewPrivs"), "1");
    assert_eq!(status(id, "Seccomp"), "2");
    // Root without a user to become keeps CAP_DAC_OVERRIDE.
    let left = if is_root() { 2 } else { 0 };
    assert_eq!(u64::from_str_radix(&status(id, "CapEff"), 16).unwrap(), left);
    let helper = helper_of(id);
    assert_eq!(status(helper, "Seccomp"), "0");
    // A file that needs more takes no effect.
    let other = std::env::temp_dir().join(format!("flowgauge-elsewhere-{}", std::process::id()));
    let sound = fs::read_to_string(place.0.join("agent.yaml")).unwrap();
    let moved = sound.replace(&place.path("reports"), &other.display().to_string());
    assert_ne!(moved, sound);
    fs::write(place.0.join("agent.yaml"), moved).unwrap();
    running.signal("HUP");
    let epochs = place.lines().len();
    wait("it measures no more", || place.lines().len() > epochs + 6);
    // The helper ends with the agent, however that ends.
    let ended = running.end("KILL");
    let gone = || fs::read_to_string(format!("/proc/{helper}/stat")).is_err();
    wait("the helper stays", gone);
    let err = text(&ended.stderr);
    assert!(err.contains("flowgauge: sandbox: user "), "{err}");
    let refusal = format!(
        "keeping the configuration: the sandbox does not reach {}; restart to change",
        other.display()
    );
    assert!(err.contains(&refusal), "{err}");
    assert!(!other.exists());
    fs::write(place.0.join("agent.yaml"), sound).unwrap();
    let open = Running(Some(place.command().arg("--no-sandbox").spawn().unwrap()));
    let id = open.0.as_ref().unwrap().id();
    let epochs = place.lines().len();
    wait("it does not measure", || place.lines().len() > epochs);
    assert_eq!(status(id, "Seccomp"), "0");
}

#[test]
fn the_log_is_json_where_the_file_asks_for_it() {
    let place = Place::new("log");
    let log = ["--set", "agent.log=json", "--set", "sources.0.times=1"];
    let alert = "alerts.any={ when: flows.top.packets > 1 }";
    let ran = place.command().args(log).args(["--set", alert]).output().unwrap();
    let err = text(&ran.stderr);
    assert!(ran.status.success(), "{err}");
    let lines: Vec<Value> = err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let messages = lines.iter().map(|line| line["message"].as_str().unwrap());
    let starts = ["sandbox: ", "keeping epochs in ", "measuring ", "alert any firing: "];
    for start in starts {
        assert!(messages.clone().any(|message| message.starts_with(start)), "{start}{err}");
    }
    let levels: BTreeSet<_> = lines.iter().map(|line| line["level"].as_str().unwrap()).collect();
    assert_eq!(levels, BTreeSet::from(["info", "warn"]));
}

#[test]
fn root_becomes_the_user_of_the_file() {
    if !is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    // Other users cannot enter the folders above.
    let mut place = Place::new("user");
    let folder = std::env::temp_dir().join(format!("flowgauge-user-{}", std::process::id()));
    let from = std::mem::replace(&mut place.0, folder.clone());
    assert!(Command::new("cp").arg("-r").args([&from, &folder]).status().unwrap().success());
    assert!(Command::new("chmod").arg("755").arg(&folder).status().unwrap().success());
    place.write("");
    let user = ["--set", "agent.user=nobody"];
    let running = Running(Some(place.command().args(user).spawn().unwrap()));
    wait("no epoch", || place.kept().len() > 4);
    let id = running.0.as_ref().unwrap().id();
    let ids = status(id, "Uid");
    assert!(!ids.split('\t').any(|id| id == "0"), "{ids}");
    assert_eq!(u64::from_str_radix(&status(id, "CapPrm"), 16).unwrap(), 0);
    let ended = running.end("TERM");
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    assert!(text(&ended.stderr).contains("sandbox: user nobody, no capabilities, no new"));
    let root = ["--set", "agent.user=root"];
    let other = place.command().args(root).output().unwrap();
    assert_eq!(other.status.code(), Some(5));
    let hint = format!("run 'chown -R root {}'", folder.join("data").display());
    assert!(text(&other.stderr).contains(&hint), "{}", text(&other.stderr));
    let unknown = place.command().args(["--set", "agent.user=no-such-user"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    fs::remove_dir_all(folder).unwrap();
}

/// Sends 100 datagrams out of an interface.
const SEND: &str = "
import socket, struct
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind(('there', 0))
ip = struct.pack('>BBHHHBBH4s4s', 0x45, 0, 36, 0, 0, 64, 17, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]))
frame = bytes(12) + b'\\x08\\x00' + ip + struct.pack('>HHHH', 1111, 2222, 16, 0) + bytes(8)
for _ in range(100):
    out.send(frame)
";

/// Needs root, iproute2 and python3. The socket of an interface that comes again is opened by the helper,
/// since the agent itself may not; for AF_XDP it keeps what that needs.
#[test]
fn in_the_sandbox_an_interface_that_is_made_again_is_measured_again() {
    if !is_root() {
        eprintln!("skipped: only root makes interfaces");
        return;
    }
    measured_again(
        "{ interface: here, queues: 2 }",
        "only the capability to read and write files of others",
    );
    let xdp = "{ interface: here, queues: 1, engine: af-xdp, takes-traffic: true }";
    measured_again(xdp, "only the capabilities for af-xdp and to read and write files of others");
}

/// Measures a source before and behind the time in which its interface is gone.
fn measured_again(source: &str, capabilities: &str) {
    let place = Place::new("interface");
    let wire =
        "ip link add here type veth peer name there && ip link set here up && ip link set there up";
    let agent = format!(
        "{BINARY} run -C {} --set 'sources.0={source}' \
         --set 'measurements.flows.filter=udp port 2222'",
        place.path("agent.yaml")
    );
    let said = place.path("said");
    let begun =
        format!("for _ in $(seq 300); do grep -q measuring {said} && break; sleep 0.1; done");
    let script = format!(
        "{wire} || exit 77; {agent} 2> {said} & agent=$!; {begun}; python3 -c \"$SEND\" || exit 77; \
         sleep 0.5; ip link del here; sleep 0.5; {wire}; sleep 3; python3 -c \"$SEND\"; sleep 0.5; \
         kill -TERM $agent; wait $agent"
    );
    let mut command = Command::new("unshare");
    let ran = command.args(["--net", "sh", "-c", &script]).env("SEND", SEND).output();
    let Some(ran) = ran.ok().filter(|ran| ran.status.code() != Some(77)) else {
        eprintln!("skipped: no interfaces can be made here, or there is no python3");
        return;
    };
    let err = text(&ran.stderr) + &fs::read_to_string(said).unwrap();
    assert!(ran.status.success(), "{err}");
    assert!(err.contains(&format!("sandbox: user root, {capabilities}")), "{err}");
    let lines = place.lines();
    let flows =
        lines.iter().filter(|line| line["measurement"] == "flows" && line["type"] == "epoch");
    let keyed: u64 = flows.map(|line| line["account"]["keyed"].as_u64().unwrap()).sum();
    assert_eq!(keyed, 200, "{err}");
}

/// A port that DPDK makes of a capture, with two queues; as any user, and without huge pages.
#[test]
#[cfg(feature = "dpdk")]
fn ports_of_dpdk_are_measured_and_opened_once() {
    let place = Place::new("dpdk");
    let capture = place.path("traffic.pcap");
    let arguments = "--no-huge -m 160 -n 1 --no-pci --no-telemetry --no-shconf";
    let device = format!("--vdev=net_pcap0,rx_pcap={capture},rx_pcap={capture}");
    let file = fs::read_to_string(place.0.join("agent.yaml")).unwrap();
    let replay = format!("replay: {capture}");
    let port = "interface: net_pcap0, engine: dpdk, queues: 2, ring: 16MiB";
    let agent = format!("agent: {{ dpdk-args: '{arguments} {device}', ");
    let file = file.replace(&replay, port).replace("agent: { ", &agent);
    fs::write(place.0.join("agent.yaml"), file).unwrap();

    let confined = place.command().output().unwrap();
    assert_eq!(confined.status.code(), Some(2));
    assert!(text(&confined.stderr).contains("--no-sandbox"), "{}", text(&confined.stderr));

    let running = Running(Some(place.command().arg("--no-sandbox").spawn().unwrap()));
    let keyed = |line: &Value| line["account"]["keyed"].as_u64().unwrap();
    let of_flows = |line: &&Value| line["type"] == "epoch" && line["measurement"] == "flows";
    let packets = || place.lines().iter().filter(of_flows).map(keyed).sum::<u64>();
    wait("packets", || packets() == 2 * 20_000);
    running.signal("HUP");
    thread::sleep(Duration::from_millis(300));
    let ended = running.end("TERM");
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert!(said.contains("DPDK opens ports once in a process"), "{said}");
    assert_eq!(place.queried("flows"), 2 * 20_000);
}

/// Needs root, for a small file system of its own in a namespace of its own.
#[test]
fn on_a_full_disk_the_oldest_epochs_make_room() {
    let place = Place::new("full");
    let data = place.path("data");
    fs::create_dir_all(&data).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=256k none {data} && {BINARY} run -C {} & agent=$!; \
         for second in 1 2 3 4 5 6; do sleep 1; done; \
         ls {data}/journal/*/* | grep -c fgs; kill -TERM $agent; wait $agent",
        place.path("agent.yaml")
    );
    // The mount must be seen by the shell that counts.
    let script = script.replacen("&& ", "|| exit 77; ", 1);
    let ran = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output();
    let Ok(ran) = ran else {
        eprintln!("skipped: no unshare");
        return;
    };
    if ran.status.code() != Some(0) && !place.0.join("reports").exists() {
        eprintln!("skipped: no file system may be mounted here");
        return;
    }
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let kept: u64 = text(&ran.stdout).trim().parse().unwrap();
    assert!(kept > 0, "no epoch is kept");
    // Reports go elsewhere and are complete: measurement never stops for a disk.
    let epochs = place.lines().iter().filter(|line| line["measurement"] == "hosts").count();
    assert!(epochs > 60, "{epochs}");
    assert!((kept as usize) < epochs, "the disk was never full");
    let lost = place.lines().iter().filter(|line| line["undelivered"].as_u64() > Some(0)).count();
    assert_eq!(lost, 0);
}

#[test]
fn the_exit_code_tells_the_kind_of_failure() {
    let place = Place::new("codes");
    let code = |set: &str| {
        let refused = place.command().args(["--set", set]).output().unwrap();
        let err = text(&refused.stderr);
        let steps = |line: &&str| line.contains("keeping") || line.contains("sandbox:");
        assert_eq!(err.lines().filter(|line| !steps(line)).count(), 1, "{err}");
        (refused.status.code().unwrap(), err)
    };
    let check = |file: &str| {
        let checked = Command::new(BINARY).args(["check", file]).output().unwrap();
        (checked.status.code().unwrap(), text(&checked.stdout))
    };
    let (sound, shown) = check(&place.path("agent.yaml"));
    assert!(sound == 0 && shown.contains("All 2 measurements take at most"), "{shown}");
    fs::write(place.0.join("bad.yaml"), "sources: []\nmeasurements: {}\n").unwrap();
    assert_eq!(check(&place.path("bad.yaml")), (2, String::new()));
    assert!(!place.0.join("data").exists(), "check made a folder");
    assert_eq!(code("measurements.flows.kye=source").0, 2);
    let (none, err) = code("sources.0={ interface: none0 }");
    assert_eq!(none, 4, "{err}");
    assert_eq!(code("agent.data=/proc/none").0, 5);
    fs::write(place.0.join("agent.yaml"), "collect: { seed: s }\n").unwrap();
    let (collector, err) = code("collect.delay=1s");
    assert!(collector == 2 && err.contains("use 'flowgauge collect'"), "{err}");
}

/// Every configuration in the documentation is one that works.
#[test]
fn the_documentation_has_configurations_that_pass_the_check() {
    let place = Place::new("documentation");
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let mut checked = 0;
    for file in fs::read_dir(docs).unwrap() {
        let file = file.unwrap().path();
        if file.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let blocks = |first: &'static str| {
            text.split(first).skip(1).filter_map(move |rest| {
                let end = ["\nEOF", "\n```"].iter().filter_map(|end| rest.find(end)).min()?;
                Some(format!("{first}{}\n", &rest[..end]))
            })
        };
        let agents = blocks("agent: {").filter(|block| block.contains("sources:"));
        let is_built = |block: &String| cfg!(feature = "kafka") || !block.contains("kafka:");
        for block in agents.chain(blocks("collect: {")).filter(is_built) {
            fs::write(place.0.join("block.yaml"), &block).unwrap();
            let check = ["check", &place.path("block.yaml")];
            let answer = Command::new(BINARY).args(check).output().unwrap();
            assert!(answer.status.success(), "{block}{}", self::text(&answer.stderr));
            checked += 1;
        }
    }
    assert!(checked > 0);
}
