//! What comes of experiments: a table, a picture and a page of each, and a report of all.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use super::setting::{Setting, Trace};
use super::verdict::{Stand, Verdict};
use super::{EXPERIMENTS, Experiment, Outcome, svg};
use crate::args::Run;
use crate::failure::Failure;
use crate::machine;

/// The name that stands for every experiment.
const ALL: &str = "all";

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
        println!("{} ({seconds:.1} s): {}", experiment.name, page.verdict.sentence());
        page.verdict.lines().for_each(|line| println!("  {line}"));
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
        let noise = machine::noise();
        let outcome = (experiment.measure)(setting)?;
        let verdict = (experiment.judge)(&outcome.table);
        Ok(Self { experiment, outcome, verdict, noise, options: options.to_owned() })
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
        let Experiment { name, title, paper, claim, .. } = experiment;
        let stem = stem(name);
        let mut page = format!(
            "# {name}: {title}\n\n{paper}\n\n**Claim.** {claim}\n\n\
             **{}.**\n",
            verdict.sentence()
        );
        for line in verdict.lines() {
            let _ = writeln!(page, "- {line}");
        }
        let _ = writeln!(page, "\n![{title}]({stem}.svg)\n\n**Limit.** {}\n", outcome.limit);
        if !outcome.notes.is_empty() {
            let _ = writeln!(page, "**Note.** {}\n", outcome.notes);
        }
        let _ = writeln!(
            page,
            "Numbers: [{stem}.tsv]({stem}.tsv). Repeat: `flowgauge-lab run {name} {options}`. \
             Noise: the same arithmetic took {:.1} % longer than at best in the median, and {:.0} % in \
             one of a hundred.\nMachine: {}; {}.",
            100.0 * noise.0,
            100.0 * noise.1,
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
    let mut stands = Vec::new();
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
        let stand = Stand::ALL.into_iter().find(|stand| page.contains(&format!("\n**{stand}: ")));
        let stand = stand.unwrap_or(Stand::Open);
        stands.push(stand);
        // The anchor that Markdown makes of the heading.
        let heading = page.lines().next().unwrap_or_default().trim_start_matches("# ");
        let anchor: String = heading
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let _ = writeln!(rows, "| [{name}](#{anchor}) | {title} | {stand} |");
        let links = page.replace(&format!("]({stem}."), &format!("]({here}/{stem}."));
        let _ = writeln!(sections, "\n#{}", links.trim_end());
    }
    let count = |stand| stands.iter().filter(|one| **one == stand).count();
    Ok(format!(
        "# The papers' figures on this engine\n\n\
         Written by `flowgauge-lab run`, from the pages in `{here}/`; each names the command and the machine of \
         its own run. Each section says what a paper claims, what was measured here, and whether the claim \
         stands on this machine: {} do, {} do not, {} are open. Verdicts are computed from the numbers; times \
         that differ by less than 3 % are not told apart.\n\n\
         | figure | what | verdict |\n|---|---|---|\n{rows}{sections}",
        count(Stand::Confirmed),
        count(Stand::Contradicted),
        count(Stand::Open)
    ))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(Failure::of(path.display()))
}
