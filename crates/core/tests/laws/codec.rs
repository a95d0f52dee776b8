//! The stored form: decoding restores the summary, hostile bytes do no harm, and golden files stay
//! readable.
//!
//! `FLOWGAUGE_GOLDEN=write` rewrites the golden files after an intended change of the form.

use std::path::{Path, PathBuf};
use std::{env, fs};

use flowgauge_core::catalog::stored::{Decoded, decode, decode_again, decode_under, encode};
use flowgauge_core::catalog::{self, ACCELERATORS, ALGORITHMS};
use flowgauge_core::key::{FlowKey, Key8, Key16, Key37};
use flowgauge_core::summary::codec::{DecodeError, DecodeErrorKind};
use flowgauge_core::summary::{BuildErrorKind, Info, Options, Parameters, Summary};
use flowgauge_core::terms::Measure;
use flowgauge_kernel::Seed;

use super::stream::{decode_and_use, feed, feed_keys_of, packets};
use super::summaries::summary;
use super::{UNSEEDED, build, for_all};

/// The memory limit of decoding a golden file.
pub(crate) const LIMIT: usize = 1 << 20;

/// The file of an algorithm.
fn golden_path(info: &Info) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(format!("{}.fgsm", info.name))
}

/// The file of an algorithm in an earlier version.
fn of_version(version: u16, info: &Info) -> PathBuf {
    let path = golden_path(info);
    path.with_file_name(format!("version-{version}")).join(path.file_name().unwrap())
}

/// The algorithm whose registers follow from another hash since version 5.
const SINCE_5: &str = "hyperloglog";

/// Algorithms whose stored form has changed since version 4.
const SINCE_4: [&str; 5] = ["linear-table", "indirect-table", "cuckoo-1", "cuckoo-4", "netflow"];

