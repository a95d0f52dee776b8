//! Findings of a table that lacks dropped packets.

use flowgauge_core::key::KeyKind;
use flowgauge_core::packet::Tunnels;
use flowgauge_core::task::{EpochContext, Report};
use flowgauge_core::terms::{Measure, Size, Threshold};
use flowgauge_core::timeline::Timeline;

use super::support::{Case, Table, build, options};

/// One of 1,024 flows has half of the packets, so that flows are not even; two of three packets
/// were dropped.
#[test]
fn dropped_packets_do_not_make_flows_even() {
    let flow = |number: u16| {
        let mut key = vec![0; 13];
        key[..2].copy_from_slice(&number.to_be_bytes());
        let packets = if number == 0 { 1024 } else { 1 };
        (key, Size { packets, bytes: 64 * packets })
    };
    let table = Table { flows: (0..1024).map(flow).collect(), ..Table::default() };
    for by in [Measure::Packets, Measure::Bytes] {
        let case = Case {
            key: KeyKind::FIVE_TUPLE.into(),
            tables: vec![(13, table.clone())],
            by,
            threshold: Threshold::Share(0.01),
            top: 10,
        };
        let timeline = Timeline::new(case.key, Tunnels::Outer, 1);
        let measured = case.context().keyed;
        let keyed = Size { packets: 3 * measured.packets, bytes: 3 * measured.bytes };
        let epoch = EpochContext { keyed, timeline: Some(&timeline), ..case.context() };
        let mut task = build("findings", &options());
        let mut scratch = vec![0; task.scratch_bytes(1024).div_ceil(8)];
        let report = task.run(&epoch, &case.lanes(), &mut scratch).unwrap();
        assert_eq!(report, Report::Findings { items: Vec::new(), truncated: 0 });
    }
}
