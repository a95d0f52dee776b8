//! A uniform sample of packets in fixed memory.

use crate::key::CanonicalKey;

/// Maximum number of packets kept; at this number, every second one is dropped.
const MOST: usize = 1 << 15;

/// A random sample of one packet in each run of 2ⁿ packets. The sample starts with n = 0, which
/// keeps every packet, and increments n whenever it holds 32,768 packets. The memory is reserved at
/// construction.
#[derive(Debug)]
pub struct Sample {
    seed: u64,
    /// n: the binary logarithm of the run's length.
    doublings: u32,
    /// Number of packets so far.
    passed: u64,
    /// The number of the next packet to keep.
    next: u64,
    packets: Vec<SampledPacket>,
}

/// A packet of the sample.
///
/// ```
/// use flowgauge_core::key::KeyKind;
/// use flowgauge_core::packet::{Frame, FrameColumns, LinkType, Tunnels};
/// use flowgauge_core::timeline::Timeline;
///
/// let frame = Frame { bytes: &[0x45; 20], wire: 60, link: LinkType::IPV4, time_ns: 7 };
/// let frames: FrameColumns<'_> = [frame].into_iter().collect();
/// let mut timeline = Timeline::new(KeyKind::FIVE_TUPLE.into(), Tunnels::Outer, 1);
/// timeline.add(frames.frames());
/// let packet = timeline.sample().packets()[0];
/// assert_eq!((packet.time_ns, packet.wire), (7, 60));
/// assert_eq!(packet.key().unwrap().len(), 13);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SampledPacket {
    /// Nanoseconds since the UNIX epoch.
    pub time_ns: i64,
    /// Bytes on the wire.
    pub wire: u32,
    /// TCP flags or ICMP type.
    pub detail: Detail,
    pub(super) key: CanonicalKey,
}

/// A field of the transport header besides its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// TCP flags.
    Tcp(u8),
    /// The type of ICMP or ICMPv6.
    Icmp(u8),
    /// Another protocol, or an unread header.
    None,
}

impl SampledPacket {
    /// The canonical five-tuple; `None` where the packet has no key.
    pub fn key(&self) -> Option<&[u8]> {
        let key = self.key.as_bytes();
        (!key.is_empty()).then_some(key)
    }
}

impl Clone for Sample {
    fn clone(&self) -> Self {
        let mut packets = Vec::with_capacity(MOST);
        packets.extend_from_slice(&self.packets);
        let Self { seed, doublings, passed, next, .. } = *self;
        Self { seed, doublings, passed, next, packets }
    }
}

impl Sample {
    /// Memory of the packets in bytes.
    pub(super) const BYTES: usize = MOST * size_of::<SampledPacket>();

    pub(super) fn new(seed: u64) -> Self {
        Self { seed, doublings: 0, passed: 0, next: 0, packets: Vec::with_capacity(MOST) }
    }

    /// The packets in order of arrival, thread by thread.
    pub fn packets(&self) -> &[SampledPacket] {
        &self.packets
    }

    /// Whether the sample contains every packet.
    pub fn is_whole(&self) -> bool {
        self.doublings == 0
    }

    /// Number of packets that each sampled packet represents.
    pub fn one_in(&self) -> u64 {
        1 << self.doublings
    }

    pub(super) fn clear(&mut self) {
        (self.doublings, self.passed, self.next) = (0, 0, 0);
        self.packets.clear();
    }

    /// Passes over `count` packets and keeps the chosen ones; `look` reads the packet at an index.
    #[inline]
    pub(super) fn pass(&mut self, count: u64, look: impl Fn(usize) -> SampledPacket) {
        let end = self.passed + count;
        while self.next < end {
            self.packets.push(look((self.next - self.passed) as usize));
            let run = self.next >> self.doublings;
            if self.packets.len() == MOST {
                self.thin();
                // Continue with the run that follows this pair of runs.
                self.next = self.choice((run + 1) >> 1);
            } else {
                self.next = self.choice(run + 1);
            }
        }
        self.passed = end;
    }

