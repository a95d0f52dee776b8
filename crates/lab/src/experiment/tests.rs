//! Every experiment at a tiny size: its files are sound, and its check can fail.

use std::env;

use super::report::Page;
use super::table::Cell;
use super::verdict::Stand;
use super::{EXPERIMENTS, Experiment, Setting, Table};

fn tiny() -> Setting {
    Setting { packets: 40_000, rounds: 1, most_bytes: 1 << 20, factor: 16, ..Setting::quick() }
}

/// Names are there once, and are fit for files.
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

/// Elements are closed in the order in which they were opened, and no number is missing.
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
    assert!(
        svg.contains("<path class=\"line") || svg.contains("<rect x="),
        "{name}: nothing is drawn"
    );
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

/// What the check says of tables that were doctored.
fn doctored(experiment: &Experiment, table: &Table) -> Vec<Stand> {
    let mut random = fastrand::Rng::with_seed(1);
    let stands = (0..400).map(|turn| {
        let mut doctored = table.clone();
        for cell in doctored.cells_mut() {
            if let Cell::Number(number) = cell {
                // From a little off to anything.
                *number *= 2_f64.powf((random.f64() - 0.5) * f64::from(turn) / 10.0);
            }
        }
        (experiment.judge)(&doctored).stand
    });
    stands.collect()
}

/// Measures it; its files are sound, and its check can fail. One that is skipped is fine.
fn check(experiment: &'static Experiment, setting: &Setting) {
    let name = experiment.name;
    let page = match Page::measure(experiment, setting, "--quick") {
        Ok(page) => page,
        Err(crate::failure::Failure::Skipped(_)) => return,
        Err(failure) => panic!("{name}: {failure}"),
    };
    let table = page.table();
    assert_rectangular(table, name);
    assert_well_formed(&page.picture(), name);
    let text = page.page();
    for wanted in ["**Claim.**", "**Limit.**", "Repeat: ", "Noise: ", name] {
        assert!(text.contains(wanted), "{name}: {text}");
    }
    // Every chart draws columns that are there.
    for chart in experiment.charts {
        let columns = chart.y.iter().map(|(column, _)| *column).chain([chart.x, chart.series]);
        for column in columns {
            assert!(table.columns().contains(&column), "{name}: no column {column}");
        }
    }
    let stands = doctored(experiment, table);
    assert!(stands.contains(&Stand::Contradicted), "{name}: the check cannot fail");
    let empty = Table::empty_of(table);
    let stand = (experiment.judge)(&empty).stand;
    assert!(stand != Stand::Confirmed, "{name}: {stand} by no numbers");
}

#[test]
fn every_experiment_runs_and_its_check_can_fail() {
    for experiment in EXPERIMENTS {
        check(experiment, &tiny());
    }
}

/// The shortest of those that need an Open vSwitch, whose folder `FLOWGAUGE_SWITCH` names; skipped without.
#[test]
fn a_switch_is_measured() {
    let Some(switch) = env::var_os("FLOWGAUGE_SWITCH") else { return };
    let setting = Setting { switch: Some(switch.into()), ..tiny() };
    check(&super::switch::NITRO_FIG2, &setting);
    check(&super::switch::SKIPPER_FIG5, &setting);
}
