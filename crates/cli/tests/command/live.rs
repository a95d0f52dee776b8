//! `live` on interfaces in a network namespace, compared with `analyze` of the packets that were
//! sent.

use std::env;
use std::process::Command;
use std::thread::{self, sleep};
use std::time::Duration;

use serde_json::{Value, json};

use crate::network::{JOIN, Net, SEND, SEND_HOME, root, succeeds};
use crate::run::{arp, column, file, flowgauge, folder, pcap, tcp6, traffic, udp};

/// `frame` with a VLAN tag behind its addresses.
fn tagged(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0x00, 0x20, 0x07], &frame[12..]].concat()
}

/// The parts of a report that must not depend on how the packets were received.
pub(crate) fn same(report: &Value) -> Value {
    let account = &report["account"];
    assert_eq!(account["read"], account["keyed"].as_u64().unwrap() + rejected(account));
    let counts = ["read", "filtered", "malformed", "no_key", "keyed", "keyed_bytes", "untracked"];
    json!([
        counts.map(|name| &account[name]),
        account["malformed_reasons"],
        account["no_key_reasons"],
        report["tasks"],
        report["breakdown"],
    ])
}

fn rejected(account: &Value) -> u64 {
    ["filtered", "malformed", "no_key"].iter().map(|name| account[*name].as_u64().unwrap()).sum()
}

#[test]
fn live_measures_the_same_as_analyze_of_the_same_packets() {
    let Some(net) = Net::new("same") else { return };
    let mut frames = traffic();
    frames.extend((0..90).map(|index| tagged(&udp(3, index % 7, 80))));
    frames.extend((0..40).map(|index| tagged(&tagged(&tcp6(index)))));
    // Cut inside the IPv4 header, of an unknown protocol, and as large as the wire takes.
    frames.extend([udp(1, 2, 3)[..30].to_vec(), [&[2; 12][..], &[0x12, 0x34, 1]].concat(), arp()]);
    let mut large = udp(5, 5, 5);
    large.resize(1514, 7);
    frames.extend(vec![large; 300]);
    let capture = file("live.pcap", &pcap(&frames));
    for arguments in [
        &["--epoch", "whole"][..],
        &["--epoch", "whole", "--workers", "2"],
        &["--epoch", "whole", "--workers", "3", "--fanout", "hash"],
        &["--epoch", "whole", "--workers", "2", "--fanout", "cpu", "--ring", "4MiB"],
        &["--epoch", "whole", "--key", "source", "--by", "bytes", "--workers", "2"],
        &["--epoch", "whole", "--engine", "af-xdp", "--takes-traffic"],
        &["--epoch", "whole", "--engine", "af-xdp", "--takes-traffic", "--busy-poll"],
    ] {
        let live = net.live("here", arguments);
        net.send(&capture);
        let answer = live.interrupt("-INT");
        assert_eq!(answer.code, 0, "{}", answer.err);
        let lines = answer.lines();
        let offline = offline(arguments, &capture);
        let expected = &offline[0];
        assert_eq!(lines.len(), 2);
        assert_eq!(same(&lines[0]), same(expected), "{arguments:?}");
        let received = frames.len() as u64;
        assert_eq!(lines[1]["account"]["read"], received);
        assert_eq!(lines[1]["files"], json!(["here"]));
        let keyed = expected["account"]["keyed"].as_u64().unwrap();
        assert_eq!(
            answer.err.lines().last().unwrap(),
            format!("here: {received} packets received, 0 dropped by the kernel, {keyed} measured")
        );
    }
}

