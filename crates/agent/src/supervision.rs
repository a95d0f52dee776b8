//! What systemd is told: when the agent measures, and that it is alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use flowgauge_engine::source::{Ahead, Burst, Counter, Progress, Skipped, Source, SourceError};
use sd_notify::NotifyState;

use crate::http::Health;

/// Sees whether all sources are read, also where no packet comes: then it feeds systemd's watchdog, and the
/// agent is ready.
pub(crate) struct Watchdog {
    /// How often systemd wants to be told; `None` where it does not ask.
    every: Option<Duration>,
    fed: Instant,
    health: Health,
    beats: Vec<Arc<AtomicU64>>,
    /// What the beats were when all had moved.
    seen: Vec<u64>,
}

impl Watchdog {
    /// The watchdog that the environment asks for.
    pub(crate) fn new() -> Self {
        let mut us = 0;
        let every =
            sd_notify::watchdog_enabled(false, &mut us).then(|| Duration::from_micros(us / 3));
        let (health, beats, seen) = (Health::default(), Vec::new(), Vec::new());
        Self { every, fed: Instant::now(), health, beats, seen }
    }

    /// What it knows, for others.
    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    /// A source whose polls are counted.
    pub(crate) fn watch(&mut self, source: Box<dyn Source + Send>) -> Box<dyn Source + Send> {
        let beats = Arc::new(AtomicU64::new(0));
        self.beats.push(Arc::clone(&beats));
        Box::new(Watched { source, beats })
    }

    /// Looks whether every source was polled since all were the last time.
    pub(crate) fn look(&mut self) {
        let beats: Vec<_> = self.beats.iter().map(|beats| beats.load(Ordering::Relaxed)).collect();
        let moves = |(place, beats): (usize, &u64)| self.seen.get(place) != Some(beats);
        if !beats.iter().enumerate().all(moves) {
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

/// Tells systemd that the agent measures now.
pub(crate) fn ready() {
    notify(NotifyState::Ready);
}

/// Tells systemd that the agent ends.
pub(crate) fn stopping() {
    notify(NotifyState::Stopping);
}

fn notify(state: NotifyState<'_>) {
    // Without systemd there is nothing to tell.
    let _ = sd_notify::notify(false, &[state]);
}

/// A source whose polls are counted.
struct Watched {
    source: Box<dyn Source + Send>,
    beats: Arc<AtomicU64>,
}

impl Source for Watched {
    fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError> {
        self.beats.fetch_add(1, Ordering::Relaxed);
        self.source.poll(burst)
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

    fn note(&mut self) -> Option<String> {
        self.source.note()
    }
}
