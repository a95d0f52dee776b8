//! Output of experiments: a table, a picture and a page for each, and a report of all.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use flowgauge_core::unknown::Unknown;

use super::part::ALIKE;
use super::setting::{Setting, Trace};
use super::table::Noise;
use super::verdict::{Verdict, WORDS};
use super::{EXPERIMENTS, Experiment, Outcome, Table, latency, presets, setting, svg};
use crate::args::{Judge, Run};
use crate::failure::Failure;
use crate::machine;

/// The name that selects every experiment.
const ALL: &str = "all";

/// The text before the verdict on a page.
const VERDICT: &str = "**Verdict.** ";

/// Writes the name and title of every experiment.
pub(crate) fn list(out: &mut impl Write) -> Result<(), Failure> {
    let written = EXPERIMENTS
        .iter()
        .try_for_each(|experiment| writeln!(out, "{:<22} {}", experiment.name, experiment.title));
    written.map_err(Failure::of("standard output"))
}

/// Runs the chosen experiments, writes their files and prints the verdicts. The report of all pages
/// is rewritten after each experiment, so an interrupted run keeps its results.
///
/// # Errors
/// When an experiment is unknown or cannot be measured, or a file cannot be written.
pub(crate) fn run(run: &Run) -> Result<(), Failure> {
    let chosen = chosen(&run.names)?;
    let setting = setting(run)?;
    let options = options(run, &setting);
    fs::create_dir_all(&run.output).map_err(Failure::of(run.output.display()))?;
    let mut left = Vec::new();
    for experiment in chosen {
        if run.resume && is_done(experiment, &run.output, &options)? {
            println!("{}: measured before", experiment.name);
            continue;
        }
        let start = Instant::now();
        match Page::measure(experiment, &setting, &options) {
            Err(skipped @ Failure::Skipped(_)) => {
                println!("{}: {skipped}", experiment.name);
                left.push((experiment.name, skipped.to_string()));
            }
            page => {
                let page = page?.and_again(&setting)?;
                page.write(&run.output)?;
                let seconds = start.elapsed().as_secs_f64();
                println!("{} ({seconds:.1} s): {}", experiment.name, page.sentence());
                print!("{}", page.verdict.list(experiment.missing));
            }
        }
        compose(&run.output, &left)?;
    }
    compose(&run.output, &left)
}

/// Judges earlier measurements from their tables, redraws the pictures, and rewrites the report.
///
/// # Errors
/// When an experiment is unknown, or a file cannot be read or written.
pub(crate) fn judge(judge: &Judge) -> Result<(), Failure> {
    for experiment in chosen(&judge.names)? {
        if let Some(page) = Page::read(experiment, &judge.folder)? {
            page.write_page(&judge.folder)?;
            println!("{}: {}", experiment.name, page.sentence());
        }
    }
    compose(&judge.folder, &[])
}

/// Whether the page of an experiment was made with these options.
pub(super) fn is_done(
    experiment: &Experiment,
    folder: &Path,
    options: &str,
) -> Result<bool, Failure> {
    let path = file(folder, experiment, "md");
    if !path.exists() {
        return Ok(false);
    }
    let page = fs::read_to_string(&path).map_err(Failure::of(path.display()))?;
    Ok(page.contains(&repeat(experiment.name, options)))
}

/// Writes the report next to the folder of its pages.
pub(super) fn compose(folder: &Path, left: &[(&str, String)]) -> Result<(), Failure> {
    write(&folder.with_extension("md"), &report(folder, left)?)
}

/// The experiments with these names, without duplicates.
fn chosen(names: &[String]) -> Result<Vec<&'static Experiment>, Failure> {
    let known = |name: &&String| EXPERIMENTS.iter().any(|e| e.name == **name);
    if let Some(name) = names.iter().find(|name| *name != ALL && !known(name)) {
        let known = EXPERIMENTS.iter().map(|experiment| experiment.name);
        return Err(Unknown::new("experiment", name, known).into());
    }
    let asked = |e: &&&Experiment| names.iter().any(|name| name == ALL || name == e.name);
    Ok(EXPERIMENTS.iter().filter(asked).copied().collect())
}

fn setting(run: &Run) -> Result<Setting, Failure> {
    let mut setting = if run.full { Setting::full() } else { Setting::quick() };
    setting.seed = run.seed;
    setting.switch = run.switch();
    if let Some(path) = &run.keys {
        setting.trace = Some(Trace::read(path, run.key_bytes, 2 * setting.packets)?);
    }
    Ok(setting)
}

