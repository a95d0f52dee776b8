//! How much of their time stored epochs observed.

use flowgauge_core::summary::Parameters;
use flowgauge_engine::snapshot::Snapshot;
use flowgauge_engine::{Config, EngineError, EpochLength};
use serde_json::Value;

use crate::answers::answers_of;
use crate::capture::{Pcap, mixed};
use crate::stored::measured_by;
use crate::{LIMIT, asking, saved, snapshot};

const SECOND_NS: u64 = 1_000_000_000;

/// The stored epochs of 10 s of a host that sees ten packets a second in these seconds.
fn epochs(host: &str, run: u64, seconds: &[[u64; 2]]) -> Vec<Snapshot> {
    let mut pcap = Pcap::new();
    for [from, to] in seconds {
        for tenth in from * 10..=to * 10 {
            pcap.udp(1_700_000_000 * SECOND_NS + tenth * SECOND_NS / 10, (1, 2), (3, 4));
        }
    }
    let config = Config { epoch: EpochLength::Time(10 * SECOND_NS.cast_signed()), ..asking(&[]) };
    let read = |bytes: &[u8]| Snapshot::decode(&measured_by(bytes, host, run), LIMIT, None);
    saved(config, &pcap.0).iter().map(|saved| read(&saved.bytes).unwrap()).collect()
}

fn sum(parts: impl IntoIterator<Item = Snapshot>) -> Snapshot {
    let mut parts = parts.into_iter();
    let mut sum = parts.next().unwrap();
    parts.for_each(|part| sum.merge(&part).unwrap());
    // What was merged is stored and read again.
    Snapshot::decode(&sum.encode(), LIMIT, None).unwrap()
}

fn report(snapshot: &mut Snapshot) -> Value {
    answers_of(snapshot, &["top", "changes"], &[]).unwrap()
}

/// The share that was observed, in thousandths.
fn observed(snapshot: &mut Snapshot) -> u64 {
    (report(snapshot)["coverage"].as_f64().unwrap() * 1000.0).round() as u64
}

/// A stored epoch says what its run said: how much was observed, and nothing compares what was not whole.
#[test]
fn an_epoch_that_was_observed_in_part_says_so() {
    let mut epochs = epochs("host", 1, &[[4, 33]]);
    let reports: Vec<_> = epochs.iter_mut().map(report).collect();
    let coverage: Vec<_> = epochs.iter_mut().map(observed).collect();
    assert_eq!(coverage, [600, 1000, 1000, 300]);
    let compared: Vec<_> = reports.iter().map(|of| of["tasks"]["changes"].is_object()).collect();
    assert_eq!(compared, [false, true, true, false]);
    let notes = reports[3]["notes"].to_string();
    assert!(notes.contains("only 30.0 % of this epoch was observed"), "{notes}");
}

/// Observed times of a host add up, each nanosecond once; that of several hosts is their mean.
#[test]
fn observed_times_add_up() {
    assert_eq!(observed(&mut sum(epochs("a", 1, &[[4, 33]]))), 725);
    // A run that ends, and one that begins 8 s later.
    let restarted = epochs("a", 1, &[[0, 16]]).into_iter().chain(epochs("a", 2, &[[24, 40]]));
    assert_eq!(observed(&mut sum(restarted)), 640);
    // Two runs at once.
    let twice = epochs("a", 1, &[[4, 19]]).into_iter().chain(epochs("a", 2, &[[2, 13]]));
    assert_eq!(observed(&mut sum(twice)), 850);
    // One host observes 6 s of 10 s, and the other 8 s.
    let first = |host, run, from| epochs(host, run, &[[from, 12]]).remove(0);
    assert_eq!(observed(&mut sum([first("a", 1, 4), first("b", 2, 2)])), 700);
}

/// Empty epochs are not stored; the one behind them says that nothing was seen in them.
#[test]
fn empty_epochs_were_observed() {
    let stored = || epochs("a", 1, &[[0, 8], [35, 37]]);
    assert_eq!(stored().len(), 2);
    assert_eq!(observed(&mut sum(stored())), 925);
    assert_eq!(observed(&mut stored()[1]), 700);
    // What is left out was not observed.
    let mut whole = epochs("a", 1, &[[0, 39]]);
    whole.truncate(3);
    whole.remove(1);
    assert_eq!(observed(&mut sum(whole)), 667);
}

/// Where the default tasks are not answered, a query says what can be asked.
#[test]
fn a_query_without_an_answer_is_refused() {
    let of = |algorithm: &str| {
        let config = Config { algorithm: algorithm.to_owned(), tasks: None, ..asking(&[]) };
        snapshot(config, &mixed(9, 500))
    };
    let error = of("csm").query(|_| (), &mut crate::Keep::default()).err().unwrap();
    assert_eq!(error.to_string(), "csm answers none of the default tasks; use --task flow-size");
    assert_eq!(of("kll").query(|_| (), &mut crate::Keep::default()).unwrap().epochs, 1);
    let sizes = Config {
        algorithm: "count-min".to_owned(),
        parameters: Parameters::new([("candidates", 0)]),
        tasks: None,
        ..asking(&[])
    };
    let refused = snapshot(sizes, &mixed(9, 500)).query(|_| (), &mut crate::Keep::default());
    assert!(matches!(refused, Err(EngineError::Nothing { .. })));
}
