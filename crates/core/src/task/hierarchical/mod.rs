//! `hierarchical`: prefixes that are heavy after their heavy descendants are discounted.
//!
//! The discounted weight of a prefix is the weight of its packets that no reported descendant
//! contains. A prefix is reported when its discounted weight exceeds the threshold; each packet
//! counts once. The root is a prefix too. IPv4 and IPv6 are separate trees with a common threshold.
//!
//! The hierarchy is over the key's first address: the source, or the destination for the key
//! `destination`. Its longest prefix has the bits that the key keeps.
//!
//! Where a table was full, the lane's untracked weight may belong to any of its prefixes, which
//! gives the upper bounds of total and discounted weight of the reported prefixes.
//!
//! A summary that counts prefixes answers with bounds. A prefix is then reported when its
//! discounted weight may exceed the threshold, so that there are no false negatives. For a summary
//! of a sample this holds for the sample, and the bounds add the sampling error.

mod bounded;
mod tree;
mod two;

use super::largest::{self, Largest};
use super::registry::{TaskEntry, TaskOptions};
use super::{EpochContext, HierarchyItem, Lane, Lists, Report, Task, Unsupported};
use super::{Side, exact};
use crate::summary::{Estimate, Prefixes};
use crate::terms::{Hierarchy, Measure};
use tree::Address;
use two::{HeavyPair, Pairs};

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "hierarchical",
    question: "prefixes over the threshold, less their heavy sub-prefixes",
    by_default: false,
    timeline: false,
    build: |options: &TaskOptions| Ok(Box::new(Hierarchical { hierarchy: options.hierarchy })),
};

/// The alternative to a table.
const INSTEAD: &str = "a summary that counts prefixes";

struct Hierarchical {
    hierarchy: Hierarchy,
}

/// The addresses of a lane's keys that make up the hierarchy.
enum Dimensions {
    One(Address),
    Two(Address, Address),
}

impl Hierarchical {
    fn dimensions(&self, lane: &Lane<'_>) -> Result<Dimensions, Unsupported> {
        let address = |side: Side, step| {
            let (field, bits) = (side.address(), lane.key.bits(side.address(), lane.key_bytes));
            lane.place(field).map(|place| Address::new(place, step, bits))
        };
        let one = |step| address(Side::Source, step).or_else(|| address(Side::Destination, step));
        let (dimensions, needs) = match self.hierarchy {
            Hierarchy::Bytes => (one(8).map(Dimensions::One), "a source or destination"),
            Hierarchy::Bits => (one(1).map(Dimensions::One), "a source or destination"),
            Hierarchy::Pair => {
                let pair = address(Side::Source, 8).zip(address(Side::Destination, 8));
                (
                    pair.map(|(source, destination)| Dimensions::Two(source, destination)),
                    "source and destination",
                )
            }
        };
        dimensions.ok_or_else(|| {
            let keys = match self.hierarchy {
                Hierarchy::Pair => "pair or five-tuple",
                Hierarchy::Bytes | Hierarchy::Bits => "source, destination, pair or five-tuple",
            };
            Unsupported(format!(
                "this hierarchy needs a key with {needs} (got {}); use {keys}",
                lane.key
            ))
        })
    }
}

impl Hierarchical {
    /// The prefixes of a lane's summary, if it counts any.
    fn prefixes<'a>(
        &self,
        by: Measure,
        lane: &Lane<'a>,
    ) -> Result<Option<&'a dyn Prefixes>, Unsupported> {
        let Some(prefixes) = lane.answers.prefixes() else { return Ok(None) };
        if prefixes.measure() != by {
            return Err(Unsupported(format!(
                "{} by {} needs a summary that counts {}",
                ENTRY.name,
                by.name(),
                by.name()
            )));
        }
        if prefixes.hierarchy() != self.hierarchy {
            let reason = "the summary counts the prefixes of another hierarchy";
            return Err(Unsupported(reason.to_owned()));
        }
        Ok(Some(prefixes))
    }
}

impl Task for Hierarchical {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn scratch_bytes(&self, flows: usize) -> usize {
        match self.hierarchy {
            Hierarchy::Bytes | Hierarchy::Bits => flows * size_of::<u64>(),
            Hierarchy::Pair => two::scratch_bytes(flows),
        }
    }

    /// At most all nodes above all flows.
    fn report_bytes(&self, lists: Lists, flows: usize) -> usize {
        let nodes = match self.hierarchy {
            Hierarchy::Bytes => 17,
            Hierarchy::Bits => 129,
            Hierarchy::Pair => 289,
        };
        largest::memory_bytes::<HierarchyItem>(lists.limit.min(flows.saturating_mul(nodes)))
    }

    fn check(&self, by: Measure, lanes: &[Lane<'_>]) -> Result<(), Unsupported> {
        lanes.iter().try_for_each(|lane| {
            self.dimensions(lane)?;
            match self.prefixes(by, lane)? {
                Some(_) => Ok(()),
                None => exact(ENTRY.name, INSTEAD, lane).map(drop),
            }
        })
    }

    fn run(
        &mut self,
        epoch: &EpochContext<'_>,
        lanes: &[Lane<'_>],
        scratch: &mut [u64],
    ) -> Result<Report, Unsupported> {
        let (by, threshold) = (epoch.by, epoch.threshold_weight());
        let mut largest = Largest::new(usize::MAX, epoch.lists.limit);
        let mut take = |item: HierarchyItem| largest.offer(item.discounted.value, item);
        for lane in lanes {
            let dimensions = self.dimensions(lane)?;
            if let Some(prefixes) = self.prefixes(by, lane)? {
                let total = epoch.keyed.by(by) as f64;
                let steps = bounded::Steps::default();
                bounded::heavy(prefixes, &dimensions, (threshold, total), steps, &mut take)?;
                continue;
            }
            let flows = exact(ENTRY.name, INSTEAD, lane)?;
            let untracked = lane.answers.untracked().by(by);
            let bounded = |weight: u64| {
                let value = weight as f64;
                Estimate::between(value, value, (weight + untracked) as f64)
            };
            match &dimensions {
                Dimensions::One(address) => {
                    let report = |prefix, level, total, discounted| {
                        let (source, source_bits) = address.prefix(prefix, level);
                        take(HierarchyItem {
                            source,
                            source_bits,
                            destination: None,
                            total: bounded(total),
                            discounted: bounded(discounted),
                        });
                    };
                    tree::walk(flows, by, address, threshold, scratch, report);
                }
                Dimensions::Two(source, destination) => {
                    let pairs = Pairs { flows, by, source, destination, threshold };
                    pairs.walk(scratch, |heavy: HeavyPair| {
                        let (prefix, bits) = source.prefix(heavy.source, heavy.source_level);
                        let other = destination.prefix(heavy.destination, heavy.destination_level);
                        take(HierarchyItem {
                            source: prefix,
                            source_bits: bits,
                            destination: Some(other),
                            total: bounded(heavy.total),
                            discounted: bounded(heavy.discounted),
                        });
                    });
                }
            }
        }
        let (items, truncated) = largest.into_list();
        Ok(Report::Hierarchical { threshold, items, truncated })
    }
}
