//! Which snapshots can be merged, and into what.

use flowgauge_core::catalog::{self, ALGORITHMS};
use flowgauge_core::key::{CanonicalKey, KeySpec};
use flowgauge_core::summary::{Info, Merge, Parameters};
use flowgauge_core::terms::Threshold;
use flowgauge_engine::account::Account;
use flowgauge_engine::snapshot::{LaneCells, MergeError, Snapshot};
use flowgauge_engine::{Config, Plan};
use serde_json::Value;

use crate::answers::{answers_of, part};
use crate::capture::{Pcap, mixed};
use crate::golden::before_headers;
use crate::stored::measured_by;
use crate::{LIMIT, asking, only_epoch, saved, snapshot};

/// A measurement by this algorithm, of the first key that it can measure; small, and never full.
pub(crate) fn config(info: &Info) -> Config {
    let candidates = info.parameters.iter().filter(|parameter| parameter.name == "candidates");
    let base = Config {
        algorithm: info.name.to_owned(),
        parameters: Parameters::new(candidates.map(|parameter| (parameter.name, 1 << 10))),
        ..Config { tasks: None, memory_bytes: 4 << 20, save: true, ..asking(&[]) }
    };
    let keys =
        ["five-tuple", "source"].map(|key| Config { key: key.parse().unwrap(), ..base.clone() });
    let fits = |config: &Config| Plan::new(config.clone()).is_ok();
    keys.into_iter().find(fits).unwrap_or_else(|| panic!("{} measures no key", info.name))
}

/// The 300 heaviest flows of a capture.
fn heaviest(key: KeySpec, bytes: &[u8]) -> Vec<CanonicalKey> {
    let report = only_epoch(Config { key, top: 300, ..asking(&["top"]) }, bytes);
    let flow = |item: &Value| {
        let fields = item["key"].as_object().unwrap().iter();
        let fields = fields.map(|(name, value)| match value.as_str() {
            Some(address) => format!("{name}={address}"),
            None => format!("{name}={value}"),
        });
        key.parse_flow(&fields.collect::<Vec<_>>().join(",")).unwrap()
    };
    report["tasks"]["top"]["items"].as_array().unwrap().iter().map(flow).collect()
}

/// The sizes of these flows, and what is answered of all flows together.
fn told(snapshot: &mut Snapshot, exact: bool, flows: &[CanonicalKey]) -> Value {
    let mut told = Value::Null;
    let mut ask = |tasks: &[&str]| {
        for task in tasks {
            if let Ok(found) = answers_of(snapshot, &[task], flows) {
                told[task] = found["tasks"].clone();
            }
        }
        told.is_object()
    };
    // Which keys a sketch keeps as candidates depends on the order of the packets, unless it finds all of
    // them in its cells.
    let _ = ask(&["cardinality", "entropy", "size-distribution", "flow-size"]) && !exact
        || ask(&["top", "heavy-hitters", "superspreaders"]);
    told
}

/// Two halves of a capture, saved apart under one seed, add up as the catalog says: to the same answers
/// as the whole, bit for bit, where sums are equal; not at all where parts must share no flow.
#[test]
fn halves_of_a_capture_add_up_as_the_catalog_says() {
    println!("seed 81");
    let bytes = mixed(81, 3000);
    let halves = [0, 1].map(|half| part(&bytes, |at| at / 7 % 2 == half));
    let (mut equal, mut apart) = (0, 0);
    for info in ALGORITHMS {
        let config = config(info);
        let mut whole = snapshot(config.clone(), &bytes);
        let [mut sum, other] = halves.each_ref().map(|half| snapshot(config.clone(), half));
        let merge = catalog::laws(info.name, &config.parameters).unwrap().merge;
        assert_eq!(sum.adds_up(), merge != Merge::Disjoint, "{}", info.name);
        let merged = sum.merge(&other);
        if merge == Merge::Disjoint {
            let refused = merged.unwrap_err().to_string();
            assert!(refused.contains("query each"), "{}: {refused}", info.name);
            apart += 1;
            continue;
        }
        merged.unwrap_or_else(|error| panic!("{}: {error}", info.name));
        // How often time goes back depends on which packets come after each other.
        let account = |of: &Snapshot| Account { backwards: 0, ..of.account().clone() };
        assert_eq!(account(&sum), account(&whole), "{}", info.name);
        assert_eq!(sum.coverage().len(), 2);
        if merge == Merge::Equal {
            let (flows, exact) = (heaviest(config.key, &bytes), info.laws.flows);
            assert!(flows.len() > 100);
            let [sum, whole] = [&mut sum, &mut whole].map(|of| told(of, exact, &flows));
            assert!(sum.is_object(), "{} answers nothing", info.name);
            assert_eq!(sum, whole, "{}", info.name);
            equal += 1;
        }
        // Merged within bounds, they still answer something; csm has sizes of given flows only.
        let answered = sum.query(|_| (), &mut crate::Keep::default()).is_ok();
        assert_eq!(answered, info.name != "csm", "{}", info.name);
    }
    assert!(equal > 10 && apart > 0, "{equal} add up equally, {apart} not at all");
}

