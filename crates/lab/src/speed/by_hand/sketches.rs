//! Rows of counters.

use flowgauge_kernel::Zeroed;

use super::heavy::Heavy;
use super::{BATCH, ByHand, mix, zeroed};

const COLUMNS: usize = 1 << 16;

/// Four rows in one piece, so that lengths are constants.
type Rows<C> = [[C; COLUMNS]; 4];

fn columns(digest: u64) -> [usize; 4] {
    std::array::from_fn(|row| usize::from((digest >> (16 * row)) as u16))
}

/// Count-Min without anything else: the yardstick.
pub(super) struct Yardstick {
    rows: Zeroed<Rows<u32>>,
}

impl Yardstick {
    pub(super) fn new() -> Self {
        Self { rows: zeroed(1) }
    }
}

impl ByHand for Yardstick {
    fn clear(&mut self) {
        self.rows.as_flattened_mut().iter_mut().for_each(|row| row.fill(0));
    }

    #[inline(always)]
    fn update(&mut self, _: &[u64], digests: &[u64]) {
        let rows = &mut self.rows[0];
        for &digest in digests {
            let columns = columns(digest);
            (0..4).for_each(|row| rows[row][columns[row]] += 1);
        }
    }
}

/// Count Sketch without anything else.
pub(super) struct Signs {
    rows: Zeroed<Rows<i32>>,
}

impl Signs {
    pub(super) fn new() -> Self {
        Self { rows: zeroed(1) }
    }
}

impl ByHand for Signs {
    fn clear(&mut self) {
        self.rows.as_flattened_mut().iter_mut().for_each(|row| row.fill(0));
    }

    #[inline(always)]
    fn update(&mut self, _: &[u64], digests: &[u64]) {
        let rows = &mut self.rows[0];
        for &digest in digests {
            let (columns, signs) = (columns(digest), mix(digest, 0));
            (0..4).for_each(|row| rows[row][columns[row]] += 1 - 2 * ((signs >> row & 1) as i32));
        }
    }
}

/// Four rows with the keys over a thousandth of the packets so far.
struct Sketch<C> {
    rows: Zeroed<Rows<C>>,
    heavy: Heavy,
    packets: u64,
}

impl<C: bytemuck::Zeroable + Copy> Sketch<C> {
    fn new() -> Self {
        Self { rows: zeroed(1), heavy: Heavy::new(), packets: 0 }
    }

    fn clear(&mut self) {
        self.rows.as_flattened_mut().iter_mut().for_each(|row| row.fill(C::zeroed()));
        self.heavy.clear();
        self.packets = 0;
    }

    /// Counts each packet by `add`, which says whether its key is over a limit now.
    #[inline(always)]
    fn count(
        &mut self,
        keys: &[u64],
        digests: &[u64],
        add: impl Fn(&mut Rows<C>, [usize; 4], u64, u32) -> bool,
    ) {
        let rows = &mut self.rows[0];
        let (mut listed, mut over, mut packets) = ([0_u8; BATCH], 0, self.packets);
        for (i, &digest) in digests.iter().enumerate() {
            packets += 1;
            let limit = (packets * 4_294_968) >> 32;
            listed[over % BATCH] = i as u8;
            over += usize::from(add(rows, columns(digest), digest, limit as u32));
        }
        self.packets = packets;
        for i in listed[..over].iter().map(|&i| usize::from(i)) {
            self.heavy.note(keys[i], digests[i]);
        }
    }
}

/// Count-Min.
pub(super) struct CountMin(Sketch<u32>);

impl CountMin {
    pub(super) fn new() -> Self {
        Self(Sketch::new())
    }
}

impl ByHand for CountMin {
    fn clear(&mut self) {
        self.0.clear();
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        self.0.count(keys, digests, |rows, columns, _, limit| {
            let mut least = u32::MAX;
            for row in 0..4 {
                rows[row][columns[row]] += 1;
                least = least.min(rows[row][columns[row]]);
            }
            least > limit
        });
    }
}

/// K-ary: at least two counters over the limit.
pub(super) struct KAry(Sketch<u32>);

impl KAry {
    pub(super) fn new() -> Self {
        Self(Sketch::new())
    }
}

impl ByHand for KAry {
    fn clear(&mut self) {
        self.0.clear();
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        self.0.count(keys, digests, |rows, columns, _, limit| {
            let mut over = 0;
            for row in 0..4 {
                rows[row][columns[row]] += 1;
                over += u32::from(rows[row][columns[row]] > limit);
            }
            over >= 2
        });
    }
}

/// Count Sketch: signs from another word.
pub(super) struct CountSketch(Sketch<i32>);

impl CountSketch {
    pub(super) fn new() -> Self {
        Self(Sketch::new())
    }
}

impl ByHand for CountSketch {
    fn clear(&mut self) {
        self.0.clear();
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        self.0.count(keys, digests, |rows, columns, digest, limit| {
            let (signs, mut over) = (mix(digest, 0), 0);
            for row in 0..4 {
                let sign = 1 - 2 * ((signs >> row & 1) as i32);
                let cell = &mut rows[row][columns[row]];
                *cell += sign;
                over += u32::from(*cell * sign > limit.cast_signed());
            }
            over >= 2
        });
    }
}