/// The options that repeat a run.
fn options(run: &Run, setting: &Setting) -> String {
    let mut words = vec![if run.full { "--full" } else { "--quick" }.to_owned()];
    if run.seed != Setting::quick().seed {
        words.push(format!("--seed {}", run.seed));
    }
    words.extend(setting.trace.as_ref().map(|trace| trace.words.clone()));
    words.join(" ")
}

/// All results of one experiment.
pub(super) struct Page {
    experiment: &'static Experiment,
    outcome: Outcome,
    verdict: Verdict,
    /// How it was measured: command, noise and machine.
    measured: String,
    /// Repetitions with their labels.
    again: Vec<(String, Table)>,
}

/// The texts before the parts of a page.
const LIMIT: &str = "**Limit.** ";
const NOTE: &str = "**Note.** ";
const NUMBERS: &str = "Numbers: ";
const APART: &str = "times are not told apart that differ by less than ";
const TAILS_APART: &str = " %, nor tails by less than ";
const APART_END: &str = " %.";

impl Page {
    /// Measures and judges.
    pub(super) fn measure(
        experiment: &'static Experiment,
        setting: &Setting,
        options: &str,
    ) -> Result<Self, Failure> {
        let before = machine::noise();
        let mut outcome = (experiment.measure)(setting)?;
        let after = machine::noise();
        let noise = (before.0.max(after.0), before.1.max(after.1));
        // The published numbers are judged: rounded as in the file.
        outcome.table = outcome.table.rounded();
        outcome.table.add_noise(Noise { means: noise.0, tails: noise.0 });
        let (name, stem) = (experiment.name, stem(experiment.name));
        let measured = format!(
            "{NUMBERS}[{stem}.tsv]({stem}.tsv). Repeat: {}. \
             Noise: the same arithmetic took {:.1} % longer than at best in the median, and {:.0} % in \
             one of a hundred. As rounds differ, {}\nMachine: {}; {}.",
            repeat(name, options),
            100.0 * noise.0,
            100.0 * noise.1,
            apart(&outcome.table),
            machine::describe(),
            machine::caches()
        );
        let verdict = (experiment.judge)(&outcome.table);
        Ok(Self { experiment, outcome, verdict, measured, again: Vec::new() })
    }

    /// Repeats it with other seeds and traffic, if its claims depend on them.
    pub(super) fn and_again(mut self, setting: &Setting) -> Result<Self, Failure> {
        for again in setting::repetitions(self.experiment.name) {
            let outcome = (self.experiment.measure)(&again.setting(setting))?;
            self.again.push((again.label(), outcome.table.rounded()));
        }
        Ok(self)
    }

    /// Judges an earlier measurement from its files in a folder; `None` if there are none.
    ///
    /// # Errors
    /// When the files are damaged.
    pub(super) fn read(
        experiment: &'static Experiment,
        folder: &Path,
    ) -> Result<Option<Self>, Failure> {
        let [table, page] = ["tsv", "md"].map(|ending| file(folder, experiment, ending));
        if !page.exists() {
            return Ok(None);
        }
        let read = |path: &Path| fs::read_to_string(path).map_err(Failure::of(path.display()));
        let (name, text) = (table.display().to_string(), read(&page)?);
        let broken = |reason| Failure::Page { name, reason };
        let Some(mut table) = Table::read(&read(&table)?) else {
            return Err(broken("rows differ in length"));
        };
        let behind = |mark: &str| text.lines().find_map(|line| line.strip_prefix(mark));
        let measured = text.find(&format!("\n{NUMBERS}")).map(|at| text[at..].trim().to_owned());
        let (Some(measured), Some(noise)) = (measured, noise(&text)) else {
            return Err(broken("its page does not say how it was measured"));
        };
        table.add_noise(noise);
        let (limit, notes) = (behind(LIMIT).unwrap_or(""), behind(NOTE).unwrap_or(""));
        let outcome = Outcome { table, limit: limit.to_owned(), notes: notes.to_owned() };
        let verdict = (experiment.judge)(&outcome.table);
        let mut again = Vec::new();
        for label in setting::repetitions(experiment.name).iter().map(|again| again.label()) {
            let path = again_file(folder, experiment, &label);
            let table = if path.exists() { Table::read(&read(&path)?) } else { None };
            again.extend(table.map(|table| (label, table)));
        }
        Ok(Some(Self { experiment, outcome, verdict, measured, again }))
    }

