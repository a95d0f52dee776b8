//! The parser returns a result for any bytes, and it depends only on the captured bytes. The
//! batches of a batcher equal the parser's results on every instruction set.

use flowgauge_core::any::BatchMut;
use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::batcher::{Batcher, BatcherOptions, Take};
use flowgauge_core::block::Block;
use flowgauge_core::key::{Extract, FlowKey, Key16, Key37, KeyKind};
use flowgauge_core::packet::{
    Fault, Frame, FrameColumns, Headers, KeylessCounts, LinkType, Malformed, Ports, Tunnels, parse,
    parse_inner,
};
use flowgauge_core::summary::Reads;
use flowgauge_kernel::Isa;

use super::frames::{
    Random, ethernet, extension, fragment, ipv4, ipv6, label, nflog, pppoe, put, radiotap, snap,
    tag, tcp, udp, wifi,
};

/// The longest tested capture length.
const SNAP: usize = 128;

const LINKS: [LinkType; 20] = [
    LinkType::NULL,
    LinkType::ETHERNET,
    LinkType::DLT_RAW,
    LinkType::DLT_RAW_OPENBSD,
    LinkType::RAW,
    LinkType::LOOP,
    LinkType::LINUX_SLL,
    LinkType::IPV4,
    LinkType::IPV6,
    LinkType::LINUX_SLL2,
    LinkType::PPP,
    LinkType::PPP_HDLC,
    LinkType::PPP_ETHER,
    LinkType::PPP_WITH_DIR,
    LinkType::C_HDLC,
    LinkType::IEEE802_11,
    LinkType::IEEE802_11_RADIOTAP,
    LinkType::PPI,
    LinkType::NFLOG,
    LinkType(227),
];