/// `docs/snapshot.md` names the algorithms whose sums are equal, or are none.
#[test]
fn the_page_says_how_each_algorithm_adds_up() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/snapshot.md");
    let page = std::fs::read_to_string(page).unwrap();
    let row = |law: &str| page.lines().find(|line| line.starts_with(law)).unwrap();
    for info in ALGORITHMS {
        let named = |law: &str| row(law).contains(&format!("`{}`", info.name));
        let found = (named("| equal |"), named("| disjoint only |"));
        let expected = (info.laws.merge == Merge::Equal, info.laws.merge == Merge::Disjoint);
        assert_eq!(found, expected, "{}", info.name);
    }
}

/// The order of a merge does not show in the bytes of what adds up exactly.
#[test]
fn the_order_of_a_merge_leaves_no_trace() {
    println!("seed 82");
    let bytes = mixed(82, 2000);
    let thirds: Vec<_> = (0..3)
        .map(|third| {
            let stored = saved(asking(&["top"]), &part(&bytes, |at| at % 3 == third));
            measured_by(&stored[0].bytes, "host", third as u64)
        })
        .collect();
    let read = |at: usize| Snapshot::decode(&thirds[at], LIMIT, None).unwrap();
    let merged = |order: [usize; 3]| {
        let mut sum = read(order[0]);
        order[1..].iter().for_each(|at| sum.merge(&read(*at)).unwrap());
        sum.encode()
    };
    let expected = merged([0, 1, 2]);
    assert!([[0, 2, 1], [2, 1, 0], [1, 0, 2]].into_iter().all(|order| merged(order) == expected));
}

/// The snapshot of a run on `host` whose packets begin and end at these milliseconds.
fn at_times(host: &str, run: u64, [start_ms, end_ms]: [u64; 2]) -> Snapshot {
    let mut pcap = Pcap::new();
    for ms in [start_ms, end_ms] {
        pcap.udp(1_700_000_000_000_000_000 + ms * 1_000_000, (1, 1), (2, 2));
    }
    let stored = saved(asking(&["top"]), &pcap.0);
    Snapshot::decode(&measured_by(&stored[0].bytes, host, run), LIMIT, None).unwrap()
}

#[test]
fn hosts_that_are_merged_measured_at_the_same_times() {
    const MS: u64 = 1_000_000;
    let merged = |parts: &[(&str, [u64; 2])]| {
        let mut parts = (0..).zip(parts).map(|(run, (host, times))| at_times(host, run, *times));
        let mut sum = parts.next().unwrap();
        parts.for_each(|part| sum.merge(&part).unwrap());
        sum
    };
    let needed = |parts: &[(&str, [u64; 2])], ms: u64| {
        let sum = merged(parts);
        sum.check_aligned(ms * MS).unwrap();
        if ms > 0 {
            let refused = sum.check_aligned(ms * MS - 1).unwrap_err();
            assert!(matches!(refused, MergeError::Misaligned { .. }), "{refused}");
            assert!(refused.to_string().contains("'a' covers 2023-11-14T"), "{refused}");
        }
    };
    needed(&[("a", [0, 10]), ("b", [0, 10])], 0);
    needed(&[("a", [0, 10]), ("b", [0, 13])], 3);
    needed(&[("a", [4, 10]), ("b", [0, 13]), ("c", [3, 11])], 4);
    // One host may have measured at any times, and in several runs at once.
    needed(&[("a", [0, 10]), ("a", [5, 90]), ("a", [0, 10])], 0);
    needed(&[("a", [0, 10]), ("a", [0, 10]), ("b", [0, 10])], 0);
    needed(&[("a", [0, 10]), ("a", [20, 30]), ("b", [0, 10]), ("b", [20, 31])], 1);
    let missing = merged(&[("a", [0, 10]), ("a", [20, 30]), ("b", [0, 10])]);
    let refused = missing.check_aligned(MS).unwrap_err().to_string();
    assert!(refused.contains("'a' covers 2 intervals and 'b' covers 1 interval"), "{refused}");
}

/// With the same parameters the bytes of a snapshot do not say how many workers measured, where they say
/// nothing of the order of the packets: which keys a sketch lists depends on it.
#[test]
fn the_number_of_workers_leaves_no_trace() {
    println!("seed 83");
    let bytes = mixed(83, 3000);
    let stored = |config: &Config, workers: usize| {
        let saved = saved(Config { workers, ..config.clone() }, &bytes);
        measured_by(&saved[0].bytes, "host", 7)
    };
    for (algorithm, parameters) in [
        ("linear-table", &[("buckets", 1 << 14)][..]),
        ("indirect-table", &[("buckets", 1 << 14)]),
        ("cuckoo-4", &[("buckets", 1 << 14)]),
        ("mrac", &[("columns", 4096)]),
        ("linear-counting", &[("bits", 4096)]),
        ("fm", &[("bitmaps", 64)]),
    ] {
        let config = Config {
            algorithm: algorithm.to_owned(),
            parameters: Parameters::new(parameters.iter().copied()),
            threshold: Threshold::Share(0.0),
            tasks: None,
            ..asking(&[])
        };
        let alone = stored(&config, 1);
        for workers in [2, 3] {
            assert!(stored(&config, workers) == alone, "{algorithm} with {workers} workers");
        }
    }
}

