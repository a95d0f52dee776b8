//! `superspreaders` and `victims`: addresses with many distinct peers (Simple, section 4.2).
//!
//! A superspreader is a source with more than N distinct destinations, a victim a destination with
//! more than N distinct sources. A peer is an address, a port, or an endpoint (address and port,
//! whatever the protocol; of the key `pair`, the address).
//!
//! An address cannot have more peers than flows. So a first pass counts flows in buckets chosen by
//! a hash of the address, and only the flows of buckets with more than N are sorted by address and
//! peer, and counted. Time: two passes, and the sorting of these few flows.
//!
//! A summary that counts the distinct peers of each address itself has that address as its key. Its
//! distinct counts are listed.
//!
//! Where a table was full, each untracked packet may have been a new peer of any address, which
//! gives the upper bound.

use std::ops::Range;

use super::largest::{self, Largest};
use super::order::{self, Column};
use super::registry::{TaskEntry, TaskOptions};
use super::{EpochContext, Lane, Lists, Report, SpreadItem, Task, Unsupported};
use super::{Side, exact};
use crate::key::{CanonicalKey, KeyKind};
use crate::summary::{Estimate, Flows};
use crate::terms::{Measure, SpreadOf};

pub(super) const SUPERSPREADERS: TaskEntry = TaskEntry {
    name: "superspreaders",
    question: "sources with many distinct destinations",
    by_default: true,
    timeline: false,
    build: |options| Ok(Box::new(Spread::new("superspreaders", Side::Source, options))),
};

pub(super) const VICTIMS: TaskEntry = TaskEntry {
    name: "victims",
    question: "destinations with many distinct sources",
    by_default: false,
    timeline: false,
    build: |options| Ok(Box::new(Spread::new("victims", Side::Destination, options))),
};

/// The alternative to a table.
const INSTEAD: &str = "a summary that counts distinct peers";

struct Spread {
    name: &'static str,
    side: Side,
    more_than: u64,
    of: SpreadOf,
}

/// The byte ranges of a lane's keys that the task compares.
struct Fields {
    /// The address whose peers are counted.
    address: Range<usize>,
    /// The address, then the peer.
    columns: Vec<Column>,
    /// Byte ranges of the peer's address and port.
    peer: [Range<usize>; 2],
}

impl Spread {
    fn new(name: &'static str, side: Side, options: &TaskOptions) -> Self {
        Self { name, side, more_than: options.spread, of: options.spread_of }
    }

    /// Checks that a lane with distinct counts counts the peers of this side.
    fn check_side(&self, lane: &Lane<'_>) -> Result<(), Unsupported> {
        let address = self.side.address();
        if lane.key.kind() == KeyKind::of(&[address]) {
            return Ok(());
        }
        let name = address.name();
        Err(Unsupported(format!(
            "{} from a summary that counts distinct peers needs the key {name} (got {})",
            self.name, lane.key
        )))
    }

    fn fields(&self, lane: &Lane<'_>) -> Result<Fields, Unsupported> {
        let other = self.side.other();
        let (peer, port) = (lane.place(other.address()), lane.place(other.port()));
        let by_port = self.of == SpreadOf::Port;
        let Some(address) = lane.place(self.side.address()).filter(|_| by_port || peer.is_some())
        else {
            return Err(Unsupported(format!(
                "{} needs a key with source and destination (got {}); use five-tuple or pair, or \
                 an algorithm that counts distinct peers, such as two-level",
                self.name, lane.key
            )));
        };
        let (peer, port) = match self.of {
            SpreadOf::Address => (peer, None),
            SpreadOf::Endpoint => (peer, port),
            SpreadOf::Port if port.is_some() => (None, port),
            SpreadOf::Port => {
                return Err(Unsupported(format!(
                    "{} by ports needs a key with the {} (got {}); use five-tuple, or \
                     --spread-of address",
                    self.name,
                    other.port().name(),
                    lane.key
                )));
            }
        };
        let (peer, port) = (peer.unwrap_or_default(), port.unwrap_or_default());
        let columns = order::columns([address.clone(), peer.clone(), port.clone()]);
        Ok(Fields { address, columns, peer: [peer, port] })
    }