/// Frames that cover every header.
fn frames_of_every_header() -> Vec<(LinkType, Vec<u8>)> {
    let v4 = ipv4(17, &udp(53, &[0; 8]));
    let v6 = ipv6(0, &extension(43, 0, &extension(60, 1, &extension(6, 0, &tcp()))));
    let in_ethernet = ethernet(0x0800, &v4);
    let vxlan = ipv4(17, &udp(4789, &put(&[8, 0, 0, 0, 0, 0, 7, 0], &in_ethernet)));
    let geneve =
        ipv4(17, &udp(6081, &put(&[1, 0, 0x65, 0x58, 0, 0, 7, 0, 9, 9, 9, 9], &in_ethernet)));
    let gtp_u = put(&[0x34, 255, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 0, 0], &v6);
    let gre = put(&[0xb0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &v4);
    let mut seeds = vec![
        ethernet(0x0800, &v4),
        ethernet(0x0800, &ipv4(6, &tcp())),
        ethernet(0x8100, &tag(0x88a8, &tag(0x9100, &tag(0x0800, &v4)))),
        ethernet(0x8847, &label(false, &label(false, &label(true, &v6)))),
        ethernet(0x86dd, &v6),
        ethernet(0x86dd, &ipv6(44, &fragment(51, 0, &extension(17, 3, &udp(53, &[]))))),
        ethernet(0x0800, &vxlan),
        ethernet(0x0800, &geneve),
        ethernet(0x0800, &ipv4(17, &udp(2152, &gtp_u))),
        ethernet(0x86dd, &ipv6(47, &gre)),
        ethernet(0x0800, &ipv4(17, &udp(3544, &put(&[0; 8], &v6)))),
        ethernet(0x0800, &ipv4(4, &ipv4(41, &v6))),
        ethernet(0x8100, &(0..20).fold(v4.clone(), |inner, _| tag(0x8100, &inner))),
        ethernet(0x86dd, &ipv6(60, &(0..20).fold(tcp(), |inner, _| extension(60, 0, &inner)))),
    ]
    .into_iter()
    .map(|frame| (LinkType::ETHERNET, frame))
    .collect::<Vec<_>>();
    seeds.push((LinkType::RAW, v6.clone()));
    seeds.push((LinkType::NULL, put(&[2, 0, 0, 0], &v4)));
    seeds.push((LinkType::LOOP, put(&[0, 0, 0, 24], &v6)));
    seeds.push((LinkType::LINUX_SLL, put(&[0; 14], &put(&[8, 0], &v4))));
    seeds.push((LinkType::LINUX_SLL2, put(&[0x86, 0xdd], &put(&[0; 18], &v6))));
    let ppp = put(&[0xff, 3, 0, 0x21], &v4);
    let session = pppoe(&put(&[0x57], &v6));
    let wifi = wifi([0x88, 3], &[0, 0], &snap(0x0800, &v4));
    seeds.extend([
        (LinkType::ETHERNET, ethernet(0x8100, &tag(0x8864, &session))),
        (LinkType::ETHERNET, ethernet(0x8903, &put(&[0, 9], &in_ethernet))),
        (LinkType::ETHERNET, ethernet(44, &snap(0x0800, &v4))),
        (LinkType::PPP, ppp.clone()),
        (LinkType::PPP_HDLC, ppp.clone()),
        (LinkType::PPP_ETHER, session),
        (LinkType::PPP_WITH_DIR, put(&[1], &ppp)),
        (LinkType::C_HDLC, put(&[0x0f, 0, 8, 0], &v4)),
        (LinkType::IEEE802_11, wifi.clone()),
        (LinkType::IEEE802_11_RADIOTAP, put(&radiotap(&[3], &[0; 8], 0), &wifi)),
        (LinkType::PPI, put(&[0, 0, 8, 0, 105, 0, 0, 0], &wifi)),
        (LinkType::NFLOG, nflog(u16::to_le_bytes, 2, &[(10, b"in\0"), (9, &v4)])),
    ]);
    seeds
}

/// A seed with some bytes changed, or noise, of [`SNAP`] bytes.
fn frame(seeds: &[(LinkType, Vec<u8>)], random: &mut Random) -> (LinkType, Vec<u8>) {
    if random.below(8) == 0 {
        let link = LINKS[random.below(LINKS.len())];
        return (link, (0..SNAP).map(|_| random.byte()).collect());
    }
    let (link, seed) = &seeds[random.below(seeds.len())];
    let mut frame = seed.clone();
    while frame.len() < SNAP {
        frame.push(random.byte());
    }
    frame.truncate(SNAP);
    for _ in 0..random.below(6) {
        let at = random.below(SNAP);
        frame[at] = match random.below(3) {
            0 => random.byte(),
            1 => frame[at] ^ (1 << random.below(8)),
            // Numbers with a meaning: extension headers, tunnels, tags, labels, versions.
            _ => *[0, 1, 4, 6, 17, 41, 43, 44, 47, 51, 60, 0x45, 0x60, 0x81, 0x88, 0xff]
                .get(random.below(16))
                .unwrap_or(&0),
        };
    }
    (*link, frame)
}

/// Whether more captured bytes could still change the result.
fn is_cut(headers: &Headers) -> bool {
    let fault = match headers {
        Headers::NoKey(_) | Headers::Unread(_) => None,
        Headers::Malformed(malformed) => Some(malformed.fault),
        Headers::V4(ip) => fault(ip.ports),
        Headers::V6(ip) => fault(ip.ports),
    };
    fault == Some(Fault::Cut)
}

fn fault(ports: Ports) -> Option<Fault> {
    match ports {
        Ports::Found(_) | Ports::Absent => None,
        Ports::Malformed(malformed) | Ports::Unreached(malformed) => Some(malformed.fault),
    }
}

/// Parses `frames` frames at every capture length, with and without tunnels; returns the number of
/// parses.
fn parse_all(frames: usize, seed: u64) -> usize {
    println!("seed {seed}");
    let seeds = frames_of_every_header();
    let mut random = Random(seed);
    let mut parses = 0;
    for _ in 0..frames {
        let (link, frame) = frame(&seeds, &mut random);
        for parse in [parse, parse_inner] {
            let mut shorter: Option<Headers> = None;
            for length in 0..=SNAP {
                let headers = parse(link, &frame[..length]);
                parses += 1;
                // A result that did not lack bytes is final.
                if let Some(shorter) = shorter
                    && !is_cut(&shorter)
                {
                    assert_eq!(headers, shorter, "{link:?} {:02x?}", &frame[..length]);
                }
                shorter = Some(headers);
            }
        }
        // The same bytes in an allocation that ends with them.
        let length = random.below(SNAP + 1);
        let exact = frame[..length].to_vec().into_boxed_slice();
        assert_eq!(parse(link, &exact), parse(link, &frame[..length]));
        assert_eq!(parse_inner(link, &exact), parse_inner(link, &frame[..length]));
        parses += 4;
    }
    parses
}

#[test]
fn every_frame_at_every_snap_length() {
    assert!(parse_all(5_000, 0x51ee7) >= 1_000_000);
}

#[test]
#[ignore = "the long form, ten million parses: make soak runs it"]
fn every_frame_at_every_snap_length_long() {
    assert!(parse_all(50_000, 0xdeca) >= 10_000_000);
}

#[test]
fn every_link_type_on_noise() {
    let mut random = Random(3);
    for link in 0..=300 {
        for _ in 0..20 {
            let frame: Vec<u8> = (0..random.below(SNAP)).map(|_| random.byte()).collect();
            let headers = parse(LinkType(link), &frame);
            let known = LINKS[..LINKS.len() - 1].contains(&LinkType(link));
            // PPI may name a link type that is not read.
            let unread = headers == Headers::Unread(LinkType(link));
            assert_eq!(unread, !known, "{link}");
        }
    }
}

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
            BatchMut::Eight(_) => unreachable!("the keys are five-tuples"),
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
fn mostly_common_frames() -> Vec<(LinkType, Vec<u8>)> {
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
    seeds.extend(frames_of_every_header());
    seeds
}

/// Passes frames to a batcher, directly and in blocks, in bursts of any length. Each frame is a
/// separate allocation, so that reads beyond it are found. Returns the number of frames.
fn compare(bursts: usize, seed: u64) -> usize {
    println!("seed {seed}");
    let (seeds, mut random, mut compared, mut met, mut keyed) =
        (mostly_common_frames(), Random(seed), 0, 0, [0; 2]);
    for _ in 0..bursts {
        let mutated: Vec<_> = (0..=random.below(BATCH_PACKETS - 1))
            .map(|_| {
                let (link, mut frame) = frame(&seeds, &mut random);
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
                reads: Reads { times: true, ..Reads::BYTES },
                elements: None,
                services: true,
                ipv6: true,
                isa,
            };
            let through = |take: &dyn Fn(&mut Batcher, &mut Taken)| {
                let (mut batcher, mut taken) = (Batcher::new(options), Taken::default());
                take(&mut batcher, &mut taken);
                batcher.flush(&mut taken);
                let services = batcher.services().into_iter().flat_map(|services| {
                    let ports =
                        services.ports().map(|(protocol, port, size)| (protocol, Some(port), size));
                    let protocols =
                        services.protocols().map(|(protocol, size)| (protocol, None, size));
                    ports.chain(protocols).collect::<Vec<_>>()
                });
                (Taken { keyless: batcher.counts().keyless, ..taken }, services.collect::<Vec<_>>())
            };
            let (direct, services) = through(&|batcher, taken| {
                batcher.take(&columns.frames(), u64::MAX, taken);
            });
            assert_eq!(direct, expected, "{isa} {mutated:02x?}");
            // The bytes are added up whether or not they are written.
            let all: u64 = expected.lanes.iter().flatten().map(|(_, bytes, _)| bytes).sum();
            for options in [options, BatcherOptions { reads: Reads::NOTHING, ..options }] {
                let (mut batcher, mut taken) = (Batcher::new(options), Taken::default());
                batcher.take(&columns.frames(), u64::MAX, &mut taken);
                batcher.flush(&mut taken);
                assert_eq!(batcher.counts().keyed.bytes, all, "{options:?} {mutated:02x?}");
            }
            for singly in [false, true] {
                assert_eq!(cut(options, &columns, singly), expected, "{isa} {mutated:02x?}");
            }
            met += services.len();
            let mut block = Block::new(isa, false);
            for counted in [false, true] {
                block.clear();
                assert_eq!(block.read(columns.frames(), tunnels), frames.len());
                if counted {
                    block.count_services();
                }
                for end in [frames.len(), frames.len() / 2] {
                    let shared = through(&|batcher, taken| {
                        batcher.take_block(&block, 0..end, u64::MAX, taken);
                        batcher.take_block(&block, end..frames.len(), u64::MAX, taken);
                    });
                    assert_eq!(shared.0, expected, "{isa} {mutated:02x?}");
                    assert_eq!(shared.1, services, "{isa} {mutated:02x?}");
                }
            }
        }
        compared += frames.len();
        keyed = std::array::from_fn(|lane| keyed[lane] + expected.lanes[lane].len());
    }
    assert!(met > 1000, "{met} services");
    assert!(keyed.iter().all(|keyed| *keyed > compared / 10), "{keyed:?} of {compared} had a key");
    compared
}

/// What a batcher takes that counts no services, and so cuts keys out of common frames: of all frames
/// together or one by one.
fn cut(options: BatcherOptions, frames: &FrameColumns<'_>, singly: bool) -> Taken {
    let options = BatcherOptions { services: false, ..options };
    let (mut batcher, mut taken) = (Batcher::new(options), Taken::default());
    let keyed = if singly {
        let took = |frame: &Frame<'_>| batcher.take_one(frame, &mut taken);
        frames.frames().iter().filter(took).count() as u64
    } else {
        batcher.take(&frames.frames(), u64::MAX, &mut taken).1
    };
    batcher.flush(&mut taken);
    let counts = batcher.counts();
    assert_eq!(keyed, counts.keyed.packets);
    Taken { keyless: counts.keyless, ..taken }
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
