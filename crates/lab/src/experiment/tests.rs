//! Runs every experiment at a tiny size: its files are valid, and its checks can fail.

use std::path::Path;
use std::{env, fs};

use super::chart::Mark;
use super::part::Checked;
use super::report::{Page, compose, is_done, judge};
use super::svg;
use super::table::Cell;
use super::verdict::{Finding, Judged};
use super::{EXPERIMENTS, Experiment, Ours, Setting, Table, presets};
use crate::args::Judge;

fn tiny() -> Setting {
    Setting { packets: 40_000, rounds: 1, most_bytes: 1 << 20, factor: 16, ..Setting::quick() }
}

/// The experiment of this name.
fn named(name: &str) -> &'static Experiment {
    EXPERIMENTS.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("there is no {name}"))
}

/// Names are unique, and usable as file names.
#[test]
fn names_are_unique() {
    let mut names: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let fit = |name: &str| name.split('/').all(|part| !part.is_empty() && part.chars().all(plain));
    assert!(names.iter().all(|name| fit(name)), "{names:?}");
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

/// Differences have a reason, and every figure has parameters.
#[test]
fn presets_say_why_they_differ() {
    for Experiment { name, presets, .. } in EXPERIMENTS {
        for preset in *presets {
            let cells = preset.cells();
            assert_eq!(preset.why.is_empty(), matches!(preset.ours, Ours::Same), "{name}: {cells}");
            assert_eq!(cells.matches('|').count(), 3, "{name}: {cells}");
        }
    }
    let table = presets();
    assert!(
        table.contains("| epoch | 2 million packets | 1 million packets (`--quick`), 2 million")
    );
}

/// Elements are properly nested, and no number is missing.
fn assert_well_formed(svg: &str, name: &str) {
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let Some((tag, text)) = tag.split_once('>') else { panic!("{name}: '<{tag}' has no end") };
        assert!(!text.contains('>') && tag.matches('"').count().is_multiple_of(2), "{name}: {tag}");
        match tag.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop(), Some(closed), "{name}"),
            None if tag.ends_with('/') => {}
            None => open.extend(tag.split_whitespace().next()),
        }
    }
    assert!(open.is_empty(), "{name}: {open:?} are open");
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}: a number is none");
}

fn assert_rectangular(table: &Table, name: &str) {
    let mut out = Vec::new();
    assert!(table.write(&mut out).is_ok());
    let text = String::from_utf8_lossy(&out);
    let cells = |line: &str| line.split('\t').count();
    let columns = text.lines().next().map_or(0, cells);
    assert!(columns > 1 && text.lines().count() > 1, "{name}: {text}");
    assert!(text.lines().all(|line| cells(line) == columns), "{name}: {text}");
}

/// Doctors a table at random: numbers of one column, or of all, in one row, in all rows, or in
/// those with one text, change by a factor, or by one that grows from row to row, or become equal. What
/// is not positive may become so: in noise, a measurement may seem to lose less than nothing.
fn doctor(table: &mut Table, random: &mut fastrand::Rng) {
    let rows = table.cells_mut();
    let Some(columns) = rows.first().map(Vec::len) else { return };
    let (column, pick) = (random.usize(0..columns), random.usize(0..rows.len()));
    let text = random.choice(&rows[pick]).filter(|cell| matches!(cell, Cell::Text(_))).cloned();
    let (alone, every) = (random.bool(), random.u8(0..4) == 0);
    let (appears, alike) = (random.u8(0..8) == 0, random.u8(0..8) == 0);
    let mut factor = 2_f64.powf(12.0 * (random.f64() - 0.5) * random.f64());
    let growth = if random.bool() { 1.0 } else { 2_f64.powf(2.0 * (random.f64() - 0.5)) };
    let like = rows[pick][column].clone();
    for (at, row) in rows.iter_mut().enumerate() {
        let chosen = match &text {
            Some(text) => row.contains(text),
            None => !alone || at == pick,
        };
        for (number_of, cell) in row.iter_mut().enumerate() {
            let Cell::Number(number) = cell else { continue };
            if !chosen || number_of != column && !every {
                continue;
            }
            match &like {
                Cell::Number(like) if alike && !every => *number = *like,
                _ if *number <= 0.0 && appears => *number = factor,
                _ => *number *= factor,
            }
        }
        if chosen {
            factor *= growth;
        }
    }
}

