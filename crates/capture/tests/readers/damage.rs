//! Captures with every kind of damaged byte, compared with the second reader.

use std::panic::{AssertUnwindSafe, catch_unwind};

use flowgauge_capture::{CaptureError, Captures};

use crate::{
    naive::{End, walk},
    support::{InChunks, Random, pcap, pcapng, read, real, sound},
};

const SEED: u64 = 0x5eed_0003;

/// Reads `file` with both readers and compares their results.
fn check(name: &str, file: &[u8]) -> End {
    let walked = walk(file);
    let captures = || Captures::from_bytes("made.pcap", file.to_vec());
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        (read(&mut captures()), read(&mut InChunks::from(captures())))
    }));
    let Ok(((packets, errors, irregular), in_chunks)) = outcome else { panic!("{name}: panicked") };
    let texts =
        |errors: &[CaptureError]| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(in_chunks.0 == packets && in_chunks.2 == irregular, "{name}: in chunks");
    assert_eq!(texts(&in_chunks.1), texts(&errors), "{name}: in chunks");
    assert_eq!(packets, walked.packets, "{name}");
    assert_eq!(irregular, walked.irregular, "{name}: irregular");
    match (&walked.end, &errors[..]) {
        (End::Whole, []) | (End::Unreadable, [CaptureError::Unreadable { .. }]) => {}
        (End::Damaged(at, field), [error @ CaptureError::Damaged { offset, .. }]) => {
            assert_eq!(offset, at, "{name}: {error}");
            let text = error.to_string();
            let begin = format!("made.pcap: byte {at}: {field} ");
            assert!(text.starts_with(&begin), "{name}: {text:?} begins not with {begin:?}");
            assert!(!text.contains('\n'), "{name}: {text:?} is one line");
        }
        (end, errors) => panic!("{name}: {end:?} but {errors:?}"),
    }
    walked.end
}

#[test]
fn valid_captures_are_read_completely() {
    for (name, file) in sound() {
        assert_eq!(check(&name, &file), End::Whole, "{name}");
        assert!(walk(&file).packets.len() >= 6, "{name}");
    }
    for (name, file) in real() {
        check(&name, &file);
    }
}

#[test]
fn both_readers_agree_on_mutated_captures() {
    println!("seed {SEED:#x}");
    let mut random = Random(SEED);
    let mut tally = [0_usize; 3];
    let mut judge = |name: &str, file: &[u8]| match check(name, file) {
        End::Whole => tally[0] += 1,
        End::Damaged(..) => tally[1] += 1,
        End::Unreadable => tally[2] += 1,
    };
    let made = sound();
    let small = made.len();
    for (index, (name, file)) in made.into_iter().chain(real()).enumerate() {
        let walked = walk(&file);
        for edge in &walked.edges {
            for cut in [edge.saturating_sub(1), *edge, (edge + 1).min(file.len())] {
                judge(&format!("{name} cut at {cut}"), &file[..cut]);
            }
        }
        for at in &walked.captured_fields {
            for length in [0_u32, 262_144, 262_145, (1 << 31) - 1, u32::MAX] {
                for bytes in [length.to_le_bytes(), length.to_be_bytes()] {
                    let mut mutant = file.clone();
                    mutant[*at..*at + 4].copy_from_slice(&bytes);
                    judge(&format!("{name} with {bytes:02x?} at {at}"), &mutant);
                }
            }
        }
        let bits = 8 * file.len();
        // Every bit of generated files, and some bits of real ones, half of them in the first
        // bytes.
        let flips: Vec<usize> = if index < small {
            (0..bits).collect()
        } else {
            (0..400).map(|i| random.below(if i % 2 == 0 { bits.min(512) } else { bits })).collect()
        };
        for bit in flips {
            let mut mutant = file.clone();
            mutant[bit / 8] ^= 1 << (bit % 8);
            judge(&format!("{name} with bit {bit} flipped"), &mutant);
        }
    }
    println!("whole, damaged, unreadable: {tally:?}");
    assert!(tally.iter().sum::<usize>() >= 20_000, "{tally:?}");
    assert!(tally.iter().all(|&class| class >= 500), "every class is met: {tally:?}");
}

#[test]
fn both_readers_agree_on_random_bytes() {
    println!("seed {SEED:#x}");
    let mut random = Random(SEED);
    let bases = [pcap(false, 0xa1b2_c3d4, (2, 4), &[60, 7, 60]), pcapng(false), pcapng(true)];
    for round in 0..6_000 {
        let mut mutant = bases[round % 3].clone();
        for _ in 0..=random.below(6) {
            let at = random.below(mutant.len());
            match random.below(4) {
                0 => drop(mutant.drain(at..(at + random.below(9)).min(mutant.len()))),
                1 => mutant.insert(at, random.below(256) as u8),
                2 => mutant[at] = [0, 1, 4, 12, 0x7f, 0xff][random.below(6)],
                _ => mutant[at] = random.below(256) as u8,
            }
        }
        check(&format!("round {round}"), &mutant);
    }
}

/// The message for each kind of damage.
#[test]
fn messages_give_problem_place_and_remedy() {
    let message = |file: &[u8]| {
        let (_, errors, _) = read(&mut Captures::from_bytes("x.pcap", file.to_vec()));
        errors.into_iter().map(|error| error.to_string()).collect::<Vec<_>>().join("|")
    };
    let file = pcap(false, 0xa1b2_c3d4, (2, 4), &[60, 60]);
    let with = |at: usize, bytes: &[u8]| {
        let mut file = file.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    let after = "; packets before it are counted";
    let length = with(108, &[255, 255, 255, 127]);
    let expected = "x.pcap: byte 100: captured length 2147483647 exceeds 262144";
    assert_eq!(message(&length), format!("{expected}{after}"));
    let expected = "x.pcap: byte 100: packet cut short: the file ends after 59 of 60 bytes";
    assert_eq!(message(&file[..175]), format!("{expected}{after}"));
    let expected = "x.pcap: byte 100: record header cut short: the file ends after 15 of 16 bytes";
    assert_eq!(message(&file[..115]), format!("{expected}{after}"));
    for (file, expected) in [
        (Vec::new(), "is empty"),
        (file[..23].to_vec(), "ends inside its file header, after 23 bytes"),
        (with(0, b"PK\x03\x04"), "not a capture: it begins with [50, 4b, 03, 04]"),
        (with(6, &[5]), "version 2.5 of pcap is not supported"),
        (with(22, &[1]), "link type 0x00010001 has reserved bits set"),
    ] {
        let text = message(&file);
        assert!(text.starts_with(&format!("x.pcap: {expected}")), "{text}");
    }
}

#[test]
fn the_frame_check_sequence_bits_do_not_change_the_link_type() {
    let mut file = pcap(false, 0xa1b2_c3d4, (2, 4), &[60]);
    file[23] = 0x44;
    let (packets, errors, _) = read(&mut Captures::from_bytes("x", file));
    assert!(errors.is_empty());
    assert_eq!(packets[0].link, 1);
}

#[test]
fn irregular_records_are_accepted_and_counted() {
    let mut file = pcapng(false);
    let blocks = walk(&file).edges;
    // The trailer of the first packet's block.
    let trailer = blocks[3] - 4;
    file[trailer] ^= 0xff;
    let (packets, errors, irregular) = read(&mut Captures::from_bytes("x", file.clone()));
    assert_eq!((packets.len(), errors.len()), (walk(&file).packets.len(), 0));
    // And the one packet per section that is longer than its interface's snap length.
    assert_eq!(irregular, 3);
}
