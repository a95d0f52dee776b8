//! Outputs: no input is harmed, no old report lost, no line torn; reports are bounded by a limit
//! and within the memory that `explain` prints; and signals end a run.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::run::{file, flowgauge, folder, pcap, traffic, udp};

/// The names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge"));
    let seed: &[&str] = if arguments[0] == "analyze" { &["--seed", "0"] } else { &[] };
    command.args(&arguments[..1]).args(seed).args(&arguments[1..]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn error(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Epochs of 10 packets: many reports, of some kilobytes each.
fn many_epochs(name: &str) -> String {
    file(name, &pcap(&(0..3000).map(|n| udp(1, n as u8, n)).collect::<Vec<_>>()))
}

#[test]
fn no_output_is_an_input_by_another_name() {
    let folder = folder("input");
    let capture = folder.join("a.pcap");
    let bytes = pcap(&traffic());
    fs::write(&capture, &bytes).unwrap();
    let (hard, soft) = (folder.join("hard"), folder.join("soft"));
    fs::hard_link(&capture, &hard).unwrap();
    symlink("a.pcap", &soft).unwrap();
    let read = || Stdio::from(File::open(&capture).unwrap());
    let append = || Stdio::from(OpenOptions::new().append(true).open(&hard).unwrap());
    let refused = |command: &mut Command| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(error(&output).contains("input"), "{output:?}");
        assert_eq!(fs::read(&capture).unwrap(), bytes);
        assert_eq!(names(&folder), ["a.pcap", "hard", "soft"]);
    };
    for output in [&capture, &hard, &soft] {
        refused(&mut command(&["analyze", "-o", text(output), text(&capture)]));
        refused(&mut command(&["analyze", "-o", text(&capture), text(output)]));
        refused(command(&["analyze", "-o", text(output), "-"]).stdin(read()));
        refused(&mut command(&["analyze", "--save", text(output), text(&capture)]));
        refused(&mut command(&["merge", "-o", text(output), text(&capture)]));
        for format in ["text", "json", "csv", "snapshot"] {
            let sink = format!("{format}:{}", text(output));
            refused(&mut command(&[
                "analyze",
                "--sink",
                "text:-",
                "--sink",
                &sink,
                text(&capture),
            ]));
        }
        refused(command(&["analyze", text(output)]).stdout(append()));
        refused(command(&["analyze", "-o", "/dev/stdout", text(output)]).stdout(append()));
    }
    let config = file("output.yaml", b"measurements: { a: { key: source } }\n");
    refused(&mut command(&["analyze", "-C", &config, "-o", &config, text(&capture)]));
    let both = text(&folder).to_owned() + "/new";
    let output =
        command(&["analyze", "--save", &both, "-o", &both, text(&capture)]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// Each sink gets what it would get alone.
#[test]
fn several_sinks_are_written_at_once() {
    let folder = folder("several-sinks");
    let capture = file("several-sinks.pcap", &pcap(&traffic()));
    let path = |name: &str| text(&folder.join(name)).to_owned();
    let alone = |format: &str| {
        flowgauge(&["analyze", "--preset", "flows", "--format", format, &capture]).out
    };
    let sinks = [("json", "jso"), ("csv", "csv/"), ("snapshot", "sna")]
        .map(|(format, name)| format!("{format}:{}", path(name)));
    let [json, csv, snapshot] = sinks.each_ref().map(String::as_str);
    let sinks = ["--sink", json, "--sink", csv, "--sink", snapshot];
    let analyze = ["analyze", "--preset", "flows", "--sink", "text:-"];
    let answer = flowgauge(&[&analyze, &sinks[..], &[&capture]].concat());
    assert_eq!((answer.code, answer.err.as_str(), &answer.out), (0, "", &alone("text")));
    assert_eq!(names(&folder), ["csv", "jso", "sna"]);
    assert_eq!(fs::read_to_string(folder.join("jso")).unwrap(), alone("json"));
    let top = ["analyze", "--task", "top", "--format", "csv", &capture];
    assert_eq!(fs::read_to_string(folder.join("csv/top.csv")).unwrap(), flowgauge(&top).out);
    let query = flowgauge(&["query", "--format", "json", &path("sna")]);
    let tasks = |lines: &str| {
        let line: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        line["tasks"].clone()
    };
    assert_eq!(tasks(&query.out), tasks(&alone("json")));
    // Without a sink of reports, these go where they go without any sink.
    let beside = flowgauge(&["analyze", "--preset", "flows", "--sink", snapshot, &capture]);
    assert_eq!((beside.code, beside.out), (0, alone("text")));
}

#[test]
fn sinks_that_make_no_sense_are_refused() {
    let folder = folder("no-sinks");
    let capture = file("no-sinks.pcap", &pcap(&traffic()));
    let json = format!("json:{}", text(&folder.join("a")));
    let csv = format!("csv:{}/../no-sinks/a", text(&folder));
    for (sinks, reason) in [
        (&["--sink", "xml:a"][..], "unknown format 'xml'; available: text, line, json"),
        (&["--sink", "json"], "write FORMAT:FILE"),
        (&["--sink", "json:"], "write FORMAT:FILE"),
        (&["--sink", "snapshot:-"], "name a file or a directory"),
        (&["--sink", &json, "-o", "b"], "cannot be used with"),
        (&["--sink", &json, "--sink", &csv], "two outputs go to"),
        (&["--sink", "text:-", "--sink", "json:-"], "two outputs go to standard output"),
        (
            &["--sink", &csv, "--epoch", "10s", "--updates", "1s"],
            "csv and parquet cannot hold updates",
        ),
    ] {
        let answer = flowgauge(&[&["analyze"], sinks, &[&capture]].concat());
        let lines = answer.err.lines().count();
        assert_eq!((answer.code, answer.out.as_str(), lines), (2, "", 1), "{}", answer.err);
        assert!(answer.err.contains(reason), "{}", answer.err);
        assert_eq!(names(&folder), [""; 0]);
    }
}

#[test]
fn a_report_replaces_the_old_one_as_a_whole() {
    let folder = folder("replace");
    let capture = file("replace.pcap", &pcap(&traffic()));
    let printed = flowgauge(&["analyze", "--format", "json", &capture]).out;
    let (report, link) = (folder.join("report.json"), folder.join("link"));
    fs::write(&report, "old").unwrap();
    fs::set_permissions(&report, PermissionsExt::from_mode(0o640)).unwrap();
    symlink("report.json", &link).unwrap();
    let answer = flowgauge(&["analyze", "--format", "json", "-o", text(&link), &capture]);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
    assert_eq!(fs::read_to_string(&report).unwrap(), printed);
    assert_eq!(fs::metadata(&report).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(names(&folder), ["link", "report.json"]);
}

/// A file that an earlier process of the same number left, or that another container's process
/// with that number writes, is neither in the way nor removed. The number is known once the
/// process runs, so that it waits for its executable.
#[test]
fn hidden_files_of_others_stay() {
    let folder = folder("hidden");
    let capture = file("hidden.pcap", &pcap(&traffic()));
    let script = "touch \"$0/.report.$$-0\" \"$0/.csv/.flowgauge.$$-0\"; \
                  exec \"$1\" analyze --seed 0 -q --sink \"json:$0/report\" --sink \"csv:$0/.csv/\" \"$2\"";
    fs::create_dir(folder.join(".csv")).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", script, text(&folder), env!("CARGO_BIN_EXE_flowgauge"), &capture]);
    let output = shell.output().unwrap();
    assert_eq!((output.status.code(), error(&output)), (Some(0), ""));
    assert!(fs::metadata(folder.join("report")).unwrap().len() > 0);
    let left = |folder: &Path| names(folder).iter().filter(|name| name.ends_with("-0")).count();
    assert_eq!((left(&folder), left(&folder.join(".csv"))), (1, 1));
    assert_eq!(names(&folder).len(), 3, "{:?}", names(&folder));
}

#[test]
fn an_old_report_outlives_a_run_without_a_report() {
    let folder = folder("old");
    let (report, missing) = (folder.join("report.json"), folder.join("missing.pcap"));
    fs::write(&report, "old").unwrap();
    let not_a_capture = file("none-at-all.pcap", b"this is no capture");
    for input in [text(&missing), &not_a_capture] {
        for output in [&report, &folder.join("new.json")] {
            let answer = flowgauge(&["analyze", "-o", text(output), input]);
            assert_eq!((answer.code, answer.err.lines().count()), (1, 1), "{}", answer.err);
            assert_eq!(fs::read_to_string(&report).unwrap(), "old");
            assert_eq!(names(&folder), ["report.json"]);
        }
    }
    let capture = file("old.pcap", &pcap(&traffic()));
    for refused in ["nowhere/report.json", "."] {
        let answer = flowgauge(&["analyze", "-o", text(&folder.join(refused)), &capture]);
        assert_eq!((answer.code, answer.err.lines().count()), (1, 1), "{}", answer.err);
    }
}

/// A limit on the size of files acts as a full disk.
#[test]
fn a_full_disk_leaves_whole_lines_and_the_old_report() {
    let folder = folder("full");
    let capture = many_epochs("full.pcap");
    let report = folder.join("report.json");
    fs::write(&report, "old").unwrap();
    let limited = |script: &str| {
        let arguments = [env!("CARGO_BIN_EXE_flowgauge"), capture.as_str(), text(&report)];
        let script =
            format!("ulimit -f 100; trap '' XFSZ; exec \"$0\" analyze --format json {script}");
        Command::new("sh").arg("-c").arg(script).args(arguments).output().unwrap()
    };
    let output = limited("--epoch 10p -o \"$2\" \"$1\"");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(error(&output).contains("cannot write to "), "{output:?}");
    assert_eq!(fs::read_to_string(&report).unwrap(), "old");
    assert_eq!(names(&folder), ["report.json"]);

    for redirected in ["--epoch 10p \"$1\" > \"$2\"", "--epoch 10p \"$1\" >> \"$2\""] {
        fs::write(&report, "{\"before\":1}\n").unwrap();
        let output = limited(redirected);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(error(&output).lines().count(), 1, "{output:?}");
        let written = fs::read_to_string(&report).unwrap();
        assert!(written.len() > 40_000 && written.ends_with('\n'), "{} bytes", written.len());
        let lines: Vec<Value> =
            written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["before"].is_null(), !redirected.contains(">>"));
        assert_eq!(lines.last().unwrap()["type"], "epoch");
    }
}

#[test]
fn a_pipe_by_name_is_written_directly() {
    let folder = folder("pipe");
    let capture = file("named-pipe.pcap", &pcap(&traffic()));
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let child = command(&["analyze", "--format", "json", "-o", text(&pipe), &capture]);
    let child = { child }.spawn().unwrap();
    let mut report = String::new();
    File::open(&pipe).unwrap().read_to_string(&mut report).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!(report, flowgauge(&["analyze", "--format", "json", &capture]).out);
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
}

/// Snapshots, too: a pipe stays a pipe, a link stays a link, and a dash is no file.
#[test]
fn snapshots_go_through_links_and_to_pipes() {
    let folder = folder("snapshot-places");
    let capture = file("snapshot-places.pcap", &pcap(&traffic()));
    let (pipe, kept, link) = (folder.join("pipe"), folder.join("kept"), folder.join("link"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fs::write(&kept, "old").unwrap();
    symlink("kept", &link).unwrap();
    let saved = flowgauge(&["analyze", "-q", "--save", text(&link), &capture]);
    assert_eq!((saved.code, saved.err.as_str()), (0, ""));
    let snapshot = fs::read(&kept).unwrap();
    assert!(snapshot.starts_with(b"FGSS"));
    // Opened for both, a pipe waits for no other process and holds a small snapshot.
    for arguments in [
        &["analyze", "-q", "--save", text(&pipe), &capture][..],
        &["merge", "-o", text(&pipe), text(&kept)],
    ] {
        let mut held = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let output = command(arguments).output().unwrap();
        assert_eq!((output.status.code(), error(&output)), (Some(0), ""));
        assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
        let mut piped = vec![0; snapshot.len()];
        held.read_exact(&mut piped).unwrap();
        assert!(piped.starts_with(b"FGSS"));
    }
    let other = folder.join("other");
    fs::write(&other, "old").unwrap();
    fs::remove_file(&link).unwrap();
    symlink("other", &link).unwrap();
    assert_eq!(
        command(&["merge", "-o", text(&link), text(&kept)]).status().unwrap().code(),
        Some(0)
    );
    assert_eq!(fs::read(&other).unwrap(), snapshot);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    for arguments in [&["analyze", "--save", "-", &capture][..], &["merge", "-o", "-", text(&kept)]]
    {
        let refused = command(arguments).current_dir(&folder).output().unwrap();
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0), "{refused:?}");
        assert!(error(&refused).contains("name a file or a directory"), "{refused:?}");
    }
    assert_eq!(names(&folder), ["kept", "link", "other", "pipe"]);
}

#[test]
fn a_closed_standard_output_is_a_failure() {
    let capture = file("closed.pcap", &pcap(&traffic()));
    let script = "exec \"$0\" analyze \"$1\" >&-";
    let arguments = [env!("CARGO_BIN_EXE_flowgauge"), capture.as_str()];
    let output = Command::new("sh").arg("-c").arg(script).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(error(&output).contains("standard output"), "{output:?}");
    let null = command(&["analyze", &capture]).stdout(Stdio::null()).output().unwrap();
    assert_eq!(null.status.code(), Some(0), "{null:?}");
}

fn signal(child: &Child, signal: &str) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// The signals of one line of a process's status, as a mask: those ignored, those caught.
fn signals(process: &str, line: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mask = status.lines().find_map(|text| text.strip_prefix(line)).unwrap();
    u64::from_str_radix(mask.trim_start_matches(':').trim(), 16).unwrap()
}

/// Waits until the command catches TERM, and half a second more: by then it has read its input.
fn until_read(child: &Child) {
    let begun = Instant::now();
    while signals(&child.id().to_string(), "SigCgt") >> (15 - 1) & 1 == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        sleep(Duration::from_millis(10));
    }
    sleep(Duration::from_millis(500));
}

#[test]
fn a_signal_ends_a_run_with_a_report_so_far() {
    let bytes = pcap(&traffic());
    let folder = folder("signal");
    // A process started by nohup ignores HUP, and so do its children.
    let hang_up = if ignores_hang_up() { None } else { Some("-HUP") };
    for name in ["-INT", "-TERM"].into_iter().chain(hang_up) {
        let report = folder.join(name);
        let arguments = ["analyze", "--format", "json", "-o", text(&report), "-"];
        let mut child = command(&arguments).stdin(Stdio::piped()).spawn().unwrap();
        // Standard input stays open, as that of `tcpdump -w - | flowgauge analyze -`.
        let mut input = child.stdin.take().unwrap();
        input.write_all(&bytes).unwrap();
        until_read(&child);
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        drop(input);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(error(&output).contains("interrupted"), "{output:?}");
        let report = fs::read_to_string(&report).unwrap();
        let lines: Vec<Value> =
            report.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["account"]["read"], 732);
        assert!(lines[1]["notes"][0].as_str().unwrap().contains("interrupted"), "{report}");
    }
}

#[test]
fn a_signal_ends_the_wait_for_the_writer_of_a_pipe() {
    let pipe = folder("no-writer").join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let child = command(&["analyze", text(&pipe)]).spawn().unwrap();
    until_read(&child);
    signal(&child, "-TERM");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(error(&output).contains("interrupted"), "{output:?}");
}

/// Whether this process ignores HUP, signal 1.
fn ignores_hang_up() -> bool {
    signals("self", "SigIgn") & 1 == 1
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let capture = many_epochs("twice.pcap");
    let arguments = ["analyze", "--format", "json", "--epoch", "10p", &capture];
    // The pipe is not read, so writing the report blocks.
    let child = command(&arguments).spawn().unwrap();
    until_read(&child);
    signal(&child, "-INT");
    sleep(Duration::from_millis(200));
    signal(&child, "-TERM");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(15), "{output:?}");
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    let script = "trap '' HUP; exec \"$0\" analyze --seed 0 --format json -";
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_flowgauge"));
    let mut child =
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Standard input stays open, so that the signal finds the command at work.
    let mut input = child.stdin.take().unwrap();
    input.write_all(&pcap(&traffic())).unwrap();
    until_read(&child);
    signal(&child, "-HUP");
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(error(&output), "");
}