    /// Writes the flows whose address may exceed the threshold to the front of the entries, and
    /// returns their number.
    fn suspects(&self, flows: &dyn Flows, fields: &Fields, scratch: &mut [u64]) -> usize {
        let shift = 64 - order::bucket_bits(flows.len());
        let (counts, entries) = scratch.split_at_mut(count_words(flows.len()));
        let counts: &mut [u32] = bytemuck::cast_slice_mut(counts);
        let bucket =
            |key: &[u8]| (order::bucket_hash(&key[fields.address.clone()]) >> shift) as usize;
        counts.fill(0);
        flows.for_each(&mut |key, _| counts[bucket(key)] += 1);
        let (mut flow, mut suspects) = (0, 0);
        flows.for_each(&mut |key, _| {
            if u64::from(counts[bucket(key)]) > self.more_than {
                entries[suspects] = order::entry(0, flow);
                suspects += 1;
            }
            flow += 1;
        });
        suspects
    }
}

impl Task for Spread {
    fn name(&self) -> &'static str {
        self.name
    }

    fn scratch_bytes(&self, flows: usize) -> usize {
        (count_words(flows) + flows) * size_of::<u64>()
    }

    fn report_bytes(&self, lists: Lists, flows: usize) -> usize {
        largest::memory_bytes::<SpreadItem>(lists.limit.min(flows))
    }

    fn check(&self, _: Measure, lanes: &[Lane<'_>]) -> Result<(), Unsupported> {
        lanes.iter().try_for_each(|lane| match lane.answers.spread() {
            Some(_) => self.check_side(lane),
            None => self.fields(lane).and_then(|_| exact(self.name, INSTEAD, lane).map(drop)),
        })
    }

    fn run(
        &mut self,
        epoch: &EpochContext<'_>,
        lanes: &[Lane<'_>],
        scratch: &mut [u64],
    ) -> Result<Report, Unsupported> {
        let mut largest = Largest::new(usize::MAX, epoch.lists.limit);
        for lane in lanes {
            if let Some(spread) = lane.answers.spread() {
                self.check_side(lane)?;
                spread.for_each(&mut |address, distinct| {
                    if distinct.value > self.more_than as f64 {
                        largest.offer(distinct.value, SpreadItem { address, distinct });
                    }
                });
                continue;
            }
            let fields = self.fields(lane)?;
            let flows = exact(self.name, INSTEAD, lane)?;
            let suspects = self.suspects(flows, &fields, scratch);
            let entries = &mut scratch[count_words(flows.len())..][..suspects];
            order::sort(entries, flows, &fields.columns);
            let untracked = lane.answers.untracked().packets;
            count_peers(entries, flows, &fields, |address, peers| {
                if peers > self.more_than {
                    let (low, high) = (peers as f64, (peers + untracked) as f64);
                    let distinct = Estimate::between(low, low, high);
                    let address = CanonicalKey::new(address);
                    largest.offer(low, SpreadItem { address, distinct });
                }
            });
        }
        let (items, truncated) = largest.into_list();
        let Self { side, of, more_than: threshold, .. } = *self;
        Ok(Report::Spread { side, of, threshold, items, truncated })
    }
}

/// Calls `found` with each address in the sorted entries and its distinct count of peers.
fn count_peers(
    entries: &[u64],
    flows: &dyn Flows,
    fields: &Fields,
    mut found: impl FnMut(&[u8], u64),
) {
    let mut last: Option<(&[u8], [&[u8]; 2])> = None;
    let mut peers = 0;
    for &entry in entries {
        let key = flows.get(order::flow(entry)).0;
        let address = &key[fields.address.clone()];
        let peer = fields.peer.clone().map(|field| &key[field]);
        match last {
            Some((same, last_peer)) if same == address => peers += u64::from(peer != last_peer),
            Some((other, _)) => {
                found(other, peers);
                peers = 1;
            }
            None => peers = 1,
        }
        last = Some((address, peer));
    }
    if let Some((address, _)) = last {
        found(address, peers);
    }
}

/// Words of scratch memory for the 32-bit counts.
fn count_words(flows: usize) -> usize {
    1 << (order::bucket_bits(flows) - 1)
}
