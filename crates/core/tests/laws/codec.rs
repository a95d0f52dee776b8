//! The stored form: what comes back is what was stored, and no bytes do harm.

use std::path::Path;
use std::{env, fs};

use flowgauge_core::catalog::stored::{Decoded, decode, decode_again, decode_under, encode};
use flowgauge_core::catalog::{self, ALGORITHMS};
use flowgauge_core::key::{FlowKey, Key4, Key8, Key16, Key37};
use flowgauge_core::summary::codec::{DecodeError, DecodeErrorKind};
use flowgauge_core::summary::{Info, Options};
use flowgauge_kernel::Seed;

use super::ask::decode_and_use;
use super::golden::{LIMIT, golden, of_its_keys};
use super::stream::{feed, packets};
use super::summaries::summary;
use super::{build, for_all};

fn filled<K: FlowKey>(info: &Info, memory_bytes: usize) -> Option<Vec<u8>> {
    let options = Options::new(memory_bytes, 1);
    let mut summary = build::<K>(info, &options)?;
    feed(&mut *summary, &packets(3000, 400, 13), 256);
    Some(encode(info, &options, &*summary))
}

fn comes_back<K: FlowKey>(info: &Info) -> bool {
    if info.name == super::UNSEEDED {
        return true;
    }
    let Some(bytes) = filled::<K>(info, 64 << 10) else { return false };
    let decoded = decode::<K>(&bytes, LIMIT).unwrap();
    assert_eq!(decoded.info.name, info.name);
    assert!(encode(info, &decoded.options, &*decoded.summary) == bytes, "{}", info.name);
    // The copy goes on counting as the original would.
    let mut copy = decoded.summary;
    let mut original = decode::<K>(&bytes, LIMIT).unwrap().summary;
    for summary in [&mut copy, &mut original] {
        feed(&mut **summary, &packets(500, 400, 17), 256);
    }
    let encoded = [&copy, &original].map(|summary| encode(info, &decoded.options, &**summary));
    assert!(encoded[0] == encoded[1], "{}", info.name);
    true
}

#[test]
fn what_was_stored_comes_back() {
    for_all!(comes_back);
}

/// A summary in the memory of another one, of as many or of other packets, is as one in fresh memory.
fn comes_back_in_used_memory<K: FlowKey>(info: &Info) -> bool {
    if info.name == super::UNSEEDED {
        return true;
    }
    let Some(bytes) = filled::<K>(info, 64 << 10) else { return false };
    for memory_bytes in [64 << 10, 128 << 10] {
        let options = Options::new(memory_bytes, 1);
        let Some(mut other) = build::<K>(info, &options) else { return false };
        feed(&mut *other, &packets(5000, 900, 19), 256);
        let other = encode(info, &options, &*other);
        let spare = decode::<K>(&other, LIMIT).unwrap();
        let mut again = decode_again(&bytes, LIMIT, None, spare).unwrap();
        let mut fresh = decode::<K>(&bytes, LIMIT).unwrap();
        for decoded in [&mut again, &mut fresh] {
            assert!(encode(info, &decoded.options, &*decoded.summary) == bytes, "{}", info.name);
            feed(&mut *decoded.summary, &packets(500, 400, 17), 256);
        }
        let [again, fresh] =
            [&again, &fresh].map(|decoded| encode(info, &decoded.options, &*decoded.summary));
        assert!(again == fresh, "{}", info.name);
    }
    true
}

#[test]
fn what_was_stored_comes_back_in_used_memory() {
    for_all!(comes_back_in_used_memory);
}

/// A summary under a random seed is stored with it; one under a seed file tells nothing of the file,
/// and comes back with it alone.
#[test]
fn seeds_come_back_from_where_they_are_kept() {
    let info = catalog::info("count-min").unwrap();
    let stored = |seed: Seed| {
        let options = Options::new(8 << 10, seed);
        let mut summary = build::<Key16>(info, &options).unwrap();
        feed(&mut *summary, &packets(3000, 400, 13), 256);
        encode(info, &options, &*summary)
    };
    let again = |decoded: Decoded<Key16>| encode(info, &decoded.options, &*decoded.summary);
    let random = stored(Seed::random([7; 32]));
    assert!(again(decode(&random, LIMIT).unwrap()) == random);

    let [file, other] = [&[7; 32], &[8; 32]].map(|bytes| Seed::file(bytes).unwrap());
    let bytes = stored(file);
    assert!(again(decode_under(&bytes, LIMIT, Some(&file)).unwrap()) == bytes);
    for secret in [file.root(), &file.secret().map(u64::to_le_bytes).concat()[..]] {
        assert!(!secret.chunks(8).any(|secret| bytes.windows(8).any(|bytes| bytes == secret)));
    }
    for (given, reason) in [(None, "none was given"), (Some(&other), "another one was given")] {
        let error = decode_under::<Key16>(&bytes, LIMIT, given).err().unwrap().to_string();
        assert!(error.contains(&file.id().to_string()) && error.contains(reason), "{error}");
    }
    let mut decoded = decode_under::<Key16>(&bytes, LIMIT, Some(&file)).unwrap().summary;
    let refused = decoded.merge(&*decode(&random, LIMIT).unwrap().summary).unwrap_err();
    assert!(refused.to_string().contains("seeds differ"), "{refused}");
}

