//! Questions of new users: those of `tests/tasks/tasks.txt`, with the answers of other tools.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use serde_json::Value;

use crate::run::{Answer, flowgauge, flowgauge_reading, folder};

const TASKS: usize = 60;

/// A question, with its commands and its expected answer.
struct Task<'a> {
    question: &'a str,
    lines: Vec<(&'a str, &'a str)>,
}

impl<'a> Task<'a> {
    fn all<'l>(&'l self, name: &'l str) -> impl Iterator<Item = &'a str> + 'l {
        self.lines.iter().filter(move |(of, _)| *of == name).map(|(_, text)| *text)
    }
}

/// The captures to be generated, and the tasks.
fn parse(text: &str) -> (Vec<&str>, Vec<Task<'_>>) {
    let (mut captures, mut tasks) = (Vec::new(), Vec::<Task<'_>>::new());
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (name, text) = line.trim_start().split_once(' ').unwrap();
        match (line.starts_with(' '), tasks.last_mut()) {
            (true, Some(task)) => task.lines.push((name, text.trim())),
            (true, None) => captures.push(text.trim()),
            (false, _) => tasks.push(Task { question: line, lines: Vec::new() }),
        }
    }
    (captures, tasks)
}

/// Words of a command line: at blanks, but for those within single or double quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match quote {
            Some(end) if c == end => quote = None,
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c == ' ' => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// The files that `FOLDER/*.fgs` names, ordered by name. Another word stays as it is.
fn files(word: String) -> Vec<String> {
    let Some(folder) = word.strip_suffix("/*.fgs") else { return vec![word] };
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = paths.map(|path| path.to_str().unwrap().to_owned()).collect();
    paths.sort();
    paths
}

/// The folders that tasks name.
struct Places(Vec<(&'static str, String)>);

impl Places {
    fn expand(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, path)| text.replace(name, path))
    }

    /// Runs one command line, whose input may be a file behind `<`.
    fn run(&self, line: &str) -> Answer {
        let words: Vec<_> = words(&self.expand(line)).into_iter().flat_map(files).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(words[0], "flowgauge", "{line}");
        match &words[1..] {
            [arguments @ .., "<", input] => flowgauge_reading(arguments, &fs::read(input).unwrap()),
            arguments => flowgauge(arguments),
        }
    }
}

