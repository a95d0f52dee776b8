//! The packets that records represent, until they are lent out.

use std::ops::Range;

use flowgauge_core::packet::{Frame, LinkType};
use flowgauge_engine::source::{Burst, Thinned};

use crate::account::{Account, Count};
use crate::record::Record;

/// Maximum number of packets that one record represents. Counting that many takes about half a
/// second.
pub const MOST_PACKETS: u64 = 1 << 26;

/// Maximum number of packets that all records of a datagram represent.
const MOST_OF_ALL: u64 = 1 << 27;

/// Maximum mean packet length of a record in bytes. Interfaces merge packets up to half of that.
const LONGEST: u128 = 1 << 20;

/// The packets of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent<'a> {
    /// Captured bytes of each packet.
    pub frame: &'a [u8],
    /// The link type of `frame`.
    pub link: LinkType,
    /// Number of packets.
    pub packets: u64,
    /// Length of each packet on the wire; the first `longer` packets have one byte more.
    pub wire: u32,
    /// Number of packets that are one byte longer.
    pub longer: u64,
}

struct Entry {
    frame: Range<usize>,
    link: LinkType,
    packets: u64,
    wire: u32,
    longer: u64,
}

/// The packets of a datagram's records that are not lent out yet.
#[derive(Default)]
pub(crate) struct Queue {
    frames: Vec<u8>,
    entries: Vec<Entry>,
    /// Number of entries lent out.
    done: usize,
    /// Packets of all entries.
    packets: u64,
    /// How the sampled packets were sampled.
    thinned: Option<Thinned>,
}

/// A length in bytes that packets hardly exceed on any interface. Records give only the mean of a
/// flow.
const JUMBO: u32 = 9216;

impl Queue {
    /// Whether all packets were lent out.
    pub(crate) fn is_empty(&self) -> bool {
        self.done == self.entries.len()
    }

    /// Number of packets that are not lent out yet.
    pub(crate) fn left(&self) -> u64 {
        self.entries[self.done..].iter().map(|entry| entry.packets).sum()
    }

    /// Removes all packets.
    pub(crate) fn clear(&mut self) {
        self.frames.clear();
        self.entries.clear();
        (self.done, self.packets) = (0, 0);
        self.thinned = None;
    }

    /// Adds the packets of a record that was sampled one in `one_in`.
    pub(crate) fn flow(&mut self, record: &Record, one_in: u64, account: &mut Account) {
        let Record { packets, bytes, .. } = *record;
        if let Some((packets, wire, longer)) = self.spread(packets, bytes, one_in, account) {
            let start = self.frames.len();
            record.append_frame(&mut self.frames);
            let (frame, link) = (start..self.frames.len(), LinkType::ETHERNET);
            self.entries.push(Entry { frame, link, packets, wire, longer });
            self.sampled(one_in, wire);
        }
    }

    /// Adds the packets that one sampled packet represents.
    pub(crate) fn packet(
        &mut self,
        (link, header): (LinkType, &[u8]),
        wire: u32,
        one_in: u64,
        account: &mut Account,
    ) {
        if let Some((packets, wire, longer)) = self.spread(1, u64::from(wire), one_in, account) {
            let start = self.frames.len();
            self.frames.extend_from_slice(header);
            let frame = start..self.frames.len();
            self.entries.push(Entry { frame, link, packets, wire, longer });
            self.sampled(one_in, wire);
        }
    }

    /// Notes how packets were sampled.
    fn sampled(&mut self, one_in: u64, wire: u32) {
        if one_in > 1 {
            let thinned = Thinned { one_in, longest: JUMBO.max(wire + 1) };
            self.thinned = Some(self.thinned.map_or(thinned, |own| own.and(thinned)));
        }
    }

    /// The number of packets that sampled ones represent, the length of each, and how many are one
    /// byte longer, so that the sum is exact. Counts the record, or the reason for refusing it.
    fn spread(
        &mut self,
        packets: u64,
        bytes: u64,
        one_in: u64,
        account: &mut Account,
    ) -> Option<(u64, u32, u64)> {
        let one_in = one_in.max(1);
        if packets == 0 {
            account.add(Count::NoFlow, 1);
            return None;
        }
        let most = MOST_PACKETS.min(MOST_OF_ALL - self.packets);
        let all = packets.checked_mul(one_in).filter(|all| *all <= most);
        let total = u128::from(bytes) * u128::from(one_in);
        let Some(all) = all.filter(|all| total <= LONGEST * u128::from(*all)) else {
            account.add(Count::TooLarge, 1);
            return None;
        };
        self.packets += all;
        account.add(Count::Records, 1);
        account.add(Count::Packets, all);
        let (wire, longer) = (total / u128::from(all), total % u128::from(all));
        Some((all, wire as u32, longer as u64))
    }

