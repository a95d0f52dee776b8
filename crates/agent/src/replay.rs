//! A capture replayed as if its packets arrived now.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use flowgauge_capture::Captures;
use flowgauge_core::packet::{Frame, LinkType};
use flowgauge_engine::source::{Burst, Columns, Counter, Source, SourceError};

/// Maximum time between checks of the clock and of the stop flag.
const PAUSE: Duration = Duration::from_millis(10);

/// A difference between the wall clock and the monotonic clock that means the wall clock was set.
const STEP_NS: i64 = 1_000_000_000;

/// The current time in nanoseconds: since the UNIX epoch, and on the monotonic clock.
#[derive(Clone, Copy)]
struct Now {
    wall_ns: i64,
    steady_ns: i64,
}

/// Replays a capture at its original pace, once or repeatedly.
///
/// Packets within a burst of 256 are copied once.
pub struct Replay {
    path: PathBuf,
    names: [String; 1],
    capture: Captures,
    columns: Columns,
    /// Repetitions left after this one; `None` for endless.
    left: Option<u64>,
    /// Packets waiting for their time, and their total bytes.
    waiting: VecDeque<Waiting>,
    bytes: Vec<u8>,
    /// Offset to the capture's times, known once its first packet arrives.
    shift_ns: Option<i64>,
    /// No more packets will arrive with times before this.
    settled_ns: Option<i64>,
    /// Time of the latest packet.
    latest_ns: i64,
    clock: Box<dyn FnMut() -> Now + Send>,
    /// The last reading of the clock.
    looked: Option<Now>,
    stop: Arc<AtomicBool>,
}

/// A packet waiting for its time.
struct Waiting {
    bytes: Range<usize>,
    wire: u32,
    link: LinkType,
    time_ns: i64,
}

impl Replay {
    /// Replays the file `times` times, or endlessly, until `stop` is set.
    pub fn new(path: &Path, times: Option<u64>, stop: &Arc<AtomicBool>) -> Self {
        let start = Instant::now();
        let clock = move || Now {
            wall_ns: now_ns(),
            steady_ns: i64::try_from(start.elapsed().as_nanos()).unwrap_or(i64::MAX),
        };
        Self {
            clock: Box::new(clock),
            looked: None,
            path: path.to_owned(),
            names: [path.display().to_string()],
            capture: Captures::open([path]),
            columns: Columns::default(),
            left: times.map(|times| times.saturating_sub(1)),
            waiting: VecDeque::new(),
            bytes: Vec::new(),
            shift_ns: None,
            settled_ns: None,
            latest_ns: i64::MIN,
            stop: Arc::clone(stop),
        }
    }

    /// Reads the clock. If it was set, waiting packets are still due after the same delay.
    fn look(&mut self) -> i64 {
        let now = (self.clock)();
        let before = self.looked.replace(now).unwrap_or(now);
        let step_ns = (now.wall_ns - before.wall_ns) - (now.steady_ns - before.steady_ns);
        if step_ns.abs() > STEP_NS {
            self.waiting.iter_mut().for_each(|packet| packet.time_ns += step_ns);
            self.shift_ns = self.shift_ns.map(|shift_ns| shift_ns + step_ns);
            self.latest_ns = self.latest_ns.saturating_add(step_ns);
        }
        now.wall_ns
    }

    /// Reads the next packets; `false` at the end of the capture.
    fn refill(&mut self, now_ns: i64) -> Result<bool, SourceError> {
        self.bytes.clear();
        let mut burst = Burst::new(&mut self.columns);
        let more = self.capture.poll(&mut burst)?;
        for frame in burst.frames().iter() {
            let shift_ns = *self.shift_ns.get_or_insert_with(|| now_ns - frame.time_ns);
            // A packet older than its predecessor directly follows it.
            let time_ns = frame.time_ns.saturating_add(shift_ns).max(self.latest_ns);
            self.latest_ns = time_ns;
            let start = self.bytes.len();
            self.bytes.extend_from_slice(frame.bytes);
            let bytes = start..self.bytes.len();
            self.waiting.push_back(Waiting { bytes, wire: frame.wire, link: frame.link, time_ns });
        }
        Ok(more)
    }

    /// Starts over; `false` if the capture was replayed often enough or is empty.
    fn again(&mut self) -> bool {
        let more = self.left != Some(0) && self.shift_ns.is_some();
        if more {
            self.left = self.left.map(|left| left - 1);
            self.capture = Captures::open([&self.path]);
            self.shift_ns = None;
        }
        more
    }
}

