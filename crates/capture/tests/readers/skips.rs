//! Packets that are passed over are those that would have been lent out.

use std::iter::repeat_n;

use flowgauge_capture::Captures;
use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::packet::{Frame, LinkType};
use flowgauge_engine::source::{Ahead, Burst, Columns, Counter, CounterKind, Source};

use crate::support::{Random, read, real, sound};

const FILLER: Frame<'_> = Frame { bytes: &[], wire: 0, link: LinkType::ETHERNET, time_ns: 0 };

/// Reads a capture with skips of random lengths and times, and returns the packets passed over.
fn skipping(name: &str, bytes: &[u8], random: &mut Random) -> usize {
    let (packets, _, irregular) = read(&mut Captures::from_bytes(name, bytes.to_vec()));
    let mut captures = Captures::from_bytes(name, bytes.to_vec());
    let (mut at, mut passed, mut fillers) = (0, 0, 0);
    let mut columns = Columns::default();
    loop {
        let until_ns = match packets.get(at + random.below(8)) {
            Some(packet) if random.below(2) == 0 => packet.time_ns,
            _ => i64::MAX,
        };
        let ahead = Ahead { packets: random.below(6) as u64, from_ns: i64::MIN, until_ns };
        let skipped = captures.skip(&ahead);
        let over = &packets[at..at + skipped.packets as usize];
        let bytes: u64 = over.iter().map(|packet| u64::from(packet.wire)).sum();
        assert_eq!(skipped.bytes, bytes, "{name}");
        assert_eq!(skipped.last_ns, over.last().map_or(i64::MIN, |last| last.time_ns), "{name}");
        assert!(over.is_sorted_by_key(|packet| packet.time_ns), "{name}");
        assert!(over.len() as u64 <= ahead.packets && skipped.last_ns <= until_ns, "{name}");
        (at, passed) = (at + over.len(), passed + over.len());
        // A burst that is nearly full gets few packets.
        let filled = BATCH_PACKETS - 1 - random.below(3);
        let mut burst = Burst::new(&mut columns);
        burst.extend(repeat_n(FILLER, filled));
        match captures.poll(&mut burst) {
            Ok(true) => {}
            Ok(false) => break,
            Err(_) => continue,
        }
        let lent = burst.frames().part(filled..burst.len());
        for (frame, packet) in lent.iter().zip(&packets[at..]) {
            assert_eq!((frame.time_ns, frame.bytes), (packet.time_ns, &packet.data[..]), "{name}");
        }
        (at, fillers) = (at + lent.len(), fillers + filled);
    }
    assert_eq!(at, packets.len(), "{name}");
    let sum = |kind| Counter::sum(captures.counters(), kind);
    assert_eq!(sum(CounterKind::Other), (at + fillers) as u64, "{name}");
    assert_eq!(sum(CounterKind::Irregular), irregular, "{name}");
    passed
}

#[test]
fn a_capture_that_is_passed_over_in_parts_is_the_same_capture() {
    println!("seed 7");
    let mut random = Random(7);
    let mut passed = 0;
    for (name, bytes) in sound().into_iter().chain(real()) {
        for _ in 0..20 {
            passed += skipping(&name, &bytes, &mut random);
        }
    }
    assert!(passed > 100, "{passed}");
}
