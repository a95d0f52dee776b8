//! The profile backbone compared with statistics of a real link.
//!
//! Two targets: 65,536 consecutive packets of the link, and an extension of that window to 2.5
//! million packets, which is not itself a recording. The model's constants were fitted to these
//! very figures, so this guards against change; it is no independent confirmation.
//!
//! The model misses one figure of the extension by a fifth: flows of one packet (17 %, ours 20.5
//! %). Flows there seem to send more regularly still.

use std::collections::HashMap;

use flowgauge_synthetic::{Config, Profile, Traffic};

/// The flows of some packets, renamed 0, 1, 2, … in the order of appearance.
fn flows(packets: u64, seed: u64) -> Vec<u32> {
    flows_of(Profile::Backbone { flows: None }, packets, seed)
}

fn flows_of(profile: Profile, packets: u64, seed: u64) -> Vec<u32> {
    let config = Config { profile, packets, rate: 547_000, seed, ..Config::default() };
    let mut names = HashMap::new();
    Traffic::new(config)
        .expect("the configuration is sound")
        .map(|packet| {
            let next = names.len() as u32;
            *names.entry(packet.key).or_insert(next)
        })
        .collect()
}

/// Packets of each flow, largest first.
fn sizes(flows: &[u32]) -> Vec<u64> {
    let mut sizes = vec![0; flows.iter().max().map_or(0, |&flow| flow as usize + 1)];
    for &flow in flows {
        sizes[flow as usize] += 1;
    }
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes
}

/// The share of packets whose flow is among the last `c` distinct ones, for each `c`, in percent.
///
/// The number of distinct flows since the last packet of a flow equals the number of flows with a
/// younger last packet, which a Fenwick tree over the packets counts.
fn locality(flows: &[u32], windows: &[u64]) -> Vec<f64> {
    let mut tree = vec![0_i64; flows.len() + 1];
    let mut last: HashMap<u32, usize> = HashMap::new();
    let mut hits = vec![0_u64; windows.len()];
    let add = |tree: &mut [i64], mut at: usize, value: i64| {
        while at < tree.len() {
            tree[at] += value;
            at += at & at.wrapping_neg();
        }
    };
    for (index, &flow) in flows.iter().enumerate() {
        if let Some(before) = last.insert(flow, index + 1) {
            let (mut at, mut older) = (before, 0);
            while at > 0 {
                older += tree[at];
                at &= at - 1;
            }
            let distance = last.len() as u64 - older.cast_unsigned() + 1;
            for (hits, &window) in hits.iter_mut().zip(windows) {
                *hits += u64::from(distance <= window);
            }
            add(&mut tree, before, -1);
        }
        add(&mut tree, index + 1, 1);
    }
    hits.iter().map(|&hits| 100.0 * hits as f64 / flows.len() as f64).collect()
}

const WINDOWS: [u64; 7] = [16, 64, 256, 1_024, 4_096, 16_384, 32_768];

const NAMES: [&str; 16] = [
    "flows",
    "top 1 %",
    "top 10 %",
    "top 100 %",
    "top 1000 %",
    "one packet %",
    "p90",
    "p99",
    "mean run",
    "c = 16",
    "c = 64",
    "c = 256",
    "c = 1024",
    "c = 4096",
    "c = 16384",
    "c = 32768",
];

fn statistics(flows: &[u32]) -> [f64; 16] {
    let sizes = sizes(flows);
    let packets = flows.len() as f64;
    let top = |flows: usize| 100.0 * sizes.iter().take(flows).sum::<u64>() as f64 / packets;
    let singles = sizes.iter().filter(|&&size| size == 1).count();
    let quantile = |q: f64| sizes[((1.0 - q) * sizes.len() as f64) as usize] as f64;
    let runs = 1 + flows.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let locality = locality(flows, &WINDOWS);
    let head = [
        sizes.len() as f64,
        top(1),
        top(10),
        top(100),
        top(1_000),
        100.0 * singles as f64 / sizes.len() as f64,
        quantile(0.9),
        quantile(0.99),
        packets / runs as f64,
    ];
    std::array::from_fn(|i| if i < head.len() { head[i] } else { locality[i - head.len()] })
}

