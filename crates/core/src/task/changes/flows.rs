//! Changes of single flows, by forecasts in a table of their own.
//!
//! The forecast is an exponentially weighted moving average: after an epoch in which a flow had the
//! size x it becomes ½x + ½ × the previous forecast. After the first epoch it is x, and the
//! forecast of a flow without history is 0.
//!
//! A flow without a packet in an epoch is forgotten once its forecast falls below half a packet (or
//! byte); its forecast is then 0. Compared with an average that never forgets, differences change
//! by less than 1, and no forgotten flow could have been reported as vanished by a threshold of 1
//! or more.
//!
//! The history is a table of fixed size. Flows without room in it are counted. The largest of them,
//! and the weight that the summary itself could not track, give the upper bounds: of a forecast,
//! the moving average of these largest sizes is added; of the previous size, the largest of that
//! epoch, if the flow was not listed in it. The current size of an unlisted flow is the summary's
//! answer, or else at most the largest of this epoch. Untracked weight that may belong to listed
//! flows is added to their current and their previous size. Flows forgotten as too small count as 0
//! in these bounds too, so they hold to within 2.

use std::io;

use flowgauge_kernel::{Seed, Zeroed, scalar};

use super::{ALPHA, Found};
use crate::key::CanonicalKey;
use crate::summary::{Estimate, Flows, SizeQuery};
use crate::task::{ChangeItem, HistoryShape};
use crate::terms::{Measure, Size};

/// A flow without packets is forgotten when its forecast falls below this.
const FORGET_BELOW: f64 = 0.5;

/// The history of one lane.
pub(super) struct FlowForecasts {
    history: History,
    /// Maximum size in the previous epoch of a flow that was not listed in it.
    unknown_before: u64,
    /// Weight that a flow which was listed in the previous epoch may lack.
    lacked_before: u64,
    /// Maximum part that a forecast lacks because the flow was not listed in some epoch, or lacked
    /// packets.
    unknown_forecast: f64,
}

/// The unlisted flows of an epoch.
pub(super) struct Unlisted<'a> {
    /// Their maximum weight.
    pub(super) most: u64,
    /// Size queries, where the summary answers them.
    pub(super) sizes: Option<&'a dyn SizeQuery>,
}

impl Unlisted<'_> {
    /// No unlisted flows.
    pub(super) const NONE: Self = Self { most: 0, sizes: None };

    /// The size of an unlisted flow.
    fn size(&self, key: &[u8], by: Measure) -> Estimate {
        let sizes = self.sizes.filter(|_| self.most > 0);
        let asked = sizes.and_then(|sizes| sizes.estimate(key).by(by));
        asked.unwrap_or_else(|| at_least(0, self.most))
    }
}

/// The new record of a flow without a packet in the epoch; `None` if it is forgotten.
fn silent(record: Record) -> Option<Record> {
    let forecast = (1.0 - ALPHA) * record.forecast;
    (forecast >= FORGET_BELOW).then_some(Record { forecast, before: 0 })
}

impl FlowForecasts {
    /// Reserves the table.
    pub(super) fn new(shape: HistoryShape, seed: &Seed) -> io::Result<Self> {
        let history = History::new(shape, seed)?;
        Ok(Self { history, unknown_before: 0, lacked_before: 0, unknown_forecast: 0.0 })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.history.memory_bytes()
    }

    /// Records epochs without a packet.
    pub(super) fn pass(&mut self, epochs: u64, started: bool) {
        for _ in 0..epochs {
            self.history.sweep(|_, record| silent(record));
            self.remember_unknown(0, 0, started);
            if self.history.is_empty() && self.unknown_forecast == 0.0 {
                break;
            }
        }
    }

