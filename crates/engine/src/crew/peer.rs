//! Peers: workers that read the same input by turns. Each measures what it reads, or deals it out
//! among all peers so that each flow belongs to one of them.

use std::thread;

use flowgauge_core::any::{AnyBatch, BatchMut};
use flowgauge_core::batcher::Take;
use flowgauge_kernel::{Consumer, Gone, Producer, ring};

use super::dispatch::{PARCELS, Parcel, Routing};
use crate::config::Config;
use crate::intake::{Crew, Ended};
use crate::summaries::Summaries;

/// Most workers that deal packets to each other; there are batches for each pair.
pub(crate) const MOST_PEERS: usize = 16;

/// A worker's summaries, and its rings to other peers if it deals packets out.
pub(crate) struct Peer<'a> {
    summaries: &'a mut Summaries,
    deal: Option<Deal>,
    pub(crate) ended: Ended,
}

/// Deals packets out among peers, and receives what they deal.
pub(crate) struct Deal {
    routing: Routing,
    batch_packets: usize,
    /// Canonical bytes of each lane's keys.
    key_bytes: Vec<usize>,
    /// For each lane, the batches being filled for each peer.
    staged: Vec<Vec<AnyBatch>>,
    links: Links,
}

/// The rings between a peer and the others.
struct Links {
    /// One to each peer; `None` to itself.
    out: Vec<Option<Producer<Parcel>>>,
    /// One from each other peer.
    incoming: Vec<Consumer<Parcel>>,
    broken: bool,
}

impl Deal {
    /// One for each of `peers` workers, for lanes with keys of these sizes.
    pub(crate) fn among(
        peers: usize,
        config: &Config,
        routing: Routing,
        key_bytes: &[usize],
    ) -> Vec<Self> {
        let links = |_| Links { out: Vec::new(), incoming: Vec::new(), broken: false };
        let mut links: Vec<_> = (0..peers).map(links).collect();
        // Keep the number of parcels on their way to a peer about equal for any number of peers.
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
            routing,
            batch_packets: config.batch_packets,
            key_bytes: key_bytes.to_vec(),
            staged: key_bytes.iter().map(staged).collect(),
            links,
        };
        links.into_iter().map(deal).collect()
    }
}

impl Links {
    /// Measures a batch, or sends it to the peer with this number.
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
            // The other peer may be waiting for room in a ring to this one.
            if !receive(incoming, summaries) {
                thread::yield_now();
            }
        }
    }
}

/// Measures what other peers have dealt; returns whether there was anything.
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

    /// Measures what other peers have dealt; returns whether there was anything.
    pub(crate) fn receive(&mut self) -> bool {
        let receive = |deal: &mut Deal| receive(&mut deal.links.incoming, self.summaries);
        self.deal.as_mut().is_some_and(receive)
    }

    /// Sends the remaining packets, and measures what others deal until all have done the same.
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
        let Some(Deal { routing, batch_packets, key_bytes, staged, links }) = deal else {
            return summaries.take(lane, batch);
        };
        let to = routing.workers(key_bytes[lane], &mut batch, staged[lane].len());
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
