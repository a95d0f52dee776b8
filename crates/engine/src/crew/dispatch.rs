//! The dispatcher and its workers: which worker measures a packet, and how the packet gets there.

use std::time::Instant;

use flowgauge_core::any::{AnyBatch, BatchMut};
use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::batcher::Take;
use flowgauge_core::terms::Size;
use flowgauge_kernel::{Consumer, Digester, Gone, Producer, User};

use crate::config::{Config, Dispatch, Overrun};
use crate::intake::{Crew, Ended};
use crate::summaries::Set;
use crate::swaps::Record;

/// How the worker of a packet is selected.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Routing {
    /// By the digest, which travels with the packet.
    Digest(Digester),
    /// Whole batches go to the workers in turn.
    Queue,
}

impl Routing {
    /// Its name in a configuration.
    pub(crate) fn dispatch(&self) -> Dispatch {
        match self {
            Self::Digest(_) => Dispatch::Digest,
            Self::Queue => Dispatch::Queue,
        }
    }

    /// The worker of each packet of a batch, out of `workers`. Not for [`Self::Queue`], which deals
    /// whole batches.
    #[inline]
    pub(super) fn workers(
        &self,
        key_bytes: usize,
        batch: &mut BatchMut<'_>,
        workers: usize,
    ) -> [u16; BATCH_PACKETS] {
        let mut to = [0; BATCH_PACKETS];
        match self {
            Self::Digest(digester) => {
                let digester = digester.for_keys(key_bytes);
                for (to, digest) in to.iter_mut().zip(batch.digests(&digester)) {
                    *to = worker(*digest, workers);
                }
            }
            Self::Queue => {}
        }
        to
    }
}

/// The worker of a digest, out of `workers`. The product depends on every bit of the digest:
/// summaries derive columns and vectors from single bits, which must vary among one worker's flows
/// as much as among all.
#[inline(always)]
fn worker(digest: u64, workers: usize) -> u16 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    (((digest.wrapping_mul(ODD) >> 48) as usize * workers) >> 16) as u16
}

/// Deals the batches of a meter's lanes to the workers.
pub(crate) struct Dispatcher {
    routing: Routing,
    batch_packets: usize,
    /// Canonical bytes of each lane's keys.
    key_bytes: Vec<usize>,
    /// For each lane, the batches being filled for each worker.
    staged: Vec<Vec<AnyBatch>>,
    /// The worker whose turn it is.
    turn: usize,
    out: Out,
}

/// The rings to the workers.
struct Out {
    rings: Vec<Producer<Parcel>>,
    overrun: Overrun,
    /// Packets and bytes of the open epoch for which a ring was full.
    dropped: Size,
    /// Whether a worker is gone.
    broken: bool,
}

impl Dispatcher {
    pub(super) fn new(
        config: &Config,
        routing: Routing,
        lanes: &[usize],
        rings: Vec<Producer<Parcel>>,
    ) -> Self {
        let staged = |key_bytes: &usize| rings.iter().map(|_| AnyBatch::new(*key_bytes)).collect();
        let (overrun, dropped, broken) = (config.overrun, Size::default(), false);
        Self {
            routing,
            batch_packets: config.batch_packets,
            key_bytes: lanes.to_vec(),
            staged: lanes.iter().map(staged).collect(),
            turn: 0,
            out: Out { rings, overrun, dropped, broken },
        }
    }
}

impl Take for Dispatcher {
    /// Sends each packet to its worker, in batches of `batch_packets`.
    fn take(&mut self, lane: usize, mut batch: BatchMut<'_>) {
        let workers = self.out.rings.len();
        let turn = self.turn;
        self.turn = (turn + 1) % workers;
        if workers == 1 {
            return self.out.send(0, lane, batch);
        }
        if matches!(self.routing, Routing::Queue) {
            return self.out.send(turn, lane, batch);
        }
        let to = self.routing.workers(self.key_bytes[lane], &mut batch, workers);
        let out = &mut self.out;
        batch.deal(&to, &mut self.staged[lane], self.batch_packets, &mut |worker, batch| {
            out.send(worker, lane, batch);
        });
    }
}

impl Crew for Dispatcher {
    fn end(&mut self, ended: Ended) -> Result<(), Gone> {
        let Self { staged, out, .. } = self;
        let mut ended = Some(ended);
        if let Some(ended) = &mut ended {
            ended.account.dropped = out.dropped;
            if !ended.update {
                out.dropped = Size::default();
            }
        }
        for (worker, ring) in out.rings.iter_mut().enumerate() {
            // The end of an epoch, with its last packets, is never dropped.
            let sent = ring.push(|parcel| {
                for (lane, batch) in parcel.lanes.iter_mut().enumerate() {
                    staged[lane][worker].as_mut().swap(batch);
                }
                parcel.ends = true;
                parcel.ended = ended.take();
            });
            out.broken |= sent.is_err();
        }
        if out.broken { Err(Gone) } else { Ok(()) }
    }

