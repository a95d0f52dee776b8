//! Running the command, and captures for it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// The result of running the command.
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Answer {
    /// Standard output as JSON, one value a line.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Runs the command, under seed 0 unless it names another.
pub(crate) fn flowgauge(arguments: &[&str]) -> Answer {
    flowgauge_reading(arguments, &[])
}

/// Runs the command with `input` on its standard input, under seed 0 unless it names another.
pub(crate) fn flowgauge_reading(arguments: &[&str], input: &[u8]) -> Answer {
    let measures = matches!(arguments.first(), Some(&("analyze" | "live" | "explain")));
    if measures && !arguments.iter().any(|argument| argument.starts_with("--seed")) {
        return flowgauge_typed(
            &[&arguments[..1], &["--seed", "0"], &arguments[1..]].concat(),
            input,
        );
    }
    flowgauge_typed(arguments, input)
}

/// Runs the command as it is typed, under a random seed unless it names one, with `input` on its
/// standard input.
pub(crate) fn flowgauge_typed(arguments: &[&str], input: &[u8]) -> Answer {
    let mut child = Command::new(env!("CARGO_BIN_EXE_flowgauge"))
        .args(arguments)
        .env_remove("FLOWGAUGE_ISA")
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input closes it.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    Answer {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A new empty folder.
pub(crate) fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir(&path).unwrap();
    path
}

/// The cells of a column of a table.
pub(crate) fn column(table: &str, name: &str) -> Vec<String> {
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let at = reader.headers().unwrap().iter().position(|column| column == name).unwrap();
    reader.records().map(|row| row.unwrap()[at].to_owned()).collect()
}

/// A file of this test run.
pub(crate) fn file(name: &str, bytes: &[u8]) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, bytes).unwrap();
    path.into_os_string().into_string().unwrap()
}

/// A classic pcap of these frames, one each millisecond from 2016-04-06 13:00:00 UTC.
pub(crate) fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for (index, frame) in frames.iter().enumerate() {
        let micros = 1000 * index as u32;
        let length = frame.len() as u32;
        let seconds = 1_459_947_600 + micros / 1_000_000;
        for word in [seconds, micros % 1_000_000, length, length] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    bytes
}

/// An Ethernet frame with an IPv4 UDP packet of 10.0.0.`source` to 192.0.2.`destination`.
pub(crate) fn udp(source: u8, destination: u8, port: u16) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, 0, source, 192, 0, 2, destination]);
    frame.extend(4000_u16.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend([0, 26, 0, 0]);
    frame.resize(60, 0);
    frame
}

/// An Ethernet frame with an IPv6 TCP packet from 2001:db8::`source` to 2001:db8::1.
pub(crate) fn tcp6(source: u8) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
    for last in [source, 1] {
        frame.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    frame.extend([0x30, 0x39, 0x01, 0xbb]);
    frame.extend([0; 8]);
    frame.extend([0x50, 0x10, 0, 0, 0, 0, 0, 0]);
    frame
}

/// An ARP frame, which has no key.
pub(crate) fn arp() -> Vec<u8> {
    let mut frame = vec![0xff; 12];
    frame.extend([0x08, 0x06]);
    frame.resize(60, 0);
    frame
}

/// Ordinary traffic: a scan of 200 ports, a heavy IPv4 flow, some IPv6, two ARP frames.
pub(crate) fn traffic() -> Vec<Vec<u8>> {
    let mut frames: Vec<_> = (0..200).map(|port| udp(66, 9, 1000 + port)).collect();
    frames.extend((0..500).map(|_| udp(1, 2, 53)));
    frames.extend((0..30).map(|packet| tcp6(2 + packet % 3)));
    frames.extend([arp(), arp()]);
    frames
}
