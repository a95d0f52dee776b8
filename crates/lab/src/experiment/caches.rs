//! Simulated caches with LRU sets.

/// Bytes per cache line.
pub(super) const LINE_BYTES: usize = 64;

/// Bytes and ways of each cache level of the paper's Xeon E5-2650 v3. The paper gives the sizes of
/// the second and last level; the first level and the ways are those of the processor.
pub(super) const XEON: [(usize, usize); 3] = [(32 << 10, 8), (256 << 10, 8), (25 << 20, 20)];

/// Levels of set-associative caches with least-recently-used replacement.
pub(super) struct Caches(Vec<Level>);

struct Level {
    ways: usize,
    /// The lines of each set, most recently used first; stored as line number plus one, 0 if free.
    lines: Vec<u64>,
}

impl Caches {
    /// Empty caches, nearest level first.
    pub(super) fn new(levels: &[(usize, usize)]) -> Self {
        let level = |(bytes, ways): &(usize, usize)| {
            let sets = bytes / LINE_BYTES / ways;
            Level { ways: *ways, lines: vec![0; sets * ways] }
        };
        Self(levels.iter().map(level).collect())
    }

    /// Reads a line. Returns the level that held it, or the number of levels if none did.
    /// Afterwards all nearer levels hold it.
    pub(super) fn read(&mut self, line: u64) -> usize {
        let levels = self.0.len();
        (0..levels).find(|level| self.0[*level].read(line)).unwrap_or(levels)
    }
}

impl Level {
    /// Whether the line was there. It is afterwards.
    fn read(&mut self, line: u64) -> bool {
        let sets = self.lines.len() / self.ways;
        let first = (line % sets as u64) as usize * self.ways;
        let set = &mut self.lines[first..first + self.ways];
        let place = set.iter().position(|have| *have == line + 1);
        set[..=place.unwrap_or(self.ways - 1)].rotate_right(1);
        set[0] = line + 1;
        place.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_keeps_the_lines_used_last() {
        // Two sets of two lines, then one set of four lines.
        let mut caches = Caches::new(&[(4 * LINE_BYTES, 2), (4 * LINE_BYTES, 4)]);
        let mut levels = |lines: &[u64]| lines.iter().map(|l| caches.read(*l)).collect::<Vec<_>>();
        assert_eq!(levels(&[0, 1, 0, 2]), [2, 2, 0, 2]);
        // 4 evicts 0, which the second level still has; 6 evicts 2.
        assert_eq!(levels(&[4, 0, 1, 0, 4]), [2, 1, 0, 0, 0]);
        // Five lines do not fit.
        assert_eq!(levels(&[6, 8, 10, 12]), [2, 2, 2, 2]);
        assert_eq!(levels(&[1]), [0]);
        assert_eq!(levels(&[12, 0]), [0, 2]);
    }
}