/// The bytes of the file.
fn golden(info: &Info) -> Vec<u8> {
    let path = golden_path(info);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The stored form after a fixed stream; `None` if the algorithm refuses the keys or the memory.
fn stored_of<K: FlowKey>(info: &Info, options: &Options) -> Option<Vec<u8>> {
    let mut summary = match catalog::build::<K>(info.name, options) {
        Ok(summary) => summary,
        Err(error)
            if matches!(
                error.kind(),
                BuildErrorKind::Unfit { .. } | BuildErrorKind::TooLittleMemory { .. }
            ) =>
        {
            return None;
        }
        Err(error) => panic!("{}: {error}", info.name),
    };
    let key_bytes = options.key_bytes.unwrap();
    feed_keys_of(key_bytes, &mut *summary, &packets(1500, 120, 29), 256);
    Some(encode(info, options, &*summary))
}

/// Writes the file for the first key width that is accepted, with the least memory that suffices.
fn write_golden(info: &Info) {
    let least = |key_bytes| {
        let options = |log: u32| Options::new(1 << log, 1).for_keys(key_bytes);
        (11..15).find_map(|log| stored_of::<Key8>(info, &options(log)))
    };
    let bytes = least(8).or_else(|| least(4)).unwrap();
    assert!(bytes.len() <= 10 << 10, "{}: {} bytes", info.name, bytes.len());
    fs::write(golden_path(info), bytes).unwrap();
}

/// The file decodes to itself, and the same stream gives the same bytes.
fn holds<K: FlowKey>(info: &Info, bytes: &[u8]) {
    let decoded = decode::<K>(bytes, LIMIT).unwrap();
    assert_eq!(decoded.info.name, info.name);
    assert!(encode(info, &decoded.options, &*decoded.summary) == bytes, "{}", info.name);
    if info.name != UNSEEDED {
        let mut options = Options::new(LIMIT, 1).for_keys(decoded.options.key_bytes.unwrap());
        let parameters = decoded.summary.parameters();
        options.parameters = Parameters::new(parameters);
        let again = stored_of::<K>(info, &options).unwrap();
        assert!(again == bytes, "{} is stored otherwise than it was", info.name);
    }
}

#[test]
fn golden_files_are_read() {
    for info in ALGORITHMS {
        if env::var("FLOWGAUGE_GOLDEN").is_ok_and(|what| what == "write") {
            write_golden(info);
        }
        let bytes = golden(info);
        holds::<Key8>(info, &bytes);
    }
}

/// A file of an earlier version decodes to the same summary.
fn is_stored_as_of_old<K: FlowKey>(version: u16, info: &Info, bytes: &[u8]) {
    assert_eq!(bytes[4..6], version.to_le_bytes());
    let decoded = decode::<K>(bytes, LIMIT).unwrap();
    let again = encode(info, &decoded.options, &*decoded.summary);
    if info.name != SINCE_5 {
        return assert!(again == golden(info), "{}", info.name);
    }
    // Its registers follow from another hash: it answers and counts on, but does not merge with
    // those of today. So few flows are counted exactly.
    let flows =
        |summary: &dyn Summary<K>| summary.answers().cardinality().unwrap().value.round() as u64;
    let key_bytes = decoded.options.key_bytes.unwrap();
    let mut options = Options::new(LIMIT, 1).for_keys(key_bytes);
    options.parameters = Parameters::new(decoded.summary.parameters());
    let mut today = build::<K>(info, &options).unwrap();
    feed_keys_of(key_bytes, &mut *today, &packets(1500, 120, 29), 256);
    assert_eq!((flows(&*decoded.summary), flows(&*today)), (120, 120));
    let refused = today.merge(&*decoded.summary).unwrap_err();
    assert!(refused.to_string().contains("hash functions differ"), "{refused}");
    let mut restored = decode::<K>(&again, LIMIT).unwrap().summary;
    feed_keys_of(key_bytes, &mut *restored, &packets(1500, 120, 29), 256);
    assert_eq!(flows(&*restored), 120, "the same flows came again");
    restored.merge(&*decoded.summary).unwrap();
    assert_eq!(flows(&*restored), 120);
    assert!(restored.answers().registers().is_none());
}

#[test]
fn files_of_earlier_versions_are_read() {
    for info in ALGORITHMS {
        let versions: &[u16] = match info.name {
            SINCE_5 => &[3, 5],
            name if SINCE_4.contains(&name) => &[3, 4],
            _ => &[3],
        };
        for &version in versions {
            let bytes = fs::read(of_version(version, info)).unwrap();
            is_stored_as_of_old::<Key8>(version, info, &bytes);
        }
    }
}

#[test]
fn each_file_is_of_an_algorithm() {
    let (some, all) = (SINCE_4.len(), ALGORITHMS.len());
    let info = &ALGORITHMS[0];
    for (file, count) in [
        (golden_path(info), all),
        (of_version(3, info), all),
        (of_version(4, info), some),
        (of_version(5, info), 1),
    ] {
        let files = fs::read_dir(file.parent().unwrap()).unwrap();
        let names = files.map(|file| file.unwrap().path()).filter(|file| file.is_file());
        assert_eq!(names.count(), count, "{}", file.display());
    }
}

fn filled<K: FlowKey, const BYTES: usize>(info: &Info, memory_bytes: usize) -> Option<Vec<u8>> {
    let options = Options::new(memory_bytes, 1).for_keys(BYTES);
    let mut summary = build::<K>(info, &options)?;
    feed_keys_of(BYTES, &mut *summary, &packets(3000, 400, 13), 256);
    Some(encode(info, &options, &*summary))
}

fn comes_back<K: FlowKey, const BYTES: usize>(info: &Info) -> bool {
    if info.name == super::UNSEEDED {
        return true;
    }
    let Some(bytes) = filled::<K, BYTES>(info, 64 << 10) else { return false };
    let decoded = decode::<K>(&bytes, LIMIT).unwrap();
    assert_eq!(decoded.info.name, info.name);
    assert!(encode(info, &decoded.options, &*decoded.summary) == bytes, "{}", info.name);
    // The copy continues to count as the original does.
    let mut copy = decoded.summary;
    let mut original = decode::<K>(&bytes, LIMIT).unwrap().summary;
    for summary in [&mut copy, &mut original] {
        feed_keys_of(BYTES, &mut **summary, &packets(500, 400, 17), 256);
    }
    let encoded = [&copy, &original].map(|summary| encode(info, &decoded.options, &**summary));
    assert!(encoded[0] == encoded[1], "{}", info.name);
    true
}

#[test]
fn stored_summaries_come_back() {
    for_all!(comes_back);
}

/// A summary that is decoded into used memory equals one in fresh memory.
fn comes_back_in_used_memory<K: FlowKey, const BYTES: usize>(info: &Info) -> bool {
    if info.name == super::UNSEEDED {
        return true;
    }
    let Some(bytes) = filled::<K, BYTES>(info, 64 << 10) else { return false };
    for memory_bytes in [64 << 10, 128 << 10] {
        let options = Options::new(memory_bytes, 1).for_keys(BYTES);
        let Some(mut other) = build::<K>(info, &options) else { return false };
        feed_keys_of(BYTES, &mut *other, &packets(5000, 900, 19), 256);
        let other = encode(info, &options, &*other);
        let spare = decode::<K>(&other, LIMIT).unwrap();
        let mut again = decode_again(&bytes, LIMIT, None, spare).unwrap();
        let mut fresh = decode::<K>(&bytes, LIMIT).unwrap();
        for decoded in [&mut again, &mut fresh] {
            assert!(encode(info, &decoded.options, &*decoded.summary) == bytes, "{}", info.name);
            feed_keys_of(BYTES, &mut *decoded.summary, &packets(500, 400, 17), 256);
        }
        let [again, fresh] =
            [&again, &fresh].map(|decoded| encode(info, &decoded.options, &*decoded.summary));
        assert!(again == fresh, "{}", info.name);
    }
    true
}

#[test]
fn stored_summaries_come_back_in_used_memory() {
    for_all!(comes_back_in_used_memory);
}

/// A summary under a random seed is stored with the seed. One under a seed file reveals nothing of
/// the file, and is decoded only with it.
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

/// Sets the checksum of the bytes.
fn signed(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - 4;
    let checksum = crc32fast::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Sets `count` bytes from `at` on to 0xff.
fn raised(bytes: &[u8], at: usize, count: usize) -> Vec<u8> {
    let mut raised = bytes.to_vec();
    raised[at..].iter_mut().take(count).for_each(|byte| *byte = 0xff);
    raised
}

/// Flips a bit of the byte at `at`.
fn flipped(bytes: &[u8], at: usize, bit: u32) -> Vec<u8> {
    let mut flipped = bytes.to_vec();
    flipped[at] ^= 1 << bit;
    flipped
}

/// The offset of the payload, after the fields of fixed width and the parameters.
fn header_bytes(info: &Info, bytes: &[u8]) -> usize {
    let mut at = 7 + info.name.len() + 2 + 9 + 1 + 9 + 8 + 1;
    let texts = 2 * usize::from(bytes[at]);
    at += 1;
    (0..texts).for_each(|_| at += 1 + usize::from(bytes[at]));
    at + 8
}

/// Whether an error names the wrong field or parameter.
fn names_its_field(error: &DecodeError) -> bool {
    match error.kind() {
        DecodeErrorKind::Cut { field, .. } | DecodeErrorKind::Invalid { field, .. } => {
            !field.is_empty()
        }
        DecodeErrorKind::Build(_) | DecodeErrorKind::SeedFile { .. } => true,
    }
}

/// Cut at any byte, with a right or a wrong checksum, the bytes are refused.
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
        cuts_are_refused::<Key8>(info, &bytes);
    }
}

