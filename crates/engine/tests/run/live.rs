//! A source that knows the time and what was lost: epochs end without a packet.

use flowgauge_core::packet::{Frame, LinkType};
use flowgauge_engine::sink::{Json, Written};
use flowgauge_engine::source::{Burst, Counter, CounterKind, Source, SourceError};
use flowgauge_engine::{Config, EpochLength, Plan};
use serde_json::Value;

use crate::asking;
use crate::capture::udp;

pub(crate) const SECOND: i64 = 1_000_000_000;

/// What happens between two looks at a source: packets at these times, then the time that it is, and
/// what was lost so far.
pub(crate) type Step = (&'static [i64], i64, u64);

pub(crate) struct Live {
    steps: std::slice::Iter<'static, Step>,
    now_ns: i64,
    lost: [Counter; 1],
    bytes: Vec<u8>,
}

impl Live {
    pub(crate) fn new(steps: &'static [Step]) -> Self {
        let lost = [Counter::new("dropped", CounterKind::Lost)];
        Self { steps: steps.iter(), now_ns: 0, lost, bytes: udp((1, 1), (2, 2)) }
    }
}

impl Source for Live {
    fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError> {
        let Some((times_ns, now_ns, lost)) = self.steps.next() else { return Ok(false) };
        (self.now_ns, self.lost[0].count) = (*now_ns, *lost);
        let (bytes, wire, link) = (&self.bytes[..], self.bytes.len() as u32, LinkType::ETHERNET);
        burst.extend(times_ns.iter().map(|&time_ns| Frame { bytes, wire, link, time_ns }));
        Ok(true)
    }

    fn counters(&self) -> &[Counter] {
        &self.lost
    }

    fn clock_ns(&self) -> Option<i64> {
        Some(self.now_ns)
    }
}

pub(crate) const STEPS: &[Step] = &[
    (&[], 100 * SECOND, 0),
    (&[100 * SECOND + 1, 100 * SECOND + 2], 100 * SECOND + 3, 4),
    (&[], 101 * SECOND, 5),
    (&[], 101 * SECOND + 1, 7),
    (&[], 102 * SECOND, 7),
    (&[101 * SECOND, 102 * SECOND], 102 * SECOND + 1, 7),
    // Somebody set the clock, or the machine slept.
    (&[106 * SECOND], 106 * SECOND + 5, 7),
    (&[], 106 * SECOND + 6, 8),
];

/// The wall clock is set an hour ahead, which is also what a machine sees that slept, and then two back.
const SET: &[Step] = &[
    (&[7200 * SECOND + 1], 7200 * SECOND + 2, 0),
    (&[10_800 * SECOND + 1], 10_800 * SECOND + 2, 0),
    (&[10_801 * SECOND + 1], 10_801 * SECOND + 2, 0),
    (&[3601 * SECOND + 1, 3601 * SECOND + 2], 3601 * SECOND + 3, 0),
    (&[], 3602 * SECOND, 0),
    (&[3603 * SECOND], 3603 * SECOND + 1, 0),
];

#[test]
fn a_clock_that_is_set_costs_no_packet_and_its_steps_are_marked() {
    for workers in [1, 2] {
        let epoch = EpochLength::Time(SECOND);
        let config = Config { epoch, workers, ..asking(&["top"]) };
        let mut out = Vec::new();
        let plan = Plan::new(config).unwrap();
        let mut source = Live::new(SET);
        let sink = &mut Written::new(Json, &mut out);
        let total = flowgauge_engine::run(plan, &mut source, sink, &mut |_| {}).unwrap();
        assert_eq!(total.total.account.keyed, 6);
        let lines = String::from_utf8(out).unwrap();
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let lines: Vec<_> = lines.collect();
        let epochs: Vec<_> = lines.iter().filter(|line| line["type"] == "epoch").collect();
        let start = |epoch: &Value| epoch["start"].as_str().unwrap()[11..19].to_owned();
        let keyed = |epoch: &Value| epoch["account"]["keyed"].as_u64().unwrap();
        let found = epochs.iter().map(|epoch| (start(epoch), keyed(epoch)));
        let found: Vec<_> = found.filter(|(_, keyed)| *keyed > 0).collect();
        let expected =
            [("02:00:00", 1), ("03:00:00", 1), ("03:00:01", 1), ("01:00:01", 2), ("01:00:03", 1)];
        assert_eq!(found, expected.map(|(start, keyed)| (start.to_owned(), keyed)), "{workers}");
        let numbers: Vec<_> = epochs.iter().map(|epoch| epoch["epoch"].as_u64().unwrap()).collect();
        assert!(numbers.is_sorted_by(|one, other| one < other), "{numbers:?}");
        // An hour ahead is an hour without packets; back it goes in the middle of an epoch.
        let gap = lines.iter().find(|line| line["type"] == "gap").unwrap();
        assert_eq!(gap["epochs"], 3599, "{workers}");
        let is_marked =
            |epoch: &&&Value| epoch["notes"].to_string().contains("jumped back by 119 min");
        let marks: Vec<_> = epochs.iter().filter(is_marked).map(|epoch| start(epoch)).collect();
        assert_eq!(marks, ["03:00:01"], "{workers}");
    }
}

#[test]
fn epochs_end_by_the_clock_and_what_was_lost_is_told() {
    for workers in [1, 2] {
        let epoch = EpochLength::Time(SECOND);
        let config = Config { epoch, workers, ..asking(&["top"]) };
        let mut out = Vec::new();
        let plan = Plan::new(config).unwrap();
        let total = flowgauge_engine::run(
            plan,
            &mut Live::new(STEPS),
            &mut Written::new(Json, &mut out),
            &mut |_| {},
        );
        let lines = String::from_utf8(out).unwrap();
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let found: Vec<_> = lines
            .filter(|line| line["type"] != "total")
            .map(|line| {
                let count = |name| line["account"][name].as_u64();
                (line["epoch"].as_u64().unwrap(), count("keyed"), count("lost"), count("late"))
            })
            .collect();
        // The lost ones count where they were first heard of.
        let expected = [
            (0, Some(2), Some(5), Some(0)),
            (1, Some(0), Some(2), Some(0)),
            (2, Some(2), Some(0), Some(1)),
            (3, None, None, None),
            (6, Some(1), Some(1), Some(0)),
        ];
        assert_eq!(found, expected, "{workers}");
        let account = total.unwrap().total.account;
        assert_eq!((account.read, account.lost, account.backwards), (5, 8, 0));
    }
}
