//! The errors of `NitroSketch`.

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_core::summary::{Estimate, Options, Summary};
use flowgauge_core::terms::Measure;

use super::nitro::nitro;
use super::skipper::rank;
use super::{build, source};
use crate::long;
use crate::zipf::Zipf;

fn feed(summary: &mut dyn Summary<Key8>, keys: &[Key8]) {
    let mut batch = Batch::new();
    for keys in keys.chunks(BATCH_PACKETS) {
        batch.fill(keys, 100);
        summary.ingest(&mut batch);
    }
    summary.settle();
}

fn estimate(summary: &dyn Summary<Key8>, flow: u32) -> Estimate {
    let size = summary.answers().size().unwrap().estimate(source(flow).canonical(4));
    size.packets.or(size.bytes).unwrap()
}

/// Flows of these numbers of packets, in turns.
fn flows_of(sizes: &[u32]) -> Vec<Key8> {
    let most = sizes.iter().copied().max().unwrap_or(0);
    let turn =
        |n: u32| (0..).zip(sizes).filter(move |(_, size)| **size > n).map(|(i, _)| source(i));
    (0..most).flat_map(turn).collect()
}

/// The means over 1,000 seeds are within 3 standard errors, for one row and for the median of four,
/// where a row samples at least 10 packets of a flow on average. Of 63 means, one is outside in 6
/// sets of seeds; this set has none. The median of four is slightly low: at p = 0.01 by 4 to 17
/// packets of 1,000 to 20,000, which 1,000 seeds cannot resolve.
#[test]
fn sizes_are_right_on_average() {
    for (p, variance) in [("0.5", 1.0), ("0.1", 9.0), ("0.01", 99.0)] {
        let sizes = [10, 50, 200].map(|taken| taken * (variance as u32 + 1));
        let keys = flows_of(&sizes);
        for (name, rows) in [
            ("count-min", "1"),
            ("count-min", "4"),
            ("count-sketch", "1"),
            ("count-sketch", "4"),
            ("k-ary", "1"),
            ("k-ary", "4"),
            ("univmon", "4"),
        ] {
            let mut parameters = vec![("rows", rows), ("columns", "16384")];
            if name == "univmon" {
                parameters.extend([("levels", "2"), ("top", "16")]);
            } else {
                parameters.push(("candidates", "0"));
            }
            let mut sums = [[0.0; 2]; 3];
            for seed in 0..1000 {
                let options =
                    Options::new(1 << 20, seed).for_keys(4).with(parameters.iter().copied());
                let mut summary = build(Some(nitro(&[("p", p)])), name, &options).unwrap();
                feed(&mut *summary, &keys);
                for (flow, [sum, squares]) in (0..).zip(&mut sums) {
                    let value = estimate(&*summary, flow).value;
                    *sum += value / 1000.0;
                    *squares += value * value / 1000.0;
                }
            }
            for (size, [mean, squares]) in sizes.iter().zip(sums) {
                let size = f64::from(*size);
                let error = ((squares - mean * mean) / 1000.0).sqrt();
                let off = mean - size;
                println!("{name} {rows} {p} {size}: {off:.2} of {error:.2}");
                assert!(off.abs() < 3.0 * error, "{name} {rows} {p} {size}: {off} {error}");
            }
        }
    }
}

/// The variance of a row is that of collisions, (L2² - f² + (n - 1) N)/w, plus its own, (n - 1) f.
/// The mean square of 1,000 errors agrees within 4 standard errors.
#[test]
fn errors_are_as_large_as_they_should_be() {
    let (flow, size, others) = (20_000, 1000.0, 20_000);
    let mut keys: Vec<Key8> = (0..10 * others).map(|i| source(i % others)).collect();
    keys.extend([source(flow); 1000]);
    for (name, p, n) in [("count-sketch", "0.1", 10.0), ("k-ary", "0.05", 20.0)] {
        let others = f64::from(others);
        let noise = 100.0 * others + (n - 1.0) * 10.0 * others;
        let variance = noise / 1024.0 + (n - 1.0) * size;
        let squares = (0..1000).map(|seed| {
            let parameters = [("rows", "1"), ("columns", "1024"), ("candidates", "0")];
            let options = Options::new(1 << 20, seed).for_keys(4).with(parameters);
            let mut summary = build(Some(nitro(&[("p", p)])), name, &options).unwrap();
            feed(&mut *summary, &keys);
            (estimate(&*summary, flow).value - size).powi(2)
        });
        let ratio = squares.sum::<f64>() / 1000.0 / variance;
        println!("{name}: {ratio:.3}");
        assert!((ratio - 1.0).abs() < 4.0 * f64::sqrt(2.0 / 1000.0), "{name}: {ratio}");
    }
}

