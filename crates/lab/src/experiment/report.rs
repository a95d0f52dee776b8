//! What comes of experiments: a table, a picture and a page of each, and a report of all.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use super::part::ALIKE;
use super::setting::{Setting, Trace};
use super::verdict::{Verdict, WORDS};
use super::{EXPERIMENTS, Experiment, Outcome, preset, svg};
use crate::args::Run;
use crate::failure::Failure;
use crate::machine;

/// The name that stands for every experiment.
const ALL: &str = "all";

/// What the verdict of a page stands behind.
const VERDICT: &str = "**Verdict.** ";

/// Prints the name and the title of every experiment.
pub(crate) fn list() -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = EXPERIMENTS
        .iter()
        .try_for_each(|experiment| writeln!(out, "{:<22} {}", experiment.name, experiment.title));
    written.map_err(Failure::of("standard output"))
}

/// Runs the experiments asked for, writes their files, prints the verdicts, and rewrites the report of all
/// pages.
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
        let start = Instant::now();
        let page = match Page::measure(experiment, &setting, &options) {
            Err(skipped @ Failure::Skipped(_)) => {
                println!("{}: {skipped}", experiment.name);
                left.push((experiment.name, skipped.to_string()));
                continue;
            }
            page => page?,
        };
        page.write(&run.output)?;
        let seconds = start.elapsed().as_secs_f64();
        println!("{} ({seconds:.1} s): {}", experiment.name, page.sentence());
        print!("{}", page.verdict.list(experiment.missing));
    }
    write(&run.output.with_extension("md"), &report(&run.output, &left)?)
}

/// The experiments of these names, each once.
fn chosen(names: &[String]) -> Result<Vec<&'static Experiment>, Failure> {
    let known = |name: &&String| EXPERIMENTS.iter().any(|e| e.name == **name);
    if let Some(name) = names.iter().find(|name| *name != ALL && !known(name)) {
        return Err(Failure::Unknown(name.clone()));
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

/// All that is known of one experiment.
pub(super) struct Page {
    experiment: &'static Experiment,
    outcome: Outcome,
    verdict: Verdict,
    noise: (f64, f64),
    options: String,
}

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
        outcome.table.add_noise(noise.0);
        let verdict = (experiment.judge)(&outcome.table);
        Ok(Self { experiment, outcome, verdict, noise, options: options.to_owned() })
    }

    /// The verdict in a sentence.
    fn sentence(&self) -> String {
        self.verdict.sentence(self.experiment.missing)
    }

    /// What was measured.
    #[cfg(test)]
    pub(super) fn table(&self) -> &super::Table {
        &self.outcome.table
    }

    fn write(&self, folder: &Path) -> Result<(), Failure> {
        let path = |ending: &str| folder.join(format!("{}.{ending}", stem(self.experiment.name)));
        let table = path("tsv");
        let failed = Failure::of(table.display());
        let file = File::create(&table).map_err(&failed)?;
        self.outcome.table.write(BufWriter::new(file)).map_err(&failed)?;
        write(&path("svg"), &self.picture())?;
        write(&path("md"), &self.page())
    }

    /// The picture.
    pub(super) fn picture(&self) -> String {
        svg::draw(self.experiment.charts, &self.outcome.table)
    }

    /// What is written about it.
    pub(super) fn page(&self) -> String {
        let Self { experiment, outcome, verdict, noise, options } = self;
        let Experiment { name, title, paper, missing, .. } = experiment;
        let stem = stem(name);
        let mut page = format!(
            "# {name}: {title}\n\n{paper}\n\n{VERDICT}{}.\n\n{}",
            self.sentence(),
            verdict.list(missing)
        );
        let _ = writeln!(page, "\n![{title}]({stem}.svg)\n\n**Limit.** {}\n", outcome.limit);
        if !outcome.notes.is_empty() {
            let _ = writeln!(page, "**Note.** {}\n", outcome.notes);
        }
        let _ = writeln!(
            page,
            "Numbers: [{stem}.tsv]({stem}.tsv). Repeat: `flowgauge-lab run {name} {options}`. \
             Noise: the same arithmetic took {:.1} % longer than at best in the median, and {:.0} % in \
             one of a hundred. As rounds differ, times are not told apart that differ by less than {:.1} %.\nMachine: {}; {}.",
            100.0 * noise.0,
            100.0 * noise.1,
            100.0 * outcome.table.noise().max(ALIKE),
            machine::describe(),
            machine::caches()
        );
        page
    }
}

/// The name of the files of an experiment.
fn stem(name: &str) -> String {
    name.replace('/', "-")
}

/// The report of all pages in a folder, whichever runs wrote them.
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
        // The anchor that Markdown makes of the heading.
        let heading = page.lines().next().unwrap_or_default().trim_start_matches("# ");
        let anchor: String = heading
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let _ = writeln!(rows, "| [{name}](#{anchor}) | {title} | {verdict} |");
        let links = page.replace(&format!("]({stem}."), &format!("]({here}/{stem}."));
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
        preset::table()
    ))
}

/// What became of the claims of a page, in order.
fn found(page: &str) -> Vec<&'static str> {
    let item = |line: &str| {
        let (number, words) = line.split_once(". **")?;
        number.parse::<usize>().ok()?;
        WORDS.into_iter().filter(|word| words.starts_with(word)).max_by_key(|word| word.len())
    };
    page.lines().filter_map(item).collect()
}

/// How many there are of each.
fn counts(found: &[&str]) -> String {
    let count = |word: &&str| found.iter().filter(|one| *one == word).count();
    let counts = WORDS.iter().map(|word| format!("{} {}", count(word), word.to_lowercase()));
    counts.collect::<Vec<_>>().join(", ")
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(Failure::of(path.display()))
}
