//! What bitmaps of flows have in common, whatever their bits say.

use std::marker::PhantomData;
use std::ops::BitOr;

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed};

use super::super::codec::{DecodeError, Number, Reader, Writer};
use super::super::ingest::{Basis, twin};
use super::super::{
    Answers, BuildError, Estimate, Incompatible, Ingest, Options, Setting, Summary,
};
use crate::batch::Batch;
use crate::key::FlowKey;

/// How flows mark words, and what marked words say.
pub(super) trait Marks: Send + 'static {
    /// What the marks are in.
    type Word: Number + BitOr<Output = Self::Word> + Into<u64> + Send;
    /// The parameter that says how many items the words have, and how many each of them has.
    const ITEMS: (&'static str, usize);
    /// Marks the flows with these digests.
    fn mark(words: &mut [Self::Word], digests: &[u64]);
    /// The number of flows, of at most so many packets.
    fn estimate(words: &[Self::Word], packets: f64) -> Estimate;
}

/// Marked words. Memory in bytes: `words × size_of::<M::Word>()`.
pub(super) struct Bitmaps<M: Marks> {
    digester: Digester,
    words: Zeroed<M::Word>,
    packets: u64,
    marks: PhantomData<M>,
}

impl<M: Marks> Bitmaps<M> {
    /// Reserves `words` words, a power of two.
    pub(super) fn build<K: FlowKey>(
        words: usize,
        options: &Options,
    ) -> Result<Box<dyn Summary<K>>, BuildError> {
        let words = options.memory.zeroed(words)?;
        Ok(Box::new(Self { digester: options.digester, words, packets: 0, marks: PhantomData }))
    }
}

impl<K: FlowKey, M: Marks> Ingest<K> for Bitmaps<M> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        M::mark(&mut self.words, batch.digests());
        let packets = batch.packets().iter().map(|&packets| u64::from(packets)).sum::<u64>();
        self.packets = self.packets.saturating_add(packets);
    }

    fn wants_bytes(&self) -> bool {
        false
    }
}

impl<K: FlowKey, M: Marks> Summary<K> for Bitmaps<M> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(&summary.digester))?;
        for (word, other) in self.words.iter_mut().zip(other.words.iter()) {
            *word = *word | *other;
        }
        self.packets = self.packets.saturating_add(other.packets);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.number(self.packets);
        out.numbers(&self.words);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.packets = from.number("packets")?;
        from.numbers("bitmaps", &mut self.words)
    }

    fn clear(&mut self) {
        self.words.fill(M::Word::zeroed());
        self.packets = 0;
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        let (name, items) = M::ITEMS;
        vec![(name, Setting::Integer((self.words.len() * items) as u64))]
    }

    fn memory_bytes(&self) -> usize {
        self.words.memory_bytes()
    }
}

impl<M: Marks> Answers for Bitmaps<M> {
    fn cardinality(&self) -> Option<Estimate> {
        Some(M::estimate(&self.words, self.packets as f64))
    }

    fn registers(&self) -> Option<Vec<u32>> {
        let parts = size_of::<M::Word>() / size_of::<u32>();
        let split = |word: &M::Word| {
            let word: u64 = (*word).into();
            (0..parts).map(move |part| (word >> (32 * part)) as u32)
        };
        Some(self.words.iter().flat_map(split).collect())
    }
}
