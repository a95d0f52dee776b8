//! Notifications to systemd: the agent is ready, alive or stopping.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use flowgauge_engine::source::{Ahead, Burst, Counter, Progress, Skipped, Source, SourceError};
use sd_notify::NotifyState;

use crate::http::Health;
use crate::log::say;

/// Beat count of a source that has ended.
const ENDED: u64 = u64::MAX;

/// Checks that all sources are being polled, even without packets. While they are, feeds systemd's
/// watchdog and marks the agent as ready.
pub(crate) struct Watchdog {
    /// Interval that systemd asks for; `None` if it does not.
    every: Option<Duration>,
    fed: Instant,
    health: Health,
    beats: Vec<Arc<AtomicU64>>,
    /// The beat counts at the last check that found all sources alive.
    seen: Vec<u64>,
}

impl Watchdog {
    /// Creates the watchdog that the environment asks for.
    pub(crate) fn new() -> Self {
        let mut us = 0;
        let every =
            sd_notify::watchdog_enabled(false, &mut us).then(|| Duration::from_micros(us / 3));
        let (health, beats, seen) = (Health::default(), Vec::new(), Vec::new());
        Self { every, fed: Instant::now(), health, beats, seen }
    }

    /// The health to share with servers.
    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    /// Wraps a source to count its polls.
    pub(crate) fn watch(&mut self, source: Box<dyn Source + Send>) -> Box<dyn Source + Send> {
        let beats = Arc::new(AtomicU64::new(0));
        self.beats.push(Arc::clone(&beats));
        self.seen.push(0);
        Box::new(Watched { source, beats, is_out: false })
    }

    /// Checks whether every source was polled since the last success.
    pub(crate) fn look(&mut self) {
        let beats: Vec<_> = self.beats.iter().map(|beats| beats.load(Ordering::Relaxed)).collect();
        let is_read = |(beats, seen): (&u64, &u64)| beats != seen || *beats == ENDED;
        if !beats.iter().zip(&self.seen).all(is_read) {
            return;
        }
        self.seen = beats;
        self.health.alive();
        if self.every.is_some_and(|every| self.fed.elapsed() >= every) {
            self.fed = Instant::now();
            notify(NotifyState::Watchdog);
        }
    }
}

/// Tells systemd that the agent is measuring.
pub(crate) fn ready() {
    notify(NotifyState::Ready);
}

/// Tells systemd that the agent is stopping.
pub(crate) fn stopping() {
    notify(NotifyState::Stopping);
}

fn notify(state: NotifyState<'_>) {
    // Without systemd, there is no service manager to notify.
    let _ = sd_notify::notify(false, &[state]);
}

/// A source whose polls are counted.
struct Watched {
    source: Box<dyn Source + Send>,
    beats: Arc<AtomicU64>,
    /// Whether the log has the outage that lasts.
    is_out: bool,
}

impl Source for Watched {
    fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError> {
        let outage = self.source.outage();
        if outage.is_some() != self.is_out {
            self.is_out = outage.is_some();
            outage.into_iter().for_each(say);
        }
        let polled = self.source.poll(burst);
        match polled {
            Ok(false) => self.beats.store(ENDED, Ordering::Relaxed),
            Ok(true) | Err(_) => drop(self.beats.fetch_add(1, Ordering::Relaxed)),
        }
        polled
    }

    fn skip(&mut self, ahead: &Ahead) -> Skipped {
        self.source.skip(ahead)
    }

    fn pick(&mut self, ahead: &Ahead, gaps: &[u64]) -> Skipped {
        self.source.pick(ahead, gaps)
    }

    fn inputs(&self) -> &[String] {
        self.source.inputs()
    }

    fn counters(&self) -> &[Counter] {
        self.source.counters()
    }

    fn progress(&self) -> Progress {
        self.source.progress()
    }

    fn clock_ns(&self) -> Option<i64> {
        self.source.clock_ns()
    }

    fn outage(&self) -> Option<&str> {
        self.source.outage()
    }

    /// The note, which the log also gets.
    fn note(&mut self) -> Option<String> {
        self.source.note().inspect(|note| say(note))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use flowgauge_engine::source::Columns;

    use super::*;

    /// A source that yields nothing this many times, then ends.
    struct Idle(u32);

    impl Source for Idle {
        fn poll<'a>(&'a mut self, _: &mut Burst<'a>) -> Result<bool, SourceError> {
            self.0 = self.0.saturating_sub(1);
            Ok(self.0 > 0)
        }
    }

    #[test]
    fn a_source_that_hangs_is_seen_and_one_that_ended_is_not_waited_for() {
        let mut watchdog = Watchdog::new();
        let mut long = watchdog.watch(Box::new(Idle(100)));
        let mut short = watchdog.watch(Box::new(Idle(1)));
        let poll = |source: &mut Box<dyn Source + Send>| {
            let mut columns = Columns::default();
            source.poll(&mut Burst::new(&mut columns)).unwrap()
        };
        let health = watchdog.health().clone();
        let mut is_alive = || {
            health.forget();
            watchdog.look();
            health.problem().is_none()
        };
        assert!(!is_alive(), "nothing was read");
        assert!(poll(&mut long));
        assert!(!is_alive(), "one of two was read");
        assert!(!poll(&mut short));
        assert!(is_alive());
        assert!(!is_alive(), "neither was read since");
        assert!(poll(&mut long));
        assert!(is_alive(), "the other one has ended");
    }
}
