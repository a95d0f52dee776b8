//! FlowRegulator before all tables. Its error is tested together with InstaMeasure's.

use flowgauge_core::catalog;
use flowgauge_core::catalog::stored::encode;
use flowgauge_core::key::{FlowKey, Key4, Key8, Key16, Key37};
use flowgauge_core::summary::codec::DecodeErrorKind;
use flowgauge_core::summary::{Answers, Options, Parameters};

use super::ask::decode_and_use;
use super::build;
use super::stream::{feed, key, packets};

const NAME: &str = "flow-regulator";
const BYTES: usize = 128 << 10;

fn small() -> (&'static str, Parameters) {
    (NAME, Parameters::new([("sketch", 512)]))
}

/// The listed flows with their sizes.
fn listed(answers: &dyn Answers) -> Vec<(Vec<u8>, String)> {
    let mut all = Vec::new();
    answers.candidates().unwrap().for_each(&mut |key, size| {
        all.push((key.as_bytes().to_vec(), format!("{size:?}")));
    });
    all.sort();
    all
}

/// With one seed, the same packets are let through for any key and table.
fn equals_insta_measure<K: FlowKey>() {
    let stream = packets(20_000, 300, 5);
    let options = Options::new(BYTES, 1);
    let mut insta =
        build::<K>(None, "insta-measure", &options.clone().with([("sketch", 512)])).unwrap();
    feed(&mut *insta, &stream, 256);
    for name in catalog::able(NAME) {
        let mut summary = build::<K>(Some(small()), name, &options).unwrap();
        feed(&mut *summary, &stream, 100);
        let [one, other] = [&summary, &insta].map(|summary| summary.answers().size().unwrap());
        for flow in 0..=300 {
            let key = key::<K>(flow);
            assert_eq!(
                one.estimate(key.canonical(K::BYTES)),
                other.estimate(key.canonical(K::BYTES)),
                "{name}"
            );
        }
        assert_eq!(listed(summary.answers()), listed(insta.answers()), "{name}");
        assert!(summary.memory_bytes() <= BYTES, "{name}: {}", summary.memory_bytes());
    }
}

#[test]
fn a_table_behind_it_is_insta_measure() {
    equals_insta_measure::<Key4>();
    equals_insta_measure::<Key8>();
    equals_insta_measure::<Key16>();
    equals_insta_measure::<Key37>();
}

/// Sizes are at least the number of packets let through.
#[test]
fn an_aggregator_behind_it_changes_nothing() {
    let stream = packets(20_000, 300, 5);
    let options = Options::new(BYTES, 1);
    let aggregator = ("agg-evict".to_owned(), Parameters::new([("rows", 1)]));
    let (name, parameters) = small();
    let regulator = (name.to_owned(), parameters);
    let mut both =
        catalog::build_accelerated::<Key8>(&[regulator, aggregator], "linear-table", &options)
            .unwrap();
    let mut alone = build::<Key8>(Some(small()), "linear-table", &options).unwrap();
    for summary in [&mut both, &mut alone] {
        feed(&mut **summary, &stream, 256);
    }
    let [both, alone] = [&both, &alone].map(|summary| summary.answers().size().unwrap());
    for flow in 0..=300 {
        let key = key::<Key8>(flow);
        assert_eq!(
            both.estimate(key.canonical(Key8::BYTES)),
            alone.estimate(key.canonical(Key8::BYTES))
        );
    }
}

/// Packets that are held back belong to their epoch; the next epoch is like the first.
#[test]
fn an_epoch_begins_without_packets() {
    let stream = packets(20_000, 300, 5);
    for state in ["counter", "ewma"] {
        let options = Options::new(BYTES, 1).with([("state", state)]);
        let mut summary = build::<Key8>(Some(small()), "linear-table", &options).unwrap();
        feed(&mut *summary, &stream, 256);
        let first = listed(summary.answers());
        assert!(first.len() > 20, "{state}: {}", first.len());
        summary.next_epoch();
        assert_eq!(listed(summary.answers()), [], "{state}");
        let nobody =
            summary.answers().size().unwrap().estimate(key::<Key8>(0).canonical(Key8::BYTES));
        assert!(nobody.packets.unwrap().high <= 0.0, "{state}");
        feed(&mut *summary, &stream, 100);
        assert_eq!(listed(summary.answers()), first, "{state}");
    }
}

