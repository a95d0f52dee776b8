//! Where epochs end, and what happens between them.

use flowgauge_core::packet::{Frame, LinkType};
use flowgauge_core::summary::Parameters;
use flowgauge_core::terms::Threshold;
use flowgauge_engine::sink::{Json, Written};
use flowgauge_engine::source::{Burst, Counter, CounterKind, Source, SourceError};
use flowgauge_engine::{Config, EpochLength, Plan};
use serde_json::Value;

use crate::capture::{Pcap, mixed, udp};
use crate::{asking, run, run_plan};

const SECOND_NS: u64 = 1_000_000_000;

fn of_type<'a>(lines: &'a [Value], name: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == name).collect()
}

#[test]
fn time_epochs_are_multiples_of_their_length_with_gaps_and_late_packets() {
    let mut pcap = Pcap::new();
    for seconds in [12, 19, 20, 55, 54, 49, 60] {
        pcap.udp(seconds * SECOND_NS, (1, 1), (2, 2));
    }
    pcap.udp((60 + 3601) * SECOND_NS, (1, 1), (2, 2));
    let config = Config { epoch: EpochLength::Time(10_000_000_000), ..asking(&["top"]) };
    let (lines, outcome) = run(config, &pcap.0);
    let found: Vec<_> = of_type(&lines, "epoch")
        .iter()
        .map(|epoch| {
            let read = epoch["account"]["read"].as_u64().unwrap();
            (epoch["epoch"].as_u64().unwrap(), epoch["start"].as_str().unwrap(), read)
        })
        .collect();
    let expected = [
        (0, "1970-01-01T00:00:10.000000000Z", 2),
        (1, "1970-01-01T00:00:20.000000000Z", 1),
        (4, "1970-01-01T00:00:50.000000000Z", 3),
        (5, "1970-01-01T00:01:00.000000000Z", 1),
        (365, "1970-01-01T01:01:00.000000000Z", 1),
    ];
    assert_eq!(found, expected);
    let gaps = of_type(&lines, "gap");
    assert_eq!(gaps.len(), 2);
    assert_eq!(gaps[0]["start"], "1970-01-01T00:00:30.000000000Z");
    assert_eq!(gaps[0]["end"], "1970-01-01T00:00:50.000000000Z");
    assert_eq!(gaps[1]["epochs"], 359);
    let account = &outcome.total.account;
    assert_eq!((account.late, account.backwards, account.jumps), (1, 2, 1));
    assert_eq!(outcome.total.epochs, 5);
}

/// Late packets in order, followed by one of the open epoch, are all late, though the first and the
/// last time of their burst look ordinary.
#[test]
fn each_late_packet_of_a_burst_is_counted() {
    let mut pcap = Pcap::new();
    let late = [46, 47, 48, 49];
    for seconds in [55; 256].into_iter().chain(late).chain([56]) {
        pcap.udp(seconds * SECOND_NS, (1, 1), (2, 2));
    }
    let config = Config { epoch: EpochLength::Time(10_000_000_000), ..asking(&["top"]) };
    let named = |name: &str| Config { name: name.to_owned(), ..config.clone() };
    for plan in [Plan::new(named("one")), Plan::several(vec![named("one"), named("two")])] {
        let (lines, _) = run_plan(plan.unwrap(), &pcap.0);
        for epoch in of_type(&lines, "epoch") {
            let count = |name: &str| epoch["account"][name].as_u64().unwrap();
            assert_eq!((count("read"), count("late"), count("backwards")), (261, 4, 1), "{epoch}");
        }
    }
}

#[test]
fn packet_epochs_hold_so_many_keyed_packets() {
    let bytes = mixed(5, 5000);
    let config = Config { epoch: EpochLength::Packets(1000), ..asking(&["cardinality"]) };
    let (lines, outcome) = run(config, &bytes);
    let epochs = of_type(&lines, "epoch");
    for epoch in &epochs[..epochs.len() - 1] {
        assert_eq!(epoch["account"]["keyed"], 1000);
    }
    assert_eq!(epochs.len() as u64, outcome.total.account.keyed.div_ceil(1000));
}

