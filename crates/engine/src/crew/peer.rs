//! A worker among others that read the same input: each measures what it reads itself, or deals it out
//! among all of them, so that no flow is with two.

use std::thread;

use flowgauge_core::any::{AnyBatch, BatchMut};
use flowgauge_core::batcher::Take;
use flowgauge_kernel::{Consumer, Gone, Producer, ring};

use super::dispatch::{PARCELS, Parcel, Routing};
use crate::config::Config;
use crate::intake::{Crew, Ended};
use crate::summaries::Summaries;

/// Most workers that deal packets out among each other: there are batches for each pair of them.
pub(crate) const MOST_PEERS: usize = 16;

/// A worker's summaries, and how it deals packets out, where it does.
pub(crate) struct Peer<'a> {
    summaries: &'a mut Summaries,
    deal: Option<Deal>,
    pub(crate) ended: Ended,
}

/// Deals packets out among peers, and takes what they deal.
pub(crate) struct Deal {
    way: Routing,
    batch_packets: usize,
    /// For each lane the canonical bytes of its keys.
    key_bytes: Vec<usize>,
    /// For each lane the batches on their way to each peer.
    staged: Vec<Vec<AnyBatch>>,
    links: Links,
}

/// The rings between a peer and the others.
struct Links {
    /// To each of them; none to itself.
    out: Vec<Option<Producer<Parcel>>>,
    /// From the others.
    incoming: Vec<Consumer<Parcel>>,
    broken: bool,
}

impl Deal {
    /// One for each of so many peers, which measure lanes of keys of these sizes.
    pub(crate) fn among(
        peers: usize,
        config: &Config,
        way: Routing,
        key_bytes: &[usize],
    ) -> Vec<Self> {
        let links = |_| Links { out: Vec::new(), incoming: Vec::new(), broken: false };
        let mut links: Vec<_> = (0..peers).map(links).collect();
        // Each has about as many parcels on their way to it, however many the others are.
        let parcels = (PARCELS / peers.saturating_sub(1).max(1)).max(2);
        for from in 0..peers {
            for to in 0..peers {
                let ring = (from != to).then(|| ring(parcels, || Parcel::new(key_bytes)));
                let (producer, consumer) = ring.unzip();
                links[from].out.push(producer);
                links[to].incoming.extend(consumer);
            }
        }
        let staged = |key_bytes: &usize| (0..peers).map(|_| AnyBatch::new(*key_bytes)).collect();
        let deal = |links| Self {
            way,
            batch_packets: config.batch_packets,
            key_bytes: key_bytes.to_vec(),
            staged: key_bytes.iter().map(staged).collect(),
            links,
        };
        links.into_iter().map(deal).collect()
    }
}

impl Links {
    /// Measures a batch, or sends it to the peer of this number.
    fn send(
        &mut self,
        peer: usize,
        lane: usize,
        mut batch: BatchMut<'_>,
        summaries: &mut Summaries,
    ) {
        let Self { out, incoming, broken } = self;
        let Some(ring) = &mut out[peer] else { return summaries.take(lane, batch) };
        while !ring.try_push(|parcel| batch.reborrow().swap(&mut parcel.lanes[lane])) {
            if ring.is_gone() {
                *broken = true;
                break;
            }
            // The other one may wait for room here.
            if !receive(incoming, summaries) {
                thread::yield_now();
            }
        }
    }
}

/// Measures what others dealt so far; whether there was something.
fn receive(incoming: &mut [Consumer<Parcel>], summaries: &mut Summaries) -> bool {
    let mut some = false;
    for peer in incoming {
        let mut take = |parcel: &mut Parcel| {
            for (lane, batch) in parcel.lanes.iter_mut().enumerate() {
                let mut batch = batch.as_mut();
                if !batch.is_empty() {
                    summaries.take(lane, batch.reborrow());
                    batch.clear();
                }
            }
        };
        while peer.try_pop(&mut take).is_some() {
            some = true;
        }
    }
    some
}

impl<'a> Peer<'a> {
    pub(crate) fn new(summaries: &'a mut Summaries, deal: Option<Deal>) -> Self {
        Self { summaries, deal, ended: Ended::default() }
    }

    /// Measures what other peers dealt so far; whether there was something.
    pub(crate) fn receive(&mut self) -> bool {
        let receive = |deal: &mut Deal| receive(&mut deal.links.incoming, self.summaries);
        self.deal.as_mut().is_some_and(receive)
    }

    /// Sends what is left, and measures what others deal until all of them have done so.
    fn part(&mut self) {
        let Some(Deal { mut staged, mut links, .. }) = self.deal.take() else { return };
        for (lane, staged) in staged.iter_mut().enumerate() {
            for (peer, batch) in staged.iter_mut().enumerate() {
                if !batch.as_mut().is_empty() {
                    links.send(peer, lane, batch.as_mut(), self.summaries);
                }
            }
        }
        links.out.clear();
        loop {
            let gone = links.incoming.iter().all(Consumer::is_gone);
            let some = receive(&mut links.incoming, self.summaries);
            if gone {
                break;
            }
            if !some {
                thread::yield_now();
            }
        }
    }
}

impl Take for Peer<'_> {
    fn take(&mut self, lane: usize, mut batch: BatchMut<'_>) {
        let Self { summaries, deal, .. } = self;
        let Some(Deal { way, batch_packets, key_bytes, staged, links }) = deal else {
            return summaries.take(lane, batch);
        };
        let to = way.workers(lane, key_bytes[lane], &mut batch, staged[lane].len());
        batch.deal(&to, &mut staged[lane], *batch_packets, &mut |peer, batch| {
            links.send(peer, lane, batch, summaries);
        });
    }
}

impl Crew for Peer<'_> {
    fn end(&mut self, ended: Ended) -> Result<(), Gone> {
        self.part();
        self.summaries.settle();
        self.ended = ended;
        Ok(())
    }

    fn pass(&mut self, _: u64) -> Result<(), Gone> {
        Ok(())
    }

    fn is_broken(&self) -> bool {
        self.deal.as_ref().is_some_and(|deal| deal.links.broken)
    }
}
