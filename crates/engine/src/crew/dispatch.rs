//! Which worker measures a packet, and how it gets there.

use std::mem;

use flowgauge_core::batch::Batch;
use flowgauge_core::key::FlowKey;
use flowgauge_core::summary::Size;
use flowgauge_kernel::{Digester, Gone, Producer};

use super::closing::Event;
use super::worker::Parcel;
use crate::config::{Config, Dispatch, Overrun};
use crate::error::EngineError;
use crate::lanes::{Take, size};
use crate::reader::{Crew, Ended};
use crate::report::Gap;

/// How a packet finds its worker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// By bits 48 to 63 of the digest, which goes with the packet.
    Digest(Digester),
    /// By the number of one-bits of the source address: the first bytes of a key, so many in either
    /// lane.
    Source([usize; 2]),
    /// With the whole batch, by turns.
    Queue,
}

impl Way {
    /// Its name in a configuration.
    pub(crate) fn dispatch(&self) -> Dispatch {
        match self {
            Self::Digest(_) => Dispatch::Digest,
            Self::Source(_) => Dispatch::Source,
            Self::Queue => Dispatch::Queue,
        }
    }
}

/// The one who reads: batches of the lanes go to the workers.
pub(crate) struct Dispatcher<A, B> {
    way: Way,
    batch_packets: usize,
    /// What is on its way to each worker.
    first: Vec<Batch<A>>,
    second: Vec<Batch<B>>,
    /// Whose turn it is.
    turn: usize,
    out: Out<A, B>,
    events: Producer<Option<Event>>,
}

/// The ways out.
struct Out<A, B> {
    rings: Vec<Producer<Parcel<A, B>>>,
    overrun: Overrun,
    /// Packets and bytes of the open epoch that found a ring full.
    dropped: Size,
    /// Somebody is gone.
    broken: bool,
}

impl<A: FlowKey, B: FlowKey> Dispatcher<A, B> {
    pub(super) fn new(
        config: &Config,
        way: Way,
        rings: Vec<Producer<Parcel<A, B>>>,
        events: Producer<Option<Event>>,
    ) -> Self {
        let workers = rings.len();
        let (overrun, dropped, broken) = (config.overrun, Size::default(), false);
        Self {
            way,
            batch_packets: config.batch_packets,
            first: (0..workers).map(|_| Batch::new()).collect(),
            second: (0..workers).map(|_| Batch::new()).collect(),
            turn: 0,
            out: Out { rings, overrun, dropped, broken },
            events,
        }
    }

    /// The worker whose turn it is.
    fn next(&mut self) -> usize {
        let turn = self.turn;
        self.turn = (turn + 1) % self.first.len();
        turn
    }
}

impl<A: FlowKey, B: FlowKey> Take<A, B> for Dispatcher<A, B> {
    fn first(&mut self, batch: &mut Batch<A>) {
        let turn = self.next();
        let send = |to, batch: &mut _| self.out.first(to, batch);
        scatter(self.way, 0, turn, batch, &mut self.first, self.batch_packets, send);
    }

    fn second(&mut self, batch: &mut Batch<B>) {
        let turn = self.next();
        let send = |to, batch: &mut _| self.out.second(to, batch);
        scatter(self.way, 1, turn, batch, &mut self.second, self.batch_packets, send);
    }
}

/// Sends each packet of a lane's batch to its worker, in batches of so many.
fn scatter<K: FlowKey>(
    way: Way,
    lane: usize,
    turn: usize,
    batch: &mut Batch<K>,
    staged: &mut [Batch<K>],
    batch_packets: usize,
    mut send: impl FnMut(usize, &mut Batch<K>),
) {
    let workers = staged.len();
    let mut stage = |batch: &Batch<K>, row: usize, to: usize| {
        let staged = &mut staged[to];
        staged.push_row(batch, row);
        if staged.len() == batch_packets {
            send(to, staged);
            staged.clear();
        }
    };
    match way {
        _ if workers == 1 => send(0, batch),
        Way::Digest(digester) => {
            batch.digest(&digester);
            for row in 0..batch.len() {
                let bits = (batch.digests()[row] >> 48) as usize;
                stage(batch, row, (bits * workers) >> 16);
            }
        }
        Way::Source(bytes) => {
            for row in 0..batch.len() {
                let source = &batch.keys()[row].canonical()[..bytes[lane]];
                let ones: u32 = source.iter().map(|byte| byte.count_ones()).sum();
                stage(batch, row, ones as usize % workers);
            }
        }
        Way::Queue => send(turn, batch),
    }
}

impl<A: FlowKey, B: FlowKey> Crew<A, B> for Dispatcher<A, B> {
    fn end(&mut self, mut ended: Ended) -> Result<(), EngineError> {
        let out = &mut self.out;
        for (at, (first, second)) in self.first.iter_mut().zip(&mut self.second).enumerate() {
            out.broken |= out.end(at, first, second).is_err();
        }
        ended.account.dropped = out.dropped;
        if !ended.update {
            out.dropped = Size::default();
        }
        let end = Event::End(Box::new(ended));
        out.broken |= self.events.push(|event| *event = Some(end)).is_err();
        self.whole()
    }

    fn gap(&mut self, gap: &Gap) -> Result<(), EngineError> {
        let event = Event::Gap(*gap);
        self.out.broken |= self.events.push(|slot| *slot = Some(event)).is_err();
        self.whole()
    }

    fn is_broken(&self) -> bool {
        self.out.broken || self.events.is_gone()
    }
}

impl<A, B> Dispatcher<A, B> {
    /// Whether nobody is gone. Who it was, and why, comes out when the threads are joined.
    fn whole(&self) -> Result<(), EngineError> {
        if self.out.broken {
            let (thread, message) = ("a worker".to_owned(), "it is gone".to_owned());
            return Err(EngineError::Panicked { thread, message });
        }
        Ok(())
    }
}

impl<A: FlowKey, B: FlowKey> Out<A, B> {
    fn first(&mut self, to: usize, batch: &mut Batch<A>) {
        self.push(to, size(batch), |parcel| mem::swap(&mut parcel.first, batch));
    }

    fn second(&mut self, to: usize, batch: &mut Batch<B>) {
        self.push(to, size(batch), |parcel| mem::swap(&mut parcel.second, batch));
    }

    fn push(&mut self, to: usize, size: Size, fill: impl FnOnce(&mut Parcel<A, B>)) {
        let ring = &mut self.rings[to];
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

    /// Sends a worker what is left of the epoch so far, which ends there or is updated: that is never
    /// dropped.
    fn end(&mut self, to: usize, first: &mut Batch<A>, second: &mut Batch<B>) -> Result<(), Gone> {
        self.rings[to].push(|parcel| {
            mem::swap(&mut parcel.first, first);
            mem::swap(&mut parcel.second, second);
            parcel.ends = true;
        })
    }
}
