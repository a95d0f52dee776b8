//! All orders in which two workers may claim entries, by loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p flowgauge-core --release --lib model`.

use std::collections::BTreeMap;

use loom::sync::Arc;
use loom::thread;

use super::super::Memory;
use super::flows::Flows;
use crate::key::{FlowKey, Key16};
use crate::terms::Size;

/// A flow that is told from others by both words of its key.
fn key(flow: u8) -> Key16 {
    let bytes = [flow; 13];
    Key16::from_canonical(&bytes).expect("it has the bytes of a key")
}

/// Two workers add a packet each of their flows, one after the other; flows have the digests that are
/// given, and there are so many entries. Returns what each flow has in the end, by its number.
fn race(entries: usize, workers: [&'static [(u8, u64)]; 2]) -> (BTreeMap<u8, Size>, usize) {
    let flows = Arc::new(
        Flows::<Key16>::with_entries(4, entries, &Memory::unlimited()).expect("it is small"),
    );
    let work = |flows: &Flows<Key16>, packets: &[(u8, u64)]| {
        let (mut spare, mut untracked) = (None, 0);
        for &(flow, digest) in packets {
            let size = Size { packets: 1, bytes: 100 };
            untracked += usize::from(!flows.add(key(flow), digest, size, &mut spare));
        }
        flows.leave(spare);
        untracked
    };
    let other = {
        let flows = Arc::clone(&flows);
        thread::spawn(move || work(&flows, workers[1]))
    };
    let untracked = work(&flows, workers[0]);
    let untracked = untracked + other.join().expect("it does not panic");
    let Ok(mut flows) = Arc::try_unwrap(flows) else { panic!("somebody else has it") };
    let mut found = BTreeMap::new();
    flows.drain(|own, size| {
        let before = found.insert(own.canonical(1)[0], size);
        assert!(before.is_none(), "a flow has two entries");
        assert!(own == key(own.canonical(1)[0]), "a key was published before it was written");
    });
    (found, untracked)
}

fn packets(count: u64) -> Size {
    Size { packets: count, bytes: 100 * count }
}

#[test]
fn model_of_the_same_new_key() {
    loom::model(|| {
        let (found, untracked) = race(3, [&[(1, 0)], &[(1, 0)]]);
        assert_eq!((found, untracked), (BTreeMap::from([(1, packets(2))]), 0));
    });
}

/// They begin their ways at one bucket, with one tag.
#[test]
fn model_of_different_keys_on_one_way() {
    loom::model(|| {
        let (found, untracked) = race(3, [&[(1, 0)], &[(2, 0)]]);
        assert_eq!((found, untracked), (BTreeMap::from([(1, packets(1)), (2, packets(1))]), 0));
    });
}

/// What was written in vain is used for the next flow: of four entries written three suffice.
#[test]
fn model_of_a_spare_entry() {
    loom::model(|| {
        let (found, untracked) = race(3, [&[(1, 0), (2, 0)], &[(1, 0), (3, 0)]]);
        let all = BTreeMap::from([(1, packets(2)), (2, packets(1)), (3, packets(1))]);
        assert_eq!((found, untracked), (all, 0));
    });
}

/// One entry for two flows: one of them is untracked, and a packet is never of both.
#[test]
fn model_of_the_last_entry() {
    loom::model(|| {
        let (found, untracked) = race(1, [&[(1, 0)], &[(2, 1)]]);
        assert_eq!((found.len(), untracked), (1, 1));
        assert!(found.values().all(|size| *size == packets(1)));
    });
}
