//! A batch into the cells.
//!
//! Several passes over the batch: what memory one asks for, the next but one needs. Whether a flow is
//! new cannot be predicted, so new ones are picked out without a branch.

use super::RadarCells;
use super::cell::{FILTER_WORD, Shape};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::remix::remix_batch;

impl<K: FlowKey> RadarCells<K> {
    /// Takes a batch for which there is room in every cell, and whose rows have fewer than 2³² bytes.
    pub(super) fn ingest_rows<const HASHES: usize>(&mut self, batch: &Batch<K>) {
        let (keys, digests) = (batch.keys(), batch.digests());
        let (cells, filter) = (&mut self.cells, &mut self.filter);
        let mut words = [0; BATCH_PACKETS];
        let words = &mut words[..digests.len()];
        remix_batch(&self.digester, digests, FILTER_WORD, words);
        let mut lines = [0u32; BATCH_PACKETS];
        for (line, word) in lines.iter_mut().zip(&*words) {
            *line = filter.line(*word) as u32;
            filter.prefetch(*line as usize);
        }

        let shape = Shape { hashes: HASHES, ..self.shape };
        let mut places = [[0u32; BATCH_PACKETS]; HASHES];
        let mut pair = [0; BATCH_PACKETS];
        let pair = &mut pair[..digests.len()];
        for (hash, places) in places.iter_mut().enumerate() {
            if hash.is_multiple_of(2) {
                remix_batch(&self.digester, digests, hash as u64 / 2, pair);
            }
            for (place, word) in places.iter_mut().zip(&*pair) {
                *place = shape.place(*word, hash) as u32;
            }
        }
        for i in 0..digests.len().min(BATCH_PACKETS) {
            for places in &places {
                cells.prefetch_counts(places[i] as usize);
            }
        }

        let mut new = [0u8; BATCH_PACKETS];
        let mut seem_new = 0;
        for (i, (word, line)) in words.iter().zip(&lines).enumerate() {
            new[seem_new % BATCH_PACKETS] = i as u8;
            seem_new += usize::from(!filter.line_seems_to_hold::<HASHES>(*line as usize, *word));
        }
        let mut entering = 0;
        for at in 0..seem_new {
            let i = usize::from(new[at]);
            // It may be the second packet of a flow.
            if !filter.line_seems_to_hold::<HASHES>(lines[i] as usize, words[i]) {
                filter.insert(words[i]);
                for places in &places {
                    cells.prefetch_entered(places[i] as usize);
                }
                new[entering] = new[at];
                entering += 1;
            }
        }

        cells.count(&places, batch.packets(), batch.bytes());
        let mut fullest = self.fullest;
        for i in &new[..entering] {
            let i = usize::from(*i);
            for places in &places {
                fullest = fullest.max(cells.enter(places[i] as usize, &keys[i]));
            }
        }
        self.fullest = fullest;
    }
}
