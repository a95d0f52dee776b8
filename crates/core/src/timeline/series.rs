//! Packets and bytes over time, in bins that widen as the time span grows.

use super::one;
use crate::terms::Size;

/// Maximum number of bins. With 4,096 bins, a series resolves seconds for 68 minutes.
const MOST_BINS: i64 = 4096;
/// Initial width of the bins: 1/64 s, so that six doublings make a second.
const FINEST_NS: i64 = 1_000_000_000 / 64;

/// A time series of packets and bytes. Bins begin at multiples of their width since the UNIX epoch.
/// When more than 4,096 bins are needed, all bins double their width. The memory is reserved at
/// construction.
///
/// ```
/// use flowgauge_core::timeline::Series;
///
/// let mut series = Series::default();
/// series.add(&[0, 500_000_000, 1_000_000_000], &[60, 60, 1500]);
/// let seconds = series.widened(1_000_000_000);
/// let bytes: Vec<u64> = seconds.bins().map(|bin| bin.size.bytes).collect();
/// assert_eq!(bytes, [120, 1500]);
/// ```
#[derive(Debug)]
pub struct Series {
    width_ns: i64,
    /// The number of the first bin: its start divided by the width.
    first: i64,
    bins: Vec<Size>,
}

/// An interval of time and its traffic.
///
/// ```
/// use flowgauge_core::terms::Size;
/// use flowgauge_core::timeline::{Bin, Series};
///
/// let mut series = Series::default();
/// series.add(&[0, 1], &[60, 1500]);
/// let bin = Bin { start_ns: 0, size: Size { packets: 2, bytes: 1560 } };
/// assert_eq!(series.bins().collect::<Vec<_>>(), [bin]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    /// The start in nanoseconds since the UNIX epoch.
    pub start_ns: i64,
    /// Packets and bytes.
    pub size: Size,
}

impl Default for Series {
    fn default() -> Self {
        Self { width_ns: FINEST_NS, first: 0, bins: Vec::with_capacity(MOST_BINS as usize) }
    }
}

impl Clone for Series {
    fn clone(&self) -> Self {
        let mut clone = Self::default();
        clone.bins.extend_from_slice(&self.bins);
        Self { width_ns: self.width_ns, first: self.first, ..clone }
    }
}

impl Series {
    /// Maximum memory of the bins in bytes.
    pub(super) const BYTES: usize = MOST_BINS as usize * size_of::<Size>();

