//! Random lanes with flows in plain lists, from small universes.

use std::collections::BTreeMap;
use std::fmt::Debug;

use flowgauge_core::key::{CanonicalKey, Field, KeyKind, KeySpec};
use flowgauge_core::summary::{Answers, Candidates, Estimate, Flows, SizeEstimate, SizeQuery};
use flowgauge_core::task::{EpochContext, Lane, Lists, Report, Task, TaskOptions, find};
use flowgauge_core::terms::{Measure, Size, Threshold};
use flowgauge_kernel::Seed;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

/// Runs a property on 400 cases from a fixed seed, which a failure prints.
pub fn check<T: Debug>(seed: u64, of: impl Strategy<Value = T>, property: impl Fn(T)) {
    check_some(400, seed, of, property);
}

/// Runs a property on `cases` cases.
pub fn check_some<T: Debug>(
    cases: u32,
    seed: u64,
    of: impl Strategy<Value = T>,
    property: impl Fn(T),
) {
    let config = Config {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&of, |case| {
        property(case);
        Ok(())
    });
    assert!(result.is_ok(), "seed {seed}: {}", result.unwrap_err());
}

/// A table: every flow with its exact size.
#[derive(Clone, Debug, Default)]
pub struct Table {
    pub flows: Vec<(Vec<u8>, Size)>,
    pub untracked: Size,
    pub saturated: Size,
}

impl Answers for Table {
    fn untracked(&self) -> Size {
        self.untracked
    }
    fn saturated(&self) -> Size {
        self.saturated
    }
    fn flows(&self) -> Option<&dyn Flows> {
        Some(self)
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
}

impl SizeQuery for Table {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let found = self.flows.iter().find(|(known, _)| known == key);
        match found.map_or(Size::default(), |(_, size)| *size) {
            Size { packets: 0, .. } => {
                SizeEstimate::between(Size::default(), Size::default(), self.untracked)
            }
            size => SizeEstimate::counted(size, self.saturated),
        }
    }
}

impl Flows for Table {
    fn most(&self) -> usize {
        self.flows.len()
    }

    fn len(&self) -> usize {
        self.flows.len()
    }
    fn get(&self, index: usize) -> (&[u8], Size) {
        let (key, size) = &self.flows[index];
        (key, *size)
    }
    fn for_each(&self, visit: &mut dyn FnMut(&[u8], Size)) {
        self.flows.iter().for_each(|(key, size)| visit(key, *size));
    }
}

/// A summary that counts only packets and lists some flows, with slightly too large sizes.
#[derive(Clone, Debug, Default)]
pub struct Rough {
    pub flows: Vec<(CanonicalKey, u64)>,
    /// Maximum weight of any other flow.
    pub unnamed: Option<f64>,
}

impl Rough {
    pub fn size(packets: u64) -> SizeEstimate {
        let packets = packets as f64;
        let packets = Estimate::between(packets - 1.0, packets, packets);
        SizeEstimate { packets: Some(packets), bytes: None }
    }
}

impl Answers for Rough {
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }
}

impl SizeQuery for Rough {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let flow = self.flows.iter().find(|(known, _)| known.as_bytes() == key);
        Self::size(flow.map_or(1, |(_, packets)| *packets))
    }
}

impl Candidates for Rough {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        self.flows.iter().for_each(|&(key, packets)| visit(key, Self::size(packets)));
    }
    fn overflow(&self) -> u64 {
        0
    }
    fn unnamed(&self, _: Measure) -> Option<f64> {
        self.unnamed
    }
}

/// An epoch of one or two lanes.
#[derive(Clone, Debug)]
pub struct Case {
    pub key: KeySpec,
    pub tables: Vec<(usize, Table)>,
    pub by: Measure,
    pub threshold: Threshold,
    pub top: usize,
}

impl Case {
    pub fn lanes(&self) -> Vec<Lane<'_>> {
        let lane =
            |(key_bytes, table)| Lane { key: self.key, key_bytes, answers: table as &dyn Answers };
        self.tables.iter().map(|(key_bytes, table)| lane((*key_bytes, table))).collect()
    }

    pub fn context(&self) -> EpochContext<'static> {
        let mut keyed = Size::default();
        for (_, table) in &self.tables {
            for size in table.flows.iter().map(|(_, size)| size).chain([&table.untracked]) {
                keyed.packets += size.packets;
                keyed.bytes += size.bytes;
            }
        }
        EpochContext {
            by: self.by,
            keyed,
            threshold: self.threshold,
            lists: Lists::unlimited(self.top),
            timeline: None,
        }
    }

    pub fn threshold(&self) -> f64 {
        self.context().threshold_weight()
    }

    /// Every flow of every lane.
    pub fn flows(&self) -> impl Iterator<Item = (CanonicalKey, Size)> {
        let flows = self.tables.iter().flat_map(|(_, table)| &table.flows);
        flows.map(|(key, size)| (CanonicalKey::new(key), *size))
    }

    /// Every flow's weight in the measure of the case.
    pub fn weights(&self) -> BTreeMap<CanonicalKey, u64> {
        self.flows().map(|(key, size)| (key, size.by(self.by))).collect()
    }

    pub fn untracked(&self) -> Size {
        let mut sum = Size::default();
        for (_, table) in &self.tables {
            sum.packets += table.untracked.packets;
            sum.bytes += table.untracked.bytes;
        }
        sum
    }
}

pub fn options() -> TaskOptions {
    TaskOptions::new(Seed::number(7))
}

pub fn build(name: &str, options: &TaskOptions) -> Box<dyn Task> {
    find(name).unwrap().build(options).unwrap()
}

