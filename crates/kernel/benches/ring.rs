//! One thread hands batches to another: this crate's ring, which reuses its slots, compared with
//! `rtrb` and a second ring for empty batches. One iteration is one batch of 256 packets (10 kB);
//! the producer writes one word of it and the consumer reads it.

use std::hint::spin_loop;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use flowgauge_kernel::ring;

const SLOTS: usize = 16;

fn batch() -> Box<[u64; 1280]> {
    Box::new([0; 1280])
}

fn ours(batches: u64) -> Duration {
    let (mut producer, mut consumer) = ring(SLOTS, batch);
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut staged = batch();
            for value in 0..batches {
                staged[0] = value;
                let _ = producer.push(|slot| std::mem::swap(slot, &mut staged));
            }
        });
        let mut next = 0;
        while let Ok(value) = consumer.pop(|slot| slot[0]) {
            assert_eq!(value, next);
            next += 1;
        }
        assert_eq!(next, batches);
    });
    begun.elapsed()
}

fn rtrb(batches: u64) -> Duration {
    let (mut full, mut take_full) = rtrb::RingBuffer::new(SLOTS);
    let (mut empty, mut take_empty) = rtrb::RingBuffer::new(SLOTS + 2);
    (0..SLOTS + 2).for_each(|_| assert!(empty.push(batch()).is_ok()));
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || {
            for value in 0..batches {
                let mut staged = loop {
                    match take_empty.pop() {
                        Ok(staged) => break staged,
                        Err(_) => spin_loop(),
                    }
                };
                staged[0] = value;
                while let Err(rtrb::PushError::Full(back)) = full.push(staged) {
                    staged = back;
                    spin_loop();
                }
            }
        });
        for next in 0..batches {
            let taken = loop {
                match take_full.pop() {
                    Ok(taken) => break taken,
                    Err(_) => spin_loop(),
                }
            };
            assert_eq!(taken[0], next);
            let _ = empty.push(taken);
        }
    });
    begun.elapsed()
}

fn rings(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("batch through a ring");
    group.bench_function("ours", |bench| bench.iter_custom(ours));
    group.bench_function("rtrb", |bench| bench.iter_custom(rtrb));
    group.finish();
}

criterion_group!(benches, rings);
criterion_main!(benches);