    /// Memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bins.capacity() * size_of::<Size>()
    }

    /// Width of a bin in nanoseconds.
    pub fn width_ns(&self) -> i64 {
        self.width_ns
    }

    /// The bins in order of time, including empty bins between others.
    pub fn bins(&self) -> impl Iterator<Item = Bin> {
        self.bins.iter().zip(self.first..).map(|(size, number)| Bin {
            start_ns: number.saturating_mul(self.width_ns),
            size: *size,
        })
    }

    /// The same traffic in bins of at least `width_ns` nanoseconds.
    #[must_use]
    pub fn widened(&self, width_ns: i64) -> Self {
        let mut wide = self.clone();
        while wide.width_ns < width_ns {
            wide.double();
        }
        wide
    }

    /// The same traffic in at most `most` bins.
    ///
    /// # Panics
    /// When `most` is 0.
    #[must_use]
    pub fn within(&self, most: usize) -> Self {
        assert!(most > 0, "a series has a bin at least");
        let mut wide = self.clone();
        while wide.bins.len() > most {
            wide.double();
        }
        wide
    }

    pub(super) fn clear(&mut self) {
        self.bins.clear();
        (self.first, self.width_ns) = (0, FINEST_NS);
    }

    /// Adds packets by their times and their lengths on the wire. A burst usually falls into one
    /// bin.
    pub fn add(&mut self, times_ns: &[i64], wires: &[u32]) {
        let (Some(earliest), Some(latest)) = (times_ns.iter().min(), times_ns.iter().max()) else {
            return;
        };
        let bytes = || wires.iter().map(|wire| u64::from(*wire)).sum();
        self.reach(*earliest);
        self.reach(*latest);
        if self.number(*earliest) == self.number(*latest) {
            self.put(*earliest, Size { packets: wires.len() as u64, bytes: bytes() });
        } else {
            for (time_ns, wire) in times_ns.iter().zip(wires) {
                self.put(*time_ns, one(*wire));
            }
        }
    }

    /// Adds packets of one time.
    pub(super) fn add_at(&mut self, time_ns: i64, size: Size) {
        self.reach(time_ns);
        self.put(time_ns, size);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        while self.width_ns < other.width_ns {
            self.double();
        }
        let ends = [other.bins().next(), other.bins().last()];
        ends.into_iter().flatten().for_each(|end| self.reach(end.start_ns));
        for bin in other.bins().filter(|bin| bin.size.packets > 0) {
            self.put(bin.start_ns, bin.size);
        }
    }

    fn number(&self, time_ns: i64) -> i64 {
        time_ns.div_euclid(self.width_ns)
    }

    /// Creates the bin of this time, and all bins between it and the existing ones.
    fn reach(&mut self, time_ns: i64) {
        if self.bins.is_empty() {
            self.first = self.number(time_ns);
        }
        loop {
            let number = self.number(time_ns);
            let first = self.first.min(number);
            let end = (self.first + self.bins.len().cast_signed() as i64).max(number + 1);
            if end - first > MOST_BINS {
                self.double();
                continue;
            }
            let before = (self.first - first) as usize;
            if before > 0 {
                self.bins.splice(0..0, std::iter::repeat_n(Size::default(), before));
                self.first = first;
            }
            self.bins.resize((end - first) as usize, Size::default());
            return;
        }
    }

    fn put(&mut self, time_ns: i64, size: Size) {
        let at = (self.number(time_ns) - self.first) as usize;
        self.bins[at] += size;
    }

    /// Doubles the width of all bins.
    fn double(&mut self) {
        let odd = self.first.rem_euclid(2) as usize;
        let bins = (self.bins.len() + odd).div_ceil(2);
        for at in 0..bins {
            let halves = (2 * at).saturating_sub(odd)..(2 * at + 2 - odd).min(self.bins.len());
            self.bins[at] = self.bins[halves].iter().copied().sum();
        }
        self.bins.truncate(bins);
        self.first = self.first.div_euclid(2);
        self.width_ns = self.width_ns.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn sizes(series: &Series) -> Vec<(i64, u64)> {
        let bins = series.bins().filter(|bin| bin.size.packets > 0);
        bins.map(|bin| (bin.start_ns / SECOND, bin.size.packets)).collect()
    }

    #[test]
    fn packets_fall_into_the_second_of_their_time() {
        let mut series = Series::default();
        series.add(&[100 * SECOND, 100 * SECOND + 1], &[60, 1500]);
        series.add(&[103 * SECOND, 102 * SECOND, 103 * SECOND + SECOND / 2], &[60, 60, 60]);
        let seconds = series.widened(SECOND);
        assert_eq!(seconds.width_ns(), SECOND);
        assert_eq!(sizes(&seconds), [(100, 2), (102, 1), (103, 2)]);
        assert_eq!(seconds.bins().next().map(|bin| bin.size.bytes), Some(1560));
        assert_eq!(seconds.bins().count(), 4);
    }

    #[test]
    fn bins_widen_and_lose_no_packet() {
        for start in [-7 * SECOND, 0, 1_459_947_600 * SECOND + 123] {
            let mut series = Series::default();
            for packet in 0..100_000 {
                // Out of order by up to 3 s.
                let late = packet * 7919 % 3 * SECOND;
                series.add(&[start + packet * SECOND / 10 - late], &[64]);
            }
            assert_eq!(series.bins().map(|bin| bin.size.packets).sum::<u64>(), 100_000);
            assert!(series.bins().count() <= 4096);
            // 10,000 s need bins of 4 s.
            assert_eq!(series.width_ns(), 4 * SECOND);
            let full = series.bins().filter(|bin| bin.size.packets == 40).count();
            assert!(full > 2_400, "{full} bins hold the packets of 4 s");
        }
    }

    #[test]
    fn times_at_both_ends_of_the_clock_fit() {
        let mut series = Series::default();
        series.add(&[0, i64::MAX, i64::MIN, 5], &[1, 1, 1, 1]);
        assert_eq!(series.bins().map(|bin| bin.size.packets).sum::<u64>(), 4);
    }

    #[test]
    fn a_shorter_series_has_the_same_packets() {
        let mut series = Series::default();
        (0..1_000).for_each(|packet| series.add(&[packet * SECOND / 3], &[64]));
        for most in [1, 2, 60, 4_096] {
            let short = series.within(most);
            assert!(short.bins().count() <= most);
            assert_eq!(short.bins().map(|bin| bin.size.packets).sum::<u64>(), 1_000);
        }
    }

    #[test]
    fn a_cleared_series_is_like_a_new_one() {
        let mut series = Series::default();
        series.add(&[FINEST_NS, 9 * FINEST_NS], &[64, 64]);
        series.clear();
        assert_eq!(series.widened(SECOND).bins().count(), 0);
        series.add(&[2 * SECOND], &[64]);
        assert_eq!(sizes(&series), [(2, 1)]);
    }

    #[test]
    fn parts_add_up() {
        let (mut whole, mut even, mut odd) =
            (Series::default(), Series::default(), Series::default());
        for packet in 0..20_000 {
            let time_ns = packet * SECOND;
            whole.add(&[time_ns], &[64]);
            let part = if packet % 2 == 0 { &mut even } else { &mut odd };
            part.add(&[time_ns], &[64]);
        }
        even.merge(&odd);
        even.merge(&Series::default());
        assert_eq!(even.bins().collect::<Vec<_>>(), whole.bins().collect::<Vec<_>>());
    }
}