/// Runs the task with exactly the scratch memory that it asked for, filled with garbage.
pub fn run(task: &mut dyn Task, case: &Case) -> Report {
    let lanes = case.lanes();
    let flows = case.flows().count();
    let mut scratch = vec![0xdead_beef_dead_beef; task.scratch_bytes(flows).div_ceil(8)];
    task.check(case.by, &lanes).unwrap();
    task.run(&case.context(), &lanes, &mut scratch).unwrap()
}

pub fn run_once(name: &str, options: &TaskOptions, case: &Case) -> Report {
    run(build(name, options).as_mut(), case)
}

/// Number of addresses of a key, and bytes of its other fields.
fn sizes(kind: KeyKind) -> (usize, usize) {
    let bytes = |field| match field {
        Field::SourcePort | Field::DestinationPort => 2,
        Field::Protocol => 1,
        _ => 0,
    };
    let addresses = kind.fields().filter(|field| field.is_address()).count();
    (addresses, kind.fields().map(bytes).sum())
}

/// Canonical bytes of a key in its lanes: of IPv4, then of IPv6.
pub fn lane_bytes(key: KeySpec) -> Vec<usize> {
    let (addresses, numbers) = sizes(key.kind());
    let shortest = |size: usize, lengths: &[usize]| {
        *lengths.iter().find(|length| **length >= addresses * size + numbers).unwrap()
    };
    let v4 = shortest(4, &[4, 8, 13]);
    if addresses == 0 { vec![v4] } else { vec![v4, shortest(16, &[16, 32, 37])] }
}

/// Every set of fields of a five-tuple.
pub fn every_kind() -> Vec<KeyKind> {
    let set = |bits: usize| {
        let all = KeyKind::FIVE_TUPLE.fields().enumerate();
        let fields = all.filter(|(at, _)| bits >> at & 1 == 1).map(|(_, field)| field);
        KeyKind::of(&fields.collect::<Vec<_>>())
    };
    (1..32).map(set).collect()
}

/// Keys of all kinds, some with prefixes.
pub fn any_key() -> impl Strategy<Value = KeySpec> {
    key_of(every_kind())
}

pub fn key_of(kinds: Vec<KeyKind>) -> impl Strategy<Value = KeySpec> {
    let prefix = || {
        prop_oneof![
            3 => Just("/32,128"),
            1 => Just("/24,64"),
            1 => Just("/20,61"),
            1 => Just("/0,0"),
        ]
    };
    (prop::sample::select(kinds), prefix(), prefix()).prop_map(|(kind, source, destination)| {
        let field = |field: Field| match field {
            Field::Source => format!("source{source}"),
            Field::Destination => format!("destination{destination}"),
            other => other.name().to_owned(),
        };
        kind.fields().map(field).collect::<Vec<_>>().join("+").parse().unwrap()
    })
}

/// Random epochs with this kind of key.
pub fn case(key: impl Strategy<Value = KeySpec>) -> impl Strategy<Value = Case> {
    let threshold = prop_oneof![
        Just(Threshold::Weight(0)),
        (1u64..20).prop_map(Threshold::Weight),
        (0.0..0.6).prop_map(Threshold::Share),
    ];
    let by = prop_oneof![Just(Measure::Packets), Just(Measure::Bytes)];
    (key, by, threshold, 0usize..12).prop_flat_map(|(key, by, threshold, top)| {
        let lanes: Vec<_> = lane_bytes(key).into_iter().map(|n| table(key, n)).collect();
        lanes.prop_map(move |tables| {
            let tables = lane_bytes(key).into_iter().zip(tables).collect();
            Case { key, tables, by, threshold, top }
        })
    })
}

pub fn table(key: KeySpec, key_bytes: usize) -> impl Strategy<Value = Table> {
    let flow = (prop::collection::vec(byte(), key_bytes), size());
    let untracked = prop_oneof![2 => Just(Size::default()), 1 => size()];
    let saturated = Size::default();
    (prop::collection::vec(flow, 0..40), untracked).prop_map(move |(raw, untracked)| {
        let mut flows: Vec<(Vec<u8>, Size)> = Vec::new();
        for (mut bytes, size) in raw {
            mask(key, &mut bytes);
            if !flows.iter().any(|(known, _)| *known == bytes) {
                flows.push((bytes, size));
            }
        }
        Table { flows, untracked, saturated }
    })
}

/// Mostly zero, so that prefixes and endpoints coincide.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![8 => Just(0u8), 2 => Just(1), 1 => Just(255), 1 => Just(16)]
}

/// Mostly small, so that there are ties; now and then larger than any table of small sizes.
fn size() -> impl Strategy<Value = Size> {
    let packets = prop_oneof![6 => 1u64..5, 1 => 4000u64..4100, 1 => 1u64..100_000];
    (packets, 40u64..45).prop_map(|(packets, bytes)| Size { packets, bytes: packets * bytes })
}

/// Masks the addresses of a raw key by the prefixes of its kind, and zeroes the padding before its
/// numbers.
fn mask(key: KeySpec, bytes: &mut [u8]) {
    let len = bytes.len();
    let size = if len < 16 { 4 } else { 16 };
    let (addresses, numbers) = sizes(key.kind());
    bytes[addresses * size..len - numbers].fill(0);
    let fields = key.kind().fields().filter(|field| field.is_address());
    for (address, field) in bytes.chunks_mut(size).zip(fields) {
        let prefix = key.bits(field, len);
        for (at, byte) in address.iter_mut().enumerate() {
            let kept = usize::from(prefix).saturating_sub(8 * at).min(8);
            *byte &= u8::MAX.checked_shl(8 - kept as u32).unwrap_or(0);
        }
    }
}