/// For 400 flows of a skewed stream, bounds hold as often as they say, and are tight for large
/// flows.
#[test]
fn bounds_hold_as_often_as_they_say() {
    let flows = 20_000;
    for name in ["count-min", "count-sketch", "k-ary"] {
        let (mut outside, mut asked, mut confidence) = (0.0, 0.0, 0.0);
        for seed in 0..32 {
            let stream: Vec<u32> = Zipf::new(flows as usize, 1.0, seed).take(100_000).collect();
            let mut sizes = vec![0.0; flows as usize];
            for flow in &stream {
                sizes[*flow as usize] += 1.0;
            }
            let keys: Vec<Key8> = stream.into_iter().map(source).collect();
            let parameters = [("rows", "4"), ("columns", "1024"), ("candidates", "0")];
            let options = Options::new(1 << 20, seed).for_keys(4).with(parameters);
            let mut summary = build(Some(nitro(&[("p", "0.02")])), name, &options).unwrap();
            feed(&mut *summary, &keys);
            for flow in (0..flows).step_by(50) {
                let (size, estimate) = (sizes[flow as usize], estimate(&*summary, flow));
                outside += f64::from(u8::from(!(estimate.low..=estimate.high).contains(&size)));
                asked += 1.0;
                confidence = estimate.confidence.unwrap();
            }
            assert!(estimate(&*summary, 0).low > 0.5 * sizes[0]);
        }
        println!("{name}: {outside} of {asked}");
        assert!(outside <= (1.0 - confidence) * asked, "{name}: {outside} of {asked}");
    }
}

/// Bounds of small flows hold, even where few rows sampled a packet.
#[test]
fn small_flows_are_within_their_bounds() {
    let sizes = [1, 3, 10, 30, 100, 300, 1000, 3000];
    for by in [Measure::Packets, Measure::Bytes] {
        for name in ["count-min", "count-sketch", "k-ary", "univmon"] {
            let (mut outside, seeds) = ([0; 8], 400);
            for seed in 0..seeds {
                let parameters = [("rows", "4"), ("columns", "1024")];
                let options =
                    Options { by, ..Options::new(1 << 20, seed).for_keys(4).with(parameters) };
                let mut summary = build(Some(nitro(&[("p", "0.01")])), name, &options).unwrap();
                feed(&mut *summary, &flows_of(&sizes));
                let each = if by == Measure::Packets { 1.0 } else { 100.0 };
                for (flow, outside) in (0..).zip(&mut outside) {
                    let size = estimate(&*summary, flow);
                    let truth = each * f64::from(sizes[flow as usize]);
                    *outside += u32::from(!(size.low..=size.high).contains(&truth));
                    assert!(size.high >= 500.0 * each, "{size:?}");
                }
            }
            // At most one in twenty, and by Chebyshev's inequality far fewer. 4 standard errors are
            // 38.
            assert!(outside.iter().all(|outside| *outside <= 20), "{name}: {outside:?} of {seeds}");
        }
    }
}

/// The sample favors some of many small flows; the lower bound of a listed flow allows for that.
#[test]
fn listed_flows_are_above_their_lower_bounds() {
    for (name, parameters) in [
        ("univmon", vec![("levels", "2"), ("rows", "4"), ("columns", "4096"), ("top", "128")]),
        ("count-sketch", vec![("rows", "3"), ("columns", "4096"), ("candidates", "1024")]),
        ("count-min", vec![("rows", "2"), ("columns", "4096"), ("candidates", "1024")]),
    ] {
        for seed in 0..4 {
            let options = Options::new(4 << 20, seed).for_keys(4).with(parameters.iter().copied());
            let mut summary = build::<Key8>(Some(nitro(&[("p", "0.01")])), name, &options).unwrap();
            let keys: Vec<Key8> = (0..400_000).map(|i| source(i % 100_000)).collect();
            feed(&mut *summary, &keys);
            let (mut listed, mut below) = (0, 0);
            summary.answers().candidates().unwrap().for_each(&mut |_, size| {
                listed += 1;
                below += u32::from(size.packets.unwrap().low > 4.0);
            });
            assert!(below == 0, "{name}: {below} of {listed}");
        }
    }
}