/// Bytes with a checksum that fits them.
pub(crate) fn signed(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - 4;
    let checksum = crc32fast::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The bytes with `count` of them, from `at`, set to their most.
pub(crate) fn raised(bytes: &[u8], at: usize, count: usize) -> Vec<u8> {
    let mut raised = bytes.to_vec();
    raised[at..].iter_mut().take(count).for_each(|byte| *byte = 0xff);
    raised
}

pub(crate) fn flipped(bytes: &[u8], at: usize, bit: u32) -> Vec<u8> {
    let mut flipped = bytes.to_vec();
    flipped[at] ^= 1 << bit;
    flipped
}

/// Where the payload of a stored form begins: after the fields of fixed width and the parameters.
fn header_bytes(info: &Info, bytes: &[u8]) -> usize {
    let mut at = 7 + info.name.len() + 2 + 9 + 1 + 9 + 8 + 1;
    let texts = 2 * usize::from(bytes[at]);
    at += 1;
    (0..texts).for_each(|_| at += 1 + usize::from(bytes[at]));
    at + 8
}

/// Whether an error says which field is wrong, or which parameter.
fn names_its_field(error: &DecodeError) -> bool {
    match error.kind() {
        DecodeErrorKind::Cut { field, .. } | DecodeErrorKind::Invalid { field, .. } => {
            !field.is_empty()
        }
        DecodeErrorKind::Build(_) | DecodeErrorKind::SeedFile { .. } => true,
    }
}

/// Cut anywhere, with a checksum that fits or without one, the bytes are refused.
fn cuts_are_refused<K: FlowKey>(info: &Info, bytes: &[u8]) {
    for end in 0..bytes.len() {
        let cut = bytes[..end].to_vec();
        for cut in [cut.clone(), if end < 4 { cut } else { signed(cut) }] {
            let error = decode::<K>(&cut, LIMIT).err();
            assert!(error.as_ref().is_some_and(names_its_field), "{}: {end}, {error:?}", info.name);
        }
    }
}

#[test]
fn cut_at_any_byte_the_bytes_are_refused() {
    for info in ALGORITHMS {
        let bytes = golden(info);
        of_its_keys!(info, bytes, cuts_are_refused(info, &bytes));
    }
}

/// What `damage` does at one place is refused for its checksum; with one that fits, it is refused
/// with the field's name or makes a summary that bears all use.
fn damage_does_no_harm<K: FlowKey>(info: &Info, bytes: &[u8], damaged: Vec<u8>, at: usize) {
    if damaged == bytes {
        return;
    }
    assert!(decode::<K>(&damaged, LIMIT).is_err(), "{}: damage at {at}", info.name);
    if at + 4 < bytes.len() {
        println!("{}: damage at {at}", info.name);
        let used = decode_and_use::<K>(&signed(damaged), LIMIT);
        assert!(used.as_ref().err().is_none_or(names_its_field), "{}: {at}, {used:?}", info.name);
    }
}

/// Where files are damaged: at each byte of the header, and at so many of the payload as are used
/// up in seconds, or at all of them in the long form.
fn places(info: &Info, bytes: &[u8]) -> impl Iterator<Item = usize> {
    let header = header_bytes(info, bytes);
    let long = env::var_os("FLOWGAUGE_LONG").is_some();
    let step = if long { 1 } else { (bytes.len() - header) / 24 + 1 };
    (0..header).chain((header..bytes.len()).step_by(step))
}

/// Every bit of the header, and one bit of a byte of the payload.
#[test]
fn flipped_bits_do_no_harm() {
    for info in ALGORITHMS {
        let bytes = golden(info);
        let header = header_bytes(info, &bytes);
        for at in places(info, &bytes) {
            let bits = if at < header { 0..8 } else { at as u32 * 5 % 8..at as u32 * 5 % 8 + 1 };
            for bit in bits {
                let damaged = flipped(&bytes, at, bit);
                of_its_keys!(info, bytes, damage_does_no_harm(info, &bytes, damaged, at));
            }
        }
    }
}

/// Lengths of any width, wherever they stand, set to their most; and all that is no length.
#[test]
fn lengths_and_numbers_at_their_most_do_no_harm() {
    for info in ALGORITHMS {
        let bytes = golden(info);
        for at in places(info, &bytes) {
            for width in [1, 2, 4, 8] {
                let damaged = raised(&bytes, at, width);
                of_its_keys!(info, bytes, damage_does_no_harm(info, &bytes, damaged, at));
            }
        }
    }
}

#[test]
fn the_limit_is_named() {
    let info = &ALGORITHMS[0];
    let bytes = filled::<Key16>(info, 1 << 20).unwrap();
    let error = decode::<Key16>(&bytes, 1 << 10).err().unwrap().to_string();
    assert!(error.contains("too small:"), "{error}");
}

/// The inputs that are kept for the fuzz target, and the golden files, which are its seeds.
#[test]
fn what_fuzzing_found_does_no_harm() {
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/summary");
    let found = fs::read_dir(inputs).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
    for input in ALGORITHMS.iter().map(golden).chain(found) {
        for length in (0..input.len()).rev().step_by(input.len() / 8 + 1) {
            summary(&input[..=length]);
        }
    }
}
