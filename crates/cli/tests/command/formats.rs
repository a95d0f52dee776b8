//! The formats of reports, and how text looks.

use std::fs;
use std::path::Path;

use crate::run::{column, file, flowgauge, folder, pcap, traffic};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn csv_has_a_file_for_each_table_of_each_measurement() {
    let capture = file("tables.pcap", &pcap(&traffic()));
    let out = folder("tables");
    let run = |extra: &[&str]| {
        let analyze = ["analyze", "--epoch", "100ms", "--format", "csv", &capture];
        flowgauge(&[&analyze, extra].concat())
    };
    let answer = run(&["-o", text(&out)]);
    assert_eq!((answer.code, answer.out.as_str(), answer.err.as_str()), (0, "", ""));
    let table = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    for name in ["epochs", "top", "findings", "protocols", "ports", "total", "notes", "problems"] {
        assert!(table(&format!("{name}.csv")).starts_with("measurement,epoch,start"), "{name}");
    }
    // Each epoch adds its rows under the one header, and they are those of JSON.
    let json = flowgauge(&["analyze", "--epoch", "100ms", "--format", "ndjson", &capture]).lines();
    let epochs: Vec<_> = json.iter().filter(|line| line["type"] == "epoch").collect();
    assert!(epochs.len() > 1);
    let keyed: Vec<_> = epochs.iter().map(|epoch| epoch["account"]["keyed"].to_string()).collect();
    assert_eq!(column(&table("epochs.csv"), "keyed"), keyed);
    let items =
        |epoch: &&serde_json::Value| epoch["tasks"]["top"]["items"].as_array().unwrap().clone();
    let packets: Vec<_> =
        epochs.iter().flat_map(items).map(|item| item["packets"]["value"].to_string()).collect();
    assert_eq!(column(&table("top.csv"), "packets"), packets);
    // One task alone goes to standard output, and is the same table.
    let one = run(&["--task", "top"]);
    assert_eq!((one.code, one.err.as_str(), one.out), (0, "", table("top.csv")));
    // Other measurements have files of their own.
    let several = folder("tables-several");
    let answer = run(&[
        "--measure",
        "main: task=top",
        "--measure",
        "b: key=source task=top",
        "-o",
        text(&several),
    ]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let names =
        ["top.csv", "b.top.csv"].map(|name| fs::read_to_string(several.join(name)).unwrap());
    assert!(names[0].contains("source_port") && !names[1].contains("source_port"));
}

#[test]
fn csv_of_several_tasks_needs_a_folder() {
    let capture = file("no-folder.pcap", &pcap(&traffic()));
    let out = folder("no-folder");
    let (old, new) = (out.join("old"), out.join("new.csv"));
    fs::write(&old, "old").unwrap();
    for extra in [&[][..], &["-o", text(&old)], &["-o", text(&new)], &["--task", "top,entropy"]] {
        let answer = flowgauge(&[&["analyze", "--format", "csv", &capture], extra].concat());
        assert_eq!((answer.code, answer.err.lines().count()), (2, 1), "{}", answer.err);
        assert!(answer.err.contains("name a directory with -o DIR/"), "{}", answer.err);
    }
    assert_eq!(fs::read_to_string(&old).unwrap(), "old");
    // A folder that cannot be made is known before the capture is read.
    let below = old.join("tables");
    let answer = flowgauge(&[
        "analyze",
        "--format",
        "csv",
        "-o",
        &format!("{}/", text(&below)),
        "no-such.pcap",
    ]);
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("old/tables"), "{}", answer.err);
}

#[test]
fn a_line_tells_an_epoch() {
    let capture = file("line.pcap", &pcap(&traffic()));
    let answer = flowgauge(&["analyze", "--epoch", "100ms", "--format", "line", &capture]);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
    let lines: Vec<Vec<&str>> =
        answer.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(lines.iter().all(|cells| cells.len() == lines[0].len()), "{}", answer.out);
    let at = |title: &str| lines[0].iter().position(|cell| *cell == title).unwrap();
    let (packets, epoch) = (at("packets"), at("epoch"));
    assert_eq!(lines.last().unwrap()[epoch], "total");
    let sum = |cells: &[Vec<&str>]| -> u64 {
        cells.iter().map(|cells| cells[packets].parse::<u64>().unwrap()).sum()
    };
    let (total, epochs) = lines[1..].split_last().unwrap();
    assert_eq!(sum(epochs), sum(std::slice::from_ref(total)));
    assert!(sum(epochs) > 100);
}

