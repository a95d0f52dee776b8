//! Anonymous reports: addresses reveal no host, but shared prefixes stay visible.

mod permutation;

use std::path::Path;
use std::sync::Arc;

use flowgauge_core::key::{CanonicalKey, Field, KeyKind, KeySpec};
use flowgauge_core::task::{Report, Side};
use flowgauge_engine::report::EpochReport;
use flowgauge_engine::sink::{Item, Sink, SinkError, Takes};
use serde::Deserialize;

use crate::failure::Failure;
use permutation::Permutation;

/// How addresses are made anonymous.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// By a permutation under a secret key that preserves prefixes.
    Prefix,
}

/// Wraps sinks so that they receive anonymous reports.
#[derive(Clone)]
pub(crate) struct Anonymizer(Permutation);

impl Anonymizer {
    /// Creates an agent's anonymizer. Its key is derived from the secret seed file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn new(seed: &Path) -> Result<Self, Failure> {
        Permutation::of(seed).map(Self)
    }

    /// Wraps a sink.
    pub(crate) fn before(&self, sink: Box<dyn Sink>) -> Box<dyn Sink> {
        Box::new(Anonymous { anonymizer: self.clone(), sink })
    }

    /// Replaces the addresses of a key.
    fn key(&self, spec: KeySpec, key: &mut CanonicalKey) {
        let mut bytes = key.as_bytes().to_vec();
        for field in [Field::Source, Field::Destination, Field::Host] {
            if let Some(place) = spec.place(field, bytes.len()) {
                self.0.apply(&mut bytes[place], spec.bits(field, key.as_bytes().len()));
            }
        }
        *key = CanonicalKey::new(&bytes);
    }

    fn prefix(&self, address: &mut CanonicalKey, bits: u8) {
        let mut bytes = address.as_bytes().to_vec();
        self.0.apply(&mut bytes, bits);
        *address = CanonicalKey::new(&bytes);
    }

    /// A copy of the report with replaced addresses, in the same order.
    fn report(&self, report: &EpochReport) -> EpochReport {
        let mut report = report.clone();
        let spec = report.key;
        for (_, answer) in &mut report.tasks {
            let alone = |side: Side, address: &mut CanonicalKey| {
                self.key(spec.alone(side.address()), address);
            };
            match answer {
                Report::Sizes { items, .. } => {
                    for item in items {
                        self.key(spec, &mut item.key);
                    }
                }
                Report::Changes { items, .. } => {
                    for item in items {
                        self.key(spec, &mut item.key);
                    }
                }
                Report::Quantiles { keys, .. } => {
                    for (_, key) in keys {
                        self.key(spec, key);
                    }
                }
                Report::Addresses { side, items, .. } => {
                    for item in items {
                        alone(*side, &mut item.address);
                    }
                }
                Report::Spread { side, items, .. } => {
                    for item in items {
                        alone(*side, &mut item.address);
                    }
                }
                Report::Findings { items, .. } => {
                    for item in items {
                        let ends = [item.source.as_mut(), item.destination.as_mut()];
                        for address in ends.into_iter().flatten() {
                            self.key(KeySpec::from(KeyKind::SOURCE), address);
                        }
                    }
                }
                Report::Hierarchical { items, .. } => {
                    for item in items {
                        self.prefix(&mut item.source, item.source_bits);
                        if let Some((address, bits)) = &mut item.destination {
                            self.prefix(address, *bits);
                        }
                    }
                }
                Report::Cardinality { .. }
                | Report::Entropy { .. }
                | Report::SizeDistribution { .. } => {}
            }
        }
        report
    }
}

/// A sink that receives anonymous reports.
struct Anonymous {
    anonymizer: Anonymizer,
    sink: Box<dyn Sink>,
}

impl Sink for Anonymous {
    fn takes(&self) -> Takes {
        self.sink.takes()
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        match item {
            Item::Epoch(report) => {
                self.sink.deliver(&Item::Epoch(Arc::new(self.anonymizer.report(report))))
            }
            // Neither has an address.
            Item::Gap(_) | Item::Total(_) => self.sink.deliver(item),
            // Snapshots hold real keys, so they are not passed on.
            Item::Snapshot(_) => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.sink.finish()
    }
}