    /// The verdict in a sentence.
    fn sentence(&self) -> String {
        self.verdict.sentence(self.experiment.missing)
    }

    /// The measured numbers.
    #[cfg(test)]
    pub(super) fn table(&self) -> &Table {
        &self.outcome.table
    }

    /// Writes its table, picture and page. The page comes last: if it exists, so do the others.
    pub(super) fn write(&self, folder: &Path) -> Result<(), Failure> {
        let table = file(folder, self.experiment, "tsv");
        let failed = Failure::of(table.display());
        let out = File::create(&table).map_err(&failed)?;
        self.outcome.table.write(BufWriter::new(out)).map_err(&failed)?;
        for (label, table) in &self.again {
            let path = again_file(folder, self.experiment, label);
            let failed = Failure::of(path.display());
            fs::create_dir_all(folder.join(AGAIN)).map_err(&failed)?;
            let out = File::create(&path).map_err(&failed)?;
            table.write(BufWriter::new(out)).map_err(&failed)?;
        }
        self.write_page(folder)
    }

    /// Writes its picture and page.
    fn write_page(&self, folder: &Path) -> Result<(), Failure> {
        write(&file(folder, self.experiment, "svg"), &self.picture())?;
        write(&file(folder, self.experiment, "md"), &self.page())
    }

    /// The picture.
    pub(super) fn picture(&self) -> String {
        svg::draw(self.experiment.charts, &self.outcome.table)
    }

    /// The text of the page.
    pub(super) fn page(&self) -> String {
        let Self { experiment, outcome, verdict, measured, again: _ } = self;
        let Experiment { name, title, paper, missing, .. } = experiment;
        let stem = stem(name);
        let mut page = format!(
            "# {name}: {title}\n\n{paper}\n\n{VERDICT}{}.\n\n{}",
            self.sentence(),
            verdict.list(missing)
        );
        let _ = writeln!(page, "\n![{title}]({stem}.svg)\n\n{}", self.captions());
        page.push_str(&self.repetitions());
        let _ = writeln!(page, "{LIMIT}{}\n", outcome.limit);
        if !outcome.notes.is_empty() {
            let _ = writeln!(page, "{NOTE}{}\n", outcome.notes);
        }
        let _ = writeln!(page, "{measured}");
        page
    }

    /// The findings for each claim with other seeds and traffic.
    fn repetitions(&self) -> String {
        if self.again.is_empty() {
            return String::new();
        }
        let numbers: Vec<String> =
            (1..=self.verdict.claims.len()).map(|number| number.to_string()).collect();
        let mut rows = format!(
            "**Again.** Claim by claim, with other seeds and other traffic:\n\n| with | {} |\n|---|{}\n",
            numbers.join(" | "),
            "---|".repeat(numbers.len())
        );
        for (label, table) in &self.again {
            let verdict = (self.experiment.judge)(table);
            let words = verdict.claims.iter().map(|claim| claim.finding.word().to_lowercase());
            let words: Vec<String> = words.collect();
            let link = format!("[{label}]({AGAIN}/{}.{label}.tsv)", stem(self.experiment.name));
            let _ = writeln!(rows, "| {link} | {} |", words.join(" | "));
        }
        rows.push('\n');
        rows
    }

    /// What each chart shows. Consecutive charts with the same sentence share it.
    fn captions(&self) -> String {
        let charts = self.experiment.charts;
        let mut captions = String::new();
        for alike in charts.chunk_by(|one, next| one.see == next.see) {
            let titles: Vec<&str> = alike.iter().map(|chart| chart.title).collect();
            let _ = writeln!(captions, "- *{}*: {}", titles.join("*, *"), alike[0].see);
        }
        captions
    }
}

/// The folder of repetitions, below that of the pages.
const AGAIN: &str = "again";

/// The table of a repetition.
fn again_file(folder: &Path, experiment: &Experiment, label: &str) -> PathBuf {
    folder.join(AGAIN).join(format!("{}.{label}.tsv", stem(experiment.name)))
}

/// Which times are not told apart.
fn apart(table: &Table) -> String {
    let percent = |noise: f64| 100.0 * noise.max(ALIKE);
    let Noise { means, tails } = table.noise();
    let tails = if table.has(latency::TAIL) {
        format!("{TAILS_APART}{:.1}", percent(tails))
    } else {
        String::new()
    };
    format!("{APART}{:.1}{tails}{APART_END}", percent(means))
}

