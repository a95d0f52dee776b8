//! Sinks with queues: a replay loses nothing, a live run waits for nothing.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use flowgauge_engine::Pace;
use flowgauge_engine::sink::{Item, Outlets, Sink, SinkError, Takes};
use flowgauge_engine::snapshot::Saved;

use crate::fixture;

/// Enough time for everything that must happen.
const LONG: Duration = Duration::from_secs(20);

/// Epoch, and the reports missing before it, of each item; the total comes last, as `u64::MAX`.
type Seen = Arc<Mutex<Vec<(u64, u64)>>>;

/// Notes what it gets, once `ready` agrees.
struct Notes<F> {
    takes: Takes,
    seen: Seen,
    ready: F,
    finished: bool,
}

impl<F: FnMut() -> Result<(), SinkError> + Send> Sink for Notes<F> {
    fn takes(&self) -> Takes {
        self.takes
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        (self.ready)()?;
        let seen = match item {
            Item::Epoch(report) => (report.epoch, report.undelivered),
            Item::Gap(gap) => (gap.epoch, 0),
            Item::Snapshot(saved) => (saved.epoch, 0),
            Item::Total(report) => (u64::MAX, report.undelivered),
        };
        self.seen.lock().unwrap().push(seen);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        assert!(!self.finished);
        self.finished = true;
        Ok(())
    }
}

fn sink(ready: impl FnMut() -> Result<(), SinkError> + Send + 'static) -> (Seen, Box<dyn Sink>) {
    sink_of(Takes::All, ready)
}

fn sink_of(
    takes: Takes,
    ready: impl FnMut() -> Result<(), SinkError> + Send + 'static,
) -> (Seen, Box<dyn Sink>) {
    let seen = Seen::default();
    (Arc::clone(&seen), Box::new(Notes { takes, seen, ready, finished: false }))
}

/// A sink that takes an item for each message.
fn held() -> (Sender<()>, Seen, Box<dyn Sink>) {
    let (go, held): (_, Receiver<()>) = channel();
    let (seen, sink) =
        sink(move || held.recv().map_err(|_| SinkError::Closed { output: "held".to_owned() }));
    (go, seen, sink)
}

fn full() -> SinkError {
    SinkError::new("full", io::ErrorKind::StorageFull.into())
}

/// A report that takes about a mebibyte.
fn epoch(number: u64) -> Item {
    let mut report = fixture::plausible();
    report.epoch = number;
    report.notes = vec!["n".repeat(1 << 20)];
    Item::Epoch(Arc::new(report))
}

fn snapshot(epoch: u64, bytes: usize) -> Item {
    Item::Snapshot(Arc::new(Saved {
        measurement: "main".to_owned(),
        run: 1,
        epoch,
        bounds_ns: (0, 0),
        is_secret: false,
        bytes: vec![1; bytes],
    }))
}

fn total() -> Item {
    Item::Total(Arc::new(fixture::total(&[], 1)))
}

#[test]
fn a_replay_waits_for_every_sink() {
    let (slow, first) = sink(|| {
        sleep(Duration::from_millis(5));
        Ok(())
    });
    let (quick, second) = sink(|| Ok(()));
    let mut outlets = Outlets::new(Pace::Replay, vec![first, second]).unwrap();
    let items = (0..60).map(epoch).chain([Item::Gap(fixture::gap()), total()]);
    for item in items {
        outlets.deliver(&item).unwrap();
    }
    for ending in outlets.finish(Duration::ZERO) {
        assert!(ending.error.is_none() && ending.undelivered == 0, "{ending:?}");
    }
    let mut expected: Vec<_> = (0..60).map(|number| (number, 0)).collect();
    expected.extend([(1, 0), (u64::MAX, 0)]);
    assert_eq!(*slow.lock().unwrap(), expected);
    assert_eq!(*quick.lock().unwrap(), expected);
}

#[test]
fn one_failed_sink_ends_a_replay() {
    let (_, sound) = sink(|| Ok(()));
    let (_, closed) = sink(|| Err(SinkError::Closed { output: "on purpose".to_owned() }));
    let (_, failing) = sink(|| Err(full()));
    let mut outlets = Outlets::new(Pace::Replay, vec![sound, closed, failing]).unwrap();
    let error = (0..1000).find_map(|number| outlets.deliver(&epoch(number)).err()).unwrap();
    assert!(error.to_string().starts_with("cannot write to full: "), "{error}");
    outlets.finish(Duration::ZERO);
}

