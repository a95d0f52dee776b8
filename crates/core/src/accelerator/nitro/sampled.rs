//! What stands before the sketch: what of it is told, and what is remembered of the packets.

use super::SALT;
use super::pace::{Asked, Mode, Pace};
use super::slots::Taken;
use crate::accelerator::{Accelerate, HeaderRate, NitroSketch};
use crate::batch::Batch;
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::counter::Sampler;
use crate::summary::{
    Answers, Candidates, Cells, Incompatible, Ingest, Options, Setting, SizeQuery, Summary,
};
use crate::terms::{Measure, Size};

/// Slots of packets on their way to the rows of a sketch.
///
/// `settle` passes on what was taken: until then answers are without it. What the sketch tells is told
/// of samples, but for the number of flows and what depends on it, which samples do not tell.
pub(super) struct Nitro<K> {
    pub(super) by: Measure,
    pub(super) pace: Pace,
    pub(super) draws: Sampler,
    /// Rows of the sketch.
    pub(super) rows: u32,
    /// One packet in so many was taken, or in fewer.
    fewest: u64,
    /// Weight of all packets, taken or not, and the largest of them.
    pub(super) total: u64,
    pub(super) largest: u64,
    /// The units of what was sampled elsewhere and merged.
    merged: u64,
    pub(super) taken: Taken<K>,
    pub(super) inner: Box<dyn Summary<K>>,
}

impl<K: FlowKey> Nitro<K> {
    /// Puts it before a summary that has rows, or gives that back.
    pub(super) fn before(
        asked: Asked,
        options: &Options,
        mut inner: Box<dyn Summary<K>>,
    ) -> Result<Self, Box<dyn Summary<K>>> {
        let Some((rows, cells)) = inner.rows().map(|rows| (rows.rows(), rows.cells())) else {
            return Err(inner);
        };
        let pace = Pace::new(asked, cells);
        let fewest = pace.one_in;
        let draws = Sampler::new(options.digester.seed().draws() ^ SALT, 1.0 / fewest as f64);
        let (total, largest, merged) = (0, 0, 0);
        let (by, rows, taken) = (options.by, rows as u32, Taken::new(options.by));
        let mut nitro =
            Self { by, pace, draws, rows, fewest, total, largest, merged, taken, inner };
        // The sketch knows from the beginning that its rows will be samples, where they surely are.
        nitro.pass_on(0);
        Ok(nitro)
    }

    /// The row of a batch with which a window ends, from here on.
    #[inline(always)]
    fn turning(&self, batch: &Batch<K>, from: usize) -> Option<usize> {
        let left = self.pace.until() - self.pace.seen;
        (left <= (batch.len() - from) as u64).then(|| from + left as usize - 1)
    }

    /// Goes on at another pace, where the time at which a window ended says so.
    #[cold]
    fn turn(&mut self, time_ns: i64) {
        let largest = if self.by == Measure::Packets { 1 } else { self.largest };
        let squared_l2 = || self.inner.rows().map_or(0.0, |rows| rows.squared_l2());
        let one_in = self.pace.turn(time_ns, squared_l2, largest);
        if one_in != self.pace.one_in {
            self.pass_on(self.total);
            self.pace.one_in = one_in;
            self.restart();
        }
    }

    /// Draws at the pace of now.
    fn restart(&mut self) {
        self.fewest = self.fewest.max(self.pace.one_in);
        self.draws.change(1.0 / self.pace.one_in as f64);
    }

    /// The variance of a flow's weight in a row over that weight, at most; 0 while all was taken.
    fn unit(&self) -> u64 {
        let largest = if self.by == Measure::Packets { 1 } else { self.largest.max(1) };
        (self.fewest - 1).saturating_mul(largest).saturating_add(self.merged)
    }

    /// Passes on what was taken of packets that weigh `total`.
    pub(super) fn pass_on(&mut self, total: u64) {
        let unit = self.unit();
        if let Some(rows) = self.inner.rows().filter(|_| unit > 0) {
            rows.sampled_from(total, unit);
            self.taken.pass_on(rows);
        }
        self.taken.clear();
    }

