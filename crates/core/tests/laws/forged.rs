//! Files that nobody stored: each is refused, by the name of what cannot be.

use flowgauge_core::catalog;
use flowgauge_core::catalog::stored::{decode, encode};
use flowgauge_core::key::{FlowKey, Key4};
use flowgauge_core::summary::Options;
use flowgauge_core::terms::Measure;

use super::ask::decode_and_use;
use super::codec::signed;
use super::stream::{feed, packets};

const LIMIT: usize = 16 << 20;

/// The stored form of a summary of so many packets with these parameters.
fn stored(name: &str, parameters: &[(&str, &str)], count: usize) -> Vec<u8> {
    stored_by(Measure::Packets, name, parameters, count)
}

fn stored_by(by: Measure, name: &str, parameters: &[(&str, &str)], count: usize) -> Vec<u8> {
    let options = Options { by, ..Options::new(1 << 20, 1).with(parameters.iter().copied()) };
    let mut summary = catalog::build::<Key4>(name, &options).unwrap();
    feed(&mut *summary, &packets(count, 50, 1), 256);
    encode(catalog::info(name).unwrap(), &options, &*summary)
}

/// The same with another payload.
fn with_payload(stored: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = u64::to_le_bytes(payload.len() as u64);
    let header = &stored[..header_bytes(stored) - length.len()];
    signed([header, &length, payload, &[0; 4]].concat())
}

/// Where the payload begins: its length stands before it, and is all that is left.
fn header_bytes(stored: &[u8]) -> usize {
    let is_length = |at: &usize| {
        let length = u64::from_le_bytes(stored[at - 8..*at].try_into().unwrap());
        length == (stored.len() - 4 - at) as u64
    };
    (8..stored.len() - 4).find(is_length).unwrap()
}

fn payload(stored: &[u8]) -> Vec<u8> {
    stored[header_bytes(stored)..stored.len() - 4].to_vec()
}

/// Why the bytes are refused.
fn refused(bytes: &[u8]) -> String {
    decode::<Key4>(bytes, LIMIT).err().map_or_else(|| "they are not".to_owned(), |e| e.to_string())
}

/// 61 levels with a weight of 2⁶⁴ - 1 in all: the library would panic at the first packet.
#[test]
fn a_sketch_of_quantiles_with_no_room_for_a_packet_is_refused() {
    let file = stored("kll", &[("of", "size"), ("k", "200")], 0);
    let items = 60 + 15;
    // The library says how many items so many levels hold by what it writes of fewer.
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

/// The candidates at the end of a payload: their overflow, threshold and number, and `bytes` bytes of
/// keys with what is counted of them.
fn with_candidates(file: &[u8], bytes: usize, edit: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut payload = payload(file);
    let from = payload.len() - bytes - 3 * 8;
    edit(&mut payload[from..]);
    with_payload(file, &payload)
}

#[test]
fn candidates_stand_there_once_and_their_threshold_is_a_weight() {
    for (name, width) in [("count-array", Key4::BYTES + 4), ("count-min", Key4::BYTES)] {
        let file = stored(name, &[("columns", "64"), ("candidates", "64")], 2000);
        let decoded = decode::<Key4>(&file, LIMIT).unwrap().summary;
        let mut count = 0;
        decoded.answers().candidates().unwrap().for_each(&mut |_, _| count += 1);
        assert!(count > 10);
        let bytes = count * width;
        let whole = with_candidates(&file, bytes, |_| ());
        assert!(whole == file);
        let twice = with_candidates(&file, bytes, |set| set.copy_within(24..28, 24 + width));
        assert!(refused(&twice).contains("out of order, or repeated"), "{}", refused(&twice));
        for threshold in [f64::NAN, f64::INFINITY, -1.0] {
            let threshold = threshold.to_le_bytes();
            let forged =
                with_candidates(&file, bytes, |set| set[8..16].copy_from_slice(&threshold));
            assert!(refused(&forged).contains("it is not a weight"), "{}", refused(&forged));
        }
    }
}

/// A sketch's total, what it lost, and some cells of a row, in place of those that it has.
fn with_cells(file: &[u8], total: u64, lost: u64, cells: &[u64]) -> Vec<u8> {
    let mut payload = payload(file);
    for (number, bytes) in [total, lost].iter().chain(cells).zip(payload.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    with_payload(file, &payload)
}

/// Cells over a small total would wrap at the next packet, whatever is said to be lost. With a total
/// that is full any cells are possible.
#[test]
fn cells_do_not_pass_their_total() {
    let most = i64::MAX as u64;
    for name in ["count-min", "k-ary", "count-sketch", "conservative-count-min"] {
        let parameters = [("rows", "1"), ("columns", "64"), ("candidates", "64")];
        let file = stored_by(Measure::Bytes, name, &parameters, 0);
        for lost in [0, u64::MAX] {
            let forged = with_cells(&file, 100, lost, &[most]);
            let reason = refused(&forged);
            assert!(reason.contains("no packets of this total"), "{name}: {reason}");
        }
        let full = with_cells(&file, u64::MAX, u64::MAX, &[most, most, most]);
        assert_eq!(decode_and_use::<Key4>(&full, LIMIT).err().map(|e| e.to_string()), None);
    }
}