    /// Records an epoch, and adds its changes to `found`.
    pub(super) fn run(
        &mut self,
        started: bool,
        flows: &dyn Flows,
        unlisted: &Unlisted<'_>,
        scratch: &mut [u64],
        found: &mut Found,
    ) {
        let by = found.by;
        let (unknown_before, unknown_forecast) = (self.unknown_before, self.unknown_forecast);
        let (lacked_before, may_lack) = (self.lacked_before, flows.may_lack().by(by));
        let mut consider = |key: &[u8], record: Record, now: Estimate| {
            let difference = (now.value - record.forecast).abs();
            if difference > found.threshold
                && found.largest.admits(difference, || CanonicalKey::new(key))
            {
                let key = CanonicalKey::new(key);
                let Record { forecast, before } = record;
                let lacked = if before > 0 { lacked_before } else { unknown_before };
                let item = ChangeItem {
                    key,
                    before: at_least(before, lacked),
                    forecast: Estimate::between(forecast, forecast, forecast + unknown_forecast),
                    now,
                };
                found.largest.push(difference, item);
            }
        };

        let missing = &mut scratch[..flows.len().div_ceil(64)];
        missing.fill(0);
        let mut flow = 0;
        flows.for_each(&mut |key, size| {
            let now = size.by(by);
            if let Some(at) = self.history.find(key) {
                let record = self.history.get(at);
                consider(key, record, at_least(now, may_lack));
                let forecast = ALPHA * now as f64 + (1.0 - ALPHA) * record.forecast;
                self.history.see(at, Record { forecast, before: now });
            } else {
                consider(key, Record { forecast: 0.0, before: 0 }, at_least(now, may_lack));
                missing[flow / 64] |= 1 << (flow % 64);
            }
            flow += 1;
        });
        self.history.sweep(|key, record| {
            consider(key, record, unlisted.size(key, by));
            silent(record)
        });

        // New flows are inserted last, since the sweep has made room.
        let mut unknown = unlisted.most;
        let first_alpha = if started { ALPHA } else { 1.0 };
        flow = 0;
        flows.for_each(&mut |key, size| {
            if missing[flow / 64] >> (flow % 64) & 1 == 1 {
                let now = size.by(by);
                let record = Record { forecast: first_alpha * now as f64, before: now };
                if !self.history.insert(key, record) {
                    found.untracked += 1;
                    unknown = unknown.max(now);
                }
            }
            flow += 1;
        });
        self.remember_unknown(unknown, may_lack, started);
    }

    /// Updates the bounds with the largest size in the epoch without a record, and with the weight
    /// that listed flows may lack.
    fn remember_unknown(&mut self, largest: u64, lacked: u64, started: bool) {
        let alpha = if started { ALPHA } else { 1.0 };
        let forecast = alpha * largest.max(lacked) as f64 + (1.0 - ALPHA) * self.unknown_forecast;
        self.unknown_forecast = if forecast >= FORGET_BELOW { forecast } else { 0.0 };
        (self.unknown_before, self.lacked_before) = (largest, lacked);
    }
}

/// A size that may lack this much.
fn at_least(value: u64, lacked: u64) -> Estimate {
    Estimate::between(value as f64, value as f64, (value + lacked) as f64)
}

/// The flows of a missing lane.
pub(super) struct NoFlows;

impl Flows for NoFlows {
    fn most(&self) -> usize {
        0
    }

    fn len(&self) -> usize {
        0
    }

    fn get(&self, _: usize) -> (&[u8], Size) {
        (&[], Size::default())
    }

    fn for_each(&self, _: &mut dyn FnMut(&[u8], Size)) {}
}

/// Words of the longest key.
const KEY_WORDS: usize = CanonicalKey::MAX_BYTES.div_ceil(8);

/// Words of a record before its key: the bits of the forecast, and the previous size.
const HEAD: usize = 2;

/// Maximum number of probes in the index. More than half of the index is free, so without
/// deliberate collisions fewer than one key in 10⁹ would need more.
const MOST_PROBES: usize = 128;

/// The history of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Record {
    /// Its forecast for the open epoch.
    pub(super) forecast: f64,
    /// Its size in the previous epoch.
    pub(super) before: u64,
}

/// A hash table of flow records with fixed capacity.
///
/// Records are stored in order of insertion, and an index with linear probing finds them by key.
/// Forgetting records closes the gaps and rebuilds the index.
///
/// Memory for each of `flows` five-tuple keys: a record of 32 bytes (IPv4) or 56 (IPv6), 8 bytes of
/// index, and a bit.
pub(super) struct History {
    key_bytes: usize,
    capacity: usize,
    len: usize,
    secret: [u64; 4],
    records: Zeroed<u64>,
    /// Record numbers counted from 1; 0 is free. Less than half of it is occupied.
    index: Zeroed<u32>,
    /// One bit for each record, set if the flow was seen in this epoch.
    seen: Zeroed<u64>,
}