/// A JSON value as a word, or a list of them.
fn word(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

/// What `pattern` has `{}` for, where its other words stand in the text as they follow each other.
fn captured(text: &str, pattern: &str) -> Result<Vec<String>, String> {
    let text: Vec<&str> = text.split_whitespace().collect();
    let pattern: Vec<&str> = pattern.split_whitespace().collect();
    let around = |wanted: &str, word: &str| {
        let Some((before, after)) = wanted.split_once("{}") else { return wanted == word };
        word.strip_prefix(before).is_some_and(|rest| rest.strip_suffix(after).is_some())
    };
    let place = text
        .windows(pattern.len())
        .find(|window| pattern.iter().zip(*window).all(|(wanted, word)| around(wanted, word)))
        .ok_or_else(|| format!("nowhere '{}'", pattern.join(" ")))?;
    let holes = pattern.iter().zip(place).filter_map(|(wanted, word)| {
        let (before, after) = wanted.split_once("{}")?;
        Some(word[before.len()..word.len() - after.len()].to_owned())
    });
    Ok(holes.collect())
}

/// What one `read` line of a task reads.
fn read(line: &str, answer: &Answer, places: &Places) -> Result<Vec<String>, String> {
    let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
    let parsed = |lines: &mut dyn Iterator<Item = &str>| -> Result<Value, String> {
        let lines: Result<Vec<Value>, _> = lines.map(serde_json::from_str).collect();
        Ok(Value::Array(lines.map_err(|error| error.to_string())?))
    };
    let json = || parsed(&mut answer.out.lines());
    match kind {
        "json" => {
            let all = json()?;
            Ok(rest.split_whitespace().map(|path| word(all.pointer(path))).collect())
        }
        "page" => {
            let (file, paths) = rest.split_once(' ').unwrap();
            let page = fs::read_to_string(places.expand(file)).map_err(|e| e.to_string())?;
            let item =
                |line| str::strip_prefix(line, r#"<script type="application/json" class="item">"#);
            let all = parsed(&mut page.lines().filter_map(item))?;
            Ok(paths.split_whitespace().map(|path| word(all.pointer(path))).collect())
        }
        "each" => {
            let all = json()?;
            let (list, fields) = rest.split_once(' ').unwrap();
            let list = all.pointer(list.trim_end_matches('/')).and_then(Value::as_array);
            let of = |item: &Value| -> Vec<String> {
                fields.split_whitespace().map(|path| word(item.pointer(path))).collect()
            };
            Ok(list.ok_or("no such list")?.iter().flat_map(of).collect())
        }
        "rows" => {
            let mut columns = rest.split_whitespace();
            let table = match columns.next().unwrap() {
                "-" => answer.out.clone(),
                file => fs::read_to_string(places.expand(file)).map_err(|e| e.to_string())?,
            };
            let mut table = csv::Reader::from_reader(table.as_bytes());
            let titles = table.headers().map_err(|error| error.to_string())?.clone();
            let columns: Vec<usize> = columns
                .map(|name| titles.iter().position(|title| title == name).ok_or(name))
                .collect::<Result<_, _>>()
                .map_err(|name| format!("no column '{name}'"))?;
            let rows: Vec<_> = table.records().map(Result::unwrap).collect();
            Ok(rows.iter().flat_map(|row| columns.iter().map(|at| row[*at].to_owned())).collect())
        }
        "text" => captured(&answer.out, &words(rest)[0]),
        "message" => captured(&answer.err, &words(rest)[0]),
        "code" => Ok(vec![answer.code.to_string()]),
        _ => Err(format!("'{kind}' is nothing to read")),
    }
}

/// Whether the bounds that were read hold what is expected, no further from it than a share.
fn within(share: &str, expected: &str, read: &[String]) -> bool {
    let share = share.trim_end_matches('%').parse::<f64>().unwrap() / 100.0;
    let expected: Vec<f64> = expected.split_whitespace().map(|n| n.parse().unwrap()).collect();
    let bounds: Vec<f64> = read.iter().filter_map(|bound| bound.parse().ok()).collect();
    bounds.len() == 2 * expected.len()
        && bounds.chunks(2).zip(expected).all(|(bounds, truth)| {
            let far = truth.abs() * share + 1e-9;
            bounds[0] <= truth + 1e-9
                && truth - 1e-9 <= bounds[1]
                && truth - bounds[0] <= far
                && bounds[1] - truth <= far
        })
}

/// The answer to the task, and whether it is the expected one.
fn ask(task: &Task<'_>, places: &Places) -> (String, bool) {
    let codes: Vec<i32> = task.all("exit").map(|code| code.parse().unwrap()).collect();
    let mut last = None;
    let mut runs = task.all("run").peekable();
    while let Some(line) = runs.next() {
        let answer = places.run(line);
        let code = if runs.peek().is_some() { 0 } else { codes.first().copied().unwrap_or(0) };
        if answer.code != code {
            return (format!("exit code {}: {}", answer.code, answer.err), false);
        }
        last = Some(answer);
    }
    let answer = last.unwrap();
    let mut got = Vec::new();
    for line in task.all("read") {
        match read(line, &answer, places) {
            Ok(words) => got.extend(words),
            Err(reason) => return (format!("{reason} in\n{}{}", answer.out, answer.err), false),
        }
    }
    let expected = task.all("is").collect::<Vec<_>>().join(" ");
    let right = match task.all("within").next() {
        Some(share) => within(share, &expected, &got),
        None => expected.split_whitespace().eq(got.iter().flat_map(|word| word.split_whitespace())),
    };
    (got.join(" "), right)
}

#[test]
fn new_users_get_the_answers_of_other_tools() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    let text = fs::read_to_string(root.join("tasks/tasks.txt")).unwrap();
    let (captures, tasks) = parse(&text);
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let shared = env::var("FLOWGAUGE_CAPTURES").ok();
    let mut places = Places(vec![
        ("$SERVICES", path(&root.join("captures/var-services-std-ports.pcap"))),
        ("$INPUTS", path(&root.join("tasks/inputs"))),
        ("$GENERATED", path(&folder("tasks-generated"))),
        ("$OUT", path(&folder("tasks-out"))),
    ]);
    places.0.extend(shared.clone().map(|shared| ("$SHARED", shared)));
    for line in captures {
        let answer = places.run(line);
        assert_eq!(answer.code, 0, "{line}: {}", answer.err);
    }
    let (mut failures, mut skipped, mut seen) = (String::new(), 0, HashMap::new());
    for (number, task) in (1..).zip(&tasks) {
        let prefix = format!("{number}. ");
        assert!(task.question.starts_with(&prefix), "{} is not task {number}", task.question);
        let runs: Vec<&str> = task.all("run").collect();
        let made = task.all("by").chain(task.all("stated")).next();
        assert!(made.is_some() && task.all("is").next().is_some(), "{prefix}lacks its answer");
        assert_eq!(seen.insert(runs.join("\n") + task.all("read").next().unwrap(), number), None);
        if shared.is_none() && runs.iter().any(|line| line.contains("$SHARED")) {
            println!("skipped, FLOWGAUGE_CAPTURES names no folder: {}", task.question);
            skipped += 1;
            continue;
        }
        let (got, right) = ask(task, &places);
        if !right {
            let expected = task.all("is").collect::<Vec<_>>().join(" ");
            let bounds = task.all("within").next().map(|share| format!(" within {share}"));
            let _ = writeln!(
                failures,
                "{}\n  $ {}\n  expected{} {expected}\n  got      {got}",
                task.question,
                runs.join("\n  $ "),
                bounds.unwrap_or_default(),
            );
        }
    }
    println!("{} tasks, {skipped} of them skipped", tasks.len());
    assert_eq!(tasks.len(), TASKS);
    assert!(failures.is_empty(), "\n{failures}");
}
