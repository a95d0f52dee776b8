//! `top`, `heavy-hitters` and `flow-size`.

use flowgauge_core::key::{CanonicalKey, KeyKind};
use flowgauge_core::summary::SizeEstimate;
use flowgauge_core::task::{Lane, Report, Selection, SizeItem};
use flowgauge_core::terms::{Measure, Size, Threshold};
use proptest::prelude::*;

use crate::support::{Case, Rough, Table, any_key, build, case, check, options, run_once};

/// All flows, by weight and then by key.
fn sorted(case: &Case) -> Vec<SizeItem> {
    let total = case.context().keyed.by(case.by);
    let mut items: Vec<_> = case.flows().collect();
    items.sort_by(|(a, x), (b, y)| y.by(case.by).cmp(&x.by(case.by)).then(a.cmp(b)));
    let item = |(key, size): (CanonicalKey, Size)| SizeItem {
        key,
        size: SizeEstimate::exact(size),
        share: size.by(case.by) as f64 / total as f64,
        seen: None,
    };
    items.into_iter().map(item).collect()
}

/// Listed flows that no untracked flow can exceed.
fn certain(case: &Case, items: &[SizeItem]) -> u64 {
    let untracked = case.tables.iter().map(|(_, table)| table.untracked.by(case.by)).max();
    let least = untracked.unwrap_or(0) as f64;
    items.iter().filter(|item| item.size.by(case.by).unwrap().value >= least).count() as u64
}

#[test]
fn top_is_the_head_of_all_flows_sorted() {
    check(1, case(any_key()), |case| {
        let mut items = sorted(&case);
        items.truncate(case.top);
        let report = run_once("top", &options(), &case);
        let complete_to = certain(&case, &items);
        let selection = Selection::Largest;
        assert_eq!(report, Report::Sizes { selection, items, truncated: 0, complete_to });
    });
}

#[test]
fn heavy_hitters_are_all_flows_strictly_over_the_threshold() {
    check(2, case(any_key()), |case| {
        let threshold = case.threshold();
        let mut items = sorted(&case);
        items.retain(|item| item.size.by(case.by).unwrap().value > threshold);
        let report = run_once("heavy-hitters", &options(), &case);
        let complete_to = certain(&case, &items);
        let selection = Selection::Over(threshold);
        assert_eq!(report, Report::Sizes { selection, items, truncated: 0, complete_to });
    });
}

#[test]
fn flow_size_finds_present_flows_and_bounds_absent_ones() {
    let cases = (case(any_key()), prop::collection::vec(any::<prop::sample::Index>(), 1..6));
    check(3, cases, |(case, picks)| {
        let known: Vec<_> = case.flows().collect();
        let absent = CanonicalKey::new(&vec![77; case.tables[0].0]);
        let mut asked = vec![absent];
        if !known.is_empty() {
            asked.extend(picks.iter().map(|pick| known[pick.index(known.len())].0));
        }
        let report = run_once(
            "flow-size",
            &{
                let mut o = options();
                o.flows.clone_from(&asked);
                o
            },
            &case,
        );
        let Report::Sizes { selection: Selection::Asked, items, .. } = report else {
            panic!("{report:?}")
        };
        assert_eq!(items.iter().map(|item| item.key).collect::<Vec<_>>(), asked);
        for item in &items {
            if let Some((_, size)) = known.iter().find(|(key, _)| *key == item.key) {
                assert_eq!(item.size, SizeEstimate::exact(*size));
            } else {
                let untracked = case.tables[0].1.untracked;
                let (packets, bytes) = (item.size.packets.unwrap(), item.size.bytes.unwrap());
                assert_eq!((packets.value, packets.high), (0.0, untracked.packets as f64));
                assert_eq!((bytes.value, bytes.high), (0.0, untracked.bytes as f64));
            }
        }
    });
}

