//! The engine's tables with padding beside the counter of each flow, for the size of an entry
//! (§4.1).

use bytemuck::Zeroable;
use flowgauge_core::key::Key8;
use flowgauge_core::summary::table::{IndirectTable, LinearTable, Payload};
use flowgauge_core::summary::{BuildError, Options, Summary};
use flowgauge_core::terms::Size;

/// Bytes beyond a key of 8 bytes and a counter of 12.
pub(super) const PADDINGS: [usize; 4] = [0, 12, 28, 60];

/// Bytes of key, counter and padding.
pub(super) fn entry_bytes(padding: usize) -> f64 {
    (8 + 12 + padding) as f64
}

/// `4 × WORDS` bytes of padding.
///
/// The paper fills the padding with the first bytes of the latest packet. Here each packet fills it
/// with the number of packets: the same stores, but independent of the order of packets.
#[derive(Clone, Copy, Zeroable)]
#[repr(transparent)]
struct Padding<const WORDS: usize>([u32; WORDS]);

impl<const WORDS: usize> Payload for Padding<WORDS> {
    #[inline(always)]
    fn update(&mut self, size: Size) {
        self.0 = [size.packets as u32; WORDS];
    }
}

/// A table of the engine.
#[derive(Clone, Copy, Debug)]
pub(super) enum Engine {
    Linear,
    Indirect,
}

