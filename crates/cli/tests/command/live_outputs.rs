//! `live` and its outputs: reopened, never read, closed. These tests are skipped where those of
//! `live` are.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::network::{Live, Net};
use crate::run::{file, pcap, udp};

const LONG: Duration = Duration::from_secs(30);

/// A capture of 3,000 flows.
fn many_flows(name: &str) -> String {
    let frames: Vec<_> = (0..3000_u16).map(|n| udp(n as u8, (n >> 8) as u8, n)).collect();
    file(name, &pcap(&frames))
}

/// The lines of a report, each of them whole.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with('\n'), "{text}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Whole lines in a file that is being written.
fn count(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().matches('\n').count()
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LONG, "{what}");
        sleep(Duration::from_millis(20));
    }
}

/// The most memory that was resident so far.
fn peak(live: &Live) -> u64 {
    // `ip netns exec` became the command.
    let status = fs::read_to_string(format!("/proc/{}/status", live.0.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    1024 * peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
}

#[test]
fn live_adds_to_its_file_and_opens_it_again_after_hup() {
    let Some(net) = Net::new("hup") else { return };
    let capture = many_flows("hup.pcap");
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hup.json");
    let rotated = report.with_extension("json.1");
    let _ = fs::remove_file(&rotated);
    fs::write(&report, "{\"type\":\"before\"}\n").unwrap();
    let live = net.live("here", &["--epoch", "200ms", "-o", report.to_str().unwrap()]);
    net.send(&capture);
    wait_for("a report", || count(&report) > 1);
    fs::rename(&report, &rotated).unwrap();
    live.signal("-HUP");
    wait_for("a new file", || {
        net.send(&capture);
        count(&report) > 0
    });
    live.signal("-INT");
    let answer = live.end();
    assert_eq!((answer.code, answer.out.as_str()), (0, ""), "{}", answer.err);
    let all = [lines(&rotated), lines(&report)].concat();
    assert_eq!(all[0]["type"], "before");
    assert_eq!(all.last().unwrap()["type"], "total");
    // No report is missing, neither here nor there.
    let epochs = all.iter().filter(|line| line["type"] == "epoch");
    assert!(epochs.clone().all(|line| line["undelivered"] == 0));
    let total = all.last().unwrap();
    assert_eq!((&total["epochs"], &total["undelivered"]), (&epochs.count().into(), &0.into()));
}

/// Each file of tables has one header, and standard output has one, however often HUP comes.
#[test]
fn live_writes_the_header_of_a_table_once() {
    let Some(net) = Net::new("table-hup") else { return };
    let capture = many_flows("table-hup.pcap");
    let table = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hup-top.csv");
    let rotated = table.with_extension("csv.1");
    let headers = |text: &str| text.lines().filter(|line| line.starts_with("measurement,")).count();
    for path in [None, Some(table.to_str().unwrap())] {
        let _ = (fs::remove_file(&table), fs::remove_file(&rotated));
        let top = ["--epoch", "200ms", "--task", "top"];
        let options = [&top[..], &path.map_or(vec![], |path| vec!["-o", path])].concat();
        let mut live = net.live_as("csv", "here", &options);
        let mut out = path.is_none().then(|| BufReader::new(live.0.stdout.take().unwrap()));
        let mut text = String::new();
        for _ in 0..3 {
            net.send(&capture);
            match &mut out {
                Some(out) => {
                    for _ in 0..3 {
                        out.read_line(&mut text).unwrap();
                    }
                }
                None => wait_for("a table", || count(&table) > 3),
            }
            if path.is_some() && !rotated.exists() {
                fs::rename(&table, &rotated).unwrap();
            }
            live.signal("-HUP");
        }
        net.send(&capture);
        if path.is_some() {
            wait_for("the last table", || count(&table) > 3);
        }
        live.signal("-INT");
        if let Some(out) = &mut out {
            out.read_to_string(&mut text).unwrap();
        }
        let answer = live.end();
        assert_eq!(answer.code, 0, "{}", answer.err);
        let texts = match path {
            None => vec![text],
            Some(_) => [&table, &rotated].map(|path| fs::read_to_string(path).unwrap()).to_vec(),
        };
        assert!(texts.iter().all(|text| text.starts_with("measurement,")), "{texts:?}");
        assert_eq!(
            texts.iter().map(|text| headers(text)).collect::<Vec<_>>(),
            vec![1; texts.len()]
        );
    }
}

/// A second run adds its epochs to the page of the first.
#[test]
fn live_adds_to_a_page() {
    let Some(net) = Net::new("page") else { return };
    let capture = many_flows("page.pcap");
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page.html");
    let _ = fs::remove_file(&page);
    let items = || fs::read_to_string(&page).unwrap_or_default().matches("class=\"item\"").count();
    for run in 1..=2 {
        let (path, before) = (page.to_str().unwrap(), items());
        let live = net.live_as("html", "here", &["--epoch", "200ms", "-o", path]);
        net.send(&capture);
        wait_for("a report", || items() > before);
        live.signal("-INT");
        assert_eq!(live.end().code, 0);
        let text = fs::read_to_string(&page).unwrap();
        assert_eq!(text.matches("<!doctype html>").count(), 1);
        assert_eq!(text.matches("\"type\":\"total\"").count(), run);
    }
}

#[test]
fn live_goes_on_in_bounded_memory_while_its_pipe_is_not_read() {
    let Some(net) = Net::new("unread") else { return };
    let capture = many_flows("unread.pcap");
    let arguments = ["--epoch", "20ms", "--threshold", "0", "--spread", "0", "--memory", "16MiB"];
    let live = net.live("here", &arguments);
    net.send_often(&capture, 5);
    let early = peak(&live);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(8) {
        net.send_often(&capture, 20);
    }
    let late = peak(&live);
    // The sink's queue holds 16 MiB; it would hold some 80 MB, were it not bounded.
    assert!(late < early + 32_000_000, "{early} bytes, then {late}");
    live.signal("-INT");
    let begun = Instant::now();
    let mut live = live;
    wait_for("the end", || live.0.try_wait().unwrap().is_some());
    assert!(begun.elapsed() < LONG / 2);
    let answer = live.end();
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("reports that could not be written in time"), "{}", answer.err);
}

#[test]
fn live_ends_when_its_only_reader_has_gone() {
    let Some(net) = Net::new("gone") else { return };
    let capture = many_flows("gone.pcap");
    let mut live = net.live("here", &["--epoch", "100ms"]);
    drop(live.0.stdout.take());
    wait_for("the end", || {
        net.send(&capture);
        live.0.try_wait().unwrap().is_some()
    });
    let answer = live.end();
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("its reader closed it"), "{}", answer.err);
}