#[test]
fn quiet_says_less_and_verbose_says_more() {
    let capture = file("verbose.pcap", &pcap(&traffic()));
    let spread = ["analyze", "--key", "source", "--task", "superspreaders", &capture];
    let plain = flowgauge(&spread);
    assert!(plain.err.contains("using --algorithm"), "{}", plain.err);
    let quiet = flowgauge(&[&spread[..], &["-q"]].concat());
    assert_eq!((quiet.err.as_str(), quiet.out), ("", plain.out));
    let verbose = flowgauge(&["analyze", "-v", "--task", "top", &capture]);
    assert_eq!(verbose.code, 0);
    for part in [
        "main: five-tuple by packets, linear-table in at most ",
        "; tasks top",
        "1 worker",
        "read 732 packets in ",
    ] {
        assert!(verbose.err.contains(part), "{}", verbose.err);
    }
    assert_eq!(flowgauge(&["analyze", "-v", "-q", &capture]).code, 2);
}

#[test]
fn writes_to_a_file() {
    let capture = file("to.pcap", &pcap(&traffic()));
    let report = file("to.json", b"something longer that was there before".repeat(1000).as_slice());
    let answer = flowgauge(&["analyze", "--format", "json", "-o", &report, &capture]);
    assert_eq!((answer.code, answer.out.as_str(), answer.err.as_str()), (0, "", ""));
    let printed = flowgauge(&["analyze", "--format", "json", &capture]).out;
    assert_eq!(std::fs::read_to_string(report).unwrap(), printed);
}

