//! The catalog's outline of a summary answers what the built summary answers.

use flowgauge_core::accelerator::AcceleratorInfo;
use flowgauge_core::catalog::{self, ACCELERATORS, ALGORITHMS, Outline};
use flowgauge_core::key::{CanonicalKey, FlowKey, Key4, Key8, Key16, Key37};
use flowgauge_core::summary::{Answers, Info, Options, Parameters, Quantiles};
use flowgauge_core::terms::{Hierarchy, Measure};

/// The capabilities that tasks and workers check before the first packet.
fn shape(answers: &dyn Answers, key_bytes: usize) -> String {
    let any = &[0; CanonicalKey::MAX_BYTES][..key_bytes];
    let size = answers.size().map(|size| {
        let size = size.estimate(any);
        [size.packets.is_some(), size.bytes.is_some()]
    });
    let logs = [Measure::Packets, Measure::Bytes].map(|by| answers.weight_logs(by).is_some());
    let cells = answers.cells().map(|cells| (cells.measure(), cells.sampled()));
    let prefixes = answers.prefixes().map(|prefixes| (prefixes.measure(), prefixes.hierarchy()));
    format!(
        "flows: {}, size: {size:?}, candidates: {}, cardinality: {}, weight logs: {logs:?}, \
         distribution: {}, quantiles: {:?}, spread: {}, forecasts: {}, cells: {cells:?}, \
         prefixes: {prefixes:?}",
        answers.flows().is_some(),
        answers.candidates().is_some(),
        answers.cardinality().is_some(),
        answers.distribution().is_some(),
        answers.quantiles().map(Quantiles::of),
        answers.spread().is_some(),
        answers.forecasts().is_some(),
    )
}

type Before = Vec<(String, Parameters)>;

/// Accelerators, alone and in pairs, with default parameters and with some that pass on everything.
fn stacks() -> Vec<Before> {
    let one = |info: &AcceleratorInfo| (info.name.to_owned(), Parameters::default());
    let mut all: Vec<Before> = vec![Vec::new()];
    for info in ACCELERATORS {
        all.push(vec![one(info)]);
        all.extend(ACCELERATORS.iter().map(|other| vec![one(info), one(other)]));
    }
    let with = |name: &str, parameter, value| {
        vec![(name.to_owned(), Parameters::new([(parameter, value)]))]
    };
    all.extend([
        with("nitro", "p", "1"),
        with("nitro", "mode", "correct"),
        with("nitro", "mode", "line-rate"),
        with("uniform", "sample", "1"),
        with("skipper", "l2", "own"),
    ]);
    all
}

/// The parameters of each form, and some that change no answer.
fn parameters(info: &Info) -> Vec<Parameters> {
    let mut all: Vec<Parameters> =
        info.forms.iter().map(|form| Parameters::new(form.parameters.iter().copied())).collect();
    if info.parameters.iter().any(|parameter| parameter.name == "layout") {
        all.push(Parameters::new([("state", "ewma"), ("layout", "inline")]));
    }
    all
}

/// How many summaries were built, and how many refused.
#[derive(Default)]
struct Seen {
    built: usize,
    refused: usize,
}

fn compare<K: FlowKey>(key_bytes: usize, info: &Info, seen: &mut Seen) {
    let asked = [
        (Measure::Packets, Hierarchy::Bytes, 128),
        (Measure::Bytes, Hierarchy::Pair, 128),
        (Measure::Packets, Hierarchy::Bits, 1 << 20),
    ];
    for (by, hierarchy, spread) in asked {
        for parameters in parameters(info) {
            for before in stacks() {
                let options = Options {
                    parameters: parameters.clone(),
                    by,
                    hierarchy,
                    spread,
                    ..Options::new(1 << 20, 1).for_keys(key_bytes)
                };
                let case = format!("{before:?} {} {parameters:?} {by:?} {key_bytes}", info.name);
                let outline = Outline::new(key_bytes, &before, info.name, &options);
                let built = catalog::build_accelerated::<K>(&before, info.name, &options);
                match (outline, built) {
                    (Ok(outline), Ok(built)) => {
                        let said = shape(&outline, key_bytes);
                        assert_eq!(said, shape(built.answers(), key_bytes), "{case}");
                        let elements = outline.spread().is_some();
                        assert!(!elements || built.wants_elements(), "{case}");
                        seen.built += 1;
                    }
                    (Err(said), Err(refused)) => {
                        assert_eq!(said.to_string(), refused.to_string(), "{case}");
                        seen.refused += 1;
                    }
                    (Ok(_), Err(refused)) => panic!("{case}: not built, {refused}"),
                    (Err(said), Ok(_)) => panic!("{case}: built, though {said}"),
                }
            }
        }
    }
}

#[test]
fn an_outline_gives_the_answers_of_the_summary() {
    let mut seen = Seen::default();
    for info in ALGORITHMS {
        compare::<Key4>(4, info, &mut seen);
        compare::<Key8>(8, info, &mut seen);
        compare::<Key16>(13, info, &mut seen);
        compare::<Key16>(16, info, &mut seen);
        compare::<Key37>(32, info, &mut seen);
        compare::<Key37>(37, info, &mut seen);
    }
    assert!(seen.built > 1000 && seen.refused > 1000, "{} {}", seen.built, seen.refused);
}

/// A concurrent summary answers what its outline says, or is refused alike.
#[test]
fn an_outline_gives_the_answers_of_a_concurrent_summary() {
    let mut seen = Seen::default();
    for info in ALGORITHMS {
        for parameters in parameters(info) {
            let options = Options { parameters, ..Options::new(1 << 20, 1).for_keys(16) };
            let case = format!("{} {:?}", info.name, options.parameters);
            let outline = Outline::concurrent(16, info.name, &options);
            match (outline, catalog::build_concurrent::<Key16>(info.name, &options)) {
                (Ok(outline), Ok(built)) => {
                    let answers = built.ordinary().answers();
                    assert_eq!(shape(&outline, 16), shape(answers, 16), "{case}");
                    seen.built += 1;
                }
                (Err(said), Err(refused)) => {
                    assert_eq!(said.to_string(), refused.to_string(), "{case}");
                    seen.refused += 1;
                }
                (said, _) => panic!("{case}: {:?}", said.err()),
            }
        }
    }
    assert!(seen.built >= catalog::CONCURRENT.len() && seen.refused > 30, "{}", seen.refused);
}

/// The first form is the default, and no two forms have the same parameters.
#[test]
fn forms_are_told_apart_by_their_parameters() {
    for info in ALGORITHMS {
        assert!(info.forms[0].parameters.is_empty(), "{}", info.name);
        for form in info.forms {
            let asked = info.form(&Parameters::new(form.parameters.iter().copied()));
            assert!(std::ptr::eq(asked, form), "{} {:?}", info.name, form.parameters);
        }
    }
}
