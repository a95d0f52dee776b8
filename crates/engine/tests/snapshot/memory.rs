//! Storing an epoch takes no more memory than `explain` says.

use flowgauge_core::catalog::ALGORITHMS;
use flowgauge_engine::{Config, Plan};
use flowgauge_kernel::counting::peak_of;

use crate::capture::mixed;
use crate::merge::config;
use crate::snapshot;

/// Bytes of the snapshots that wait for a sink, which explain counts beside the one that is written.
const WAITING: u64 = 16 << 20;

#[test]
fn storing_takes_no_more_memory_than_explained() {
    println!("seed 83");
    let bytes = mixed(83, 20_000);
    for info in ALGORITHMS {
        let config = Config { save: true, ..config(info) };
        let explained = Plan::new(config.clone()).unwrap().explain();
        let most = explained.saving_bytes as u64 - WAITING;
        let snapshot = snapshot(config, &bytes);
        let (stored, taken) = peak_of(|| snapshot.encode());
        assert!(
            taken <= most,
            "{}: {taken} bytes to write {}, not {most}",
            info.name,
            stored.len()
        );
        assert!(explained.total_bytes() > explained.saving_bytes);
    }
    let without = Config { save: false, ..config(&ALGORITHMS[0]) };
    let without = Plan::new(without).unwrap().explain();
    assert_eq!(without.saving_bytes, 0);
}