    /// Merges the sample of other packets, after thinning both to the same run length.
    pub(super) fn merge(&mut self, other: &Self) {
        while self.doublings < other.doublings {
            self.thin();
        }
        let mut other = other.clone();
        while other.doublings < self.doublings {
            other.thin();
        }
        self.packets.extend(other.packets);
        self.passed += other.passed;
        while self.packets.len() >= MOST {
            self.thin();
        }
        self.next = self.choice((self.passed >> self.doublings) + 1);
    }

    /// The number of the packet to keep of a run.
    fn choice(&self, run: u64) -> u64 {
        let place = self.random(run) & ((1 << self.doublings) - 1);
        (run << self.doublings) + place
    }

    /// Keeps one of each two consecutive packets.
    fn thin(&mut self) {
        self.doublings += 1;
        let pairs = self.packets.len() / 2;
        let rest = self.packets.len() % 2;
        for pair in 0..pairs + rest {
            let second = usize::from(self.random(pair as u64) >> 32 & 1 == 1 && pair < pairs);
            self.packets[pair] = self.packets[2 * pair + second];
        }
        // A packet without a pair is kept with probability ½.
        let keep = rest == 1 && self.random(pairs as u64) >> 32 & 1 == 1;
        self.packets.truncate(pairs + usize::from(keep));
    }

    /// Random bits for a run, by `SplitMix64`.
    fn random(&self, run: u64) -> u64 {
        let runs = self.seed ^ u64::from(self.doublings) << 56;
        let mut z = runs.wrapping_add(run.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u64) -> SampledPacket {
        let time_ns = number.cast_signed();
        SampledPacket { time_ns, wire: 64, detail: Detail::None, key: CanonicalKey::new(&[]) }
    }

    fn sampled(seed: u64, first: u64, packets: u64, burst: u64) -> Sample {
        let mut sample = Sample::new(seed);
        for begin in (first..first + packets).step_by(burst as usize) {
            let count = burst.min(first + packets - begin);
            sample.pass(count, |place| packet(begin + place as u64));
        }
        sample
    }

    #[test]
    fn few_packets_are_all_kept() {
        let sample = sampled(1, 0, 30_000, 256);
        assert!(sample.is_whole());
        let times: Vec<_> = sample.packets().iter().map(|packet| packet.time_ns).collect();
        assert_eq!(times, (0..30_000).collect::<Vec<_>>());
    }

    #[test]
    fn each_run_has_one_packet_in_the_sample() {
        for burst in [1, 7, 256, 5_000] {
            let sample = sampled(2, 0, 1_000_000, burst);
            assert_eq!(sample.one_in(), 32);
            assert_eq!(sample.packets().len(), 1_000_000 / 32);
            for (run, packet) in (0..).zip(sample.packets()) {
                assert_eq!(packet.time_ns / 32, run);
            }
        }
    }

    /// Traffic with a period must not escape the sample, as it would if every 32nd packet were
    /// taken. A position of 32 has 977 of 31,250 packets on average, with a standard deviation of
    /// 31. Five of them are exceeded by one run of 50,000.
    #[test]
    fn all_positions_of_a_run_are_chosen() {
        let sample = sampled(3, 0, 1_000_000, 256);
        let mut places = [0; 32];
        for packet in sample.packets() {
            places[(packet.time_ns % 32) as usize] += 1;
        }
        assert!(places.iter().all(|count| (822..1132).contains(count)), "{places:?}");
    }

    #[test]
    fn samples_of_two_threads_add_up() {
        let (mut one, other) = (sampled(4, 0, 600_000, 256), sampled(4, 600_000, 50_000, 256));
        one.merge(&other);
        assert_eq!(one.one_in(), 32);
        let of_other = one.packets().iter().filter(|packet| packet.time_ns >= 600_000).count();
        assert!((1_550..=1_575).contains(&of_other), "{of_other}");
        assert!((20_300..20_320).contains(&one.packets().len()), "{}", one.packets().len());
    }
}