#[test]
fn live_outlives_a_full_disk() {
    let Some(net) = Net::new("disk") else { return };
    let capture = many_flows("disk.pcap");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("small-disk");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let status = std::process::Command::new(program).args(arguments).status();
        status.is_ok_and(|status| status.success())
    };
    let at = folder.to_str().unwrap();
    if !run("mount", &["-t", "tmpfs", "-o", "size=256k", "tmpfs", at]) {
        println!("skipped: no tmpfs can be mounted");
        return;
    }
    let (report, ballast) = (folder.join("report.json"), folder.join("ballast"));
    // As much as there is room for.
    fs::write(&ballast, vec![1; 256 << 10]).unwrap_or_default();
    let arguments = ["--epoch", "200ms", "--threshold", "0", "-o", report.to_str().unwrap()];
    let live = net.live("here", &[&arguments[..], &["--limit", "100"]].concat());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        net.send(&capture);
    }
    assert_eq!(count(&report), 0);
    fs::remove_file(&ballast).unwrap();
    wait_for("a report on the disk that has room again", || {
        net.send(&capture);
        count(&report) > 0
    });
    live.signal("-INT");
    let answer = live.end();
    let written = lines(&report);
    assert!(run("umount", &[at]));
    assert!(answer.err.contains("No space left on device"), "{}", answer.err);
    assert!(answer.err.contains("can be written again"), "{}", answer.err);
    assert!(!written.is_empty(), "{}", answer.err);
}