    /// The packets that are not lent out yet, record by record.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Lent<'_>> {
        self.entries[self.done..].iter().map(|entry| {
            let Entry { link, packets, wire, longer, .. } = *entry;
            Lent { frame: &self.frames[entry.frame.clone()], link, packets, wire, longer }
        })
    }

    /// Lends out the next packets, all with this time.
    pub(crate) fn lend<'a>(&'a mut self, burst: &mut Burst<'a>, time_ns: i64) {
        let Self { frames, entries, done, thinned, .. } = self;
        if let Some(thinned) = *thinned {
            burst.thin(thinned);
        }
        let frames: &'a [u8] = frames;
        while let Some(entry) = entries.get_mut(*done)
            && burst.room() > 0
        {
            let room = burst.room() as u64;
            let packets = entry.packets.min(room) as usize;
            let longer = entry.longer.min(packets as u64) as usize;
            let Entry { wire, link, .. } = *entry;
            let frame = Frame { bytes: &frames[entry.frame.clone()], wire, link, time_ns };
            burst.repeat(Frame { wire: wire + 1, ..frame }, longer);
            burst.repeat(frame, packets - longer);
            entry.packets -= packets as u64;
            entry.longer -= longer as u64;
            *done += usize::from(entry.packets == 0);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use flowgauge_engine::source::Columns;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// All packets and bytes are lent out, in bursts of 256, however they divide.
        #[test]
        fn packets_and_bytes_add_up(records in proptest::collection::vec(
            (1u64..2_000, 0u64..1 << 20, 1u64..50), 1..5,
        )) {
            let (mut queue, mut account) = (Queue::default(), Account::default());
            for (packets, bytes, one_in) in &records {
                let record = Record { packets: *packets, bytes: *bytes, ..Record::NONE };
                queue.flow(&record, *one_in, &mut account);
            }
            let (mut packets, mut bytes, mut columns) = (0, 0, Columns::default());
            while !queue.is_empty() {
                let mut burst = Burst::new(&mut columns);
                queue.lend(&mut burst, 7);
                let len = burst.len() as u64;
                prop_assert!(len > 0);
                for frame in burst.frames().iter() {
                    bytes += u64::from(frame.wire);
                    prop_assert_eq!((frame.time_ns, frame.bytes.len()), (7, 34));
                }
                drop(burst);
                packets += len;
                prop_assert!(len == 256 || queue.is_empty());
            }
            let sum = |of: fn(&(u64, u64, u64)) -> u64| records.iter().map(of).sum::<u64>();
            prop_assert_eq!(packets, sum(|record| record.0 * record.2));
            prop_assert_eq!(bytes, sum(|record| record.1 * record.2));
            prop_assert_eq!(account.get(Count::Packets), packets);
            prop_assert_eq!(account.get(Count::Records), records.len() as u64);
        }
    }

    #[test]
    fn too_large_records_are_refused_and_counted() {
        let (mut queue, mut account) = (Queue::default(), Account::default());
        let mut flow = |packets, bytes, one_in| {
            queue.flow(&Record { packets, bytes, ..Record::NONE }, one_in, &mut account);
            queue.iter().last().map(|lent| lent.packets)
        };
        assert_eq!(flow(MOST_PACKETS, 0, 1), Some(MOST_PACKETS));
        assert_eq!(flow(1, 60, MOST_PACKETS), Some(MOST_PACKETS));
        flow(MOST_PACKETS + 1, 0, 1);
        flow(2, 0, MOST_PACKETS);
        flow(u64::MAX, 0, u64::MAX);
        flow(1, u64::MAX, u64::MAX);
        flow(1, (1 << 20) + 1, 1);
        flow(0, 100, 1);
        let [records, large, none] =
            [Count::Records, Count::TooLarge, Count::NoFlow].map(|count| account.get(count));
        assert_eq!((records, large, none), (2, 5, 1));
        assert_eq!(queue.iter().count(), 2);
        assert_eq!(queue.iter().last().unwrap().wire, 60);
        // The datagram has reached its limit, which does not affect the next one.
        let one = Record { packets: 1, bytes: 60, ..Record::NONE };
        queue.flow(&one, 1, &mut account);
        assert_eq!((queue.iter().count(), account.get(Count::TooLarge)), (2, 6));
        queue.clear();
        queue.flow(&one, 1, &mut account);
        assert_eq!(queue.iter().count(), 1);
    }
}
