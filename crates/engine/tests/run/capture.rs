//! Small captures, put together by hand.

/// Classic pcap bytes that grow packet by packet.
pub(crate) struct Pcap(pub(crate) Vec<u8>);

impl Pcap {
    pub(crate) fn new() -> Self {
        let mut bytes = Vec::new();
        bytes.extend(0xa1b2_3c4d_u32.to_le_bytes());
        bytes.extend([2, 0, 4, 0]);
        bytes.extend([0; 8]);
        bytes.extend(65_535u32.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        Self(bytes)
    }

    pub(crate) fn frame(&mut self, time_ns: u64, frame: &[u8]) -> &mut Self {
        self.0.extend(((time_ns / 1_000_000_000) as u32).to_le_bytes());
        self.0.extend(((time_ns % 1_000_000_000) as u32).to_le_bytes());
        self.0.extend((frame.len() as u32).to_le_bytes());
        self.0.extend((frame.len() as u32).to_le_bytes());
        self.0.extend(frame);
        self
    }

    /// A UDP packet of 64 bytes from host and port `source` to `destination` of 10.0.0.0/8.
    pub(crate) fn udp(
        &mut self,
        time_ns: u64,
        source: (u32, u16),
        destination: (u32, u16),
    ) -> &mut Self {
        self.frame(time_ns, &udp(source, destination))
    }
}

pub(crate) fn udp(source: (u32, u16), destination: (u32, u16)) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x08, 0x00, 0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend((0x0a00_0000 | source.0).to_be_bytes());
    frame.extend((0x0a00_0000 | destination.0).to_be_bytes());
    frame.extend(source.1.to_be_bytes());
    frame.extend(destination.1.to_be_bytes());
    frame.extend([0, 30, 0, 0]);
    frame.resize(64, 0);
    frame
}

/// As [`udp`], over IPv6.
pub(crate) fn udp6(source: (u32, u16), destination: (u32, u16)) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64]);
    for host in [source.0, destination.0] {
        frame.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend(host.to_be_bytes());
    }
    frame.extend(source.1.to_be_bytes());
    frame.extend(destination.1.to_be_bytes());
    frame.extend([0, 8, 0, 0]);
    frame
}

pub(crate) fn arp() -> Vec<u8> {
    let mut frame = vec![0xff; 12];
    frame.extend([0x08, 0x06]);
    frame.resize(60, 0);
    frame
}

/// A small generator for the tests: `SplitMix64`.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// `packets` packets of all kinds: IPv4, IPv6, ARP, cut and contradictory ones, with timestamps
/// that mostly go forward by a few milliseconds.
pub(crate) fn mixed(seed: u64, packets: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut pcap = Pcap::new();
    let mut time_ns = 1_700_000_000_000_000_000;
    for _ in 0..packets {
        time_ns += random.below(5_000_000);
        let source = (random.below(300) as u32, random.below(4) as u16);
        let destination = (random.below(30) as u32, random.below(3) as u16 + 80);
        let stamp_ns = match random.below(200) {
            0 => time_ns - 3_000_000_000,
            1 => time_ns + 10_000_000,
            _ => time_ns,
        };
        let frame = match random.below(20) {
            0 => arp(),
            1 => udp(source, destination)[..30].to_vec(),
            2 => udp(source, destination)[..36].to_vec(),
            3 => {
                let mut frame = udp(source, destination);
                frame[14] = 0x43;
                frame
            }
            4..8 => udp6(source, destination),
            _ => udp(source, destination),
        };
        pcap.frame(stamp_ns, &frame);
    }
    pcap.0
}
