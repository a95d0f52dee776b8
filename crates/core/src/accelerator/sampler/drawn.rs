//! A sample that was drawn before headers were read: its rows come with their weights.

use super::{HeaderRate, Rate, Sampled};
use crate::accelerator::headers::Chance;
use crate::batch::Batch;
use crate::key::FlowKey;

impl<K: FlowKey> Sampled<K> {
    /// How the meter draws, where it does.
    pub(super) fn drawn_at(&self) -> Option<HeaderRate> {
        match self.kind.rate {
            Rate::Steps(steps) if self.kind.headers => {
                Some(HeaderRate { chance: Chance::Steps(steps), delta: self.kind.delta })
            }
            _ => None,
        }
    }

    /// Takes packets that were read, each with the weight of those that it stands for.
    pub(super) fn ingest_drawn(&mut self, batch: &mut Batch<K>) {
        let rows = batch.len() as u64;
        self.seen = self.seen.saturating_add(rows);
        self.total = self.total.saturating_add(rows);
        self.inner.ingest(batch);
    }

    /// Counts packets of the epoch that were not read: any of them may have been ours.
    pub(super) fn pass_over(&mut self, packets: u64, one_in: u64) {
        if self.kind.headers {
            self.total = (self.total - self.noted).saturating_add(packets);
            self.noted = packets;
            self.one_in = self.one_in.max(one_in);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::super::SALT;
    use crate::accelerator::HeaderSampler;
    use crate::batch::{BATCH_PACKETS, Batch};
    use crate::catalog;
    use crate::key::{FlowKey, Key4};
    use crate::summary::{Options, Parameters, Summary};

    const PACKETS: u32 = 300_000;

    fn exact(accelerator: &str, parameters: &str, before: &str) -> (Box<dyn Summary<Key4>>, u64) {
        let pairs = parameters.split(',').filter_map(|pair| pair.split_once('='));
        let parameters = Parameters::new(pairs.chain([("before", before)]));
        let options = Options::new(64 << 20, 3);
        let accelerators = [(accelerator.to_owned(), parameters)];
        let summary = catalog::build_accelerated(&accelerators, "linear-table", &options).unwrap();
        (summary, options.digester.seed().draws() ^ SALT)
    }

    /// The weight of each packet, which is a flow of its own.
    fn weights(summary: &dyn Summary<Key4>) -> Vec<u64> {
        let sizes = summary.answers().size().unwrap();
        let weight = |packet: u32| {
            let key = key(packet);
            sizes.estimate(key.canonical(Key4::BYTES)).packets.unwrap().value as u64
        };
        (0..PACKETS).map(weight).collect()
    }

    fn key(packet: u32) -> Key4 {
        bytemuck::cast(packet.to_be_bytes())
    }

    /// From the same random numbers both take the same packets, each with the same weight.
    #[test]
    fn before_headers_and_behind_them_the_same_packets_are_drawn() {
        println!("seed 3");
        for (accelerator, parameters) in [
            ("uniform", "sample=100"),
            ("uniform", "sample=1"),
            ("skipper", "epsilon=0.05,delta=0.1"),
        ] {
            let (mut behind, seed) = exact(accelerator, parameters, "summary");
            let keys: Vec<_> = (0..PACKETS).map(key).collect();
            let mut batch = Batch::new();
            for keys in keys.chunks(BATCH_PACKETS) {
                batch.fill(keys, 64);
                behind.ingest(&mut batch);
            }
            behind.settle();
            let (mut before, _) = exact(accelerator, parameters, "headers");
            let mut sampler = HeaderSampler::new(before.header_rate().unwrap(), seed);
            let (mut at, mut read) = (0, 0);
            while at + sampler.ahead() < PACKETS.into() {
                at += sampler.ahead();
                assert!(sampler.pass(sampler.ahead()));
                let mut batch = Batch::new();
                batch.push(key(at as u32), 64, 0);
                batch.weigh(sampler.weight() as u32);
                before.ingest(&mut batch);
                (at, read) = (at + 1, read + 1);
                sampler.take();
            }
            before.passed_over(u64::from(PACKETS) - read, sampler.weight());
            before.settle();
            assert_eq!(weights(&*behind), weights(&*before), "{accelerator} {parameters}");
        }
    }
}
