//! Packets as a driver delivers them: each in its own buffer, 2 KB apart.

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::key::FlowKey;
use flowgauge_kernel::{Zeroed, cycles};

use crate::experiment::latency::{Histogram, Latency, Runner, middle};
use crate::experiment::setting::FRAME_BYTES;
use crate::machine::zeroed;

/// Buffer size, offset of the key, and buffers of a port beyond those of a batch, in that order.
const BUFFER_BYTES: usize = 2048;
const BEFORE: usize = 26;
const RING: usize = 1024;

/// Packets received at once.
const BURST: usize = 32;

/// A ring of buffers that packets are received into.
struct Port {
    buffers: Zeroed<[u8; BUFFER_BYTES]>,
    next: usize,
}

impl Port {
    fn new(batch_packets: usize) -> Self {
        Self { buffers: zeroed(batch_packets + RING), next: 0 }
    }

    /// Receives packets with these keys; returns their buffer numbers.
    fn receive<K: FlowKey>(&mut self, keys: &[K], into: &mut Vec<u32>) {
        for key in keys {
            let bytes = key.canonical(K::SHORTEST);
            let frame = &mut self.buffers[self.next][..FRAME_BYTES as usize];
            frame.fill(self.next as u8);
            frame[BEFORE..BEFORE + bytes.len()].copy_from_slice(bytes);
            into.push(self.next as u32);
            self.next = (self.next + 1) % self.buffers.len();
        }
    }
}

/// How packets arrive and are passed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batching {
    /// Packets received before the first one is read.
    pub(super) received: usize,
    /// Packets passed on at once.
    pub(super) handed_on: usize,
}

impl Batching {
    /// Receives `packets` packets in bursts, and passes them on together.
    pub(super) fn whole(packets: usize) -> Self {
        Self { received: packets, handed_on: packets }
    }
}

/// The latencies of these runners for each batching, with all runners taking turns in each round.
/// Packets are received in bursts; a batch is timed from reading its headers. Medians over the
/// rounds.
pub(super) fn race<K: FlowKey>(
    runners: &mut [&mut dyn Runner<K>],
    keys: &[K],
    batches: &[Batching],
    rounds: usize,
) -> Vec<Vec<Latency>> {
    let mut ports: Vec<Port> = batches.iter().map(|batch| Port::new(batch.received)).collect();
    let mut times = vec![vec![Vec::new(); runners.len()]; batches.len()];
    // The first round warms up.
    for round in 0..=rounds {
        for ((batch, port), times) in batches.iter().zip(&mut ports).zip(&mut times) {
            for (runner, times) in runners.iter_mut().zip(times) {
                let latency = pass(&mut **runner, keys, *batch, port);
                if round > 0 {
                    times.push(latency);
                }
            }
        }
    }
    times.iter().map(|times| times.iter().map(|times| middle(times)).collect()).collect()
}

fn pass<K: FlowKey>(
    runner: &mut dyn Runner<K>,
    keys: &[K],
    batching: Batching,
    port: &mut Port,
) -> Latency {
    let (mut batch, mut histogram) = (Batch::new(), Histogram::new());
    let mut received = Vec::with_capacity(batching.received);
    runner.begin();
    for keys in keys.chunks(batching.received) {
        received.clear();
        for keys in keys.chunks(BURST) {
            port.receive(keys, &mut received);
        }
        for received in received.chunks(batching.handed_on) {
            let start = cycles();
            for numbers in received.chunks(BATCH_PACKETS) {
                batch.clear();
                for number in numbers {
                    let frame = &port.buffers[*number as usize];
                    let key = K::from_canonical(&frame[BEFORE..BEFORE + K::SHORTEST]);
                    if let Some(key) = key {
                        batch.push(key, FRAME_BYTES, 0);
                    }
                }
                runner.take(&mut batch);
            }
            histogram.take(received.len(), cycles() - start);
        }
    }
    runner.end();
    histogram.latency()
}