/// Damaged bytes are refused for their checksum. With a right checksum they are refused by the
/// field's name, or decode to a summary that can be used without harm.
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

fn long() -> bool {
    env::var_os("FLOWGAUGE_LONG").is_some()
}

/// Where files are damaged: at each byte of the header, and at 24 bytes of the payload, or at all
/// of them with `FLOWGAUGE_LONG`.
fn places(info: &Info, bytes: &[u8]) -> impl Iterator<Item = usize> {
    let header = header_bytes(info, bytes);
    let step = if long() { 1 } else { (bytes.len() - header) / 24 + 1 };
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
                damage_does_no_harm::<Key8>(info, &bytes, damaged, at);
            }
        }
    }
}

/// Numbers of any width at any offset, lengths included, set to their maximum.
#[test]
fn lengths_and_numbers_at_their_most_do_no_harm() {
    for info in ALGORITHMS {
        let bytes = golden(info);
        for at in places(info, &bytes) {
            for width in [1, 2, 4, 8] {
                let damaged = raised(&bytes, at, width);
                damage_does_no_harm::<Key8>(info, &bytes, damaged, at);
            }
        }
    }
}

#[test]
fn the_limit_is_named() {
    let info = &ALGORITHMS[0];
    let bytes = filled::<Key16, 16>(info, 1 << 20).unwrap();
    let error = decode::<Key16>(&bytes, 1 << 10).err().unwrap().to_string();
    assert!(error.contains("too small:"), "{error}");
}

/// The corpus of the fuzz target, and the golden files, which are its seeds.
#[test]
fn inputs_found_by_fuzzing_do_no_harm() {
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/summary");
    let found = fs::read_dir(inputs).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
    for input in ALGORITHMS.iter().map(golden).chain(found) {
        for length in (0..input.len()).rev().step_by(input.len() / 8 + 1) {
            summary(&input[..=length]);
        }
    }
}

/// Memory limit of stored samples.
const SAMPLE_LIMIT: usize = 4 << 20;