/// Every flow is within 5 % of L2 under the paper's conditions: p = 0.01, enough columns, L2 large
/// enough. With five rows, each flow may be further off with probability δ; none is.
#[test]
fn after_convergence_errors_are_a_share_of_l2() {
    let columns = f64::ceil(8.0 / (0.05 * 0.05) / 0.01);
    let (packets, flows) = (2_500_000, 100_000);
    let keys: Vec<u32> = Zipf::new(flows, 1.1, 1).take(packets).collect();
    let mut sizes = vec![0.0; flows];
    for flow in &keys {
        sizes[*flow as usize] += 1.0;
    }
    let keys: Vec<Key8> = keys.into_iter().map(source).collect();
    let l2 = sizes.iter().map(|size: &f64| size * size).sum::<f64>().sqrt();
    assert!(l2 >= columns, "{l2}");
    for name in ["count-sketch", "k-ary", "count-min"] {
        for seed in 0..if long() { 16 } else { 2 } {
            // The next lower power of two is less than the given interval.
            let parameters = [("rows", "5"), ("columns", "262144"), ("candidates", "0")];
            let options = Options::new(32 << 20, seed).for_keys(4).with(parameters);
            let mut summary = build(Some(nitro(&[("p", "0.01")])), name, &options).unwrap();
            feed(&mut *summary, &keys);
            let off = |flow: u32| (estimate(&*summary, flow).value - sizes[flow as usize]).abs();
            let worst = (0..flows as u32).map(off).fold(0.0, f64::max);
            println!("{name}: {worst:.0}, {:.4} L2", worst / l2);
            assert!(worst <= 0.05 * l2, "{name}: {worst} of {l2}");
        }
    }
}

/// A scan of many ports, or of many flows, does not change the error of large flows.
#[test]
fn many_flows_do_not_grow_the_error() {
    let (heavy, size) = (100, 20_000);
    let scans: &[u32] = if long() { &[10_000, 10_000_000] } else { &[10_000, 1_000_000] };
    for name in ["count-min", "count-sketch", "k-ary", "univmon"] {
        let errors = scans.iter().map(|&scan| {
            let mut squares = 0.0;
            for seed in 0..4 {
                let mut parameters = vec![("rows", "4"), ("columns", "65536")];
                if name == "univmon" {
                    parameters.extend([("levels", "4"), ("top", "128")]);
                }
                let options = Options::new(8 << 20, seed).for_keys(4).with(parameters);
                let mut summary = build(Some(nitro(&[("p", "0.01")])), name, &options).unwrap();
                let (mut keys, mut next) = (Vec::new(), heavy);
                for turn in 0..size {
                    keys.extend((0..heavy).map(source));
                    let until = heavy + (u64::from(scan) * (turn + 1) / size) as u32;
                    keys.extend((next..until).map(source));
                    next = until;
                    if keys.len() > 1 << 16 {
                        feed_only(&mut *summary, &keys);
                        keys.clear();
                    }
                }
                feed(&mut *summary, &keys);
                let off = |flow| estimate(&*summary, flow).value / size as f64 - 1.0;
                squares += (0..heavy).map(|flow| off(flow).powi(2)).sum::<f64>();
            }
            (squares / 400.0).sqrt()
        });
        let errors: Vec<f64> = errors.collect();
        println!("{name}: {errors:.4?}");
        // The error of a row is 7 %; that of the median of four is half of it.
        assert!(errors[1] < 0.05 && errors[1] < 1.25 * errors[0], "{name}: {errors:?}");
    }
}

/// Ingests keys without settling.
fn feed_only(summary: &mut dyn Summary<Key8>, keys: &[Key8]) {
    let mut batch = Batch::new();
    for keys in keys.chunks(BATCH_PACKETS) {
        batch.fill(keys, 100);
        summary.ingest(&mut batch);
    }
}

