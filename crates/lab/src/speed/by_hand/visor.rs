//! SketchVisor.

use std::hint::black_box;

use flowgauge_kernel::Digester;

use super::counters::MisraGries;
use super::sketches::{CountMin, Sketch};
use super::{BATCH, ByHand};

/// Time of the normal path per packet, and its maximum backlog, in picoseconds.
const SERVICE: u64 = 1_000_000_000_000 / 2_000_000;
const BOUND: u64 = 1024 * SERVICE;

/// SketchVisor: Count-Min, and Misra-Gries for the packets that find its queue full.
pub(super) struct SketchVisor {
    times_ns: [i64; BATCH],
    last_ns: i64,
    backlog: u64,
    normal: Sketch<CountMin, true>,
    fast: MisraGries<1024, 128>,
}

impl SketchVisor {
    pub(super) fn new(digester: Digester) -> Self {
        let (normal, fast) = (Sketch::new(), MisraGries::new(digester));
        Self { times_ns: [0; BATCH], last_ns: i64::MIN, backlog: 0, normal, fast }
    }
}

/// The packets that take one path.
struct Taken {
    keys: [u64; BATCH],
    digests: [u64; BATCH],
    len: usize,
}

impl Taken {
    fn new() -> Self {
        Self { keys: [0; BATCH], digests: [0; BATCH], len: 0 }
    }

    #[inline(always)]
    fn push(&mut self, key: u64, digest: u64) {
        (self.keys[self.len % BATCH], self.digests[self.len % BATCH]) = (key, digest);
        self.len += 1;
    }
}

impl ByHand for SketchVisor {
    fn clear(&mut self) {
        (self.last_ns, self.backlog) = (i64::MIN, 0);
        self.normal.clear();
        self.fast.clear();
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        let times_ns = &black_box(&self.times_ns)[..keys.len()];
        let (mut queued, mut passed) = (Taken::new(), Taken::new());
        for (i, &time_ns) in times_ns.iter().enumerate() {
            if time_ns > self.last_ns {
                let idle = time_ns.abs_diff(self.last_ns).saturating_mul(1000);
                self.backlog = self.backlog.saturating_sub(idle);
                self.last_ns = time_ns;
            }
            if self.backlog + SERVICE <= BOUND {
                self.backlog += SERVICE;
                queued.push(keys[i], digests[i]);
            } else {
                passed.push(keys[i], digests[i]);
            }
        }
        self.normal.update(&queued.keys[..queued.len], &queued.digests[..queued.len]);
        self.fast.update(&passed.keys[..passed.len], &passed.digests[..passed.len]);
    }
}