/// On a terminal, each epoch is a line, and the last report ends the run as text.
#[test]
fn live_is_brief_on_a_terminal() {
    let Some(net) = Net::new("terminal") else { return };
    let frames = traffic();
    let capture = file("live-terminal.pcap", &pcap(&frames));
    let packets = frames.len().to_string();
    let live = net.terminal("here", &["--epoch", "200ms", "-c", &packets]);
    net.send(&capture);
    let answer = live.end();
    assert_eq!(answer.code, 0, "{}", answer.err);
    let out = answer.out.replace('\r', "");
    assert!(out.starts_with("here: listening with af-packet"), "{out}");
    let header = out.lines().nth(1).unwrap();
    assert!(header.starts_with("measurement epoch start"), "{out}");
    let main = out.lines().filter(|line| line.starts_with("main ")).count();
    assert!(main >= 1, "{out}");
    let (_, page) = out.split_once("\n\n").unwrap();
    assert!(page.starts_with("\u{1b}[1m━━ epoch "), "{out}");
    assert!(page.contains("total · 1 file"), "{out}");
    // What is asked for is written as asked.
    let live = net.terminal("here", &["--epoch", "200ms", "-c", &packets, "--format", "json"]);
    net.send(&capture);
    assert!(live.end().out.contains(r#"{"type":"epoch""#));
}

/// Live adds to the tables that are there, under one header; other columns are refused.
#[test]
fn live_adds_to_tables() {
    let Some(net) = Net::new("tables") else { return };
    let frames = traffic();
    let (capture, packets) = (file("live-tables.pcap", &pcap(&frames)), frames.len().to_string());
    let folder = folder("live-tables");
    let output = folder.to_str().unwrap();
    let run = |key: &str| {
        let common = ["live", "-i", "here", "--seed", "0", "--epoch", "whole", "-c", &packets];
        let csv = ["--format", "csv", "-o", output, "--key", key, "--task", "top,cardinality"];
        let live =
            net.begin(env!("CARGO_BIN_EXE_flowgauge"), "here", &[&common[..], &csv].concat());
        net.send(&capture);
        live.end()
    };
    let rows = |name: &str| {
        std::fs::read_to_string(folder.join(name)).unwrap().lines().map(str::to_owned).collect()
    };
    assert_eq!(run("source").code, 0);
    let once: Vec<String> = rows("top.csv");
    assert_eq!(run("source").code, 0);
    let twice: Vec<String> = rows("top.csv");
    assert_eq!((twice.len(), &twice[0]), (2 * once.len() - 1, &once[0]));
    assert!(!twice[1..].contains(&once[0]), "one header");
    assert_eq!(column(&rows("total.csv").join("\n"), "read"), [packets.as_str(), &packets]);
    let other = run("pair");
    assert_eq!(other.code, 1);
    assert!(other.err.contains("top.csv: it has different columns"), "{}", other.err);
    assert_eq!(twice, rows("top.csv"));
}

/// USR1 asks for the last report.
#[test]
fn live_prints_the_last_report_on_request() {
    let Some(net) = Net::new("request") else { return };
    let capture = file("live-request.pcap", &pcap(&traffic()));
    let live = net.live("here", &["--epoch", "100ms"]);
    net.send(&capture);
    sleep(Duration::from_millis(500));
    live.signal("-USR1");
    sleep(Duration::from_millis(300));
    let answer = live.interrupt("-INT");
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.err.contains("━━ epoch ") && answer.err.contains("Traffic"), "{}", answer.err);
    assert!(answer.lines().len() >= 2);
}

/// The lines of `analyze` with the options that are not for `live` only.
fn offline(arguments: &[&str], capture: &str) -> Vec<Value> {
    let live = |argument: &&str| ["--fanout", "--engine"].contains(argument);
    let end = arguments.iter().position(live).unwrap_or(arguments.len());
    let arguments = &arguments[..end];
    flowgauge(&[&["analyze", "--format", "json"], arguments, &[capture]].concat()).lines()
}

/// What packets that pass a filter give, whether the kernel rejects the others or not.
#[test]
fn live_has_the_kernel_reject_packets_that_the_filter_rejects() {
    let Some(net) = Net::new("filter") else { return };
    let mut frames = traffic();
    // The kernel keeps their outer tags apart from what a program of its can look at.
    frames.extend((0..90).map(|index| tagged(&udp(3, index % 7, 80))));
    frames.extend((0..40).map(|index| tagged(&tagged(&tcp6(index)))));
    let capture = file("live-filter.pcap", &pcap(&frames));
    for (interface, filter, in_kernel) in [
        ("here", "vlan and ip", true),
        ("here", "ip and not port 53", true),
        ("here", "udp[((udp[0:1] & 0) >> 2):2] = 4000", true),
        ("here", "ip[0] << ip[9] = 0", false),
        ("any", "tcp or port 53", false),
    ] {
        let arguments = ["--epoch", "whole", "--filter", filter];
        // Of a wire with both ends here, `any` hears each packet twice.
        let times = if interface == "any" { 2 } else { 1 };
        let live = net.live(interface, &arguments);
        net.send(&capture);
        let answer = live.interrupt("-INT");
        assert_eq!(answer.code, 0, "{}", answer.err);
        let (live, offline) = (&answer.lines()[0], &offline(&arguments, &capture)[0]);
        let count = |report: &Value, name: &str| report["account"][name].as_u64().unwrap();
        for name in ["keyed", "keyed_bytes", "no_key", "malformed"] {
            assert_eq!(count(live, name), times * count(offline, name), "{filter}: {name}");
        }
        assert_eq!(count(live, "read"), count(live, "keyed") + rejected(&live["account"]));
        let note = live["notes"][0].as_str().unwrap();
        assert_eq!(note.contains("the kernel applies the filter"), in_kernel, "{note}");
        let (passed, read) = (count(live, "keyed"), times * frames.len() as u64);
        if in_kernel {
            // Tagged packets are judged here.
            assert!(count(live, "read") <= passed + 130, "{filter}: {live}");
        } else {
            assert_eq!(count(live, "read"), read, "{filter}");
        }
    }
}

#[test]
fn live_measures_several_interfaces_at_once() {
    let Some(net) = Net::new("several") else { return };
    net.run("ip", &["link", "add", "this", "type", "veth", "peer", "name", "that"]);
    for interface in ["this", "that"] {
        net.run("ip", &["link", "set", interface, "up"]);
    }
    let capture = file("live-several.pcap", &pcap(&traffic()));
    let all = traffic().len();
    // Three sources of one queue each, then two of two queues each.
    for (arguments, packets) in [
        (&["-i", "this", "-i", "lo"][..], 2 * all + 50),
        (&["-i", "this", "--workers", "2", "--fanout", "cpu"], 2 * all),
    ] {
        let live = net.live("here", &[&["--epoch", "whole"], arguments].concat());
        net.send(&capture);
        net.run("python3", &["-c", SEND, "that", &capture, "1"]);
        net.run("python3", &["-c", SEND_HOME]);
        let answer = live.interrupt("-INT");
        assert_eq!(answer.code, 0, "{}", answer.err);
        let lines = answer.lines();
        assert_eq!(lines[0]["account"]["read"], packets, "{}", answer.err);
        assert_eq!(lines[1]["counters"]["received"], packets);
        let files = if arguments.contains(&"lo") {
            json!(["here", "this", "lo"])
        } else {
            json!(["here", "this"])
        };
        assert_eq!(lines[1]["files"], files);
    }
}

#[test]
fn live_ends_after_so_many_packets_and_by_sigterm() {
    let Some(net) = Net::new("count") else { return };
    let capture = file("live-count.pcap", &pcap(&traffic()));
    let live = net.live("here", &["-c", "100"]);
    net.send(&capture);
    let answer = live.end();
    assert_eq!((answer.code, &answer.lines()[1]["account"]["keyed"]), (0, &json!(100)));
    let answer = net.live("here", &[]).interrupt("-TERM");
    assert_eq!((answer.code, &answer.lines().last().unwrap()["type"]), (0, &json!("total")));
}

#[test]
fn live_counts_nothing_that_comes_after_the_signal() {
    let Some(net) = Net::new("after") else { return };
    let capture = file("after.pcap", &pcap(&traffic()));
    let live = net.live("here", &[]);
    net.send(&capture);
    live.signal("-INT");
    // Long enough for the signal, and over before the last block is handed over.
    sleep(Duration::from_millis(20));
    net.send(&capture);
    let answer = live.end();
    let total = answer.lines().pop().unwrap();
    assert_eq!((answer.code, &total["account"]["read"]), (0, &json!(traffic().len())));
}

#[test]
fn live_epochs_end_by_the_clock_without_a_packet() {
    let Some(net) = Net::new("clock") else { return };
    let live = net.live("here", &["--epoch", "400ms"]);
    sleep(Duration::from_millis(2400));
    net.send(&file("clock.pcap", &pcap(&traffic())));
    sleep(Duration::from_millis(1200));
    let lines = live.interrupt("-INT").lines();
    let (total, epochs) = lines.split_last().unwrap();
    assert!(epochs.len() >= 8, "{} epochs", epochs.len());
    assert_eq!(total["epochs"], epochs.len());
    for (number, pair) in epochs.windows(2).enumerate() {
        assert_eq!(pair[0]["type"], "epoch");
        assert_eq!(pair[0]["epoch"], number);
        assert_eq!(pair[0]["end"], pair[1]["start"]);
    }
    let read = |line: &Value| line["account"]["read"].as_u64().unwrap();
    assert_eq!(epochs.iter().map(read).sum::<u64>(), traffic().len() as u64);
    assert!(epochs[..5].iter().all(|epoch| read(epoch) == 0), "nothing was sent so early");
    assert_eq!(total["account"]["late"], 0);
}

#[test]
fn live_updates_tell_of_the_epoch_so_far() {
    let Some(net) = Net::new("updates") else { return };
    let capture = file("live-updates.pcap", &pcap(&traffic()));
    for form in [&["--workers", "3"][..], &["--workers", "1"]] {
        let every = ["--epoch", "1h", "--updates", "200ms", "--algorithm", "linear-table"];
        let live = net.live("here", &[&every[..], form].concat());
        // An update is due at the first packet after its time.
        for _ in 0..3 {
            net.send(&capture);
            sleep(Duration::from_millis(450));
        }
        net.send(&capture);
        let answer = live.interrupt("-INT");
        assert_eq!(answer.code, 0, "{}", answer.err);
        let lines = answer.lines();
        let (updates, ends) = lines.split_at(lines.len() - 2);
        assert!((2..=8).contains(&updates.len()), "{form:?}: {} updates", updates.len());
        assert!(updates.iter().all(|line| line["type"] == "update" && line["epoch"] == 0));
        let keyed = |line: &Value| line["account"]["keyed"].as_u64().unwrap();
        let so_far: Vec<u64> = updates.iter().map(keyed).collect();
        assert!(so_far.is_sorted() && so_far[1] > 0, "{form:?}: {so_far:?}");
        assert_eq!((&ends[0]["type"], &ends[1]["type"]), (&json!("epoch"), &json!("total")));
        let once = flowgauge(&["analyze", "--format", "json", "--epoch", "whole", &capture]);
        let all = 4 * keyed(&once.lines()[0]);
        assert_eq!((keyed(&ends[0]), keyed(&ends[1])), (all, all));
    }
}

#[test]
fn live_measures_into_a_summary_that_workers_share() {
    let Some(net) = Net::new("shared") else { return };
    let capture = file("live-shared.pcap", &pcap(&traffic()));
    let live = net.live("here", &["--epoch", "whole", "--workers", "3", "--shared"]);
    net.send(&capture);
    let answer = live.interrupt("-INT");
    assert_eq!(answer.code, 0, "{}", answer.err);
    let offline = flowgauge(&["analyze", "--format", "json", "--epoch", "whole", &capture]);
    assert_eq!(same(&answer.lines()[0]), same(&offline.lines()[0]));
}

#[test]
fn live_reports_packets_dropped_by_the_kernel() {
    let Some(net) = Net::new("lost") else { return };
    let mut large = udp(5, 5, 5);
    large.resize(1514, 7);
    let capture = file("lost.pcap", &pcap(&vec![large; 100]));
    let live = net.live("here", &["--epoch", "whole"]);
    // While it sleeps, 45 MB do not find room in the ring of 32 MiB.
    live.signal("-STOP");
    net.send_often(&capture, 300);
    live.signal("-CONT");
    let answer = live.interrupt("-INT");
    let lines = answer.lines();
    let account = &lines[0]["account"];
    let read = account["read"].as_u64().unwrap();
    assert!((15_000..25_000).contains(&read), "{read} packets of some 1600 bytes in the ring");
    assert_eq!(account["keyed"], read);
    let lost = 30_000 - read;
    assert_eq!(account["lost"], lost);
    let begin = format!("here: 30000 packets received, {lost} dropped by the kernel, {read}");
    assert!(answer.err.lines().any(|line| line.starts_with(&begin)), "{}", answer.err);
}

#[test]
fn live_counts_a_packet_to_the_host_itself_once() {
    let Some(net) = Net::new("loopback") else { return };
    let live = net.live("lo", &["--epoch", "whole"]);
    net.run("python3", &["-c", SEND_HOME]);
    let lines = live.interrupt("-INT").lines();
    // 14 + 20 + 8 + 5 bytes each.
    assert_eq!(lines[0]["account"]["keyed"], 50);
    assert_eq!(lines[0]["account"]["keyed_bytes"], 50 * 47);
}

/// Each waits in a network of its own.
#[test]
fn live_goes_on_when_its_interface_comes_back() {
    thread::scope(|scope| {
        for (name, arguments) in [
            ("back1", &[][..]),
            ("back2", &["--workers", "2", "--fanout", "hash"]),
            ("back-xdp", &["--engine", "af-xdp", "--takes-traffic"]),
        ] {
            for meanwhile in ["down", "deleted", "renamed"] {
                scope.spawn(move || goes_on(&format!("{name}-{meanwhile}"), meanwhile, arguments));
            }
        }
    });
}

fn goes_on(name: &str, meanwhile: &str, arguments: &[&str]) {
    let Some(net) = Net::new(name) else { return };
    let capture = file(&format!("{name}.pcap"), &pcap(&traffic()));
    let up = |interface| net.run("ip", &["link", "set", interface, "up"]);
    let live = net.live("here", &[&["--epoch", "whole"], arguments].concat());
    net.send(&capture);
    if meanwhile == "deleted" {
        net.run("ip", &["link", "del", "here"]);
        // Long enough for some looks at nothing.
        sleep(Duration::from_millis(400));
        net.run("ip", &["link", "add", "here", "type", "veth", "peer", "name", "there"]);
        up("there");
    } else {
        net.run("ip", &["link", "set", "here", "down"]);
        sleep(Duration::from_millis(400));
    }
    if meanwhile == "renamed" {
        net.run("ip", &["link", "set", "here", "name", "there-now"]);
        up("there-now");
    } else {
        up("here");
    }
    // The longest time between two looks, and one to bind.
    sleep(Duration::from_secs(2));
    net.send(&capture);
    let answer = live.interrupt("-INT");
    assert_eq!(answer.code, 0, "{}", answer.err);
    let lines = answer.lines();
    assert_eq!(lines[0]["account"]["read"], 2 * traffic().len(), "{meanwhile} {arguments:?}");
    let notes = lines[1]["notes"].as_array().unwrap();
    let queues = if arguments.contains(&"--workers") { 2 } else { 1 };
    let of = |begin: &str| {
        notes
            .iter()
            .filter(|note| note.as_str().is_some_and(|note| note.starts_with(begin)))
            .count()
    };
    let outage = ["interface here is down since 20", "interface here was down from 20"].map(of);
    assert!(outage.iter().all(|notes| (1..=queues).contains(notes)), "{notes:?}");
    let others = notes.len() - outage.iter().sum::<usize>();
    assert_eq!(others, usize::from(arguments.contains(&"af-xdp")), "{notes:?}");
    assert_eq!(lines[1]["counters"]["interruptions"], queues);
}

/// The interfaces from which AF_XDP takes packets, and which get them back.
#[test]
fn live_by_af_xdp_notes_its_changes_and_undoes_them() {
    let Some(net) = Net::new("xdp") else { return };
    // The address of the frames, so that the host takes them for its own.
    net.run("ip", &["link", "set", "here", "address", "02:02:02:02:02:02"]);
    let received = || {
        let counts = net.run("cat", &["/proc/net/snmp"]);
        let mut lines = counts.lines().filter_map(|line| line.strip_prefix("Ip: "));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let at = names.split(' ').position(|name| name == "InReceives").unwrap();
        values.split(' ').nth(at).unwrap().parse::<u64>().unwrap()
    };
    let capture = file("xdp.pcap", &pcap(&traffic()));
    let live = net.live("here", &["--epoch", "whole", "--engine", "af-xdp", "--takes-traffic"]);
    let before = received();
    net.send(&capture);
    let answer = live.interrupt("-INT");
    let lines = answer.lines();
    assert_eq!(lines[0]["account"]["read"], traffic().len());
    assert_eq!(lines[1]["counters"]["received"], traffic().len());
    let note = lines[0]["notes"][0].as_str().unwrap();
    assert!(note.contains("queue 0: packets are taken from the host"), "{note}");
    assert_eq!(received(), before, "the host gets none");
    net.send(&capture);
    assert!(received() > before, "the host gets them again");
    let refused = |arguments: &[&str], text: &str| {
        let all =
            [&["live", "--seed", "0", "-i", "here", "--engine", "af-xdp"], arguments].concat();
        let output = net.command(env!("CARGO_BIN_EXE_flowgauge"), &all).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(text), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    };
    refused(&["--takes-traffic", "--workers", "2"], "give --workers 1");
    net.run("ip", &["link", "set", "here", "down"]);
    refused(&["--takes-traffic"], "the interface is down");
}

#[test]
fn live_keeps_packets_from_before_its_interface_went_for_good() {
    let Some(net) = Net::new("gone") else { return };
    let capture = file("gone.pcap", &pcap(&traffic()));
    let live = net.live("here", &["--epoch", "whole"]);
    net.send(&capture);
    net.run("ip", &["link", "set", "here", "down"]);
    sleep(Duration::from_millis(300));
    let answer = live.interrupt("-INT");
    assert_eq!(answer.code, 1);
    assert_eq!(answer.lines()[0]["account"]["read"], traffic().len());
    let last = answer.err.lines().last().unwrap();
    assert!(last.starts_with("flowgauge: here: the interface went down or was removed"), "{last}");
    let refused =
        net.command(env!("CARGO_BIN_EXE_flowgauge"), &["live", "--seed", "0", "-i", "here"]);
    refuses(refused, "flowgauge: here: the interface is down; bring it up with");
}

/// The command says this in one line, and nothing else.
fn refuses(mut command: Command, begin: &str) {
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with(begin) && text.lines().count() == 1, "{text}");
}