#[test]
fn candidates_answer_with_their_own_bounds() {
    let key = |n: u8| CanonicalKey::new(&[10, 0, 0, n]);
    let flows = vec![(key(3), 50), (key(1), 50), (key(2), 70), (key(4), 9)];
    let rough = Rough { flows, unnamed: Some(60.0) };
    let lanes = [Lane { key: KeyKind::SOURCE.into(), key_bytes: 4, answers: &rough }];
    let keyed = Size { packets: 200, bytes: 0 };
    let case = Case {
        key: KeyKind::SOURCE.into(),
        tables: Vec::new(),
        by: Measure::Packets,
        threshold: Threshold::Share(0.25),
        top: 2,
    };
    let epoch = flowgauge_core::task::EpochContext { keyed, ..case.context() };
    let mut asking = options();
    asking.flows = vec![key(4), key(9)];
    let item = |n, packets: u64| SizeItem {
        key: key(n),
        size: Rough::size(packets),
        share: packets as f64 / 200.0,
        seen: None,
    };
    // Flow 1 or flow 3 may be the larger one.
    for (name, selection, items, complete_to) in [
        ("top", Selection::Largest, vec![item(2, 70), item(1, 50)], 1),
        ("heavy-hitters", Selection::Over(50.0), vec![item(2, 70)], 1),
        ("flow-size", Selection::Asked, vec![item(4, 9), item(9, 1)], 2),
    ] {
        let mut task = build(name, &asking);
        task.check(Measure::Packets, &lanes).unwrap();
        let report = task.run(&epoch, &lanes, &mut []).unwrap();
        assert_eq!(report, Report::Sizes { selection, items, truncated: 0, complete_to });
        let refusal = task.check(Measure::Bytes, &lanes).unwrap_err().to_string();
        assert!(refusal.contains("counts bytes"), "{refusal}");
        let by_bytes = flowgauge_core::task::EpochContext { by: Measure::Bytes, ..epoch };
        assert!(task.run(&by_bytes, &lanes, &mut []).is_err());
    }
}

/// The head of a list is certain as long as no later item and no unlisted flow can exceed it.
#[test]
fn a_list_is_certain_to_where_others_may_be_larger() {
    let key = |n: u8| CanonicalKey::new(&[10, 0, 0, n]);
    let complete_to = |packets: &[u64], unnamed, top| {
        let flows = (1..).zip(packets).map(|(n, packets)| (key(n), *packets)).collect();
        let rough = Rough { flows, unnamed };
        let lanes = [Lane { key: KeyKind::SOURCE.into(), key_bytes: 4, answers: &rough }];
        let case = Case {
            key: KeyKind::SOURCE.into(),
            tables: Vec::new(),
            by: Measure::Packets,
            threshold: Threshold::Share(0.25),
            top,
        };
        match build("top", &options()).run(&case.context(), &lanes, &mut []).unwrap() {
            Report::Sizes { complete_to, .. } => complete_to,
            report => panic!("{report:?}"),
        }
    };
    // Each is listed with at most one packet too many.
    let apart = [90, 70, 50, 30, 10];
    assert_eq!(complete_to(&apart, Some(0.0), 5), 5);
    assert_eq!(complete_to(&apart, Some(40.0), 5), 3);
    assert_eq!(complete_to(&apart, Some(40.0), 2), 2);
    assert_eq!(complete_to(&apart, Some(69.0), 5), 2);
    assert_eq!(complete_to(&apart, Some(69.5), 5), 1);
    assert_eq!(complete_to(&apart, Some(100.0), 5), 0);
    assert_eq!(complete_to(&apart, None, 5), 0);
    // The first three may be in another order, and so may the last listed flow and the next one.
    assert_eq!(complete_to(&[90, 90, 90, 30, 30], Some(9.0), 5), 5);
    assert_eq!(complete_to(&[90, 90, 90, 30, 30], Some(9.0), 4), 3);
    assert_eq!(complete_to(&[90, 90, 90, 30, 30], Some(9.0), 2), 0);
    assert_eq!(complete_to(&[], Some(0.0), 5), 0);
}

#[test]
fn a_full_counter_of_packets_raises_the_upper_bound() {
    let full = Size { packets: u64::from(u32::MAX), bytes: 1 << 40 };
    let small = Size { packets: 3, bytes: 200 };
    let table = Table {
        flows: vec![(vec![0, 0, 0, 6], full), (vec![0, 0, 0, 17], small)],
        saturated: Size { packets: 5, bytes: 0 },
        untracked: Size::default(),
    };
    let case = Case {
        key: KeyKind::PROTOCOL.into(),
        tables: vec![(4, table)],
        by: Measure::Bytes,
        threshold: Threshold::Weight(0),
        top: 5,
    };
    let Report::Sizes { items, .. } = run_once("top", &options(), &case) else { panic!() };
    let packets = items[0].size.packets.unwrap();
    assert_eq!(packets.high - packets.value, 5.0);
    assert_eq!(items[1].size, SizeEstimate::exact(small));
}
