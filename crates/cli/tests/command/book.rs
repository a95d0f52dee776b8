//! The commands of the book print what its pages show.
//!
//! A page shows them in blocks of ```` ```console ````: lines with `$ ` are commands, which run in
//! a shell in one folder for each page; the lines below are what they print. A line `…` stands for
//! any number of lines.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::folder;

pub(crate) const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

/// The command that makes the capture of the book.
pub(crate) const GENERATE: &str = "flowgauge generate --packets 200000 --profile backbone --rate 20000 --size imix --ipv6 0.04 --plant scan:destinations=400 --plant flood:sources=5000,packets=40000,start=0.5,end=0.8 -o trace.pcap";

/// A command of a page, with the lines that the page shows below it.
struct Shown<'a> {
    command: &'a str,
    lines: Vec<&'a str>,
}

/// Commands of a page, in order.
fn shown(page: &str) -> Vec<Shown<'_>> {
    let mut all: Vec<Shown> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            all.push(Shown { command, lines: Vec::new() });
        } else if inside {
            all.last_mut().expect("a block begins with a command").lines.push(line);
        }
    }
    all
}

/// A folder with the test captures where a reader in the repository has them.
pub(crate) fn repository(name: &str) -> PathBuf {
    let folder = folder(name);
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests");
    std::os::unix::fs::symlink(fs::canonicalize(tests).unwrap(), folder.join("tests")).unwrap();
    folder
}

/// Both outputs of a command that a shell runs. Seeds are fixed where the command names none.
pub(crate) fn print(command: &str, folder: &Path) -> String {
    let mut command = command.to_owned();
    if command.contains("analyze ") && !command.contains("--seed") {
        command = command.replace("analyze ", "analyze --seed 0 ");
    }
    let binaries = Path::new(env!("CARGO_BIN_EXE_flowgauge")).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), env::var("PATH").unwrap());
    let output = Command::new("sh")
        .args(["-c", &format!("{{ {command}\n}} 2>&1")])
        .current_dir(folder)
        .env_remove("FLOWGAUGE_ISA")
        .env("LC_ALL", "C.UTF-8")
        .env("PATH", path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Whether these lines are printed, where `…` stands for any number of lines.
fn agree(lines: &[&str], printed: &[&str]) -> bool {
    match lines.split_first() {
        None => printed.is_empty(),
        Some((line, rest)) if line.trim() == "…" => {
            (0..=printed.len()).any(|left_out| agree(rest, &printed[left_out..]))
        }
        Some((line, rest)) => printed
            .split_first()
            .is_some_and(|(first, others)| line == first && agree(rest, others)),
    }
}

/// Lines but those that name the seed, which differs in every run, and the empty ones at the end.
fn compared<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut lines: Vec<_> = lines.filter(|line| !line.starts_with("seed ")).collect();
    while lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    lines
}

/// Runs all commands of a page, and returns how many they are.
fn check(name: &str) -> usize {
    let page = fs::read_to_string(Path::new(DOCS).join(name)).unwrap();
    let folder = repository(&format!("book-{name}"));
    let all = shown(&page);
    for Shown { command, lines } in &all {
        let printed = print(command, &folder);
        let lines = compared(lines.iter().copied());
        assert!(
            agree(&lines, &compared(printed.lines())),
            "docs/{name} shows for `{command}`\n{}\nbut it prints\n{printed}",
            lines.join("\n"),
        );
        assert!(
            printed.is_empty() || lines.iter().any(|line| line.trim() != "…"),
            "docs/{name} leaves out all that `{command}` prints",
        );
    }
    all.len()
}

#[test]
fn start_shows_the_output_of_its_commands() {
    assert!(check("index.md") >= 4);
}

#[test]
fn audits_show_the_output_of_their_commands() {
    assert!(check("audit.md") >= 2);
}

#[test]
fn questions_show_the_output_of_their_commands() {
    assert!(check("questions.md") >= 10);
}

#[test]
fn other_lines_do_not_agree() {
    let printed = ["a", "b", "c", "b", "d"];
    for lines in [&["a", "b", "c", "b", "d"][..], &["…", "d"], &["a", "  …", "b", "d"], &["…"]]
    {
        assert!(agree(lines, &printed), "{lines:?}");
    }
    for lines in
        [&["a", "b", "c", "b"][..], &["…", "c"], &["a", "…", "c", "d"], &[], &["…", "e", "…"]]
    {
        assert!(!agree(lines, &printed), "{lines:?}");
    }
}