/// A part of an epoch, too, has a part of the usual packets.
#[test]
fn a_partial_first_epoch_makes_no_forecast() {
    let mut pcap = Pcap::new();
    for tenth in 80..400 {
        pcap.udp(tenth * SECOND_NS / 10, (1, 1), (2, 2));
    }
    for state in [None, Some(("state", "ewma"))] {
        let config = Config {
            epoch: EpochLength::Time(10_000_000_000),
            parameters: Parameters::new(state),
            threshold: Threshold::Share(0.1),
            ..asking(&["changes"])
        };
        let (lines, _) = run(config, &pcap.0);
        let epochs = of_type(&lines, "epoch");
        assert_eq!(epochs.len(), 4);
        for epoch in &epochs[2..] {
            assert_eq!(epoch["tasks"]["changes"]["items"], serde_json::json!([]), "{state:?}");
        }
    }
}

/// A wrong time ends an epoch, and is not when the last one was observed until.
#[test]
fn the_last_epoch_after_a_wrong_time_was_observed_in_part() {
    let mut pcap = Pcap::new();
    for seconds in [0, 9, 4_000_000_000, 10, 19, 20, 25] {
        pcap.udp((100_000 + seconds) * SECOND_NS, (1, 1), (2, 2));
    }
    let config = Config { epoch: EpochLength::Time(10_000_000_000), ..asking(&["top"]) };
    let (lines, _) = run(config, &pcap.0);
    let last = of_type(&lines, "epoch")[3];
    assert_eq!((&last["account"]["read"], &last["coverage"]), (&2.into(), &0.5.into()), "{last}");
}

