//! Questions change no later answer, though some answers are kept until the next packet.

use std::fmt::Write;

use flowgauge_core::catalog::{self, ACCELERATORS, ALGORITHMS};
use flowgauge_core::key::{FlowKey, Key8, Key16, Key37};
use flowgauge_core::summary::{Info, Options, Parameters, Summary};
use flowgauge_core::terms::Measure;

use crate::stream::{feed_keys_of, packets};
use crate::{build, for_all, small};

/// The answers that are computed from the whole summary, as text.
fn told<K: FlowKey>(summary: &dyn Summary<K>) -> String {
    let answers = summary.answers();
    let logs = [Measure::Packets, Measure::Bytes].map(|by| answers.weight_logs(by));
    let mut text = format!("{:?} {logs:?} {:?}", answers.cardinality(), answers.distribution());
    if let Some(candidates) = answers.candidates() {
        let unnamed = [Measure::Packets, Measure::Bytes].map(|by| candidates.unnamed(by));
        write!(text, " {} {unnamed:?}", candidates.overflow()).unwrap();
        candidates.for_each(&mut |key, size| write!(text, " {key:?} {size:?}").unwrap());
    }
    text
}

/// What is done to a summary, and its name.
type Change<'a, K> = (&'a str, &'a dyn Fn(&mut dyn Summary<K>));

/// Asks one summary after each change, and compares it with another that was not asked before.
fn compare<K: FlowKey, const BYTES: usize>(name: &str, build: &dyn Fn() -> Box<dyn Summary<K>>) {
    let packets = packets(6000, 900, 11);
    let changes: [Change<K>; 5] = [
        ("packets", &|summary| feed_keys_of(BYTES, summary, &packets[..2999], 256)),
        // A sampler may only count it.
        ("a packet", &|summary| feed_keys_of(BYTES, summary, &packets[2999..3000], 1)),
        ("more packets", &|summary| feed_keys_of(BYTES, summary, &packets[3000..], 256)),
        ("a merge", &|summary| {
            let mut other = build();
            feed_keys_of(BYTES, &mut *other, &packets[..2000], 256);
            // A refusal leaves the summary as it is.
            let _ = summary.merge(&*other);
        }),
        ("a new epoch", &|summary| {
            summary.clear();
            feed_keys_of(BYTES, summary, &packets[..500], 256);
        }),
    ];
    let mut asked = build();
    for (done, (what, change)) in changes.iter().enumerate() {
        change(&mut *asked);
        let mut never = build();
        for (_, change) in &changes[..=done] {
            change(&mut *never);
        }
        assert_eq!(told(&*asked), told(&*never), "{name} after {what}");
    }
}

fn questions_change_nothing<K: FlowKey, const BYTES: usize>(info: &Info) -> bool {
    if build::<K>(info, &small().for_keys(BYTES)).is_none() {
        return false;
    }
    compare::<K, BYTES>(info.name, &|| build(info, &small().for_keys(BYTES)).unwrap());
    true
}

#[test]
fn questions_change_no_later_answer() {
    for_all!(questions_change_nothing);
}

#[test]
fn questions_change_no_later_answer_behind_accelerators() {
    for accelerator in ACCELERATORS {
        for name in catalog::able(accelerator.name) {
            let options = Options::new(1 << 20, 1).for_keys(4);
            let before = [(accelerator.name.to_owned(), Parameters::default())];
            let build = || catalog::build_accelerated::<Key8>(&before, name, &options).unwrap();
            compare::<Key8, 4>(&format!("{} before {name}", accelerator.name), &build);
        }
    }
}
