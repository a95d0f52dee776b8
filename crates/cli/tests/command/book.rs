//! The commands of the book print what its pages show, and the picture of the README is their
//! output.
//!
//! A page shows them in blocks of ```` ```console ````: lines with `$ ` are commands, which run in
//! a shell in one folder for each page; the lines below are what they print. A line `…` stands for
//! any number of lines.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

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

// The picture of a report in the README is what the command prints, in colour.

/// Lines of the report up to the end of its lists.
const LINES: usize = 42;

/// Pixels of a character and of a line.
const CHARACTER: f64 = 8.4;
const LINE: usize = 18;
const MARGIN: usize = 16;

/// Attributes of text in the style of an escape sequence.
fn style(codes: &str) -> &'static str {
    match codes {
        "0" => "",
        "1" => " font-weight=\"bold\"",
        "36" => " fill=\"#56b6c2\"",
        "1;31" => " font-weight=\"bold\" fill=\"#f47067\"",
        other => panic!("no style for {other}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The words of a line, up to two spaces, each with its place and style.
fn words(line: &str) -> Vec<(usize, &str, &'static str)> {
    let mut words = Vec::new();
    let mut column = 0;
    let mut attributes = "";
    for (index, part) in line.split("\x1b[").enumerate() {
        let mut rest = part;
        if index > 0 {
            let (codes, behind) = part.split_once('m').unwrap();
            attributes = style(codes);
            rest = behind;
        }
        while !rest.is_empty() {
            let (word, behind) = rest.split_at(rest.find("  ").unwrap_or(rest.len()));
            if !word.trim().is_empty() {
                let indent = word.len() - word.trim_start().len();
                words.push((column + indent, word.trim(), attributes));
            }
            let spaces = behind.len() - behind.trim_start_matches(' ').len();
            column += word.chars().count() + spaces;
            rest = &behind[spaces..];
        }
    }
    words
}

/// A terminal that shows these lines, as SVG. Each word has its own place and width, so that columns
/// stand below each other in any font.
fn terminal(lines: &[&str]) -> String {
    let mut texts = String::new();
    let mut columns = 0;
    for (row, line) in lines.iter().enumerate() {
        for (column, word, attributes) in words(line) {
            let length = word.chars().count();
            columns = columns.max(column + length);
            writeln!(
                texts,
                "<text x=\"{:.1}\" y=\"{}\" textLength=\"{:.1}\" \
                 lengthAdjust=\"spacingAndGlyphs\"{attributes}>{}</text>",
                MARGIN as f64 + CHARACTER * column as f64,
                MARGIN + LINE * row + 13,
                CHARACTER * length as f64,
                escaped(word),
            )
            .unwrap();
        }
    }
    let width = 2 * MARGIN + (CHARACTER * columns as f64).ceil() as usize;
    let height = 2 * MARGIN + LINE * lines.len();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" \
         aria-label=\"A report of flowgauge on a terminal\" \
         font-family=\"Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"14\" \
         fill=\"#d5dae0\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#1c2128\"/>\n{texts}</svg>\n"
    )
}

/// `FLOWGAUGE_GOLDEN=write` redraws the committed picture after an intended change.
#[test]
fn the_report_in_the_readme_is_current() {
    let folder = repository("picture");
    print(GENERATE, &folder);
    let options = "--seed 1 --top 5";
    let report = print(&format!("flowgauge analyze {options} --color always trace.pcap"), &folder);
    let prompt = format!("$ flowgauge analyze {options} trace.pcap");
    let mut lines = vec![prompt.as_str()];
    lines.extend(report.lines().take(LINES));
    lines.push("…");
    let picture = terminal(&lines);
    let path = format!("{DOCS}/images/report.svg");
    if std::env::var_os("FLOWGAUGE_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(&path, &picture).unwrap();
    }
    assert_eq!(fs::read_to_string(path).unwrap(), picture);
}