/// Damaged bytes at the beginning: parameters, the sampler's contents, and some of the summary's. Of
/// UnivMon, whose answers take thousands of readings, every eighth, or each with `FLOWGAUGE_LONG`.
const DAMAGED: usize = 400;

/// Examples of tables, sketches, counters and prefixes.
const BEHIND: [&str; 6] =
    ["linear-table", "count-min", "count-sketch", "univmon", "space-saving", "mst"];

/// Bytes from outside reach the sampler before the summary behind it.
#[test]
fn damaged_samples_of_packets_do_no_harm() {
    damage_samples(Measure::Packets);
}

#[test]
fn damaged_samples_of_bytes_do_no_harm() {
    damage_samples(Measure::Bytes);
}

fn damage_samples(by: Measure) {
    for sampler in ACCELERATORS.iter().filter(|info| info.samples).map(|info| info.name) {
        let able = catalog::able(sampler);
        let mut damaged = 0;
        for name in BEHIND.into_iter().filter(|name| able.contains(name)) {
            let accelerators = [(sampler.to_owned(), Parameters::default())];
            let options = Options { by, ..Options::new(64 << 10, 1).for_keys(4) };
            let mut summary =
                catalog::build_accelerated::<Key8>(&accelerators, name, &options).unwrap();
            feed_keys_of(4, &mut *summary, &packets(2000, 60, 7), 256);
            let bytes = encode(catalog::info(name).unwrap(), &options, &*summary);
            decode_and_use::<Key8>(&bytes, SAMPLE_LIMIT).unwrap();
            for end in 0..DAMAGED.min(bytes.len()) {
                assert!(
                    decode::<Key8>(&signed(bytes[..end.max(4)].to_vec()), SAMPLE_LIMIT).is_err()
                );
            }
            let step = if name == "univmon" && !long() { 8 } else { 1 };
            for at in (0..DAMAGED.min(bytes.len() - 4)).step_by(step) {
                let _ = decode_and_use::<Key8>(
                    &signed(flipped(&bytes, at, at as u32 * 5 % 8)),
                    SAMPLE_LIMIT,
                );
                let _ = decode_and_use::<Key8>(&signed(raised(&bytes, at, 8)), SAMPLE_LIMIT);
                damaged += 2;
            }
        }
        assert!(damaged > 0, "{sampler}");
    }
}

/// Memory limit of forged files.
const FORGED_LIMIT: usize = 16 << 20;

/// The stored form of a summary of `count` packets with these parameters.
fn stored(name: &str, parameters: &[(&str, &str)], count: usize) -> Vec<u8> {
    stored_by(Measure::Packets, name, parameters, count)
}

fn stored_by(by: Measure, name: &str, parameters: &[(&str, &str)], count: usize) -> Vec<u8> {
    let options = Options { by, ..Options::new(1 << 20, 1).with(parameters.iter().copied()) };
    let mut summary = catalog::build::<Key8>(name, &options).unwrap();
    feed(&mut *summary, &packets(count, 50, 1), 256);
    encode(catalog::info(name).unwrap(), &options, &*summary)
}

/// Replaces the payload.
fn with_payload(stored: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = u64::to_le_bytes(payload.len() as u64);
    let header = &stored[..payload_offset(stored) - length.len()];
    signed([header, &length, payload, &[0; 4]].concat())
}

/// The offset of the payload: its length precedes it, and it goes up to the checksum.
fn payload_offset(stored: &[u8]) -> usize {
    let is_length = |at: &usize| {
        let length = u64::from_le_bytes(stored[at - 8..*at].try_into().unwrap());
        length == (stored.len() - 4 - at) as u64
    };
    (8..stored.len() - 4).find(is_length).unwrap()
}

fn payload(stored: &[u8]) -> Vec<u8> {
    stored[payload_offset(stored)..stored.len() - 4].to_vec()
}

/// The error text of refused bytes.
fn refused(bytes: &[u8]) -> String {
    decode::<Key8>(bytes, FORGED_LIMIT)
        .err()
        .map_or_else(|| "they are not".to_owned(), |e| e.to_string())
}