#[test]
fn other_summaries_than_tables_are_refused_with_the_reason() {
    let refusal = |accelerators: &[&str], name: &str, parameter: Option<(&str, &str)>| {
        let options = Options::new(1 << 20, 1).with(parameter);
        let accelerators: Vec<_> =
            accelerators.iter().map(|name| ((*name).to_owned(), Parameters::default())).collect();
        let error = catalog::build_accelerated::<Key4>(&accelerators, name, &options).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    let tables = ["linear-table", "indirect-table", "cuckoo-1", "cuckoo-4"];
    assert_eq!(catalog::able(NAME), tables);
    for info in catalog::ALGORITHMS.iter().filter(|info| !tables.contains(&info.name)) {
        let refused = refusal(&[NAME], info.name, None);
        assert!(refused.contains("it needs a flow table"), "{refused}");
        let able =
            "it supports linear-table, indirect-table, cuckoo-1, cuckoo-4, with their default";
        assert!(refused.contains(able), "{refused}");
    }
    let distinct = refusal(&[NAME], "linear-table", Some(("state", "distinct")));
    assert!(distinct.contains("it does not accept weighted updates"), "{distinct}");
    assert_eq!(refusal(&[NAME], "linear-table", Some(("state", "ewma"))), "");
    // Behind it the order of packets matters, for any table.
    let before = refusal(&["agg-evict", NAME], "linear-table", None);
    assert!(
        before.contains("agg-evict cannot stand before flow-regulator: it depends on the order"),
        "{before}"
    );
    for sampler in ["skipper", "uniform"] {
        let two = refusal(&[sampler, NAME], "linear-table", None);
        assert!(two.contains("cannot stand before flow-regulator: one sample is enough"), "{two}");
        let two = refusal(&[NAME, "agg-evict", sampler], "linear-table", None);
        assert!(two.contains("flow-regulator cannot stand before"), "{two}");
    }
    assert_eq!(refusal(&[NAME, "agg-evict"], "linear-table", None), "");
    for parameter in ["sketch=32", "sketch=1000", "word=16", "levels=2"] {
        let (name, value) = parameter.split_once('=').unwrap();
        let accelerators = [(NAME.to_owned(), Parameters::new([(name, value)]))];
        let options = Options::new(1 << 20, 1);
        let error = catalog::build_accelerated::<Key4>(&accelerators, "cuckoo-4", &options).err();
        let error = error.unwrap().to_string();
        assert!(error.starts_with(&format!("'{name}={value}' is not ")), "{error}");
    }
}

/// With any byte changed, the stored form is refused, or decodes without harm.
#[test]
fn no_bytes_do_harm() {
    let options = Options::new(BYTES, 1).with([("buckets", 64)]);
    let mut summary = build::<Key4>(Some(small()), "linear-table", &options).unwrap();
    feed(&mut *summary, &packets(8000, 100, 13), 256);
    let info = catalog::info("linear-table").unwrap();
    let stored = encode(info, &options, &*summary);
    let mut used = 0;
    for at in 0..stored.len() - 4 {
        for mask in [1, 0x80, 0xff] {
            let mut bytes = stored.clone();
            bytes[at] ^= mask;
            let end = bytes.len() - 4;
            let checksum = crc32fast::hash(&bytes[..end]);
            bytes[end..].copy_from_slice(&checksum.to_le_bytes());
            used += u32::from(decode_and_use::<Key4>(&bytes, BYTES).is_ok());
        }
    }
    assert!(used > 1000, "{used}");
    for end in 0..stored.len() {
        let cut = decode_and_use::<Key4>(&stored[..end], BYTES).unwrap_err();
        assert!(matches!(
            cut.kind(),
            DecodeErrorKind::Cut { .. } | DecodeErrorKind::Invalid { .. }
        ));
    }
}
