//! Tasks that read every flow of a table, where its flows may lack packets that found no room.

use std::collections::HashMap;

use flowgauge_core::key::{Key8, KeyKind};
use flowgauge_core::summary::{Estimate, Summary};
use flowgauge_core::task::{
    EpochContext, HistoryShape, Lane, Lists, Report, Task, TaskOptions, find,
};
use flowgauge_core::terms::{Measure, Size, Threshold};
use flowgauge_kernel::Seed;

use super::{INLINE, build, feed, options, packets, total, truth};

fn options_of_tasks() -> TaskOptions {
    let mut options = TaskOptions::new(Seed::number(7));
    options.history = vec![HistoryShape { key_bytes: 8, flows: 100, cells: 0 }];
    options
}

/// The answer about a table of this many keyed packets.
fn answer(task: &mut dyn Task, table: &dyn Summary<Key8>, keyed: Size) -> Report {
    let lane = Lane { key: KeyKind::PAIR.into(), key_bytes: 8, answers: table.answers() };
    let epoch = EpochContext {
        by: Measure::Packets,
        keyed,
        threshold: Threshold::Weight(0),
        lists: Lists::unlimited(100),
        timeline: None,
    };
    let flows = lane.answers.flows().unwrap().len();
    let mut scratch = vec![0; task.scratch_bytes(flows).div_ceil(8)];
    task.run(&epoch, &[lane], &mut scratch).unwrap()
}

/// The bounds of these tasks hold of tables with room for some of the flows, one for each half of
/// the packets, once they are merged.
#[test]
fn bounds_hold_of_tasks_on_merged_tables_that_were_full() {
    let (mut listed, mut wrong) = (0, 0);
    for (name, seed) in ["linear-table", INLINE, "indirect-table", "cuckoo-1"]
        .into_iter()
        .flat_map(|name| (0..40).map(move |seed| (name, seed)))
    {
        let mut changes = find("changes").unwrap().build(&options_of_tasks()).unwrap();
        let mut before: HashMap<Vec<u8>, f64> = HashMap::new();
        let mut forecasts: HashMap<Vec<u8>, f64> = HashMap::new();
        for epoch in 0..3 {
            let shards = [0, 1000].map(|shard| packets(150, 16, seed + 100 * epoch + shard));
            let [mut sum, other] = shards.clone().map(|packets| {
                let mut table = build::<Key8>(name, &options(1 << 20, 1, &[("buckets", "8")]));
                feed(&mut *table, &packets);
                table
            });
            sum.merge(&*other).unwrap();
            let all = shards.concat();
            let truth = truth::<Key8>(&all);
            let holds = |estimate: Estimate, truth: f64, slack: f64, what: &str| {
                let within = estimate.low - slack <= truth && truth <= estimate.high + slack;
                assert!(within, "{what} of {name}, seed {seed}: {estimate:?}, in truth {truth}");
            };
            let ask = |task: &str| {
                let mut task = find(task).unwrap().build(&options_of_tasks()).unwrap();
                answer(task.as_mut(), &*sum, total(&all))
            };

            let Report::SizeDistribution { bins } = ask("size-distribution") else { panic!() };
            for (size, flows) in bins {
                let of_size = truth.values().filter(|flow| flow.packets == size).count();
                holds(flows, of_size as f64, 0.0, "size-distribution");
                (listed, wrong) = (listed + 1, wrong + usize::from(flows.value != of_size as f64));
            }

            let mut sizes: Vec<u64> = truth.values().map(|flow| flow.packets).collect();
            sizes.sort_unstable();
            let Report::Quantiles { sizes: quantiles, .. } = ask("quantiles") else { panic!() };
            for (q, size) in quantiles {
                let rank = (q * sizes.len() as f64 - 1e-6).ceil() as usize;
                holds(size, sizes[rank - 1] as f64, 0.0, "quantiles");
            }

            let shares = sizes.iter().map(|size| *size as f64 / all.len() as f64);
            let Report::Entropy { bits, .. } = ask("entropy") else { panic!() };
            holds(bits, shares.map(|share| -share * share.log2()).sum(), 1e-9, "entropy");

            let now: HashMap<_, _> =
                truth.iter().map(|(key, size)| (key.clone(), size.packets as f64)).collect();
            let Report::Changes { items, .. } = answer(changes.as_mut(), &*sum, total(&all)) else {
                panic!()
            };
            assert_eq!(items.is_empty(), epoch == 0);
            let of = |sizes: &HashMap<Vec<u8>, f64>, key: &[u8]| sizes.get(key).copied();
            for item in items {
                let key = item.key.as_bytes();
                holds(item.now, of(&now, key).unwrap_or(0.0), 0.0, "changes, now");
                holds(item.before, of(&before, key).unwrap_or(0.0), 0.0, "changes, before");
                holds(item.forecast, of(&forecasts, key).unwrap_or(0.0), 2.0, "changes, forecast");
            }
            let known: Vec<_> = forecasts.keys().chain(now.keys()).cloned().collect();
            forecasts = known
                .into_iter()
                .map(|key| {
                    let size = of(&now, &key).unwrap_or(0.0);
                    let last = of(&forecasts, &key).unwrap_or(0.0);
                    (key, if epoch == 0 { size } else { size.midpoint(last) })
                })
                .collect();
            before = now;
        }
    }
    assert!(5 * wrong > listed, "{wrong} of {listed} bins are wrong: the tables had room");
}