/// The keyed traffic of two samples that were drawn before headers were read adds up, with bounds that
/// hold the truth; each bound fails once in 100 seeds, and this one is fixed.
#[test]
fn samples_drawn_before_headers_add_up() {
    println!("seed 82");
    let bytes = mixed(82, 6000);
    let keyed = only_epoch(asking(&["top"]), &bytes)["account"]["keyed"].as_f64().unwrap();
    let halves = [0, 1].map(|half| part(&bytes, |at| at / 7 % 2 == half));
    let config = Config {
        accelerators: vec![("uniform".to_owned(), before_headers("10"))],
        ..asking(&["top"])
    };
    let [mut sum, other] = halves.each_ref().map(|half| snapshot(config.clone(), half));
    let of_half = answers_of(&mut sum, &["top"], &[]).unwrap()["traffic"]["high"].as_f64().unwrap();
    sum.merge(&other).unwrap();
    let again = Snapshot::decode(&sum.encode(), LIMIT, None).unwrap();
    for snapshot in &mut [sum, again] {
        let report = answers_of(snapshot, &["top"], &[]).unwrap();
        let count = |name: &str| report["account"][name].as_u64().unwrap();
        assert_eq!(count("read"), 6000);
        assert!(count("skipped") > 4800, "{report}");
        let bound = |name: &str| report["traffic"][name].as_f64().unwrap();
        assert!(bound("low") <= keyed && keyed <= bound("high"), "{keyed} {report}");
        assert!(of_half < bound("high"), "{of_half} {report}");
    }
}

const COLUMNS: usize = 256;

fn sketch(name: &str) -> Config {
    Config {
        algorithm: name.to_owned(),
        parameters: Parameters::new([("columns", COLUMNS), ("rows", 5)]),
        key: "source".parse().unwrap(),
        ..asking(&["top"])
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The estimate as a database would make it.
fn estimate(algorithm: &str, lane: &LaneCells, places: &[(usize, bool)]) -> f64 {
    let signed = |&(place, is_subtracted): &(usize, bool)| {
        if is_subtracted { -lane.cells[place] } else { lane.cells[place] }
    };
    let values = places.iter().map(signed);
    match algorithm {
        "count-min" => values.fold(f64::INFINITY, f64::min),
        "count-sketch" => median(values.collect()),
        _ => {
            let mean = lane.cells[..lane.columns].iter().sum::<f64>() / lane.columns as f64;
            let share = 1.0 / lane.columns as f64;
            median(values.map(|cell| (cell - mean) / (1.0 - share)).collect())
        }
    }
}

#[test]
fn cells_add_up_and_estimates_are_made_of_them() {
    println!("seed 81");
    let bytes = mixed(81, 4000);
    for name in ["count-min", "count-sketch", "k-ary"] {
        let mut whole = snapshot(sketch(name), &bytes);
        let halves = [0, 1]
            .map(|half| snapshot(sketch(name), &part(&bytes, |number| number % 2 == half)).cells());
        let lanes = whole.cells();
        assert_eq!(lanes.iter().map(|lane| lane.key_bytes).collect::<Vec<_>>(), [4, 16], "{name}");
        for (lane, (one, other)) in lanes.iter().zip(halves[0].iter().zip(&halves[1])) {
            assert_eq!((lane.rows, lane.columns, lane.cells.len()), (5, COLUMNS, 5 * COLUMNS));
            let sum: Vec<_> = one.cells.iter().zip(&other.cells).map(|(a, b)| a + b).collect();
            assert!(lane.cells == sum, "{name}");
        }
        let found = answers_of(&mut whole, &["top"], &[]).unwrap();
        let items = found["tasks"]["top"]["items"].as_array().unwrap();
        assert!(items.len() > 5, "{name}");
        for item in items {
            let source = item["key"]["source"].as_str().unwrap();
            let flow = whole.config().key.parse_flow(&format!("source={source}")).unwrap();
            let (key_bytes, places) = whole.places(&flow).unwrap();
            assert_eq!(places.len(), 5);
            let lane = lanes.iter().find(|lane| lane.key_bytes == key_bytes).unwrap();
            let expected = item["packets"]["value"].as_f64().unwrap();
            let found = estimate(name, lane, &places);
            assert!((found - expected).abs() < 1e-6, "{name} of {source}: {found}, {expected}");
        }
    }
    assert!(snapshot(asking(&["top"]), &bytes).cells().is_empty());
}
