//! The cost of a meter compared with its bare batch loop: frames in the cache, in bursts of 32 and
//! of 256.
//!
//! `loop` is that batch loop by hand: 256 frames to lanes to a summary, without clock, account, epoch or
//! closer. Beside it the meter of one measurement, and that of two.
#![expect(clippy::unwrap_used, reason = "a benchmark may stop at the first surprise")]

mod frame;

use std::hint::black_box;
use std::thread;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flowgauge_core::any::{AnySummary, BatchMut};
use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::batcher::{Batcher, BatcherOptions, Take};
use flowgauge_core::key::{KeyKind, KeySpec};
use flowgauge_core::packet::{Frame, FrameColumns, Frames, LinkType};
use flowgauge_core::summary::{Options, Parameters};
use flowgauge_engine::sink::{Json, Written};
use flowgauge_engine::{Config, Plan};

use frame::frame;

const FRAMES: usize = 4096;
const FLOWS: u64 = 1000;
const KEY_BYTES: usize = 13;
const MEMORY: usize = 64 << 20;
/// Of the sketch: the same in the loop by hand and behind the meters.
const SIZE: [(&str, &str); 2] = [("rows", "4"), ("columns", "16384")];
const BURSTS: [usize; 2] = [32, BATCH_PACKETS];

struct Own(AnySummary);

impl Take for Own {
    fn take(&mut self, _: usize, batch: BatchMut<'_>) {
        self.0.ingest(batch);
    }
}

fn config(kind: KeyKind) -> Config {
    Config {
        key: kind.into(),
        algorithm: "count-min".to_owned(),
        parameters: Parameters::new(SIZE),
        memory_bytes: MEMORY,
        tasks: Some(vec!["top".to_owned()]),
        ..Config::seeded(1)
    }
}

/// Pushes all frames into the meter of these measurements by bursts.
fn pushes(c: &mut Criterion, name: &str, kinds: &[KeyKind], frames: Frames<'_>, burst: usize) {
    let configs = kinds.iter().enumerate();
    let configs = configs.map(|(at, kind)| Config { name: format!("m{at}"), ..config(*kind) });
    let (mut meters, group) = Plan::several(configs.collect()).unwrap().build().unwrap();
    let mut meter = meters.pop().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| group.close(&mut Written::new(Json, std::io::sink())).unwrap());
        let mut benches = c.benchmark_group("meter");
        benches.throughput(Throughput::Elements(FRAMES as u64));
        benches.bench_function(format!("{name}/bursts of {burst}"), |b| {
            b.iter(|| black_box(frames).chunks(burst).for_each(|burst| meter.push(burst)));
        });
        meter.finish();
    });
}

fn meters(c: &mut Criterion) {
    let bytes: Vec<_> = (0..FRAMES as u64).map(|number| frame(number * number % FLOWS)).collect();
    let link = LinkType::ETHERNET;
    let frames =
        bytes.iter().zip(0..).map(|(bytes, time_ns)| Frame { bytes, wire: 60, link, time_ns });
    let frames: FrameColumns<'_> = frames.collect();
    let frames = frames.frames();

    let key: KeySpec = KeyKind::FIVE_TUPLE.into();
    let mut batcher = Batcher::new(BatcherOptions::new(key));
    let options = Options::new(MEMORY, 1).with(SIZE);
    let summary = AnySummary::build(KEY_BYTES, &[], "count-min", &options).unwrap();
    let mut own = Own(summary);
    let mut benches = c.benchmark_group("meter");
    benches.throughput(Throughput::Elements(FRAMES as u64));
    benches.bench_function("loop", |b| {
        b.iter(|| {
            for burst in black_box(frames).chunks(BATCH_PACKETS) {
                batcher.take(&burst, u64::MAX, &mut own);
            }
        });
    });
    benches.finish();
    for burst in BURSTS {
        pushes(c, "one", &[KeyKind::FIVE_TUPLE], frames, burst);
        pushes(c, "two", &[KeyKind::SOURCE, KeyKind::DESTINATION], frames, burst);
    }
}

criterion_group!(benches, meters);
criterion_main!(benches);