#[test]
fn ends_quietly_when_the_reader_closes_the_output() {
    let frames: Vec<_> =
        (0..20_000_u32).map(|flow| udp(1, flow as u8, (flow >> 8) as u16)).collect();
    let capture = file("pipe.pcap", &pcap(&frames));
    let mut child = Command::new(env!("CARGO_BIN_EXE_flowgauge"))
        .args(["analyze", "--seed", "0", "--format", "json", "--threshold", "0", &capture])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Far more than a pipe holds is on its way.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

/// Other outputs are complete when the reader of standard output is gone.
#[test]
fn a_closed_standard_output_does_not_end_other_outputs() {
    let folder = folder("closed-reader");
    let capture = many_epochs("closed-reader.pcap");
    let path = |name: &str| text(&folder.join(name)).to_owned();
    let analyze = ["analyze", "--epoch", "10p"];
    let json = format!("json:{}", path("report.json"));
    let output = |arguments: &[&str]| {
        let mut child = command(&[&analyze, arguments, &[&capture]].concat()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), error(&output)), (Some(0), ""), "{arguments:?}");
    };
    output(&["--sink", "json:-", "--sink", &json]);
    let alone = flowgauge(&[&analyze[..], &["--format", "json", &capture]].concat());
    assert_eq!(alone.lines().len(), 301);
    assert_eq!(fs::read_to_string(folder.join("report.json")).unwrap(), alone.out);
    output(&["--save", &path("stored")]);
    assert_eq!(names(&folder.join("stored")).len(), 300);
    output(&["-w", &path("copy.pcapng")]);
    let copy = flowgauge(&["analyze", "--format", "json", &path("copy.pcapng")]);
    assert_eq!(copy.lines()[0]["account"]["keyed"], 3000);
}