    /// Forgets the packets.
    fn forget(&mut self) {
        (self.fewest, self.total, self.largest, self.merged) = (1, 0, 0, 0);
        self.taken.clear();
        self.restart();
    }
}

impl<K: FlowKey> Ingest<K> for Nitro<K> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        if self.pace.asked().headers {
            return self.ingest_drawn(batch);
        }
        let mut from = 0;
        // Lines of the batch that nobody asks for stay where they are.
        if self.pace.asked().mode != Mode::Fixed {
            if let Some(time_ns) = batch.times_ns().first().filter(|_| self.pace.seen == 0) {
                self.pace.begin(*time_ns);
            }
            while let Some(row) = self.turning(batch, from) {
                self.take(batch, from..row + 1);
                self.turn(batch.times_ns()[row]);
                from = row + 1;
            }
        }
        self.take(batch, from..batch.len());
    }

    fn settle(&mut self) {
        self.pass_on(self.total);
        self.inner.settle();
    }

    fn wants_bytes(&self) -> bool {
        self.inner.wants_bytes()
    }
}

impl<K: FlowKey> Summary<K> for Nitro<K> {
    fn answers(&self) -> &dyn Answers {
        if self.pace.asked().takes_all() { self.inner.answers() } else { self }
    }

    /// Both took the same places of their streams, if these were of one seed: errors add up.
    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = other.downcast_ref::<Self>().ok_or(Incompatible("types differ"))?;
        if self.by != other.by {
            return Err(Incompatible("measures differ"));
        }
        if self.pace.asked().settings() != other.pace.asked().settings() {
            return Err(Incompatible("parameters differ"));
        }
        self.settle();
        self.inner.merge(&*other.inner)?;
        if self.pace.asked().headers {
            self.pace.seen = self.pace.seen.saturating_add(other.pace.seen);
        }
        self.total = self.total.saturating_add(other.total);
        self.merged = self.merged.saturating_add(other.unit());
        self.pass_on(self.total);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        self.pace.save(out);
        out.numbers(&[self.fewest, self.total, self.largest, self.merged]);
        self.draws.save(out);
        self.inner.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.pace.load(from)?;
        let mut numbers = [0; 4];
        from.numbers("sample", &mut numbers)?;
        [self.fewest, self.total, self.largest, self.merged] = numbers;
        if !(self.pace.one_in..=self.pace.asked().most).contains(&self.fewest) {
            return Err(from.invalid("sample", 32, "it is too few packets for its rows"));
        }
        self.restart();
        self.draws.load(from)?;
        // Cells of samples may be any, and the total of all packets is none of theirs.
        self.pass_on(self.total);
        self.inner.load(from)?;
        self.pass_on(self.total);
        Ok(())
    }

    fn clear(&mut self) {
        self.draws.rewind();
        self.pace.clear();
        self.forget();
        self.inner.clear();
    }

    fn next_epoch(&mut self) {
        self.settle();
        self.pace.next_epoch();
        self.forget();
        self.inner.next_epoch();
    }

    fn header_rate(&self) -> Option<HeaderRate> {
        self.drawn_at()
    }

    fn passed_over(&mut self, packets: u64, _: u64) {
        self.pass_over(packets);
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        self.inner.parameters()
    }

    fn accelerators(&self) -> Vec<(&'static str, Vec<(&'static str, Setting)>)> {
        let mut all = vec![(NitroSketch::INFO.name, self.pace.asked().settings())];
        all.extend(self.inner.accelerators());
        all
    }

    fn memory_bytes(&self) -> usize {
        Taken::<K>::BYTES + self.inner.memory_bytes()
    }
}

/// Sizes, what is heavy, and changes: how many flows there are, and how many of a size, samples do not
/// tell.
impl<K: FlowKey> Answers for Nitro<K> {
    fn saturated(&self) -> Size {
        self.inner.answers().saturated()
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        self.inner.answers().size()
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        self.inner.answers().candidates()
    }
    fn cells(&self) -> Option<&dyn Cells> {
        self.inner.answers().cells()
    }
}
