//! What takes packets.

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog;
use flowgauge_core::key::Key8;
use flowgauge_core::summary::{Ingest, Options, Parameters};
use flowgauge_core::task::Hierarchy;
use flowgauge_kernel::Digester;

use super::entry::Entry;
use super::stream::Stream;
use crate::failure::Failure;

/// Bytes of every frame.
pub(super) const FRAME_BYTES: u32 = 64;

/// Something that counts packets.
pub(super) trait Contestant {
    /// Forgets everything, and takes a packet of each of these flows.
    fn begin(&mut self, earlier: &[Key8]);
    /// Takes all packets.
    fn take(&mut self, stream: &Stream);
}

/// A summary of the catalog.
pub(super) struct Cataloged {
    summary: Box<dyn Ingest<Key8>>,
    batch: Batch<Key8>,
}

impl Cataloged {
    /// The algorithm of an entry behind what stands before it, or `alone`.
    pub(super) fn new(entry: &Entry, alone: bool, digester: Digester) -> Result<Self, Failure> {
        let memory = entry.rival.as_ref().and_then(|rival| rival.memory);
        let mut options = Options::new(memory.map_or(1 << 20, |bytes| bytes()), 1)
            .with(entry.parameters.iter().copied());
        options.digester = digester;
        options.hierarchy = Hierarchy::Pair;
        let accelerators: Vec<_> = entry
            .accelerator
            .iter()
            .filter(|_| !alone)
            .map(|accelerator| {
                let parameters = accelerator.parameters.iter().copied();
                (accelerator.name.to_owned(), Parameters::new(parameters))
            })
            .collect();
        let summary = catalog::build_accelerated::<Key8>(&accelerators, entry.name, &options)
            .map_err(|error| Failure::Build {
                algorithm: entry.name,
                asked: format!("{:?}", entry.parameters),
                error,
            })?;
        Ok(Self::of(summary))
    }

    pub(super) fn of(summary: Box<dyn Ingest<Key8>>) -> Self {
        Self { summary, batch: Batch::new() }
    }

    pub(super) fn parameters(&self) -> String {
        let own = self.summary.parameters().into_iter();
        let pairs = own.map(|(name, value)| format!("{name}={value}"));
        let before =
            self.summary.accelerators().into_iter().flat_map(|(accelerator, parameters)| {
                parameters
                    .into_iter()
                    .map(move |(name, value)| format!("{accelerator}.{name}={value}"))
            });
        pairs.chain(before).collect::<Vec<_>>().join(",")
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.summary.memory_bytes()
    }

    fn ingest(&mut self, keys: &[Key8]) {
        for keys in keys.chunks(BATCH_PACKETS) {
            self.batch.fill(keys, FRAME_BYTES);
            self.summary.ingest(&mut self.batch);
        }
        self.summary.settle();
    }
}

impl Contestant for Cataloged {
    fn begin(&mut self, earlier: &[Key8]) {
        self.summary.clear();
        self.ingest(earlier);
    }

    fn take(&mut self, stream: &Stream) {
        if !self.summary.wants_elements() {
            self.ingest(&stream.keys);
            return self.summary.settle();
        }
        let elements = stream.elements.chunks(BATCH_PACKETS);
        for (keys, elements) in stream.keys.chunks(BATCH_PACKETS).zip(elements) {
            self.batch.clear();
            for (&key, &element) in keys.iter().zip(elements) {
                self.batch.push_with_element(key, FRAME_BYTES, 0, element);
            }
            self.summary.ingest(&mut self.batch);
        }
        self.summary.settle();
    }
}