/// With `mode=correct` at 5 %, all packets are counted until L2² exceeds 121 (1 + ε √p)/(ε⁴ p²),
/// here about 70,000². From then on errors are below ε L2. In none of 4 seeds does one of the 100
/// largest flows exceed it, where a row may do so one time in 4.
#[test]
fn it_is_correct_before_it_samples_and_after() {
    let (mut worst, mut converged) = (0.0f64, Vec::new());
    for seed in 0..4 {
        let parameters = [("rows", "5"), ("columns", "131072"), ("candidates", "0")];
        let options = Options::new(4 << 20, seed).for_keys(4).with(parameters);
        let mode = [("mode", "correct"), ("p", "0.0625"), ("epsilon", "0.05")];
        let mut summary = build(Some(nitro(&mode)), "count-sketch", &options).unwrap();
        let mut plain = build::<Key8>(None, "count-sketch", &options).unwrap();
        let keys: Vec<Key8> = Zipf::new(100_000, 1.1, seed).take(2_000_000).map(source).collect();
        let (mut batch, mut time_ns, mut sizes) = (Batch::new(), 1_000_000_000, vec![0.0; 100_000]);
        let mut at = None;
        for (number, part) in keys.chunks(100_000).enumerate() {
            for keys in part.chunks(BATCH_PACKETS) {
                batch.clear();
                for &key in keys {
                    // Ten million packets a second.
                    time_ns += 100;
                    batch.push(key, 100, time_ns);
                }
                summary.ingest(&mut batch);
                plain.ingest(&mut batch);
            }
            summary.settle();
            for &key in part {
                sizes[rank(key)] += 1.0;
            }
            let norm = sizes.iter().map(|size: &f64| size.powi(2)).sum::<f64>().sqrt();
            let equal = (0..100).all(|flow| {
                let [own, all] = [&summary, &plain].map(|summary| estimate(&**summary, flow).value);
                own.to_bits() == all.to_bits()
            });
            if !equal && at.is_none() {
                at = Some((number, norm));
            }
            let off = |flow: u32| (estimate(&*summary, flow).value - sizes[flow as usize]).abs();
            worst = (0..100).map(off).fold(worst, |worst, off| worst.max(off / norm));
        }
        converged.push(at.unwrap());
    }
    println!("{worst:.4} L2 at most; converged at {converged:?}");
    let least = (121.0 * (1.0 + 0.05 * 0.25) * 160_000.0 * 256.0f64).sqrt();
    // The test is due every 660,000 packets, the number of cells, and uses the sketch's own L2.
    for (number, norm) in converged {
        assert!(norm > 0.95 * least && number >= 6, "{number} {norm} {least}");
    }
    assert!(worst <= 0.05, "{worst}");
}

/// The mean of the cells of two epochs answers half the sum of both, with bounds that hold.
#[test]
fn changes_are_read_from_sampled_cells() {
    for name in ["count-min", "count-sketch", "k-ary", "univmon"] {
        let mut outside = [0u32; 2];
        for seed in 0..100 {
            let options =
                Options::new(1 << 20, seed).for_keys(4).with([("rows", "4"), ("columns", "1024")]);
            let mut summary = build(Some(nitro(&[("p", "0.05")])), name, &options).unwrap();
            let mut half: Vec<f64> = Vec::new();
            for epoch in [[4000, 30, 0], [1000, 300, 500]] {
                summary.next_epoch();
                feed(&mut *summary, &flows_of(&epoch));
                let cells = summary.answers().cells().unwrap();
                let mut read = vec![0.0; cells.len()];
                cells.read(&mut read);
                half.resize(read.len(), 0.0);
                half.iter_mut().zip(&read).for_each(|(half, read)| *half += 0.5 * read);
            }
            let cells = summary.answers().cells().unwrap();
            cells.seal(&mut half);
            for (flow, truth) in [(0, 2500.0), (1, 165.0), (2, 250.0), (3, 0.0)] {
                let size = cells.estimate(&half, source(flow).canonical(4));
                outside[0] += u32::from(!(size.low..=size.high).contains(&truth));
                // Three times √(19 t / 2), the error of one of four rows.
                let allowed = 3.0 * f64::sqrt(9.5 * truth + 400.0);
                outside[1] += u32::from((size.value - truth).abs() > allowed);
            }
        }
        assert!(outside[0] <= 20 && outside[1] <= 8, "{name}: {outside:?} of 400");
    }
}