/// 61 levels with a total weight of 2⁶⁴ - 1: the library would panic at the first packet.
#[test]
fn a_sketch_of_quantiles_with_no_room_for_a_packet_is_refused() {
    let file = stored("kll", &[("of", "size"), ("k", "200")], 0);
    let items = 60 + 15;
    // The library's capacity for so many levels is unknown, so try all of them.
    let image = |capacity: u32| {
        let mut image = vec![5, 1, 15, 0, 200, 0, 8, 0];
        image.extend(u64::MAX.to_le_bytes());
        image.extend([200, 0, 61, 0]);
        (0..61).for_each(|level| image.extend((capacity - items + level).to_le_bytes()));
        (0..2 + items).for_each(|_| image.extend(64f64.to_le_bytes()));
        image
    };
    let reasons: Vec<String> = (items..3 * 200 + 480)
        .map(|capacity| {
            let image = image(capacity);
            let mut payload = vec![0; 9];
            payload.extend((image.len() as u64).to_le_bytes());
            payload.extend(image);
            with_payload(&file, &payload)
        })
        .map(|bytes| refused(&bytes))
        .collect();
    assert!(reasons.iter().all(|reason| reason.contains("not such a sketch")), "{reasons:?}");
}

#[test]
fn a_flag_is_0_or_1() {
    let file = stored("kll", &[("of", "gap")], 100);
    let mut payload = payload(&file);
    payload[0] = 2;
    let reason = refused(&with_payload(&file, &payload));
    assert!(reason.contains("neither 0 nor 1"), "{reason}");
}

/// More used counters than packets would leave no number of flows between the bounds.
#[test]
fn an_array_of_counters_sums_to_its_total() {
    let file = stored("mrac", &[("columns", "64")], 100);
    for total in [0, 99, 101, u64::MAX] {
        let mut payload = payload(&file);
        payload[..8].copy_from_slice(&total.to_le_bytes());
        let reason = refused(&with_payload(&file, &payload));
        assert!(reason.contains("it is not the sum of the counters"), "{total}: {reason}");
    }
}

/// Edits the candidates at the end of a payload: overflow, threshold, number, and `bytes` bytes of
/// keys with their own parts.
fn with_candidates(file: &[u8], bytes: usize, edit: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut payload = payload(file);
    let from = payload.len() - bytes - 3 * 8;
    edit(&mut payload[from..]);
    with_payload(file, &payload)
}

#[test]
fn repeated_candidates_and_bad_thresholds_are_refused() {
    for (name, width) in [("count-array", Key8::BYTES + 4), ("count-min", Key8::BYTES)] {
        let file = stored(name, &[("columns", "64"), ("candidates", "64")], 2000);
        let decoded = decode::<Key8>(&file, FORGED_LIMIT).unwrap().summary;
        let mut count = 0;
        decoded.answers().candidates().unwrap().for_each(&mut |_, _| count += 1);
        assert!(count > 10);
        let bytes = count * width;
        let whole = with_candidates(&file, bytes, |_| ());
        assert!(whole == file);
        let twice =
            with_candidates(&file, bytes, |set| set.copy_within(24..24 + Key8::BYTES, 24 + width));
        assert!(refused(&twice).contains("out of order, or repeated"), "{}", refused(&twice));
        for threshold in [f64::NAN, f64::INFINITY, -1.0] {
            let threshold = threshold.to_le_bytes();
            let forged =
                with_candidates(&file, bytes, |set| set[8..16].copy_from_slice(&threshold));
            assert!(refused(&forged).contains("it is not a weight"), "{}", refused(&forged));
        }
    }
}

/// Replaces a sketch's total, its lost weight and the first of its 64 cells; the other cells become 0.
fn with_cells(file: &[u8], total: u64, lost: u64, cells: &[u64]) -> Vec<u8> {
    let payload = payload(file);
    let width = usize::from(payload[16]);
    let numbers =
        |numbers: &[u64]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>();
    let mut all = [0; 64];
    all[..cells.len()].copy_from_slice(cells);
    let forged = [&numbers(&[total, lost])[..], &[8], &numbers(&all), &payload[17 + 64 * width..]];
    with_payload(file, &forged.concat())
}

/// Cells above a small total would wrap at the next packet, whatever the lost weight. With a full
/// total any cells are possible.
#[test]
fn cells_do_not_pass_their_total() {
    let most = i64::MAX as u64;
    for name in ["count-min", "k-ary", "count-sketch", "conservative-count-min"] {
        let parameters = [("rows", "1"), ("columns", "64"), ("candidates", "64")];
        let file = stored_by(Measure::Bytes, name, &parameters, 0);
        for lost in [0, u64::MAX] {
            let forged = with_cells(&file, 100, lost, &[most]);
            let reason = refused(&forged);
            assert!(reason.contains("no packets with this total"), "{name}: {reason}");
        }
        let full = with_cells(&file, u64::MAX, u64::MAX, &[most, most, most]);
        assert_eq!(decode_and_use::<Key8>(&full, FORGED_LIMIT).err().map(|e| e.to_string()), None);
    }
}