impl Source for Replay {
    fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let now_ns = self.look();
        while self.waiting.is_empty() {
            if !self.refill(now_ns)? && !self.again() {
                return Ok(false);
            }
        }
        let is_due = |packet: &&Waiting| packet.time_ns <= now_ns;
        let due = self.waiting.iter().take_while(is_due).count();
        for packet in self.waiting.drain(..due) {
            let Waiting { bytes, wire, link, time_ns } = packet;
            burst.push(Frame { bytes: &self.bytes[bytes], wire, link, time_ns });
        }
        let next_ns = self.waiting.front().map(|packet| packet.time_ns);
        // Packets that are not read yet may be due too.
        self.settled_ns = Some(next_ns.map_or(self.latest_ns, |_| now_ns));
        if let (0, Some(next_ns)) = (due, next_ns) {
            let left = Duration::from_nanos((next_ns - now_ns).unsigned_abs());
            thread::sleep(left.min(PAUSE));
        }
        Ok(true)
    }

    fn inputs(&self) -> &[String] {
        &self.names
    }

    fn counters(&self) -> &[Counter] {
        self.capture.counters()
    }

    fn clock_ns(&self) -> Option<i64> {
        self.settled_ns
    }
}

/// Nanoseconds since the UNIX epoch.
pub(crate) fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.ok().and_then(|now| i64::try_from(now.as_nanos()).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::fs;

    use flowgauge_synthetic::{Config, Traffic, to_pcap_bytes};

    use super::*;

    /// Reads to the end, and returns the times of the packets.
    fn times(mut replay: Replay) -> Vec<i64> {
        let (mut times, mut columns) = (Vec::new(), Columns::default());
        loop {
            let mut burst = Burst::new(&mut columns);
            if !replay.poll(&mut burst).unwrap() {
                return times;
            }
            let before = now_ns();
            times.extend(burst.frames().iter().map(|frame| frame.time_ns));
            assert!(times.last().is_none_or(|last| *last <= before), "a packet of the future");
            drop(burst);
            let clock = replay.clock_ns().unwrap();
            assert!(replay.waiting.front().is_none_or(|next| next.time_ns > clock));
        }
    }

    #[test]
    fn packets_come_at_their_pace_and_again() {
        let config = Config { packets: 1000, rate: 10_000, ..Config::default() };
        let capture = to_pcap_bytes(Traffic::new(config).unwrap());
        let path = std::env::temp_dir().join(format!("flowgauge-replay-{}", std::process::id()));
        fs::write(&path, capture).unwrap();
        let begin = now_ns();
        let times = times(Replay::new(&path, Some(3), &Arc::default()));
        fs::remove_file(&path).unwrap();
        assert_eq!(times.len(), 3000);
        assert!(times.is_sorted());
        assert!(times[0] >= begin);
        let took_ms = (times[2999] - times[0]) / 1_000_000;
        assert!((290..5_000).contains(&took_ms), "{took_ms} ms");
    }

    const HOUR: i64 = 3_600_000_000_000;

    /// With a clock that is set by an hour between two packets ten seconds apart.
    #[test]
    fn a_clock_that_is_set_takes_the_packets_with_it() {
        let config = Config { packets: 2000, rate: 100, ..Config::default() };
        let capture = to_pcap_bytes(Traffic::new(config).unwrap());
        let path = std::env::temp_dir().join(format!("flowgauge-step-{}", std::process::id()));
        fs::write(&path, capture).unwrap();
        for step_ns in [HOUR, -HOUR] {
            let mut replay = Replay::new(&path, Some(1), &Arc::default());
            // A tenth of a second passes between two readings.
            let mut looks = 0;
            replay.clock = Box::new(move || {
                looks += 1;
                let steady_ns = looks * 100_000_000;
                let step_ns = if looks > 100 { step_ns } else { 0 };
                Now { wall_ns: 100 * HOUR + steady_ns + step_ns, steady_ns }
            });
            let (mut times, mut columns, mut polls) = (Vec::new(), Columns::default(), 0);
            loop {
                let mut burst = Burst::new(&mut columns);
                if !replay.poll(&mut burst).unwrap() {
                    break;
                }
                times.extend(burst.frames().iter().map(|frame| frame.time_ns));
                polls += 1;
                assert!(polls < 250, "it waits for {} packets", 2000 - times.len());
            }
            assert_eq!(times.len(), 2000);
            let steps = times.windows(2).map(|pair| pair[1] - pair[0]);
            let steps: Vec<_> = steps.filter(|gap| gap.abs() > HOUR / 2).collect();
            assert_eq!(steps.len(), 1);
            assert!((steps[0] - step_ns).abs() < 1_000_000_000, "{steps:?}");
        }
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_stop_ends_it() {
        let stop = Arc::new(AtomicBool::new(true));
        assert!(times(Replay::new(Path::new("none.pcap"), None, &stop)).is_empty());
    }

    #[test]
    fn a_file_that_is_not_there_is_an_error_and_then_the_end() {
        let mut replay = Replay::new(Path::new("none.pcap"), None, &Arc::default());
        let mut columns = Columns::default();
        assert!(replay.poll(&mut Burst::new(&mut columns)).is_err());
        assert!(!replay.poll(&mut Burst::new(&mut columns)).unwrap());
    }
}