// Reports are bounded: by a limit on lists, and within the memory that `explain` prints.

/// Bytes beside what is reserved and reported: the program, its stacks, and buffers.
const SLACK: u64 = 64_000_000;

/// A capture of this many flows of one packet, each with its own source.
fn flows(name: &str, flows: u32) -> String {
    let mut bytes = pcap(&[]);
    let mut frame = vec![2; 12];
    frame.extend([0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([0, 0, 0, 0, 192, 0, 2, 1, 0x0f, 0xa0, 0, 53, 0, 26, 0, 0]);
    frame.resize(60, 0);
    for flow in 0..flows {
        for word in [1_459_947_600, flow, 60, 60] {
            bytes.extend(word.to_le_bytes());
        }
        frame[26..30].copy_from_slice(&(0x0a00_0000 | flow).to_be_bytes());
        bytes.extend(&frame);
    }
    file(name, &bytes)
}

/// Runs the command; returns its output and its peak resident memory.
fn peak(arguments: &[&str]) -> (Vec<u8>, u64) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_flowgauge"))
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let (mut out, mut peak) = (Vec::new(), 0);
    let mut pipe = child.stdout.take().unwrap();
    let mut chunk = vec![0; 1 << 16];
    loop {
        let read = pipe.read(&mut chunk).unwrap();
        out.extend(&chunk[..read]);
        // It is there for as long as the command is not waited for, and empty once it has ended.
        let status = std::fs::read_to_string(&status).unwrap();
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = most.map_or(0, |most| most.trim().trim_end_matches(" kB").parse().unwrap());
        peak = peak.max(1024 * kib);
        if read == 0 {
            break;
        }
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(peak > 0);
    (out, peak)
}

/// The most memory that `explain` says a run takes.
fn promised(arguments: &[&str]) -> u64 {
    let explained = flowgauge(&[&["explain", "--format", "json"], arguments].concat());
    explained.lines()[0]["total_bytes"].as_u64().unwrap()
}

#[test]
fn a_report_of_a_million_flows_takes_no_more_memory_than_explained() {
    let capture = flows("million.pcap", 1_000_000);
    let every = "top,heavy-hitters,superspreaders,victims,hierarchical,cardinality,entropy";
    let lists = ["--threshold", "0%", "--spread", "0", "--top", "100000000"];
    let asked = [&["--task", every], &lists[..]].concat();
    let promised = promised(&asked);
    let one = [&["--task", "top"], &lists[..]].concat();
    for (format, asked) in [("json", &asked[..]), ("text", &asked), ("csv", &one)] {
        let arguments = [&["analyze", "--format", format], asked, &[&capture]].concat();
        let (out, peak) = peak(&arguments);
        println!("{format}: {} bytes written, {peak} of {promised} resident", out.len());
        assert!(peak <= promised + SLACK, "{format}: {peak} bytes, {promised} explained");
        let out = String::from_utf8(out).unwrap();
        if format == "csv" {
            assert_eq!(out.lines().count(), 10_001);
            continue;
        }
        assert!(out.contains("heavy-hitters lists 10000 of 1000000 items; --limit lists more"));
        if format == "json" {
            let epoch: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
            for task in ["top", "heavy-hitters", "superspreaders"] {
                let list = &epoch["tasks"][task];
                assert_eq!(list["items"].as_array().unwrap().len(), 10_000, "{task}");
                assert_eq!(list["truncated"], 990_000, "{task}");
            }
        }
    }
}

#[test]
fn without_a_limit_lists_are_whole_and_explain_gives_their_memory() {
    let capture = flows("unlimited.pcap", 100_000);
    let asked = ["--task", "heavy-hitters", "--threshold", "0", "--memory", "16MiB"];
    let limited = promised(&asked);
    let asked = [&asked[..], &["--limit", "0"]].concat();
    let promised = promised(&asked);
    assert!(promised > limited + 20_000_000, "{limited} {promised}");
    let (out, peak) = peak(&[&["analyze", "--format", "json"], &asked[..], &[&capture]].concat());
    assert!(peak <= promised + SLACK, "{peak} bytes, {promised} explained");
    let line = String::from_utf8(out).unwrap();
    let epoch: Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    let list = &epoch["tasks"]["heavy-hitters"];
    assert_eq!(list["items"].as_array().unwrap().len(), 100_000);
    assert_eq!(list["truncated"], 0);
    assert_eq!(epoch["notes"], Value::Array(Vec::new()));
}

#[test]
fn a_limited_list_is_the_head_of_the_whole_one() {
    let capture = file("limited.pcap", &pcap(&traffic()));
    let tasks = "top,heavy-hitters,superspreaders,victims,changes,hierarchical";
    let asked = ["analyze", "--format", "json", "--epoch", "250ms", "--top", "50", "--task", tasks];
    let asked = [&asked[..], &["--threshold", "0", "--spread", "0", &capture]].concat();
    let whole = flowgauge(&asked).lines();
    let limited = flowgauge(&[&asked[..], &["--limit", "3"]].concat()).lines();
    assert_eq!(whole.len(), limited.len());
    let mut lists = 0;
    for (whole, limited) in whole.iter().zip(&limited).filter(|(line, _)| line["type"] == "epoch") {
        for (task, whole) in whole["tasks"].as_object().unwrap() {
            let limited = &limited["tasks"][task];
            let (all, items) = (whole["items"].as_array(), limited["items"].as_array());
            let (all, items) = (all.unwrap(), items.unwrap());
            assert_eq!(items[..], all[..all.len().min(3)], "{task}");
            assert_eq!(limited["truncated"], all.len() - items.len(), "{task}");
            assert_eq!(whole["truncated"], 0, "{task}");
            lists += usize::from(all.len() > 3);
        }
    }
    assert!(lists > 6, "{lists}");
    let page = flowgauge(&["analyze", "--threshold", "0", "--limit", "3", &capture]).out;
    assert!(
        page.contains("204 flows have more than 0 packets each; the 3 largest together have"),
        "{page}"
    );
    assert!(page.contains("heavy-hitters lists 3 of 204 items"), "{page}");
    assert!(page.contains("… and 7 more (--limit lists more)"), "{page}");
}