#[test]
fn a_live_run_does_not_wait_and_counts_items_missed_by_a_slow_sink() {
    let (go, slow, first) = held();
    let (quick, second) = sink(|| Ok(()));
    let mut outlets = Outlets::new(Pace::Live, vec![first, second]).unwrap();
    for number in 0..40 {
        outlets.deliver(&epoch(number)).unwrap();
        // The other sink keeps up.
        let begun = Instant::now();
        while quick.lock().unwrap().len() <= number as usize {
            assert!(begun.elapsed() < LONG);
            sleep(Duration::from_millis(1));
        }
    }
    assert!(slow.lock().unwrap().is_empty());
    (0..100).for_each(|_| go.send(()).unwrap());
    let begun = Instant::now();
    while slow.lock().unwrap().len() < 10 {
        assert!(begun.elapsed() < LONG);
        sleep(Duration::from_millis(1));
    }
    // There is room again.
    sleep(Duration::from_millis(100));
    outlets.deliver(&epoch(40)).unwrap();
    outlets.deliver(&total()).unwrap();
    let endings = outlets.finish(LONG);
    assert!(endings.iter().all(|ending| ending.error.is_none()), "{endings:?}");

    let slow = slow.lock().unwrap();
    let (epochs, rest) = slow.split_at(slow.len() - 2);
    // Of reports of a mebibyte and a little more, 15 fit into 16 MiB.
    let queued = epochs.len() as u64;
    assert_eq!(queued, 15);
    assert!(epochs.iter().zip(0..).all(|(seen, number)| *seen == (number, 0)), "{epochs:?}");
    let missed = 40 - queued;
    assert_eq!(rest, [(40, missed), (u64::MAX, missed)]);
    assert_eq!([endings[0].undelivered, endings[1].undelivered], [missed, 0]);
    let quick = quick.lock().unwrap();
    assert!(quick.iter().take(41).zip(0..).all(|(seen, number)| *seen == (number, 0)));
    assert_eq!(quick[41], (u64::MAX, 0));
}

/// A full queue of reports does not miss the snapshots that its sink has no use for, and the other way
/// around.
#[test]
fn a_sink_misses_only_items_that_it_takes() {
    let closed = || Err(SinkError::Closed { output: "on purpose".to_owned() });
    let (_, reports) = sink_of(Takes::Reports, closed);
    let (_, snapshots) = sink_of(Takes::Snapshots, closed);
    let (all, open) = sink(|| Ok(()));
    let mut outlets = Outlets::new(Pace::Live, vec![reports, snapshots, open]).unwrap();
    for number in 0..3 {
        outlets.deliver(&snapshot(number, 1000)).unwrap();
        outlets.deliver(&epoch(number)).unwrap();
    }
    outlets.deliver(&total()).unwrap();
    let endings = outlets.finish(LONG);
    let undelivered: Vec<_> = endings.iter().map(|ending| ending.undelivered).collect();
    assert_eq!(undelivered, [4, 3, 0]);
    assert_eq!(all.lock().unwrap().len(), 7);
}

/// A snapshot that fills the queue for a while costs a live run other snapshots, but no report.
#[test]
fn a_large_snapshot_leaves_room_for_reports() {
    let (go, seen, sink) = held();
    let mut outlets = Outlets::new(Pace::Live, vec![sink]).unwrap();
    for number in 0..3 {
        outlets.deliver(&snapshot(number, 20 << 20)).unwrap();
        outlets.deliver(&epoch(number)).unwrap();
    }
    outlets.deliver(&total()).unwrap();
    (0..10).for_each(|_| go.send(()).unwrap());
    let endings = outlets.finish(LONG);
    assert_eq!(endings[0].undelivered, 2);
    // The sink gets the first snapshot and every report. Reports 1 and 2 each count a lost snapshot.
    assert_eq!(*seen.lock().unwrap(), [(0, 0), (0, 0), (1, 1), (2, 1), (u64::MAX, 2)]);
}

#[test]
fn a_live_sink_that_fails_is_tried_again_with_the_same_report() {
    let mut attempts = 0;
    let (seen, failing) = sink(move || {
        attempts += 1;
        if attempts % 2 == 1 { Err(full()) } else { Ok(()) }
    });
    let mut outlets = Outlets::new(Pace::Live, vec![failing]).unwrap();
    for number in 0..3 {
        outlets.deliver(&epoch(number)).unwrap();
    }
    let begun = Instant::now();
    while seen.lock().unwrap().len() < 3 {
        assert!(begun.elapsed() < LONG);
        sleep(Duration::from_millis(1));
    }
    assert!(begun.elapsed() > Duration::from_millis(250), "each waits 100 ms");
    assert!(outlets.finish(LONG)[0].error.is_none());
    assert_eq!(*seen.lock().unwrap(), [(0, 0), (1, 0), (2, 0)]);
}