#[test]
fn numbers_of_epochs_do_not_overflow() {
    let mut pcap = Pcap::new();
    for number in 0..7 {
        pcap.udp(number, (1, 1), (2, 2));
        pcap.udp(4_294_967_295 * SECOND_NS - number, (1, 1), (2, 2));
    }
    let (lines, _) = run(Config { epoch: EpochLength::Time(1), ..asking(&["top"]) }, &pcap.0);
    let numbers: Vec<_> =
        of_type(&lines, "epoch").iter().map(|epoch| epoch["epoch"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted() && numbers.len() == 14, "{numbers:?}");
}

#[test]
fn a_run_without_a_packet_is_one_empty_epoch() {
    for epoch in [EpochLength::Whole, EpochLength::Packets(5), EpochLength::Time(5)] {
        let (lines, outcome) = run(Config { epoch, ..Config::seeded(0) }, &Pcap::new().0);
        assert_eq!(lines.len(), 2);
        assert!(lines[0]["start"].is_null());
        assert_eq!(outcome.total.account.read, 0);
    }
}

#[test]
fn the_last_full_epoch_is_not_followed_by_an_empty_one() {
    let mut pcap = Pcap::new();
    for i in 0..6 {
        pcap.udp(i, (1, 1), (2, 2));
    }
    let config = Config { epoch: EpochLength::Packets(3), ..asking(&["top"]) };
    let (lines, _) = run(config, &pcap.0);
    assert_eq!(of_type(&lines, "epoch").len(), 2);
}

#[test]
fn a_flow_that_vanishes_is_a_change_and_empty_epochs_count() {
    let mut pcap = Pcap::new();
    for second in 0..3 {
        for i in 0..100 {
            pcap.udp(second * SECOND_NS + i, (1, 1), (2, 2));
        }
    }
    // Two empty epochs halve the forecast twice; another flow opens the epoch after them.
    pcap.udp(5 * SECOND_NS, (7, 7), (8, 8)).udp(6 * SECOND_NS, (7, 7), (8, 8));
    let config = Config {
        epoch: EpochLength::Time(SECOND_NS.cast_signed()),
        threshold: Threshold::Weight(20),
        ..asking(&["changes"])
    };
    let (lines, _) = run(config, &pcap.0);
    let epochs = of_type(&lines, "epoch");
    let items = epochs[3]["tasks"]["changes"]["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "{}", epochs[3]);
    assert_eq!(items[0]["key"]["source"], "10.0.0.1");
    assert_eq!(items[0]["forecast"]["value"], 25);
    assert_eq!(items[0]["now"]["value"], 0);
    assert!(epochs[1]["tasks"]["changes"]["items"].as_array().unwrap().is_empty());
}

/// A packet dated 2096, a clock set back by an hour: epochs of ten seconds keep closing, and each step is
/// noted in the epoch that it ended.
#[test]
fn no_time_of_a_packet_keeps_epochs_from_closing() {
    const START: u64 = 1_790_000_000;
    let mut pcap = Pcap::new();
    let future = [START, START + 1, 3_990_000_000, START + 2];
    let on = (1..=5).map(|tens| START + 10 * tens);
    let back = (0..5).map(|tens| START - 3_600 + 10 * tens);
    for seconds in future.into_iter().chain(on).chain(back) {
        pcap.udp(seconds * SECOND_NS, (1, 1), (2, 2));
    }
    let config = Config { epoch: EpochLength::Time(10_000_000_000), ..asking(&["top"]) };
    let (lines, outcome) = run(config, &pcap.0);
    let epochs = of_type(&lines, "epoch");
    let read = |epoch: &&Value| epoch["account"]["read"].as_u64().unwrap();
    assert_eq!(
        epochs.iter().map(read).collect::<Vec<_>>(),
        [2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    );
    let note = |epoch: &&Value| epoch["notes"][0].as_str().map(str::to_owned);
    let notes: Vec<_> =
        epochs.iter().enumerate().filter_map(|(at, e)| Some((at, note(e)?))).collect();
    let found: Vec<_> = notes.iter().map(|(at, note)| (*at, note.contains("back by"))).collect();
    assert_eq!(found, [(0, false), (1, true), (7, true)], "{notes:?}");
    let account = &outcome.total.account;
    assert_eq!((account.jumps, account.backwards, account.late), (1, 2, 0));
}

/// Empty epochs reach a table that keeps forecasts, just as they reach the task that keeps them.
#[test]
fn empty_epochs_age_forecasts_in_a_table_as_in_the_task() {
    let mut pcap = Pcap::new();
    for (second, packets) in [(0, 4000), (1, 3000), (12, 1), (13, 2000), (14, 1)] {
        for i in 0..packets {
            pcap.udp(second * SECOND_NS + i, (i as u32 % 7, 1), (2, 2));
        }
    }
    let changes = |state: Option<&str>| {
        let config = Config {
            parameters: Parameters::new(state.map(|state| ("state", state))),
            epoch: EpochLength::Time(1_000_000_000),
            ..asking(&["changes"])
        };
        let lines = run(config, &pcap.0).0;
        assert_eq!(of_type(&lines, "gap")[0]["epochs"], 10);
        // The last epoch is observed in part.
        let whole = &of_type(&lines, "epoch")[..4];
        whole.iter().map(|epoch| epoch["tasks"]["changes"].clone()).collect()
    };
    let (task, table): (Vec<Value>, Vec<Value>) = (changes(None), changes(Some("ewma")));
    let items = |changes: &Value| changes["items"].as_array().unwrap().len();
    assert_eq!(task.iter().map(items).collect::<Vec<_>>(), [0, 7, 1, 7]);
    assert_eq!(task, table);
}

/// The first and the last epoch of a run are observed in part: reports say so, and nothing compares them.
#[test]
fn epochs_that_were_observed_in_part_say_so_and_are_not_compared() {
    let mut pcap = Pcap::new();
    // From 4 s to 33 s, ten packets a second.
    for tenth in 40..331 {
        pcap.udp(1_700_000_000 * SECOND_NS + tenth * SECOND_NS / 10, (1, 2), (3, 4));
    }
    let config =
        Config { epoch: EpochLength::Time(10_000_000_000), ..asking(&["changes", "cardinality"]) };
    let (lines, _) = run(config, &pcap.0);
    let epochs = &lines[..lines.len() - 1];
    let coverage: Vec<_> = epochs.iter().map(|epoch| epoch["coverage"].as_f64().unwrap()).collect();
    assert_eq!(coverage, [0.6, 1.0, 1.0, 0.3]);
    let compared: Vec<_> =
        epochs.iter().map(|epoch| epoch["tasks"].get("changes").is_some()).collect();
    assert_eq!(compared, [false, true, true, false]);
    // Half an epoch at the beginning gives no forecast, and half of one at the end is not a fall.
    assert_eq!(epochs[1]["tasks"]["changes"]["threshold"], serde_json::Value::Null);
    assert_eq!(epochs[2]["tasks"]["changes"]["items"].as_array().unwrap().len(), 0);
    let note = epochs[3]["notes"].to_string();
    assert!(note.contains("only 30.0 % of this epoch was observed"), "{note}");
}

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
    // The clock was set, or the machine slept.
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
fn epochs_end_by_the_clock_and_losses_are_reported() {
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
