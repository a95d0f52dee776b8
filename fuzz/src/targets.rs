//! What must hold for any bytes. The fuzz targets run it on inputs that libFuzzer makes up, and
//! the tests of the capture crate on those that are kept in `fuzz/corpus`.

use std::io::Read;

use flowgauge_capture::{CaptureError, Captures};
use flowgauge_core::packet::{Fault, Headers, LinkType, Malformed, Ports, parse, parse_inner};
use flowgauge_filter::Filter;

use crate::{
    naive::{End, walk},
    support::read,
};

const SECTION: &[u8] = b"\x0a\x0d\x0d\x0a";

/// A classic capture, or anything that is no pcapng.
pub fn pcap(bytes: &[u8]) {
    if !bytes.starts_with(SECTION) {
        capture(bytes);
    }
}

/// A pcapng capture.
pub fn pcapng(bytes: &[u8]) {
    if bytes.starts_with(SECTION) {
        capture(bytes);
    }
}

/// The reader says of `bytes` what the second reader says, however many bytes come at a time.
fn capture(bytes: &[u8]) {
    let whole = read(&mut Captures::from_bytes("fuzz", bytes.to_vec()));
    let chunk = bytes.len() % 37 + 1;
    let pieces = Pieces { bytes: bytes.to_vec(), at: 0, chunk };
    let pieces = read(&mut Captures::from_reader("fuzz", pieces));
    let texts =
        |errors: &[CaptureError]| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    let (packets, errors, irregular) = whole;
    assert!(packets.iter().all(|packet| packet.data.len() <= 262_144));
    assert!(errors.len() <= 1, "{errors:?}");
    assert!(texts(&errors).iter().all(|text| !text.contains(char::is_control)), "{errors:?}");
    if compressed(bytes) {
        // How much comes out of damaged data depends on how much went in at a time.
        return;
    }
    assert_eq!((&packets, texts(&errors), irregular), (&pieces.0, texts(&pieces.1), pieces.2));
    let walked = walk(bytes);
    assert_eq!((packets, irregular), (walked.packets, walked.irregular));
    match (&walked.end, &errors[..]) {
        (End::Whole, []) | (End::Unreadable, [CaptureError::Unreadable { .. }]) => {}
        (End::Damaged(at, field), [error @ CaptureError::Damaged { offset, .. }]) => {
            assert_eq!(offset, at, "{error}");
            assert!(
                error.to_string().starts_with(&format!("fuzz: byte {at}: {field} ")),
                "{error}"
            );
        }
        (end, errors) => panic!("{end:?} but {errors:?}"),
    }
}

/// Whether the reader takes `bytes` for gzip or zstd, which the second reader does not read.
fn compressed(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]
    )
}

/// Hands out some bytes at a time.
struct Pieces {
    bytes: Vec<u8>,
    at: usize,
    chunk: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let rest = &self.bytes[self.at..];
        let length = self.chunk.min(rest.len()).min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        self.at += length;
        Ok(length)
    }
}

/// The first byte chooses the link type; the rest is a frame.
const LINKS: [LinkType; 18] = [
    LinkType::ETHERNET,
    LinkType::RAW,
    LinkType::LINUX_SLL,
    LinkType::LINUX_SLL2,
    LinkType::NULL,
    LinkType::LOOP,
    LinkType::IPV4,
    LinkType::IPV6,
    LinkType::IEEE802_11,
    LinkType::IEEE802_11_RADIOTAP,
    LinkType::PPI,
    LinkType::NFLOG,
    LinkType::PPP,
    LinkType::PPP_HDLC,
    LinkType::PPP_ETHER,
    LinkType::PPP_WITH_DIR,
    LinkType::C_HDLC,
    LinkType(227),
];

/// A link type and a frame of it.
pub fn headers(bytes: &[u8]) {
    let Some((&link, frame)) = bytes.split_first() else { return };
    let link = LINKS[usize::from(link) % LINKS.len()];
    let whole = parse(link, frame);
    for length in 0..=frame.len().min(300) {
        let cut = parse(link, &frame[..length]);
        let _total = parse_inner(link, &frame[..length]);
        // What was found, more bytes of the same frame do not change.
        if ports_are_found(&cut) {
            assert_eq!(cut, whole, "{link:?} cut to {length} bytes");
        }
        // Only more bytes can turn a frame that was cut into something else.
        let was_cut = malformed(&cut).is_some_and(|malformed| malformed.fault == Fault::Cut);
        if length == frame.len() || was_cut {
            continue;
        }
        assert_eq!(kind(&cut), kind(&whole), "{link:?} cut to {length} bytes");
    }
}

fn malformed(headers: &Headers) -> Option<Malformed> {
    let ports = match headers {
        Headers::V4(ip) => ip.ports,
        Headers::V6(ip) => ip.ports,
        Headers::Malformed(malformed) => return Some(*malformed),
        Headers::NoKey(_) | Headers::Unread(_) => return None,
    };
    match ports {
        Ports::Malformed(malformed) | Ports::Unreached(malformed) => Some(malformed),
        Ports::Found(_) | Ports::Absent => None,
    }
}

fn ports_are_found(headers: &Headers) -> bool {
    let ports = match headers {
        Headers::V4(ip) => ip.ports,
        Headers::V6(ip) => ip.ports,
        Headers::NoKey(_) | Headers::Unread(_) | Headers::Malformed(_) => return false,
    };
    matches!(ports, Ports::Found(_))
}

fn kind(headers: &Headers) -> u8 {
    match headers {
        Headers::V4(_) => 4,
        Headers::V6(_) => 6,
        Headers::NoKey(_) | Headers::Unread(_) => 0,
        Headers::Malformed(_) => 1,
    }
}

/// A link type, an expression, the end of a line, and a frame.
pub fn filter(bytes: &[u8]) {
    let Some((&link, rest)) = bytes.split_first() else { return };
    let link = LINKS[usize::from(link) % LINKS.len()];
    let mut parts = rest.splitn(2, |&byte| byte == b'\n');
    let (expression, frame) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Ok(expression) = std::str::from_utf8(expression) else { return };
    let judge = |expression: &str| {
        let mut filter = Filter::new(expression).map_err(|error| error.to_string())?;
        let wire = frame.len() as u32 + 10;
        filter.matches(link, frame, wire).map_err(ToString::to_string)
    };
    match judge(expression) {
        Ok(accepted) => {
            // A packet that is cut where the expression looks is rejected by both.
            if let Ok(negated) = judge(&format!("not ({expression})")) {
                assert!(!(accepted && negated), "{expression:?}");
            }
            for same in [format!("({expression})"), format!("not not ({expression})")] {
                if let Ok(same) = judge(&same) {
                    assert_eq!(same, accepted, "{expression:?}");
                }
            }
            if let Ok(any) = judge(&format!("({expression}) or greater 0")) {
                assert!(any || !accepted, "{expression:?}");
            }
            if let Ok(none) = judge(&format!("({expression}) and len < 10")) {
                assert!(!none, "{expression:?}");
            }
        }
        Err(error) => assert!(!error.contains(char::is_control), "{error:?}"),
    }
}
