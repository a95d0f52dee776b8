//! The stored form: what comes back is what was stored, and no bytes do harm.

use flowgauge_core::catalog::ALGORITHMS;
use flowgauge_core::key::{FlowKey, Key4, Key8, Key13, Key16, Key32, Key37};
use flowgauge_core::summary::codec::{decode, encode};
use flowgauge_core::summary::{Info, Options};

use super::stream::{feed, packets};
use super::{build, for_all};

/// What a decoder may reserve.
const LIMIT: usize = 4 << 20;

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

/// Bytes with a checksum that fits them.
fn signed(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - 4;
    let checksum = crc32fast::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// No cut and no flipped bit, with or without a checksum that fits, does more than be refused, or
/// decode to a summary that answers; the memory limit holds because all of it is counted.
fn damage_is_refused<K: FlowKey>(info: &Info) -> bool {
    let Some(bytes) = filled::<K>(info, 16 << 10) else { return false };
    // Each header byte, then some of the payload's: its first and last ones, and every 61st.
    let cuts = (0..bytes.len()).filter(|i| *i < 400 || *i + 100 > bytes.len() || i % 61 == 0);
    for end in cuts.clone() {
        assert!(decode::<K>(&bytes[..end], LIMIT).is_err(), "{}: cut at {end}", info.name);
        if end >= 4 {
            assert!(decode::<K>(&signed(bytes[..end].to_vec()), LIMIT).is_err(), "{end}");
        }
    }
    for at in cuts {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            assert!(decode::<K>(&flipped, LIMIT).is_err(), "{}: bit {bit} of {at}", info.name);
            if let Ok(decoded) = decode::<K>(&signed(flipped), LIMIT) {
                assert!(decoded.summary.memory_bytes() <= LIMIT);
                let answers = decoded.summary.answers();
                let key = super::stream::key::<K>(1);
                let _ = answers.size().map(|sizes| sizes.estimate(key.canonical()));
                if let Some(candidates) = answers.candidates() {
                    candidates.for_each(&mut |_, _| ());
                }
            }
        }
    }
    true
}

/// The widths of keys change nothing about damage: one narrow and one wide key do.
#[test]
fn damaged_bytes_are_refused() {
    for info in ALGORITHMS {
        let any = [damage_is_refused::<Key8>(info), damage_is_refused::<Key37>(info)];
        assert!(any.contains(&true), "{}", info.name);
    }
}

#[test]
fn the_limit_is_named() {
    let info = &ALGORITHMS[0];
    let bytes = filled::<Key13>(info, 1 << 20).unwrap();
    let error = decode::<Key13>(&bytes, 1 << 10).err().unwrap().to_string();
    assert!(error.contains("bytes of memory are too few"), "{error}");
}
