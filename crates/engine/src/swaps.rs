//! How long the end of an epoch, or an update, stops workers.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::sink::units;

/// Nanoseconds per bucket, and number of buckets: up to 65 µs.
const BUCKET_NS: usize = 16;
const BUCKETS: usize = 4096;

/// A histogram of the times that workers spent swapping their summaries at the end of an epoch or
/// at an update, and, separately, their waits for a set while the closer could not keep up. Memory:
/// 16 KiB and 32 bytes.
///
/// ```
/// use flowgauge_capture::Captures;
/// use flowgauge_engine::{Config, EpochLength, Plan, report::EpochReport, run, sink::Each};
/// use flowgauge_synthetic::{Traffic, to_pcap_bytes};
///
/// let traffic = flowgauge_synthetic::Config { packets: 1_000, ..Default::default() };
/// let capture = to_pcap_bytes(Traffic::new(traffic)?);
/// let mut source = Captures::from_bytes("synthetic.pcap", capture);
/// let config = Config { epoch: EpochLength::Packets(100), memory_bytes: 1 << 20, ..Config::default() };
/// let mut sink = Each(|_: &EpochReport| Ok(()));
/// let swaps = run(Plan::new(config)?, &mut source, &mut sink, &mut |_| {})?.swaps;
/// assert!(swaps.count() > 0);
/// assert!(swaps.quantile(0.5) <= swaps.longest());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Swaps {
    buckets: Box<[u32; BUCKETS]>,
    /// Times beyond the last bucket.
    beyond: u64,
    longest: Duration,
    waits: Waits,
}

/// How often and how long workers had packets while the closer still had all their sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Epochs that began or continued late, counted for each worker.
    pub epochs: u64,
    /// Total delay.
    pub time: Duration,
}

/// The swaps of one thread, which are added to those of the run when the thread ends.
pub(crate) struct Record {
    own: Swaps,
    all: Arc<Mutex<Swaps>>,
}

impl Record {
    pub(crate) fn new(all: &Arc<Mutex<Swaps>>) -> Self {
        Self { own: Swaps::default(), all: Arc::clone(all) }
    }
}

impl Deref for Record {
    type Target = Swaps;
    fn deref(&self) -> &Swaps {
        &self.own
    }
}

impl DerefMut for Record {
    fn deref_mut(&mut self) -> &mut Swaps {
        &mut self.own
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).add(&self.own);
    }
}

impl Default for Swaps {
    fn default() -> Self {
        let buckets = Box::new([0; BUCKETS]);
        Self { buckets, beyond: 0, longest: Duration::ZERO, waits: Waits::default() }
    }
}

impl Swaps {
    pub(crate) fn record(&mut self, stopped: Duration) {
        match self.buckets.get_mut(stopped.as_nanos() as usize / BUCKET_NS) {
            Some(bucket) => *bucket += 1,
            None => self.beyond += 1,
        }
        self.longest = self.longest.max(stopped);
    }

    /// Records a wait for a set that was not ready.
    pub(crate) fn record_wait(&mut self, waited: Duration) {
        self.waits.epochs += 1;
        self.waits.time += waited;
    }

    /// Adds the times of another worker.
    pub(crate) fn add(&mut self, other: &Self) {
        for (bucket, other) in self.buckets.iter_mut().zip(&*other.buckets) {
            *bucket += other;
        }
        self.beyond += other.beyond;
        self.longest = self.longest.max(other.longest);
        self.waits.epochs += other.waits.epochs;
        self.waits.time += other.waits.time;
    }

    /// Number of swaps recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|&bucket| u64::from(bucket)).sum::<u64>() + self.beyond
    }

    /// The quantile `q` of the swap times, exact to 16 ns up to 65 µs; beyond that the longest time
    /// of all. Zero without a swap.
    pub fn quantile(&self, q: f64) -> Duration {
        let rank = (q * self.count() as f64).ceil() as u64;
        let mut seen = 0;
        for (upper, &bucket) in (1u64..).zip(&*self.buckets) {
            seen += u64::from(bucket);
            if seen >= rank {
                return Duration::from_nanos(upper * BUCKET_NS as u64).min(self.longest);
            }
        }
        self.longest
    }

    /// The longest swap.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// The waits for sets that were not ready.
    pub fn waits(&self) -> Waits {
        self.waits
    }

    /// The note on them in a report.
    pub fn note(&self) -> Option<String> {
        let Waits { epochs, time } = self.waits;
        (epochs > 0).then(|| {
            format!(
                "epochs ended faster than they could be reported: workers waited {}, {} in total; \
                 use longer epochs, fewer updates or fewer tasks",
                units::plural(epochs, "time"),
                units::duration(i128::try_from(time.as_nanos()).unwrap_or(i128::MAX)),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_times_recorded() {
        let mut swaps = Swaps::default();
        assert_eq!(swaps.quantile(0.999), Duration::ZERO);
        for stop in 1..=1000 {
            swaps.record(Duration::from_nanos(stop));
        }
        assert_eq!(swaps.quantile(0.5), Duration::from_nanos(512));
        assert_eq!(swaps.quantile(1.0), Duration::from_micros(1));
        let mut other = Swaps::default();
        other.record(Duration::from_millis(3));
        other.record_wait(Duration::from_millis(4));
        assert!(swaps.note().is_none() && other.note().is_some());
        swaps.add(&other);
        assert_eq!((swaps.count(), swaps.longest()), (1001, Duration::from_millis(3)));
        assert_eq!(swaps.quantile(1.0), Duration::from_millis(3));
        // The end of the bucket, since some swap took longer.
        assert_eq!(swaps.quantile(0.999), Duration::from_nanos(1008));
        let waits = Waits { epochs: 1, time: Duration::from_millis(4) };
        assert_eq!(swaps.waits(), waits);
    }
}
