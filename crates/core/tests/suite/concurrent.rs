//! Concurrent summaries: several workers count at once what one worker counts.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog;
use flowgauge_core::catalog::stored::encode;
use flowgauge_core::key::{FlowKey, Key8, Key16, Key37};
use flowgauge_core::summary::concurrent::ConcurrentIngest;
use flowgauge_core::summary::{BuildErrorKind, Options};
use flowgauge_core::terms::{Measure, Size};

const SEED: u64 = 20_260_101;

/// A packet: its flow's number and its bytes.
type Packet = (u32, u32);

/// The key of a flow, its number spread over all of the key's bytes.
fn key<K: FlowKey>(flow: u32) -> K {
    let bytes: Vec<u8> = flow.to_be_bytes().into_iter().cycle().take(K::BYTES).collect();
    K::from_canonical(&bytes).unwrap()
}

/// Packets of `flows` flows, the lower numbers heavier.
fn packets(count: usize, flows: u32) -> Vec<Packet> {
    let mut random = fastrand::Rng::with_seed(SEED);
    let skewed = |random: &mut fastrand::Rng| (random.f64().powi(3) * f64::from(flows)) as u32;
    (0..count).map(|_| (skewed(&mut random), random.u32(64..1500))).collect()
}

/// Deals packets out to workers at random.
fn dealt(packets: &[Packet], workers: usize) -> Vec<Vec<Packet>> {
    let mut random = fastrand::Rng::with_seed(SEED + 1);
    let mut hands = vec![Vec::new(); workers];
    for packet in packets {
        hands[random.usize(0..workers)].push(*packet);
    }
    hands
}

/// Passes packets to `ingest` in batches of random sizes.
fn feed<K: FlowKey>(packets: &[Packet], mut ingest: impl FnMut(&mut Batch<K>)) {
    let mut random = fastrand::Rng::with_seed(SEED + 2);
    let (mut batch, mut rest) = (Batch::new(), packets);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(random.usize(1..=BATCH_PACKETS).min(rest.len()));
        for &(flow, bytes) in now {
            batch.push(key(flow), bytes, 0);
        }
        ingest(&mut batch);
        batch.clear();
        rest = later;
    }
}

/// Feeds each worker's packets in a thread of its own; all threads begin at once.
fn feed_at_once<K: FlowKey>(concurrent: &dyn ConcurrentIngest<K>, hands: &[Vec<Packet>]) {
    let begin = Barrier::new(hands.len());
    thread::scope(|scope| {
        for hand in hands {
            scope.spawn(|| {
                begin.wait();
                feed(hand, |batch| concurrent.ingest(batch));
            });
        }
    });
}

/// Filled by two and by eight workers, epoch after epoch, the stored form is that of one worker.
fn equals_one_worker<K: FlowKey>(name: &str, options: &Options, packets: &[Packet]) {
    let info = catalog::info(name).unwrap();
    let mut ordinary = catalog::build::<K>(name, options).unwrap();
    feed(packets, |batch| ordinary.ingest(batch));
    let expected = encode(info, options, &*ordinary);
    let mut concurrent = catalog::build_concurrent::<K>(name, options).unwrap();
    for workers in [2, 8] {
        feed_at_once(&*concurrent, &dealt(packets, workers));
        assert!(
            encode(info, options, concurrent.collect()) == expected,
            "{name}, {workers} workers"
        );
    }
    let empty = catalog::build::<K>(name, options).unwrap();
    assert!(
        encode(info, options, concurrent.collect()) == encode(info, options, &*empty),
        "{name}"
    );
}

#[test]
fn sums_are_those_of_one_worker() {
    let packets = packets(100_000, 3000);
    for by in [Measure::Packets, Measure::Bytes] {
        let options = Options { by, ..Options::new(1 << 20, 1) };
        let few = [("columns", "256"), ("candidates", "0")];
        equals_one_worker::<Key8>("count-array", &options.clone().with(few), &packets);
        for name in ["count-min", "count-sketch", "k-ary"] {
            for rows in ["1", "4", "11"] {
                let few = [("columns", "256"), ("candidates", "0"), ("rows", rows)];
                equals_one_worker::<Key16>(name, &options.clone().with(few), &packets);
            }
            let papers = [("columns", "65536"), ("candidates", "0"), ("rows", "4")];
            equals_one_worker::<Key8>(name, &options.clone().with(papers), &packets);
        }
    }
}

fn flows_equal_one_worker<K: FlowKey>() {
    let options = Options::new(4 << 20, 1);
    for (buckets, flows) in [("8192", 3000), ("16384", 3000), ("64", 40)] {
        let options = options.clone().with([("buckets", buckets)]);
        equals_one_worker::<K>("linear-table", &options, &packets(50_000, flows));
    }
}

