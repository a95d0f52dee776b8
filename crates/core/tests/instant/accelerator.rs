//! FlowRegulator before exact tables: it forwards the packets that InstaMeasure counts.

use flowgauge_core::terms::{Measure, Size};

use super::*;

const TABLES: [&str; 4] = ["linear-table", "indirect-table", "cuckoo-1", "cuckoo-4"];

/// Errors of flows in these size classes are within their limits, and at most one packet in ninety
/// is forwarded.
fn is_accurate(summary: &Summary, truth: &[Size], limits: &[((u64, u64), f64)]) {
    let regulation = regulation(summary, truth, UNIT);
    println!("regulation {:.3} %", 100.0 * regulation);
    assert!(regulation <= 0.011, "{regulation}");
    for by in [Measure::Packets, Measure::Bytes] {
        for &(class, limit) in limits {
            let errors = errors(summary, truth, by, class, UNIT);
            println!("{by:?} {class:?}: {} flows, mean error {:.4}", errors.flows, errors.mean);
            assert!(errors.flows > 0 && errors.mean <= limit, "{by:?} {class:?}: {}", errors.mean);
        }
    }
}

/// At one 25th of the size of the paper's evaluation, see [`super::accuracy`].
#[test]
fn a_table_behind_it_answers_like_the_working_set() {
    for regulator in [
        &[("sketch", 8 << 10)][..],
        &[("sketch", 4 << 10), ("levels", 1)],
        &[("sketch", 8 << 10), ("word", 64)],
    ] {
        let mut summaries = vec![build("insta-measure", 1, regulator)];
        summaries.extend(TABLES.map(|table| regulated(table, 16 << 20, &[], regulator)));
        let truth = feed(&mut summaries, 4_000_000, 40_000, 1, |flow, _| {
            64 + flow.wrapping_mul(811) % 1437
        });
        for (summary, table) in summaries[1..].iter().zip(TABLES) {
            for flow in 0..truth.len() {
                assert_eq!(
                    estimate(summary, flow),
                    estimate(&summaries[0], flow),
                    "{table} {flow}"
                );
            }
        }
        is_accurate(
            &summaries[1],
            &truth,
            &[((100_000, 1_000_000), 0.010), ((10_000, 100_000), 0.035)],
        );
    }
}

/// 100 million packets of a million flows.
#[test]
fn errors_at_the_papers_size() {
    if !is_long() {
        return;
    }
    let mut summaries = TABLES.map(|table| regulated(table, 64 << 20, &[], &[]));
    let truth = feed(&mut summaries, 100_000_000, 1_000_000, 1, |flow, _| 64 + flow % 1437);
    let limits =
        [((1_000_000, u64::MAX), 0.003), ((100_000, 1_000_000), 0.010), ((10_000, 100_000), 0.035)];
    for summary in &summaries {
        is_accurate(summary, &truth, &limits);
    }
}

/// Packets that find no room in a full table are untracked, and in the bounds of flows without an
/// entry.
#[test]
fn packets_without_room_are_untracked() {
    let sum = |summary: &Summary| {
        let mut sum = (0.0, 0);
        summary.answers().candidates().unwrap().for_each(&mut |_, size| {
            sum.0 += (size.packets.unwrap().value / UNIT + 1e-9).floor();
            sum.1 += 1;
        });
        sum
    };
    for table in TABLES {
        let parameters = [("buckets", 64)];
        let regulator = [("sketch", 8 << 10)];
        let mut summaries = [
            regulated(table, 16 << 20, &[], &regulator),
            regulated(table, 1 << 20, &parameters, &regulator),
        ];
        let truth = feed(&mut summaries, 400_000, 20_000, 1, |_, random| mixed(random));
        let [large, small] = &summaries;
        let ((all, flows), (kept, few)) = (sum(large), sum(small));
        assert_eq!(large.answers().untracked(), Size::default());
        assert!(flows > 300 && few < 256, "{table}: {flows}, {few}");
        let untracked = small.answers().untracked();
        let lacking = ((all - kept) * UNIT).round();
        assert!(
            (untracked.packets as f64 - lacking).abs() < 1.0,
            "{table}: {untracked:?} {lacking}"
        );

        let mut listed = vec![false; truth.len()];
        small.answers().candidates().unwrap().for_each(&mut |key, _| listed[flow_of(&key)] = true);
        for flow in (0..truth.len()).filter(|flow| !listed[*flow]) {
            let high = estimate(small, flow).packets.unwrap().high;
            assert!(high >= untracked.packets as f64, "{table} {flow}: {high}");
        }
        for by in [Measure::Packets, Measure::Bytes] {
            let errors = errors(small, &truth, by, (0, u64::MAX), UNIT);
            assert!(errors.covered > 0.95, "{table} {by:?}: {}", errors.covered);
        }
    }
}