#[test]
fn text_is_as_wide_as_asked_and_coloured_on_demand() {
    let capture = file("look.pcap", &pcap(&traffic()));
    for command in [&["analyze", &capture][..], &["explain"], &["list"]] {
        // The list has tables of more than 60 columns.
        for width in if command == ["list"] { &["80", "200"][..] } else { &["60", "80", "200"] } {
            let answer = flowgauge(&[command, &["--width", width]].concat());
            assert_eq!(answer.code, 0, "{}", answer.err);
            let widest = answer.out.lines().map(|line| line.chars().count()).max().unwrap();
            let most = width.parse::<usize>().unwrap();
            assert!(widest <= most, "{command:?} {width}: {widest}");
        }
        let plain = flowgauge(command).out;
        assert!(!plain.contains('\u{1b}'), "standard output is no terminal");
        let colored = flowgauge(&[command, &["--color", "always"]].concat()).out;
        assert!(colored.contains("\u{1b}[1m"), "{colored}");
    }
    for (options, reason) in [
        (&["--width", "59"][..], "59 is not from 60 to 200"),
        (&["--color", "allways"], "did you mean 'always'?"),
    ] {
        let answer = flowgauge(&[&["analyze", &capture], options].concat());
        assert_eq!(answer.code, 2);
        assert!(answer.err.contains(reason), "{}", answer.err);
    }
}

#[test]
fn another_locale_gets_ascii_alone() {
    let capture = file("ascii.pcap", &pcap(&traffic()));
    let page = |locale: &str| {
        let command = std::process::Command::new(env!("CARGO_BIN_EXE_flowgauge"))
            .args(["analyze", "--seed", "0", &capture])
            .env_remove("LC_CTYPE")
            .env("LC_ALL", locale)
            .output();
        String::from_utf8(command.unwrap().stdout).unwrap()
    };
    assert!(page("C").is_ascii());
    assert!(page("de_DE.UTF-8").contains("━━ epoch 0"));
    assert_eq!(page("C").chars().count(), page("en_US.utf8").chars().count());
}

/// The page holds the reports of JSON, wherever it goes.
#[test]
fn html_holds_the_values_of_json() {
    let capture = file("html.pcap", &pcap(&traffic()));
    let analyze = ["analyze", "--epoch", "100ms", &capture];
    let json = flowgauge(&[&analyze[..], &["--format", "json"]].concat()).lines();
    let out = folder("html").join("report.html");
    let standard = flowgauge(&[&analyze[..], &["--format", "html"]].concat());
    assert_eq!((standard.code, standard.err.as_str()), (0, ""));
    let sink = format!("html:{}", text(&out));
    assert_eq!(flowgauge(&[&analyze[..], &["--sink", &sink]].concat()).code, 0);
    let page = fs::read_to_string(&out).unwrap();
    assert_eq!(page, standard.out);
    assert!(page.starts_with("<!doctype html>\n"));
    let items = page.split("class=\"item\">").skip(1);
    let items = items.map(|item| item.split("</script>").next().unwrap());
    let items: Vec<serde_json::Value> =
        items.map(|item| serde_json::from_str(item).unwrap()).collect();
    assert_eq!(items, json);
}

#[test]
fn ports_have_no_names_where_none_are_wanted() {
    let capture = file("numeric.pcap", &pcap(&traffic()));
    let named = |options: &[&str]| {
        let page =
            flowgauge(&[&["analyze", "--key", "destination-port", &capture], options].concat());
        page.out.contains("port 53 dns")
    };
    assert!(named(&[]) && !named(&["-n"]));
}

#[test]
fn a_name_from_outside_reaches_no_terminal() {
    let hostile = "no\u{1b}[31m\u{202e}such\nfile";
    for format in ["text", "json", "csv"] {
        let answer = flowgauge(&["analyze", "--format", format, "--task", "top", hostile]);
        assert_eq!(answer.code, 1);
        assert_eq!(answer.err.lines().count(), 1);
        for text in [answer.out, answer.err] {
            let acts = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
            assert!(!text.contains(acts), "{text:?}");
        }
    }
    let answer = flowgauge(&["analyze", "--format", "json", hostile]);
    assert_eq!(answer.lines()[0]["files"][0], hostile);
}