impl History {
    /// Reserves the table.
    pub(super) fn new(shape: HistoryShape, seed: &Seed) -> io::Result<Self> {
        let HistoryShape { key_bytes, flows, .. } = shape;
        let too_many = || io::Error::from(io::ErrorKind::OutOfMemory);
        u32::try_from(flows).map_err(|_| too_many())?;
        let words = HEAD + key_bytes.div_ceil(8);
        Ok(Self {
            key_bytes,
            capacity: flows,
            len: 0,
            secret: *seed.secret(),
            records: Zeroed::new(flows.checked_mul(words).ok_or_else(too_many)?)?,
            index: Zeroed::new(2 * flows + 1)?,
            seen: Zeroed::new(flows.div_ceil(64))?,
        })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.records.memory_bytes() + self.index.memory_bytes() + self.seen.memory_bytes()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of the record of this key.
    pub(super) fn find(&self, key: &[u8]) -> Option<usize> {
        let words = self.words_of(key);
        let record = self.index[self.slot_of(&words)?];
        (record != 0).then(|| record as usize - 1)
    }

    pub(super) fn get(&self, record: usize) -> Record {
        let at = record * self.stride();
        Record { forecast: f64::from_bits(self.records[at]), before: self.records[at + 1] }
    }

    /// Replaces a record, and marks it as seen until the next [`Self::sweep`].
    pub(super) fn see(&mut self, record: usize, new: Record) {
        self.seen[record / 64] |= 1 << (record % 64);
        self.set(record, new);
    }

    /// Inserts the record of a new key; `false` if the table is full, or probing found no free
    /// slot.
    pub(super) fn insert(&mut self, key: &[u8], new: Record) -> bool {
        if self.len == self.capacity {
            return false;
        }
        let words = self.words_of(key);
        let Some(slot) = self.slot_of(&words) else { return false };
        let record = self.len;
        self.len += 1;
        self.index[slot] = self.len as u32;
        let (start, stride) = (record * self.stride(), self.stride());
        self.records[start + HEAD..start + stride].copy_from_slice(&words[..stride - HEAD]);
        self.set(record, new);
        true
    }

    /// Replaces each unseen record by the result of `renew`, or forgets it where the result is
    /// `None`. Afterwards no record is marked as seen.
    pub(super) fn sweep(&mut self, mut renew: impl FnMut(&[u8], Record) -> Option<Record>) {
        let stride = self.stride();
        let mut kept = 0;
        for record in 0..self.len {
            if self.seen[record / 64] >> (record % 64) & 1 == 0 {
                match renew(self.key(record), self.get(record)) {
                    Some(new) => self.set(record, new),
                    None => continue,
                }
            }
            self.records.copy_within(record * stride..(record + 1) * stride, kept * stride);
            kept += 1;
        }
        self.seen.fill(0);
        if kept < self.len {
            self.len = kept;
            self.rebuild();
        }
    }

    /// No record needs more probes than before, since the records inserted before it are fewer and
    /// in the same order.
    fn rebuild(&mut self) {
        self.index.fill(0);
        for record in 0..self.len {
            let words = self.words_of(self.key(record));
            if let Some(slot) = self.free_slot(&words) {
                self.index[slot] = record as u32 + 1;
            }
        }
    }

    fn set(&mut self, record: usize, new: Record) {
        let at = record * self.stride();
        self.records[at] = new.forecast.to_bits();
        self.records[at + 1] = new.before;
    }

    fn stride(&self) -> usize {
        HEAD + self.key_bytes.div_ceil(8)
    }

    fn key(&self, record: usize) -> &[u8] {
        let words = &self.records[record * self.stride() + HEAD..(record + 1) * self.stride()];
        &bytemuck::cast_slice(words)[..self.key_bytes]
    }

    fn words_of(&self, key: &[u8]) -> [u64; KEY_WORDS] {
        let mut words = [0; KEY_WORDS];
        bytemuck::bytes_of_mut(&mut words)[..self.key_bytes].copy_from_slice(key);
        words
    }

    /// The slot of the key's record, or the free slot for it; `None` if probing finds neither.
    fn slot_of(&self, words: &[u64; KEY_WORDS]) -> Option<usize> {
        let stride = self.stride();
        self.probe(words, |record| {
            let start = record * stride;
            self.records[start + HEAD..start + stride] == words[..stride - HEAD]
        })
    }

    fn free_slot(&self, words: &[u64; KEY_WORDS]) -> Option<usize> {
        self.probe(words, |_| false)
    }

    /// The first slot in probing order that is free or whose record is `wanted`.
    fn probe(&self, words: &[u64; KEY_WORDS], wanted: impl Fn(usize) -> bool) -> Option<usize> {
        let slots = self.index.len();
        // Scales the digest by the number of slots, which need not be a power of two.
        let mut slot = scalar::multiply(self.digest(words), slots as u64).1 as usize;
        for _ in 0..MOST_PROBES {
            match self.index[slot] {
                0 => return Some(slot),
                record if wanted(record as usize - 1) => return Some(slot),
                _ if slot + 1 < slots => slot += 1,
                _ => slot = 0,
            }
        }
        None
    }

    fn digest(&self, words: &[u64; KEY_WORDS]) -> u64 {
        let key = words.map(u64::from_le);
        let (secret, bytes) = (&self.secret, self.key_bytes);
        match bytes {
            0..=8 => scalar::digest1(secret, key[0], bytes),
            9..=16 => scalar::digest2(secret, [key[0], key[1]], bytes),
            17..=32 => scalar::digest4(secret, [key[0], key[1], key[2], key[3]], bytes),
            _ => scalar::digest5(secret, key, bytes),
        }
    }
}
