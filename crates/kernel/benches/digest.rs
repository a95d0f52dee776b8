//! Digests of batches of 256 keys, for each key width on each instruction set.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flowgauge_kernel::{Digester, Isa, Seed, Words};

const BATCH: usize = 256;

fn width<W: Words>(criterion: &mut Criterion, bytes: usize, key: impl Fn(u64) -> W) {
    let keys: Vec<W> =
        (1..=BATCH as u64).map(|i| key(i.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    let mut digests = [0; BATCH];
    let mut group = criterion.benchmark_group(format!("digest of {bytes} bytes"));
    group.throughput(Throughput::Elements(BATCH as u64));
    for isa in Isa::available() {
        let digester = Digester::new(Seed::number(1), isa);
        group.bench_function(isa.name(), |bencher| {
            bencher.iter(|| {
                digester.digest_batch(black_box(&keys), bytes, &mut digests);
                black_box(&digests);
            });
        });
    }
}

fn widths(criterion: &mut Criterion) {
    width(criterion, 8, |i| [i as u32, (i >> 32) as u32]);
    width(criterion, 13, |i| [i, i >> 24]);
    width(criterion, 32, |i| [i, !i, i >> 1, i << 1, 0]);
    width(criterion, 37, |i| [i, !i, i >> 1, i << 1, i >> 24]);
}

criterion_group!(benches, widths);
criterion_main!(benches);