#[test]
fn live_names_the_interfaces_where_there_is_no_such_one() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge"));
    command.args(["live", "--seed", "0", "-i", "no-such\nthing"]);
    refuses(command, r"flowgauge: no-such\nthing: no such interface; available: lo");
}

#[test]
fn live_names_the_missing_privilege() {
    let program = env!("CARGO_BIN_EXE_flowgauge");
    let mut command = if root() {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-all", "--inh-caps=-all", "--securebits=+noroot", program]);
        command
    } else {
        Command::new(program)
    };
    command.args(["live", "--seed", "0", "-i", "lo"]);
    if root() && !succeeds("setpriv", &["--version"]) {
        println!("skipped: setpriv is missing");
        return;
    }
    refuses(command, "flowgauge: lo: capturing needs privileges; run as root, or");
}

#[test]
fn live_lists_the_interfaces() {
    let answer = crate::run::flowgauge(&["live", "-D"]);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
    assert!(answer.out.lines().any(|name| name == "lo"), "{}", answer.out);
    assert_eq!(crate::run::flowgauge(&["live"]).code, 2);
}

#[test]
fn offloads_that_join_packets_are_noted_once() {
    let Some(net) = Net::new("joining") else { return };
    net.run("python3", &["-c", JOIN]);
    let two = ["--workers", "2", "--fanout", "hash", "--epoch", "500ms", "--task", "top"];
    let live = net.live("here", &two);
    // The first epochs have no packet.
    sleep(Duration::from_millis(1200));
    net.send_often(&file("joining.pcap", &pcap(&traffic())), 20);
    sleep(Duration::from_millis(1200));
    let lines = live.interrupt("-INT").lines();
    let notes = lines.iter().filter(|line| line["type"] == "epoch").map(|line| &line["notes"]);
    let notes: Vec<_> = notes.filter_map(|notes| notes.as_array()).flatten().collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    let expected = "interface here joins packets into frames of up to 64 KiB before they are captured \
                    (GRO): 'ethtool -K here gro off' makes them count as on the wire";
    assert_eq!(notes[0], expected);
}
