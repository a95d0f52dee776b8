//! The accuracy measurement: every case on every stream.

pub(crate) mod gate;
pub(crate) mod plan;
pub(crate) mod table;

use flowgauge_core::key::KeyKind;
use flowgauge_core::task::{EpochContext, Lists};
use flowgauge_core::terms::{Measure, Size, Threshold};
use flowgauge_kernel::{Digester, Isa, Seed};

use crate::args::Selection;
use crate::failure::Failure;
use crate::keys::{Destinations, FiveTuples, Keys, Pairs, Sources};
use crate::score::{Score, Truth, judge};
use crate::traffic::{Packet, Scene, keyed};
use crate::trial::{THRESHOLD, Trial};
use plan::{Case, Form, KINDS, Profile};
use table::Row;

/// Number of flows in `top`.
const TOP: usize = 100;

/// Maximum number of flows in `changes`: more than exist.
const MOST_CHANGES: usize = 10_000;

/// Minimum number of confidence bounds per row, if it has any: of 20 bounds at 95 % the gate allows
/// 8 failures. More seeds are added to reach it, up to a limit.
const ENOUGH_BOUNDS: u64 = 20;
const MOST_SEEDS: u64 = 20;

/// A case on one profile, with its results.
struct Outcome {
    case: Case,
    score: Score,
    /// Number of measured streams.
    seeds: u64,
    /// Sum over the streams.
    flows: u64,
    parameters: String,
    memory_bytes: usize,
}

/// Measures everything that is selected: by algorithm, then task, then profile.
///
/// # Errors
/// When an algorithm cannot be built, or memory is refused.
pub(crate) fn rows(form: &Form, selection: &Selection) -> Result<Vec<Row>, Failure> {
    let cases = plan::cases(&plan::all(selection))?;
    let mut by_profile = Vec::new();
    for profile in &form.profiles {
        let outcome = |&case| Outcome {
            case,
            score: Score::default(),
            seeds: 0,
            flows: 0,
            parameters: String::new(),
            memory_bytes: 0,
        };
        let mut outcomes: Vec<Outcome> = cases.iter().map(outcome).collect();
        for seed in 1..=form.seeds.max(MOST_SEEDS) {
            let mut open: Vec<&mut Outcome> =
                outcomes.iter_mut().filter(|o| seed <= form.seeds || o.lacks_bounds()).collect();
            if open.is_empty() {
                break;
            }
            eprintln!("{}, {} packets, seed {seed}", profile.name, form.packets);
            measure(&mut open, form, profile, seed)?;
        }
        by_profile.push(outcomes);
    }
    let row = |(at, profile): (usize, usize)| {
        let outcome = &by_profile[profile][at];
        row(form, form.profiles[profile].name, outcome)
    };
    let profiles = 0..form.profiles.len();
    let order = (0..cases.len()).flat_map(|at| profiles.clone().map(move |profile| (at, profile)));
    Ok(order.map(row).collect())
}

impl Outcome {
    /// Whether there are confidence bounds, but too few to judge.
    fn lacks_bounds(&self) -> bool {
        (1..ENOUGH_BOUNDS).contains(&self.score.likely.asked)
    }
}

/// Measures these cases on one stream of a profile.
fn measure(
    outcomes: &mut [&mut Outcome],
    form: &Form,
    profile: &Profile,
    seed: u64,
) -> Result<(), Failure> {
    for scene in Scene::ALL {
        if outcomes.iter().all(|outcome| outcome.case.scene != scene) {
            continue;
        }
        let epochs = scene.draw(profile.order, form.packets, THRESHOLD, seed)?;
        for kind in KINDS {
            let mut group: Vec<&mut Outcome> = outcomes
                .iter_mut()
                .map(|outcome| &mut **outcome)
                .filter(|o| (o.case.scene, o.case.kind) == (scene, kind))
                .collect();
            let stream = Stream { scene, seed, epochs: &epochs };
            match kind {
                _ if group.is_empty() => {}
                KeyKind::PAIR => stream.measure::<Pairs>(&mut group)?,
                KeyKind::FIVE_TUPLE => stream.measure::<FiveTuples>(&mut group)?,
                KeyKind::SOURCE => stream.measure::<Sources>(&mut group)?,
                _ => stream.measure::<Destinations>(&mut group)?,
            }
        }
    }
    Ok(())
}

fn row(form: &Form, profile: &str, outcome: &Outcome) -> Row {
    let Case { subject, entry, kind, .. } = outcome.case;
    let row = Row {
        algorithm: subject.name(),
        asked: subject.asked(),
        task: entry.name.to_owned(),
        profile: profile.to_owned(),
        key: kind.to_string(),
        parameters: outcome.parameters.clone(),
        memory_bytes: outcome.memory_bytes as u64,
        packets: form.packets,
        flows: outcome.flows / outcome.seeds,
        seeds: outcome.seeds,
        ..Row::default()
    };
    row.scored(&outcome.score)
}

/// Packets of one scene.
struct Stream<'a> {
    scene: Scene,
    seed: u64,
    epochs: &'a [Vec<Packet>],
}

impl Stream<'_> {
    /// Measures these cases, all of one algorithm at once.
    fn measure<K: Keys>(&self, cases: &mut [&mut Outcome]) -> Result<(), Failure> {
        let digester = Digester::new(Seed::number(self.seed), Isa::best());
        let epochs: Vec<_> = self.epochs.iter().map(|epoch| keyed::<K>(epoch, &digester)).collect();
        let truth = Truth::count::<K>(self.scene, self.epochs, &epochs, THRESHOLD);
        let asked = truth.asked();
        let contexts: Vec<EpochContext<'static>> =
            self.epochs.iter().map(|epoch| self.context(epoch)).collect();
        for cases in cases.chunk_by_mut(|a, b| a.case.subject.is(&b.case.subject)) {
            let entries: Vec<_> = cases.iter().map(|outcome| outcome.case.entry).collect();
            let subject = cases[0].case.subject;
            let mut trial = Trial::<K>::new(&subject, &entries, &asked, self.seed)?;
            let mut reports = Vec::new();
            for (epoch, context) in epochs.iter().zip(&contexts) {
                reports = trial.epoch(epoch, context);
            }
            for (outcome, report) in cases.iter_mut().zip(reports) {
                outcome.seeds += 1;
                outcome.flows += truth.flows();
                outcome.parameters = trial.parameters();
                outcome.memory_bytes = trial.memory_bytes();
                if let (Ok(report), Some(context)) = (report, contexts.last()) {
                    outcome.score.answered += 1;
                    judge(&mut outcome.score, &report, context, &truth);
                }
            }
        }
        Ok(())
    }

    fn context(&self, packets: &[Packet]) -> EpochContext<'static> {
        let bytes = packets.iter().map(|packet| u64::from(packet.wire)).sum();
        EpochContext {
            by: Measure::Packets,
            keyed: Size { packets: packets.len() as u64, bytes },
            threshold: Threshold::Share(THRESHOLD),
            lists: Lists::unlimited(if self.scene == Scene::Changes { MOST_CHANGES } else { TOP }),
            timeline: None,
        }
    }
}