/// The noise that a page states by [`apart`].
fn noise(page: &str) -> Option<Noise> {
    let (_, percent) = page.split_once(APART)?;
    let (percent, _) = percent.split_once(APART_END)?;
    let (means, tails) = percent.split_once(TAILS_APART).unwrap_or((percent, percent));
    let noise = |percent: &str| percent.parse::<f64>().ok().map(|percent| percent / 100.0);
    Some(Noise { means: noise(means)?, tails: noise(tails)? })
}

/// The command that repeats a measurement.
fn repeat(name: &str, options: &str) -> String {
    format!("`flowgauge-lab run {name} {options}`")
}

/// A file of an experiment.
fn file(folder: &Path, experiment: &Experiment, ending: &str) -> PathBuf {
    folder.join(format!("{}.{ending}", stem(experiment.name)))
}

/// The name of the files of an experiment.
fn stem(name: &str) -> String {
    name.replace('/', "-")
}

/// The report of all pages in a folder, from any run.
fn report(folder: &Path, left: &[(&str, String)]) -> Result<String, Failure> {
    let here = folder.file_name().map_or(String::new(), |name| name.to_string_lossy().into());
    let (mut rows, mut sections) = (String::new(), String::new());
    let (mut headlines, mut claims) = (Vec::new(), Vec::new());
    for Experiment { name, title, .. } in EXPERIMENTS {
        let stem = stem(name);
        let path = folder.join(format!("{stem}.md"));
        if !path.exists() {
            let why = left.iter().find(|(skipped, _)| skipped == name);
            let why = why.map_or("not measured", |(_, why)| why);
            let _ = writeln!(rows, "| {name} | {title} | {why} |");
            continue;
        }
        let page = fs::read_to_string(&path).map_err(Failure::of(path.display()))?;
        let found = found(&page);
        headlines.extend(found.first());
        claims.extend(found);
        let verdict = page.lines().find_map(|line| line.strip_prefix(VERDICT));
        let verdict = verdict.unwrap_or("not judged").trim_end_matches('.');
        // The anchor that Markdown gives the heading.
        let heading = page.lines().next().unwrap_or_default().trim_start_matches("# ");
        let anchor: String = heading
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let _ = writeln!(rows, "| [{name}](#{anchor}) | {title} | {verdict} |");
        let links = page.replace(&format!("]({stem}."), &format!("]({here}/{stem}."));
        let links = links.replace(&format!("]({AGAIN}/"), &format!("]({here}/{AGAIN}/"));
        let _ = writeln!(sections, "\n#{}", links.trim_end());
    }
    Ok(format!(
        "# The papers' figures on this engine\n\n\
         Written by `flowgauge-lab run`, from the pages in `{here}/`; each names the command and the machine of \
         its own run. Verdicts are computed from the numbers, claim by claim, each page's headline first:\n\n\
         - **Reproduced**: the numbers do as the paper says.\n\
         - **Reproduced on the paper's baseline only**: the paper's own structure, written in the lab, does as \
         the paper says; this engine's does better, by a factor that is given, and the claim does not \
         hold of it.\n\
         - **Not comparable here**: hardware, a trace or code is missing, which is named.\n\
         - **Contradicted**: the numbers say otherwise, with the proof, or with what would explain it.\n\
         - **Cannot be told**: the noise of that run hides it, or the run was too short.\n\n\
         Headlines: {}. All claims: {}.\n\n\
         | figure | what | verdict |\n|---|---|---|\n{rows}\n\
         ## Presets\n\n\
         What the papers measured with, what is measured with here, and why they differ. Figures of a \
         paper that share a parameter share its row.\n\n{}{sections}",
        counts(&headlines),
        counts(&claims),
        presets()
    ))
}

/// The findings for the claims of a page, in order.
fn found(page: &str) -> Vec<&'static str> {
    let item = |line: &str| {
        let (number, words) = line.split_once(". **")?;
        number.parse::<usize>().ok()?;
        WORDS.into_iter().filter(|word| words.starts_with(word)).max_by_key(|word| word.len())
    };
    page.lines().filter_map(item).collect()
}

/// The number of each finding.
fn counts(found: &[&str]) -> String {
    let count = |word: &&str| found.iter().filter(|one| *one == word).count();
    let counts = WORDS.iter().map(|word| format!("{} {}", count(word), word.to_lowercase()));
    counts.collect::<Vec<_>>().join(", ")
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(Failure::of(path.display()))
}