/// The limit for a share in percent: a difference of 3 points.
fn points(share: f64) -> f64 {
    300.0 / share
}

/// Prints target, measured value and deviation, and asserts those with a limit, in percent of the
/// target. `None`: no target.
fn compare(title: &str, measured: &[f64; 16], targets: &[Option<(f64, f64)>; 16]) {
    println!(
        "{title}\n{:<14}{:>10}{:>10}{:>12}{:>8}",
        "", "target", "measured", "deviation", "limit"
    );
    let mut wrong = Vec::new();
    for ((name, &measured), target) in NAMES.iter().zip(measured).zip(targets) {
        let Some((target, limit)) = *target else { continue };
        let deviation = 100.0 * (measured / target - 1.0);
        println!("{name:<14}{target:>10.2}{measured:>10.2}{deviation:>+11.1}%{limit:>7.1}%");
        if deviation.abs() > limit {
            wrong.push(*name);
        }
    }
    assert!(wrong.is_empty(), "{title}: out of limits: {wrong:?}");
}

/// Compares the mean of eight seeds: the link's figures are of one window, and its top flow alone
/// has a standard deviation of 5 %.
#[test]
fn a_window_of_65_536_packets_looks_like_the_link() {
    let runs: Vec<[f64; 16]> = (1..=8).map(|seed| statistics(&flows(65_536, seed))).collect();
    let mean = std::array::from_fn(|i| runs.iter().map(|run| run[i]).sum::<f64>() / 8.0);
    let target = |value, limit| Some((value, limit));
    compare(
        "65,536 packets, seeds 1 to 8",
        &mean,
        &[
            target(15_476.0, 8.0),
            target(1.08, 8.0),
            target(7.64, 8.0),
            target(24.8, 8.0),
            target(56.5, 8.0),
            target(57.5, 8.0),
            // A whole number next to 7 is 14 % away.
            target(7.0, 25.0),
            target(52.0, 8.0),
            target(1.125, 1.0),
            target(33.9, points(33.9)),
            target(42.4, points(42.4)),
            target(52.8, points(52.8)),
            target(63.6, points(63.6)),
            target(72.2, points(72.2)),
            target(76.4, points(76.4)),
            None,
        ],
    );
}

#[test]
fn two_and_a_half_million_packets_look_like_the_link() {
    let target = |value, limit| Some((value, limit));
    compare(
        "2.5M packets, seed 1",
        &statistics(&flows(2_500_000, 1)),
        &[
            target(97_000.0, 8.0),
            target(1.08, 8.0),
            target(7.65, 8.0),
            target(24.5, 8.0),
            target(54.6, 8.0),
            target(17.0, 25.0),
            target(24.0, 25.0),
            target(370.0, 15.0),
            target(1.125, 1.0),
            None,
            None,
            None,
            None,
            target(73.6, points(73.6)),
            target(93.0, points(93.0)),
            target(96.1, points(96.1)),
        ],
    );
}

/// The extension to 28.8M packets: some 53 seconds of the link, at 547,000 packets a second. Left to
/// itself, the profile has 6 % fewer flows; asked for as many, it has them.
#[test]
#[cfg_attr(debug_assertions, ignore = "28.8M packets, for release builds")]
fn a_minute_has_as_many_flows_as_the_link() {
    let sizes = sizes(&flows(28_800_000, 1));
    let top = |flows: usize| 100.0 * sizes.iter().take(flows).sum::<u64>() as f64 / 28.8e6;
    let measured: Vec<f64> = vec![sizes.len() as f64, top(1), top(10)];
    for (value, target) in measured.iter().zip([976_000.0, 1.02, 7.4]) {
        println!("target {target}, measured {value:.2}");
        assert!((value / target - 1.0).abs() < 0.1);
    }
    let asked = flows_of(Profile::Backbone { flows: Some(976_000) }, 28_800_000, 1);
    let have = 1 + asked.iter().max().copied().unwrap_or(0);
    println!("asked for 976000, measured {have}");
    assert!((f64::from(have) / 976e3 - 1.0).abs() < 0.01);
}