#[test]
fn a_loss_below_zero_can_be_doctored() {
    let mut table = Table::new(["lost_percent"]);
    table.push([Cell::Number(-3.0)]);
    let nearness = |table: &Table| {
        let lost = table.clone().cells_mut()[0][0].clone();
        f64::from(u8::from(matches!(lost, Cell::Number(lost) if lost >= 20.0)))
    };
    assert!(is_found(&table, &nearness, 1));
}

/// A wanted finding for a claim, with a distance function: 1 if the table shows it.
type Wanted = (&'static str, fn(&Judged) -> f64);

/// The share of parts that hold, or of those that fail, if only one has to.
fn share(parts: &[Checked]) -> f64 {
    let holding = parts.iter().filter(|part| part.holds == Some(true)).count();
    holding as f64 / parts.len().max(1) as f64
}

fn fails(parts: &[Checked]) -> f64 {
    f64::from(u8::from(parts.iter().any(|part| part.holds == Some(false))))
}

const REPRODUCED: Wanted = ("reproduced", |claim| share(&claim.ours));
// A part of the baseline counts twice, so that the search never gives one up for a failing check of the
// same structure.
const ON_BASELINE: Wanted = ("on the baseline only", |claim| {
    let seen = f64::from(u8::from(matches!(claim.finding, Finding::OnBaseline(_))));
    let parts = 2.0 * claim.baseline.len() as f64;
    (fails(&claim.ours) + parts * share(&claim.baseline) + seen) / (2.0 + parts)
});
const CONTRADICTED: Wanted = ("contradicted", |claim| {
    let seen = f64::from(u8::from(matches!(claim.finding, Finding::Contradicted { .. })));
    f64::midpoint(fails(&claim.ours), seen)
});

/// Maximum number of searches, of doctored tables in each, and of steps from the nearest one. A search may end
/// where no step comes nearer.
const SEARCHES: u64 = 4;
const TRIES: usize = 20_000;
const STEPS: usize = 3;

/// Whether some doctored table shows a wanted finding of a claim.
fn is_seen(experiment: &Experiment, table: &Table, claim: usize, (_, near): Wanted) -> bool {
    let nearness = |table: &Table| (experiment.judge)(table).claims.get(claim).map_or(0.0, near);
    (0..SEARCHES).any(|search| is_found(table, &nearness, claim as u64 + (search << 32)))
}

/// Doctors a table until it shows a finding, keeping changes that come nearer.
fn is_found(table: &Table, nearness: &impl Fn(&Table) -> f64, seed: u64) -> bool {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut best = table.clone();
    let (mut nearest, mut current, mut steps) = (nearness(&best), best.clone(), 0);
    for _ in 0..TRIES {
        if nearest >= 1.0 {
            return true;
        }
        let mut doctored = current.clone();
        doctor(&mut doctored, &mut random);
        let now = nearness(&doctored);
        if now > nearest {
            (best, nearest) = (doctored.clone(), now);
            (current, steps) = (doctored, 0);
        } else if steps < STEPS {
            (current, steps) = (doctored, steps + 1);
        } else {
            (current, steps) = (best.clone(), 0);
        }
    }
    nearest >= 1.0
}

/// Panels are not crowded, charts have a sentence, and the paper's numbers belong to drawn series.
fn assert_fits_its_charts(experiment: &Experiment, table: &Table) {
    let name = experiment.name;
    for chart in experiment.charts {
        assert!(svg::most_lines(chart, table) <= 4, "{name}, {}: crowded", chart.title);
        assert!(chart.see.ends_with('.') && !chart.y_axis.label.is_empty(), "{name}: {chart:?}");
        let of_series = chart.paper.iter().filter(|mark| !matches!(mark, Mark::Level(..)));
        assert_eq!(chart.marks(table).len(), of_series.count(), "{name}, {}", chart.title);
    }
}

/// How often an experiment is measured until something can be drawn: other processes may disturb all that it
/// measures.
const ATTEMPTS: usize = 5;

/// Measures an experiment; `None` if it is skipped.
fn measured(experiment: &'static Experiment, setting: &Setting) -> Option<Page> {
    let name = experiment.name;
    for _ in 0..ATTEMPTS {
        let page = match Page::measure(experiment, setting, "--quick") {
            Ok(page) => page,
            Err(crate::failure::Failure::Skipped(_)) => return None,
            Err(failure) => panic!("{name}: {failure}"),
        };
        let svg = page.picture();
        assert_well_formed(&svg, name);
        if svg.contains("<path class=\"line") || svg.contains("<rect x=") {
            return Some(page);
        }
    }
    panic!("{name}: nothing is drawn");
}

/// Measures an experiment and checks its files. Returns findings that its claims never show.
/// Skipped experiments pass.
fn check(experiment: &'static Experiment, setting: &Setting) -> Vec<String> {
    let mut unseen = Vec::new();
    let name = experiment.name;
    let Some(page) = measured(experiment, setting) else { return unseen };
    let table = page.table();
    assert_rectangular(table, name);
    let text = page.page();
    for wanted in ["**Verdict.** ", "\n1. **", "**Limit.**", "Repeat: ", "Noise: ", name] {
        assert!(text.contains(wanted), "{name}: {text}");
    }
    // Every chart draws existing columns.
    for chart in experiment.charts {
        let columns = chart.y.iter().map(|(column, _)| *column).chain([chart.x, chart.series]);
        for column in columns {
            assert!(table.has(column), "{name}: no column {column}");
        }
    }
    assert_fits_its_charts(experiment, table);
    // However unsteady the machine is.
    let steady = table.steady();
    for (number, claim) in (experiment.judge)(table).claims.iter().enumerate() {
        let with_baseline = (!claim.baseline.is_empty()).then_some(ON_BASELINE);
        for wanted in [REPRODUCED, CONTRADICTED].into_iter().chain(with_baseline) {
            if !is_seen(experiment, &steady, number, wanted) {
                unseen.push(format!(
                    "{name}: claim {} is never {}: {claim:?}",
                    number + 1,
                    wanted.0
                ));
            }
        }
    }
    for claim in (experiment.judge)(&Table::empty_of(table)).claims {
        assert!(matches!(claim.finding, Finding::Untold), "{name}: {claim:?} by no numbers");
    }
    unseen
}

/// Experiments run one by one, are skipped if already done, judged again from their files, and
/// combined in one report.
#[test]
fn runs_are_resumed_and_merged() {
    let folder = env::temp_dir().join(format!("flowgauge-lab-{}", std::process::id()));
    let both = [named("agg-evict/fig4"), named("insta-measure/fig8")];
    assert!(fs::create_dir_all(&folder).is_ok());
    for experiment in both {
        let page = Page::measure(experiment, &tiny(), "--quick");
        let Ok(page) = page.and_then(|page| page.and_again(&tiny())) else { panic!("none") };
        assert!(page.write(&folder).is_ok() && compose(&folder, &[]).is_ok());
        let done = |options| is_done(experiment, &folder, options).ok();
        assert_eq!([done("--quick"), done("--full")], [Some(true), Some(false)]);
    }
    assert_eq!(is_done(named("skipper/fig3"), &folder, "--quick").ok(), Some(false));
    let report = folder.with_extension("md");
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let files = |folder: &Path| -> Vec<String> {
        let names = ["agg-evict-fig4.md", "agg-evict-fig4.svg", "insta-measure-fig8.md"];
        names.iter().map(|name| read(&folder.join(name))).chain([read(&report)]).collect()
    };
    let before = files(&folder);
    let all = Judge { names: vec!["all".to_owned()], folder: folder.clone() };
    assert!(judge(&all).is_ok());
    assert_eq!(files(&folder), before);
    for wanted in [
        "# agg-evict/fig4",
        "# insta-measure/fig8",
        "| skipper/fig3 | the error behind",
        "/again/agg-evict-fig4.seed-3.tsv) | reproduced |",
    ] {
        assert!(before[3].contains(wanted), "{wanted}");
    }
    // Other numbers give another verdict, and a damaged file is rejected.
    let table = folder.join("agg-evict-fig4.tsv");
    let numbers = read(&table);
    let (head, _) = numbers.split_once('\n').unwrap_or_default();
    assert!(fs::write(&table, format!("{head}\ntrace\t10\t30\t10\t5\n")).is_ok());
    assert!(judge(&all).is_ok() && read(&report).contains("30 (at least 50)"));
    assert!(fs::write(&table, format!("{head}\ntrace\t10\n")).is_ok());
    let refused = judge(&all).err().map(|failure| failure.to_string()).unwrap_or_default();
    assert!(refused.contains("agg-evict-fig4.tsv: rows differ in length"), "{refused}");
    assert!(fs::remove_dir_all(&folder).is_ok() && fs::remove_file(&report).is_ok());
}

/// Repetitions refer to experiments, and differ from the original setting.
#[test]
fn repetitions_differ_from_known_experiments() {
    for (name, again) in super::setting::REPETITIONS {
        assert!(EXPERIMENTS.iter().any(|experiment| experiment.name == *name), "{name}");
        for again in *again {
            let (first, then) = (tiny(), again.setting(&tiny()));
            assert!((first.seed, first.profile) != (then.seed, then.profile), "{again:?}");
        }
    }
}

/// Claims that cannot be measured here are listed, and are few.
#[test]
fn little_is_not_comparable() {
    let missing: Vec<_> = EXPERIMENTS.iter().flat_map(|experiment| experiment.missing).collect();
    assert!(missing.len() <= 5, "{missing:?}");
    assert!(missing.iter().all(|one| !one.says.is_empty() && !one.needs.is_empty()));
}

/// Two tests take every second experiment each, so that both cores have work.
#[test]
fn every_experiment_runs_and_its_check_can_fail() {
    assert_checked(EXPERIMENTS.iter().copied().step_by(2));
}

#[test]
fn every_other_experiment_runs_and_its_check_can_fail() {
    assert_checked(EXPERIMENTS.iter().copied().skip(1).step_by(2));
}

fn assert_checked(experiments: impl Iterator<Item = &'static Experiment>) {
    let unseen: Vec<String> =
        experiments.flat_map(|experiment| check(experiment, &tiny())).collect();
    assert!(unseen.is_empty(), "{}", unseen.join("\n"));
}

/// The shortest experiment with an Open vSwitch, whose folder is in `FLOWGAUGE_SWITCH`; skipped
/// without.
#[test]
fn a_switch_is_measured() {
    let Some(switch) = env::var_os("FLOWGAUGE_SWITCH") else { return };
    let setting = Setting { switch: Some(switch.into()), ..tiny() };
    for experiment in ["switch/nitro-fig2", "switch/skipper-fig5"].map(named) {
        // A mirror needs a flowgauge with DPDK; without it, its claim has no rows to doctor.
        let mut unseen = check(experiment, &setting);
        unseen.retain(|claim| !claim.contains("nothing was measured"));
        assert_eq!(unseen, [""; 0]);
    }
}