#[test]
fn flows_are_those_of_one_worker_with_keys_of_any_width() {
    flows_equal_one_worker::<Key8>();
    flows_equal_one_worker::<Key16>();
    flows_equal_one_worker::<Key37>();
}

/// All workers add the same new flows at the same time, as many as there is room for.
#[test]
fn flows_that_all_workers_bring_at_once_are_there_once() {
    for round in 0..20 {
        for (buckets, most) in [("8", 6), ("1024", 768), ("4096", 3072)] {
            let options = Options::new(1 << 20, 1).with([("buckets", buckets)]);
            let mut concurrent =
                catalog::build_concurrent::<Key37>("linear-table", &options).unwrap();
            let hand: Vec<Packet> = (0..most).map(|flow| (flow + round * 10_000, 100)).collect();
            feed_at_once(&*concurrent, &vec![hand; 8]);
            let answers = concurrent.collect().answers();
            let flows = answers.flows().unwrap();
            assert_eq!((flows.len(), answers.untracked()), (most as usize, Size::default()));
            flows.for_each(&mut |_, size| assert_eq!(size, Size { packets: 8, bytes: 800 }));
        }
    }
}

/// More flows than there is room for: every packet is in one flow or untracked, and no flow has
/// more packets than it sent.
#[test]
fn packets_of_flows_without_room_are_untracked() {
    let packets = packets(200_000, 2000);
    let mut sent = BTreeMap::<Vec<u8>, Size>::new();
    for &(flow, bytes) in &packets {
        *sent.entry(key::<Key16>(flow).canonical(Key16::BYTES).to_vec()).or_default() +=
            Size { packets: 1, bytes: bytes.into() };
    }
    let options = Options::new(1 << 20, 1).with([("buckets", "1024")]);
    let mut concurrent = catalog::build_concurrent::<Key16>("linear-table", &options).unwrap();
    for workers in [2, 8] {
        feed_at_once(&*concurrent, &dealt(&packets, workers));
        let answers = concurrent.collect().answers();
        let (flows, mut all) = (answers.flows().unwrap(), answers.untracked());
        assert!(flows.len() == 768 && sent.len() > 768 && all.packets > 0);
        let mut seen = BTreeMap::new();
        flows.for_each(&mut |key, size| {
            all += size;
            assert!(seen.insert(key.to_vec(), size).is_none(), "a flow is there twice");
            assert!(size.packets <= sent[key].packets && size.bytes <= sent[key].bytes);
            let estimate = answers.size().unwrap().estimate(key).packets.unwrap();
            assert!(estimate.high >= sent[key].packets as f64);
        });
        assert_eq!(all, sent.values().copied().sum());
    }
}

#[test]
fn summaries_that_cannot_be_concurrent_are_refused() {
    let refusal = |name: &str, parameters: &[(&str, &str)]| {
        let options = Options::new(1 << 20, 1).with(parameters.iter().copied());
        match catalog::build_concurrent::<Key8>(name, &options) {
            Ok(_) => panic!("{name} was built"),
            Err(error) => error,
        }
    };
    for info in catalog::ALGORITHMS.iter().filter(|info| !catalog::CONCURRENT.contains(&info.name))
    {
        let error = refusal(info.name, &[]);
        assert!(matches!(error.kind(), BuildErrorKind::NotConcurrent { .. }), "{}", info.name);
        assert!(error.to_string().contains("linear-table, count-array, count-min"), "{error}");
    }
    let refused = [
        ("none", ("a", "b"), "unknown algorithm 'none'; available: linear-table"),
        ("count-min", ("a", "b"), "unknown parameter 'a' of count-min; available: rows"),
        ("count-min", ("candidates", "16"), "'candidates=16' is not supported"),
        ("count-array", ("state", "ewma"), "'state=ewma' is not one of counter"),
        ("linear-table", ("state", "detail"), "'state=detail' is not one of counter"),
    ];
    for (name, parameter, line) in refused {
        let error = refusal(name, &[parameter]).to_string();
        assert!(error.starts_with(line), "{error}");
    }
}

/// The concurrent and the ordinary summary are within the memory limit together.
#[test]
fn memory_is_that_of_both() {
    for name in catalog::CONCURRENT {
        for memory_bytes in [100_000, 3 << 20] {
            let concurrent =
                catalog::build_concurrent::<Key16>(name, &Options::new(memory_bytes, 1)).unwrap();
            let own = concurrent.memory_bytes();
            // Spare entries are not within the limit.
            assert!(own <= memory_bytes + 4096 && own > memory_bytes / 4, "{name}: {own}");
        }
    }
}