#[test]
fn the_health_of_a_sink_says_why_it_fails_and_what_it_lost() {
    let (go, held): (_, Receiver<Result<(), SinkError>>) = channel();
    let (_, sink) = sink(move || held.recv().unwrap());
    let mut outlets = Outlets::new(Pace::Live, vec![sink]).unwrap();
    let health = outlets.health().remove(0);
    let wait = |problem: Option<&str>| {
        let begun = Instant::now();
        while health.problem().as_deref() != problem {
            assert!(begun.elapsed() < LONG);
            sleep(Duration::from_millis(1));
        }
    };
    for number in 0..20 {
        outlets.deliver(&epoch(number)).unwrap();
    }
    let lost = health.lost();
    assert!((1..20).contains(&lost), "{lost}");
    go.send(Err(full())).unwrap();
    wait(Some("cannot write to full: no storage space"));
    assert!(!health.has_ended());
    go.send(Ok(())).unwrap();
    wait(None);
    go.send(Err(SinkError::Closed { output: "full".to_owned() })).unwrap();
    wait(Some("cannot write to full: its reader closed it"));
    outlets.finish(LONG);
    assert!(health.has_ended());
    assert_eq!(health.lost(), 19, "the sink took one of twenty");
}

/// A report that is marked before it is queued does not know of a refusal behind it; the total does.
#[test]
fn an_item_that_a_live_sink_refuses_is_counted_and_the_next_one_delivered() {
    let mut attempts = 0;
    let (seen, refusing) = sink(move || {
        attempts += 1;
        let (output, error) = ("the test".to_owned(), io::ErrorKind::FileTooLarge.into());
        if attempts == 2 { Err(SinkError::Refused { output, error }) } else { Ok(()) }
    });
    let mut outlets = Outlets::new(Pace::Live, vec![refusing]).unwrap();
    for number in 0..3 {
        outlets.deliver(&epoch(number)).unwrap();
    }
    let begun = Instant::now();
    while seen.lock().unwrap().len() < 2 {
        assert!(begun.elapsed() < LONG);
        sleep(Duration::from_millis(1));
    }
    outlets.deliver(&epoch(3)).unwrap();
    outlets.deliver(&total()).unwrap();
    let endings = outlets.finish(LONG);
    assert!(endings[0].error.is_none());
    assert_eq!(endings[0].undelivered, 1);
    let seen = seen.lock().unwrap();
    let epochs: Vec<_> = seen.iter().map(|(epoch, _)| *epoch).collect();
    assert_eq!(epochs, [0, 2, 3, u64::MAX]);
    assert_eq!(seen.last().unwrap().1, 1);
}

#[test]
fn a_run_goes_on_until_the_last_sink_is_closed() {
    for pace in [Pace::Live, Pace::Replay] {
        let (go, _, closed) = held();
        let (still, seen, open) = held();
        let mut outlets = Outlets::new(pace, vec![closed, open]).unwrap();
        drop(go);
        for number in 0..5 {
            outlets.deliver(&epoch(number)).unwrap();
            still.send(()).unwrap();
            sleep(Duration::from_millis(10));
        }
        drop(still);
        let begun = Instant::now();
        let error = loop {
            match outlets.deliver(&epoch(9)) {
                Ok(()) => assert!(begun.elapsed() < LONG),
                Err(error) => break error,
            }
            sleep(Duration::from_millis(1));
        };
        assert!(matches!(&error, SinkError::Closed { output } if output == "held"), "{error:?}");
        assert_eq!(seen.lock().unwrap().len(), 5);
        outlets.finish(LONG);
    }
}

#[test]
fn a_sink_that_is_stuck_does_not_hold_up_the_end() {
    let (_go, seen, stuck) = held();
    let mut outlets = Outlets::new(Pace::Live, vec![stuck]).unwrap();
    for number in 0..3 {
        outlets.deliver(&epoch(number)).unwrap();
    }
    outlets.deliver(&total()).unwrap();
    let begun = Instant::now();
    let endings = outlets.finish(Duration::from_millis(50));
    assert!(begun.elapsed() < LONG / 2);
    assert!(endings[0].undelivered == 4 && endings[0].error.is_none(), "{endings:?}");
    assert!(seen.lock().unwrap().is_empty());
}

#[test]
fn a_sink_that_panics_ends_the_run() {
    for pace in [Pace::Replay, Pace::Live] {
        let (_, defective) = sink(|| panic!("on purpose"));
        let mut outlets = Outlets::new(pace, vec![defective]).unwrap();
        let begun = Instant::now();
        let error = loop {
            match outlets.deliver(&epoch(0)) {
                Ok(()) => assert!(begun.elapsed() < LONG),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, SinkError::Panicked));
    }
}