    fn pass(&mut self, _: u64) -> Result<(), Gone> {
        Ok(())
    }

    fn is_broken(&self) -> bool {
        self.out.broken || self.out.rings.iter().any(Producer::is_gone)
    }
}

impl Out {
    fn send(&mut self, worker: usize, lane: usize, batch: BatchMut<'_>) {
        let size = batch.size();
        let ring = &mut self.rings[worker];
        let fill = |parcel: &mut Parcel| batch.swap(&mut parcel.lanes[lane]);
        match self.overrun {
            Overrun::Wait => self.broken |= ring.push(fill).is_err(),
            Overrun::Drop => {
                if !ring.try_push(fill) {
                    self.dropped += size;
                    self.broken |= ring.is_gone();
                }
            }
        }
    }
}

/// Parcels in a worker's ring: 4096 packets, which fit into the second-level cache.
pub(super) const PARCELS: usize = 16;

/// A message in a worker's ring: a batch of one lane, or at the end of an epoch or an update the
/// rest of all lanes. The emptied batches come back.
pub(super) struct Parcel {
    pub(super) lanes: Vec<AnyBatch>,
    /// Whether the summaries are handed over after these batches.
    pub(super) ends: bool,
    /// The end of the epoch, in the parcel of the first worker.
    pub(super) ended: Option<Ended>,
}

impl Parcel {
    pub(super) fn new(lanes: &[usize]) -> Self {
        let lanes = lanes.iter().map(|key_bytes| AnyBatch::new(*key_bytes)).collect();
        Self { lanes, ends: false, ended: None }
    }
}

/// A thread that measures what the dispatcher deals to it, and its side of the sets that it fills.
pub(super) struct Worker {
    sets: User<Set>,
    swaps: Record,
}

impl Worker {
    pub(super) fn new(sets: User<Set>, swaps: Record) -> Self {
        Self { sets, swaps }
    }

    /// Measures parcels until the dispatcher is gone and the ring is empty, or the closer is gone.
    pub(super) fn run(mut self, mut work: Consumer<Parcel>) {
        while let Ok(Ok(())) = work.pop(|parcel| self.take(parcel)) {}
    }

    fn take(&mut self, parcel: &mut Parcel) -> Result<(), Gone> {
        for (lane, batch) in parcel.lanes.iter_mut().enumerate() {
            self.measure(lane, batch.as_mut())?;
        }
        if std::mem::take(&mut parcel.ends) { self.end(parcel.ended.take()) } else { Ok(()) }
    }

    /// Measures a batch, and clears it.
    #[inline]
    fn measure(&mut self, lane: usize, mut batch: BatchMut<'_>) -> Result<(), Gone> {
        if !batch.is_empty() {
            self.set()?.ingest(lane, batch.reborrow());
            batch.clear();
        }
        Ok(())
    }

    /// The set in use. Waits while the closer has all sets.
    #[inline]
    fn set(&mut self) -> Result<&mut Set, Gone> {
        if !self.sets.is_ready() {
            let begun = Instant::now();
            self.sets.current()?;
            self.swaps.record_wait(begun.elapsed());
        }
        self.sets.current()
    }

    /// Hands the summaries over to the closer.
    fn end(&mut self, ended: Option<Ended>) -> Result<(), Gone> {
        self.set()?.ended = ended;
        let begun = Instant::now();
        self.sets.hand_over()?;
        self.swaps.record(begun.elapsed());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In half of each worker's flows, every bit of the digest is set: among 64 bits of 10 workers,
    /// one is off by more than 6 standard deviations once in 10⁶ runs.
    #[test]
    fn dispatch_takes_no_bit_from_summaries() {
        let mut random = fastrand::Rng::with_seed(3);
        for workers in [2, 3, 5] {
            let (mut flows, mut set) = (vec![0.0; workers], vec![[0.0; 64]; workers]);
            for _ in 0..1 << 18 {
                let digest = random.u64(..);
                let to = usize::from(worker(digest, workers));
                flows[to] += 1.0;
                for (bit, set) in set[to].iter_mut().enumerate() {
                    *set += f64::from((digest >> bit & 1) as u32);
                }
            }
            for (flows, set) in flows.into_iter().zip(set) {
                let share: f64 = flows * workers as f64 / f64::from(1 << 18);
                assert!((share - 1.0).abs() < 0.02, "{share}");
                for (bit, set) in set.into_iter().enumerate() {
                    let off: f64 = (set - flows / 2.0) / (flows / 4.0).sqrt();
                    assert!(off.abs() < 6.0, "bit {bit} of {workers} workers: {off}");
                }
            }
        }
    }
}