impl Engine {
    /// Its name in the catalog.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear-table",
            Self::Indirect => "indirect-table",
        }
    }

    /// The table with `padding` bytes for each flow, one of [`PADDINGS`].
    ///
    /// # Errors
    /// When it cannot be built from these options.
    pub(super) fn padded(
        self,
        padding: usize,
        options: &Options,
    ) -> Result<Box<dyn Summary<Key8>>, BuildError> {
        match padding {
            12 => self.build::<3>(options),
            28 => self.build::<7>(options),
            60 => self.build::<15>(options),
            _ => self.build::<0>(options),
        }
    }

    fn build<const WORDS: usize>(
        self,
        options: &Options,
    ) -> Result<Box<dyn Summary<Key8>>, BuildError> {
        match self {
            Self::Linear => LinearTable::with_payload::<Key8, Padding<WORDS>>(options),
            Self::Indirect => IndirectTable::with_payload::<Key8, Padding<WORDS>>(options),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use std::collections::BTreeMap;

    use flowgauge_core::batch::Batch;
    use flowgauge_core::catalog;
    use flowgauge_core::catalog::stored::encode;
    use flowgauge_core::key::FlowKey;
    use flowgauge_core::summary::Estimate;

    use super::*;

    type Table = Box<dyn Summary<Key8>>;

    /// Each table, with a parameter.
    const TABLES: [(Engine, &[(&str, &str)]); 3] =
        [(Engine::Linear, &[]), (Engine::Linear, &[("layout", "inline")]), (Engine::Indirect, &[])];

    fn options(parameters: &[(&str, &str)]) -> Options {
        let parameters = parameters.iter().chain(&[("buckets", "4096")]).copied();
        Options::new(1 << 20, 3).with(parameters)
    }

    fn stored(engine: Engine, options: &Options, table: &Table) -> Vec<u8> {
        encode(catalog::info(engine.name()).unwrap(), options, &**table)
    }

    /// `count` packets of up to `flows` flows: key and bytes.
    fn packets(count: usize, flows: u32) -> Vec<(u64, u32)> {
        let mut random = fastrand::Rng::with_seed(1);
        let mut packet = || {
            let flow = (random.f64().powi(2) * f64::from(flows)) as u64;
            (flow * flow, random.u32(40..1500))
        };
        (0..count).map(|_| packet()).collect()
    }

    fn feed(table: &mut Table, packets: &[(u64, u32)], batch_packets: usize) {
        let mut batch = Batch::new();
        for chunk in packets.chunks(batch_packets) {
            for (key, bytes) in chunk {
                batch.push(Key8::from_canonical(&key.to_le_bytes()).unwrap(), *bytes, 0);
            }
            table.ingest(&mut batch);
            batch.clear();
        }
        table.settle();
    }

    fn truth(packets: &[(u64, u32)]) -> BTreeMap<Vec<u8>, Size> {
        let mut sizes = BTreeMap::<_, Size>::new();
        for (key, bytes) in packets {
            let size = sizes.entry(key.to_le_bytes().to_vec()).or_default();
            *size += Size { packets: 1, bytes: (*bytes).into() };
        }
        sizes
    }

    fn listed(table: &Table) -> BTreeMap<Vec<u8>, Size> {
        let flows = table.answers().flows().unwrap();
        let mut sizes = BTreeMap::new();
        flows.for_each(&mut |key, size| assert!(sizes.insert(key.to_vec(), size).is_none()));
        assert_eq!(sizes.len(), flows.len());
        sizes
    }

    #[test]
    fn padded_tables_are_exact() {
        for (engine, parameters) in TABLES {
            let options = options(parameters);
            for padding in PADDINGS {
                let mut table = engine.padded(padding, &options).unwrap();
                for flows in [1, 40, 1400] {
                    let packets = packets(5000, flows);
                    feed(&mut table, &packets, 256);
                    let truth = truth(&packets);
                    assert_eq!(table.answers().untracked(), Size::default(), "{engine:?}");
                    assert!(listed(&table) == truth, "{engine:?} {padding} {flows}");
                    for (key, size) in &truth {
                        let estimate = table.answers().size().unwrap().estimate(key).bytes;
                        assert_eq!(estimate, Some(Estimate::exact(size.bytes)));
                    }
                    table.clear();
                    assert!(table.answers().flows().unwrap().is_empty());
                }
            }
        }
    }

    /// Tables of parts of the packets merge to the table of all, but not with a table of another
    /// state.
    #[test]
    fn padded_tables_merge_to_the_whole() {
        let packets = packets(6000, 900);
        for (engine, parameters) in TABLES {
            let options = options(parameters);
            for padding in PADDINGS {
                let mut whole = engine.padded(padding, &options).unwrap();
                for shard in packets.chunks(700) {
                    let mut part = engine.padded(padding, &options).unwrap();
                    feed(&mut part, shard, 256);
                    whole.merge(&*part).unwrap();
                }
                assert!(listed(&whole) == truth(&packets), "{engine:?} {padding}");
                let plain = catalog::build::<Key8>(engine.name(), &options).unwrap();
                assert!(whole.merge(&*plain).unwrap_err().to_string().contains("types differ"));
            }
        }
    }

    /// The stored form is that of a table without padding, for any order and batch size.
    #[test]
    fn padding_is_not_stored() {
        let packets = packets(3000, 700);
        let reversed: Vec<_> = packets.iter().rev().copied().collect();
        for (engine, parameters) in TABLES {
            let options = options(parameters);
            let mut plain = catalog::build::<Key8>(engine.name(), &options).unwrap();
            feed(&mut plain, &packets, 256);
            let bytes = stored(engine, &options, &plain);
            for padding in PADDINGS {
                for (packets, batch_packets) in
                    [(&packets, 256), (&packets, 64), (&packets, 1), (&reversed, 256)]
                {
                    let mut table = engine.padded(padding, &options).unwrap();
                    feed(&mut table, packets, batch_packets);
                    let same = stored(engine, &options, &table) == bytes;
                    assert!(same, "{engine:?} {padding} {batch_packets}");
                }
            }
        }
    }

    /// Padding adds its bytes to each entry.
    #[test]
    fn padding_takes_memory() {
        for padding in PADDINGS {
            let bytes = |(engine, parameters): (Engine, &[(&str, &str)])| {
                engine.padded(padding, &options(parameters)).unwrap().memory_bytes()
            };
            let entry = 8 + 12 + padding;
            assert_eq!(bytes(TABLES[0]), 4096 * 4 + 3072 * entry);
            assert_eq!(bytes(TABLES[1]), 4096 * entry + 3072 * 4);
            assert_eq!(bytes(TABLES[2]), 4096 * (8 + 4) + 3072 * (4 + 12 + padding));
        }
    }

    /// The state of a padded table is a counter.
    #[test]
    fn other_states_are_refused() {
        for (engine, _) in TABLES {
            for (parameter, refusal) in
                [(("state", "ewma"), "is not one of counter"), (("padding", "12"), "unknown")]
            {
                let refused = engine.padded(12, &Options::new(1 << 20, 1).with([parameter]));
                let refused = refused.err().unwrap().to_string();
                assert!(refused.contains(refusal), "{refused}");
            }
        }
    }
}
