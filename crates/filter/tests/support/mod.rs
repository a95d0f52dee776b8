//! Shared by the tests of filters: frames of every link type, and expressions.

use flowgauge_core::packet::LinkType;

/// Real frames of Ethernet, at most 200 bytes of each.
const ETHERNET: &[u8] = include_bytes!("../data/frames.pcap");

/// Every supported link type, with its column in the table of expected answers.
pub(crate) const LINKS: [LinkType; 8] = [
    LinkType::ETHERNET,
    LinkType::RAW,
    LinkType::LINUX_SLL,
    LinkType::LINUX_SLL2,
    LinkType::NULL,
    LinkType::LOOP,
    LinkType::IPV4,
    LinkType::IPV6,
];

/// A frame: its captured bytes and its length on the wire.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) captured: Vec<u8>,
    pub(crate) wire: u32,
}

fn ethernet() -> Vec<Sample> {
    let mut rest = &ETHERNET[24..];
    let mut samples = Vec::new();
    while let Some((header, behind)) = rest.split_at_checked(16) {
        let field = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        let (captured, behind) = behind.split_at(field(8) as usize);
        samples.push(Sample { captured: captured.to_vec(), wire: field(12) });
        rest = behind;
    }
    samples
}

/// The frames of `link`: those of Ethernet with the link header replaced.
pub(crate) fn samples(link: LinkType) -> Vec<Sample> {
    let ethernet = ethernet();
    if link == LinkType::ETHERNET {
        return ethernet;
    }
    let other = |(index, sample): (usize, &Sample)| {
        let (header, payload) = sample.captured.split_at(14);
        let kind = u16::from_be_bytes([header[12], header[13]]);
        // Cooked frames have special numbers for frames with a length instead of a type.
        let cooked = match (kind, payload) {
            (..=1500, [0xff, 0xff, ..]) => 1,
            (..=1500, _) => 4,
            _ => kind,
        };
        let direction = (index % 5) as u8;
        let family = match (kind, index % 3) {
            (0x0800, _) => 2,
            (0x86dd, 0) => 24,
            (0x86dd, 1) => 28,
            (0x86dd, _) => 30,
            _ => 7,
        };
        let mut frame = match link {
            LinkType::LINUX_SLL => {
                let mut sll = vec![0, direction, 0, 1, 0, 6];
                sll.extend_from_slice(&header[6..12]);
                sll.extend_from_slice(&[0, 0]);
                sll.extend_from_slice(&cooked.to_be_bytes());
                sll
            }
            LinkType::LINUX_SLL2 => {
                let mut sll = cooked.to_be_bytes().to_vec();
                sll.extend_from_slice(&[0, 0, 0, 0, 0, (index % 4) as u8, 0, 1, direction, 6]);
                sll.extend_from_slice(&header[6..12]);
                sll.extend_from_slice(&[0, 0]);
                sll
            }
            LinkType::NULL => u32::to_le_bytes(family).to_vec(),
            LinkType::LOOP => u32::to_be_bytes(family).to_vec(),
            _ => Vec::new(),
        };
        let grown = frame.len() as u32;
        frame.extend_from_slice(payload);
        Sample { captured: frame, wire: sample.wire.saturating_sub(14) + grown }
    };
    ethernet.iter().enumerate().map(other).collect()
}

/// Pseudo-random numbers, equal in every run (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// A checksum of the indices of the accepted frames.
pub(crate) fn digest(accepted: &[usize]) -> u32 {
    accepted.iter().fold(0x811c_9dc5, |sum, &index| (sum ^ index as u32).wrapping_mul(0x0100_0193))
}

/// The entry of the table for one expression and link type.
pub(crate) fn cell(accepted: &[usize]) -> String {
    format!("{}:{:08x}", accepted.len(), digest(accepted))
}
