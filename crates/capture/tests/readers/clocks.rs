//! Times of sections and interfaces, exact to the nanosecond.

use flowgauge_capture::Captures;

use crate::support::{enhanced, interface, obsolete, read, section, simple};

#[test]
fn each_interface_has_its_own_unit_and_offset() {
    let big = false;
    let ticks = 1_234_567_890_123_456_789_u64;
    let offset = |seconds: i64| seconds.to_le_bytes();
    for (options, expected) in [
        // Microseconds by default; saturated, because the ticks overflow.
        (vec![], i64::MAX),
        (vec![(9, &[9][..])], 1_234_567_890_123_456_789),
        (vec![(9, &[12][..])], 1_234_567_890_123_456),
        (vec![(9, &[10][..])], 123_456_789_012_345_678),
        (vec![(9, &[28][..])], 0),
        (vec![(9, &[27][..])], 1),
        (vec![(9, &[127][..])], 0),
        (vec![(9, &[0][..])], i64::MAX),
        // Halves of a second, 2^-30 and 2^-32: floor(ticks × 10⁹ / 2ⁿ).
        (vec![(9, &[0x80 + 30][..])], 1_149_780_945_967_376_966),
        (vec![(9, &[0x80 + 32][..])], 287_445_236_491_844_241),
        (vec![(9, &[0xff][..])], 0),
        (vec![(9, &[9][..]), (14, &offset(-1))], 1_234_567_889_123_456_789),
        (vec![(14, &offset(1)), (9, &[9][..])], 1_234_567_891_123_456_789),
        (vec![(9, &[9][..]), (14, &offset(i64::MAX))], i64::MAX),
        (vec![(9, &[9][..]), (14, &offset(i64::MIN))], i64::MIN),
    ] {
        let mut file = section(big);
        file.extend(interface(big, 1, 0, &options));
        file.extend(enhanced(big, 0, ticks, b"x", 1));
        file.extend(obsolete(big, 0, ticks, b"x", 1));
        let (packets, errors, irregular) = read(&mut Captures::from_bytes("x", file));
        assert!(errors.is_empty() && irregular == 0, "{errors:?}");
        let times: Vec<i64> = packets.iter().map(|packet| packet.time_ns).collect();
        assert_eq!(times, [expected; 2], "{options:?}");
    }
}

#[test]
fn sections_keep_their_own_interfaces_and_byte_order() {
    let mut file = Vec::new();
    for (big, link) in [(true, 113), (false, 101), (true, 228)] {
        file.extend(section(big));
        file.extend(interface(big, 1, 0, &[(9, &[6])]));
        file.extend(interface(big, link, 0, &[(9, &[3])]));
        file.extend(enhanced(big, 1, 5, b"a", 1));
        file.extend(enhanced(big, 0, 5, b"b", 1));
    }
    let (packets, errors, _) = read(&mut Captures::from_bytes("x", file.clone()));
    assert!(errors.is_empty());
    let seen: Vec<_> = packets.iter().map(|packet| (packet.link, packet.time_ns)).collect();
    let expected =
        [(113, 5_000_000), (1, 5000), (101, 5_000_000), (1, 5000), (228, 5_000_000), (1, 5000)];
    assert_eq!(seen, expected);

    // A new section has no interfaces.
    let before = file.len();
    file.extend(section(false));
    file.extend(interface(false, 1, 0, &[]));
    let at = file.len();
    file.extend(enhanced(false, 1, 5, b"a", 1));
    let (packets, errors, _) = read(&mut Captures::from_bytes("x", file));
    assert!(before < at && packets.len() == 6);
    let expected = format!("x: byte {at}: interface 1 of a packet has no description");
    assert!(errors[0].to_string().starts_with(&expected), "{}", errors[0]);
}

#[test]
fn a_simple_packet_is_cut_at_the_snap_length_and_has_no_time() {
    for (snap, captured) in [(0, 21), (8, 8), (21, 21), (65_535, 21)] {
        let mut file = section(true);
        file.extend(interface(true, 1, snap, &[(9, &[9])]));
        file.extend(simple(true, &vec![7; captured], 21));
        let (packets, errors, irregular) = read(&mut Captures::from_bytes("x", file));
        assert!(errors.is_empty());
        let packet = &packets[0];
        assert_eq!((packet.data.len(), packet.wire, packet.time_ns), (captured, 21, 0));
        // The block has no captured length, so it cannot exceed the snap length of its interface.
        assert_eq!(irregular, 0);
    }
}
