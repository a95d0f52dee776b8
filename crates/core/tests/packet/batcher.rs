//! The batches of a batcher, on every instruction set, against the parser's result for each frame.

use flowgauge_core::any::BatchMut;
use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::batcher::{Batcher, BatcherOptions, Take};
use flowgauge_core::block::Block;
use flowgauge_core::key::{Extract, FlowKey, Key16, Key37, KeyKind};
use flowgauge_core::packet::{
    Frame, FrameColumns, Headers, KeylessCounts, LinkType, Malformed, Tunnels,
};
use flowgauge_kernel::Isa;

use crate::frames::{Random, ethernet, ipv4, ipv6, tag, tcp, udp};
use crate::total;

/// Rows of one lane: canonical five-tuple, bytes on the wire, and time.
type Rows = Vec<(Vec<u8>, u64, i64)>;

#[derive(Default, PartialEq, Debug)]
struct Taken {
    lanes: [Rows; 2],
    keyless: KeylessCounts,
}

impl Take for Taken {
    fn take(&mut self, lane: usize, batch: BatchMut<'_>) {
        match batch {
            BatchMut::Sixteen(batch) => {
                for (row, key) in batch.keys().iter().enumerate() {
                    self.add(lane, key.canonical(13), batch.bytes()[row], batch.times_ns()[row]);
                }
            }
            BatchMut::ThirtySeven(batch) => {
                for (row, key) in batch.keys().iter().enumerate() {
                    self.add(lane, key.canonical(37), batch.bytes()[row], batch.times_ns()[row]);
                }
            }
            _ => unreachable!("the keys are five-tuples"),
        }
    }
}

impl Taken {
    fn add(&mut self, lane: usize, key: &[u8], bytes: u64, time_ns: i64) {
        self.lanes[lane].push((key.to_vec(), bytes, time_ns));
    }

    /// Adds a frame as the parser reads it.
    fn parse(&mut self, frame: &Frame<'_>, tunnels: Tunnels) -> Result<(), Malformed> {
        let (headers, bytes) = tunnels.read(frame);
        let (kind, bytes) = (KeyKind::FIVE_TUPLE, bytes.into());
        match headers {
            Headers::V4(ip) => {
                self.add(0, Key16::extract(kind, &ip)?.canonical(13), bytes, frame.time_ns);
            }
            Headers::V6(ip) => {
                self.add(1, Key37::extract(kind, &ip)?.canonical(37), bytes, frame.time_ns);
            }
            Headers::NoKey(reason) => self.keyless.count_no_key(reason),
            Headers::Unread(link) => self.keyless.count_unread(link),
            Headers::Malformed(malformed) => return Err(malformed),
        }
        Ok(())
    }
}

/// Common frames, and nearly common ones.
fn seeds() -> Vec<(LinkType, Vec<u8>)> {
    let networks = [(0x0800, ipv4(6, &tcp())), (0x0800, ipv4(17, &udp(53, &[0; 8])))];
    let networks =
        networks.into_iter().chain([(0x86dd, ipv6(6, &tcp())), (0x86dd, ipv6(17, &udp(9, &[])))]);
    let mut seeds = Vec::new();
    for (ether_type, packet) in networks {
        let tagged = tag(ether_type, &packet);
        seeds.push(ethernet(ether_type, &packet));
        seeds.extend([0x8100, 0x88a8, 0x9100].map(|outer| ethernet(outer, &tagged)));
        seeds.push(ethernet(0x8100, &tag(0x8100, &tagged)));
    }
    let mut seeds: Vec<_> = seeds.into_iter().map(|frame| (LinkType::ETHERNET, frame)).collect();
    // Twice, so that common frames are not too rare.
    seeds.extend(seeds.clone());
    seeds.extend(total::seeds());
    seeds
}

/// Passes frames to a batcher, directly and in blocks, in bursts of any length. Each frame is a
/// separate allocation, so that reads beyond it are found. Returns the number of frames.
fn compare(bursts: usize, seed: u64) -> usize {
    println!("seed {seed}");
    let (seeds, mut random, mut compared, mut keyed) = (seeds(), Random(seed), 0, [0; 2]);
    for _ in 0..bursts {
        let mutated: Vec<_> = (0..=random.below(BATCH_PACKETS - 1))
            .map(|_| {
                let (link, mut frame) = total::frame(&seeds, &mut random);
                if random.below(4) == 0 {
                    frame.truncate(random.below(frame.len()));
                }
                (link, frame.into_boxed_slice())
            })
            .collect();
        let frames: Vec<_> = mutated
            .iter()
            .map(|(link, bytes)| {
                let (wire, time_ns) = (random.below(2000) as u32, i64::from(random.byte()));
                Frame { bytes, wire, link: *link, time_ns }
            })
            .collect();
        let columns: FrameColumns<'_> = frames.iter().copied().collect();
        let tunnels = [Tunnels::Outer, Tunnels::Inner, Tunnels::InnerBytes][random.below(3)];
        let mut expected = Taken::default();
        for frame in &frames {
            if let Err(malformed) = expected.parse(frame, tunnels) {
                expected.keyless.count_malformed(malformed);
            }
        }
        let batch_packets = 1 + random.below(BATCH_PACKETS);
        for isa in Isa::available() {
            let options = BatcherOptions {
                key: KeyKind::FIVE_TUPLE.into(),
                tunnels,
                batch_packets,
                elements: None,
                services: false,
                ipv6: true,
                isa,
            };
            let through = |take: &dyn Fn(&mut Batcher, &mut Taken)| {
                let (mut batcher, mut taken) = (Batcher::new(options), Taken::default());
                take(&mut batcher, &mut taken);
                batcher.flush(&mut taken);
                Taken { keyless: batcher.counts().keyless, ..taken }
            };
            let direct = through(&|batcher, taken| {
                batcher.take(columns.frames(), u64::MAX, taken);
            });
            assert_eq!(direct, expected, "{isa} {mutated:02x?}");
            let shared = through(&|batcher, taken| {
                let mut block = Block::new(isa, false);
                assert_eq!(block.read(columns.frames(), tunnels), frames.len());
                batcher.take_block(&block, 0..frames.len(), u64::MAX, taken);
            });
            assert_eq!(shared, expected, "{isa} {mutated:02x?}");
        }
        compared += frames.len();
        keyed = std::array::from_fn(|lane| keyed[lane] + expected.lanes[lane].len());
    }
    assert!(keyed.iter().all(|keyed| *keyed > compared / 10), "{keyed:?} of {compared} had a key");
    compared
}

#[test]
fn lanes_equal_the_parser() {
    assert!(compare(400, 0x7ab) >= 40_000);
}

#[test]
#[ignore = "the long form, ten million frames: make soak runs it"]
fn lanes_equal_the_parser_long() {
    assert!(compare(80_000, 0x1a7e) >= 10_000_000);
}
