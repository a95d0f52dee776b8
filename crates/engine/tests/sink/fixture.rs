//! Reports to render: a plausible one, one whose every item is as wide as it can be, and an empty
//! one.

use std::net::{IpAddr, Ipv6Addr};

use flowgauge_core::audit::Observed;
use flowgauge_core::key::{CanonicalKey, KeyKind, KeySpec};
use flowgauge_core::packet::{Fault, Layer, Malformed, NoKey};
use flowgauge_core::summary::{Estimate, QuantileOf, Seen, Setting, SizeEstimate};
use flowgauge_core::task::{
    AddressItem, ChangeItem, Finding, FindingKind, HierarchyItem, Report, Selection, Side,
    SizeItem, SpreadItem,
};
use flowgauge_core::terms::{Measure, Size, SpreadOf};
use flowgauge_core::timeline::Series;
use flowgauge_engine::account::Account;
use flowgauge_engine::report::{
    Audit, Breakdown, EpochReport, Gap, LeftOut, Network, SummaryInfo, TotalReport,
};
use flowgauge_engine::source::{Counter, CounterKind};
use flowgauge_kernel::SeedId;

use super::widest_value;

const START_NS: i64 = 1_459_947_600_000_000_000;

pub(crate) fn five_tuple(
    source: &str,
    sport: u16,
    destination: &str,
    dport: u16,
    protocol: u8,
) -> CanonicalKey {
    let mut bytes = address(source).as_bytes().to_vec();
    bytes.extend(address(destination).as_bytes());
    bytes.extend(sport.to_be_bytes());
    bytes.extend(dport.to_be_bytes());
    bytes.push(protocol);
    CanonicalKey::new(&bytes)
}

pub(crate) fn address(text: &str) -> CanonicalKey {
    match text.parse().unwrap() {
        IpAddr::V4(v4) => CanonicalKey::new(&v4.octets()),
        IpAddr::V6(v6) => CanonicalKey::new(&v6.octets()),
    }
}

fn account() -> Account {
    let mut account = Account {
        read: 61_234,
        filtered: 1_000,
        keyed: 60_002,
        keyed_bytes: 34_512_345,
        untracked: Size { packets: 12, bytes: 12_345 },
        late: 3,
        ..Account::default()
    };
    for _ in 0..150 {
        account.malformed += 1;
        account.reasons.count_malformed(Malformed {
            layer: Layer::Transport,
            offset: 34,
            fault: Fault::Cut,
        });
    }
    for _ in 0..40 {
        let fault = Fault::Contradiction;
        account.malformed += 1;
        account.reasons.count_malformed(Malformed { layer: Layer::Ipv4, offset: 14, fault });
    }
    for (reason, count) in [(NoKey::Arp, 35), (NoKey::Llc, 7)] {
        for _ in 0..count {
            {
                account.no_key += 1;
                account.reasons.count_no_key(reason);
            };
        }
    }
    account
}

fn flows() -> Vec<SizeItem> {
    [
        (five_tuple("192.0.2.17", 443, "198.51.100.230", 51_234, 6), 18_210, 22_345_678),
        (five_tuple("198.51.100.230", 51_234, "192.0.2.17", 443, 6), 9_004, 540_240),
        (five_tuple("2001:db8::17", 53_111, "2001:db8:0:1::53", 53, 17), 512, 61_440),
        (five_tuple("203.0.113.9", 0, "192.0.2.1", 0, 1), 98, 9_604),
    ]
    .into_iter()
    .map(|(key, packets, bytes)| SizeItem {
        key,
        size: SizeEstimate::exact(Size { packets, bytes }),
        share: packets as f64 / 60_002.0,
        seen: None,
    })
    .collect()
}

/// A minute in which the packets a second rise to 60.
fn series() -> Series {
    let mut series = Series::default();
    for second in 0..60_i64 {
        let times_ns = vec![START_NS + second * 1_000_000_000; second as usize + 1];
        series.add(&times_ns, &vec![64; times_ns.len()]);
    }
    series
}

/// A finding of each kind.
fn findings(
    source: &CanonicalKey,
    destination: &CanonicalKey,
    estimate: impl Fn(f64) -> Estimate,
) -> Report {
    let size =
        SizeEstimate { packets: Some(estimate(31_234.0)), bytes: Some(estimate(1_999_000.0)) };
    let finding = |(_, kind): &(_, FindingKind)| {
        use FindingKind as Kind;
        let about = |kinds: &[Kind]| kinds.contains(kind);
        let of_source = [Kind::HostScan, Kind::PortScan, Kind::Source, Kind::Rise];
        let of_destination =
            [Kind::Flood, Kind::Reflection, Kind::PortScan, Kind::Destination, Kind::Rise];
        let of_all = [Kind::SmallPackets, Kind::Protocol, Kind::Service];
        let is_rate = about(&[Kind::Rise, Kind::Fall]);
        let is_entropy = about(&[Kind::EvenFlows, Kind::FewFlows]);
        let has_size = !is_entropy && !about(&of_all);
        Finding {
            source: about(&of_source).then_some(*source),
            destination: about(&of_destination).then_some(*destination),
            protocol: (!is_rate && !is_entropy).then_some(if *kind == Kind::Reflection {
                17
            } else {
                6
            }),
            port: about(&[Kind::Flood, Kind::HostScan, Kind::Service]).then_some(445),
            size: if has_size { size } else { SizeEstimate::default() },
            share: 0.52,
            peers: (!is_rate && !about(&of_all)).then(|| estimate(4_200.0)),
            span_ns: has_size.then_some((START_NS, START_NS + 12_000_000_000)),
            span_is_exact: *kind == Kind::HostScan,
            flags: about(&[Kind::Flood, Kind::HostScan]).then_some(2),
            usual: (is_rate || is_entropy || *kind == Kind::SmallPackets).then_some((100.0, 420.5)),
            ..Finding::new(*kind)
        }
    };
    Report::Findings { items: FindingKind::ALL.iter().map(finding).collect(), truncated: 3 }
}

/// The addresses with the most traffic, if that is one.
fn addresses(side: Side, address: &CanonicalKey, estimate: impl Fn(u64) -> Estimate) -> Report {
    let size = SizeEstimate { packets: Some(estimate(18_210)), bytes: Some(estimate(22_345_678)) };
    let item = AddressItem { address: *address, size, flows: 1_234, share: 0.303 };
    Report::Addresses { side, items: vec![item], truncated: 0 }
}

/// An epoch as it comes from an ordinary capture with the default tasks.
pub(crate) fn plausible() -> EpochReport {
    let items = flows();
    EpochReport {
        measurement: "main".into(),
        run: None,
        update: false,
        epoch: 0,
        start_ns: Some(START_NS),
        end_ns: Some(START_NS + 59_990_123_456),
        coverage: 1.0,
        missing: 0,
        key: KeyKind::FIVE_TUPLE.into(),
        by: Measure::Packets,
        seed: SeedId::Random(0x9f86_d081_884c_7d65),
        account: account(),
        traffic: None,
        summary: SummaryInfo {
            algorithm: "linear-table",
            accelerator: "none".to_owned(),
            memory_bytes: 256 << 20,
            parameters: vec![("slots".to_owned(), Setting::Integer(4_194_304))],
        },
        tasks: vec![
            (
                "top",
                Report::Sizes {
                    selection: Selection::Largest,
                    items: items.clone(),
                    truncated: 0,
                    complete_to: 9,
                },
            ),
            (
                "heavy-hitters",
                Report::Sizes {
                    selection: Selection::Over(60.002),
                    items,
                    truncated: 0,
                    complete_to: 9,
                },
            ),
            (
                "superspreaders",
                Report::Spread {
                    side: Side::Source,
                    of: SpreadOf::Address,
                    threshold: 128,
                    items: vec![
                        SpreadItem {
                            address: address("203.0.113.9"),
                            distinct: Estimate::exact(2_345),
                        },
                        SpreadItem {
                            address: address("2001:db8::17"),
                            distinct: Estimate::exact(129),
                        },
                    ],
                    truncated: 0,
                },
            ),
            (
                "cardinality",
                Report::Cardinality { flows: Estimate::between(4_321.0, 4_321.0, 4_333.0) },
            ),
            ("entropy", Report::Entropy { bits: Estimate::exact(5), normalized: 0.4139 }),
            ("size-distribution", Report::SizeDistribution { bins: bins() }),
        ],
        audit: None,
        breakdown: Some(Breakdown {
            protocols: vec![
                (6, Size { packets: 50_000, bytes: 33_000_000 }),
                (17, Size { packets: 9_900, bytes: 1_500_000 }),
                (1, Size { packets: 98, bytes: 9_604 }),
                (253, Size { packets: 4, bytes: 2_741 }),
            ],
            ports: vec![
                (6, 443, Size { packets: 44_000, bytes: 31_000_000 }),
                (17, 53, Size { packets: 9_000, bytes: 1_400_000 }),
                (6, 49_152, Size { packets: 17, bytes: 2_345 }),
            ],
            untracked: Size { packets: 12, bytes: 12_345 },
        }),
        series: None,
        network: None,
        notes: vec![
            "12 packets belong to flows that found no room; --memory gives them some".to_owned(),
        ],
        undelivered: 0,
    }
}

fn bins() -> Vec<(u64, Estimate)> {
    [(1, 2_900), (2, 611), (3, 209), (5, 180), (7, 2), (12, 300), (98, 100), (512, 17), (18_210, 2)]
        .map(|(size, flows)| (size, Estimate::exact(flows)))
        .to_vec()
}

/// The tasks that are not asked by default.
#[expect(clippy::too_many_lines, reason = "a report of every task, one after the other")]
pub(crate) fn all_tasks() -> EpochReport {
    let mut report = plausible();
    let items = flows();
    let estimate = |value: f64| Estimate {
        value,
        low: value * 0.97,
        high: value * 1.03,
        confidence: Some(0.95),
    };
    report.epoch = 7;
    report.notes.clear();
    report.breakdown = None;
    report.series = Some(Box::new(series()));
    let change = |item: &SizeItem, before: f64, now: f64| ChangeItem {
        key: item.key,
        before: Estimate { value: before, low: before, high: before, confidence: None },
        forecast: estimate(before),
        now: estimate(now),
    };
    report.tasks = vec![
        (
            "findings",
            findings(&address("203.0.113.9"), &address("192.0.2.17"), |value| {
                Estimate::exact(value as u64)
            }),
        ),
        ("top-sources", addresses(Side::Source, &address("203.0.113.9"), Estimate::exact)),
        (
            "top-destinations",
            addresses(Side::Destination, &address("2001:db8::17"), |value| estimate(value as f64)),
        ),
        (
            "heavy-hitters",
            Report::Sizes {
                selection: Selection::Over(60.002),
                items: items
                    .iter()
                    .map(|item| SizeItem {
                        size: SizeEstimate {
                            packets: item.size.packets.map(|size| estimate(size.value)),
                            bytes: None,
                        },
                        ..item.clone()
                    })
                    .collect(),
                truncated: 0,
                complete_to: 9,
            },
        ),
        (
            "flow-size",
            Report::Sizes {
                selection: Selection::Asked,
                items: items[2..].to_vec(),
                truncated: 0,
                complete_to: 9,
            },
        ),
        (
            "victims",
            Report::Spread {
                side: Side::Destination,
                of: SpreadOf::Address,
                threshold: 128,
                items: vec![SpreadItem {
                    address: address("192.0.2.1"),
                    distinct: estimate(70_000.0),
                }],
                truncated: 0,
            },
        ),
        (
            "changes",
            Report::Changes {
                threshold: Some(60.002),
                items: vec![change(&items[0], 0.0, 18_210.0), change(&items[3], 12_098.0, 98.0)],
                truncated: 17,
                untracked: 2,
            },
        ),
        (
            "quantiles",
            Report::Quantiles {
                of: QuantileOf::FlowPackets,
                sizes: vec![
                    (0.5, Estimate::exact(1)),
                    (0.99, estimate(98.0)),
                    (1.0, Estimate::exact(18_210)),
                ],
                keys: vec![(0.5, items[1].key)],
            },
        ),
        (
            "hierarchical",
            Report::Hierarchical {
                threshold: 60.002,
                items: vec![
                    HierarchyItem {
                        source: address("192.0.2.17"),
                        source_bits: 32,
                        destination: None,
                        total: Estimate::exact(18_210),
                        discounted: Estimate::exact(18_210),
                    },
                    HierarchyItem {
                        source: address("192.0.0.0"),
                        source_bits: 8,
                        destination: None,
                        total: Estimate::exact(21_000),
                        discounted: Estimate::exact(2_790),
                    },
                ],
                truncated: 0,
            },
        ),
        ("entropy", Report::Entropy { bits: estimate(11.0), normalized: 0.91 }),
        ("cardinality", Report::Cardinality { flows: estimate(12_345.0) }),
    ];
    report
}

/// Keys with a name, and some without.
pub(crate) fn kinds() -> impl Iterator<Item = KeyKind> {
    let (source, port) = (KeyKind::SOURCE, KeyKind::DESTINATION_PORT);
    let unnamed = [
        source.with(port),
        source.with(KeyKind::PROTOCOL),
        KeyKind::DESTINATION.with(KeyKind::SOURCE_PORT),
        KeyKind::PAIR.with(port),
        port.with(KeyKind::SOURCE_PORT),
        port.with(KeyKind::SOURCE_PORT).with(KeyKind::PROTOCOL),
    ];
    KeyKind::NAMED.into_iter().map(|(_, kind)| kind).chain(unnamed)
}

/// An epoch of several million packets in which every item is as wide as it can be.
pub(crate) fn widest(kind: KeyKind, by: Measure) -> EpochReport {
    let far = Ipv6Addr::from(u128::MAX).to_string();
    let flow: Vec<_> =
        kind.fields().map(|field| format!("{}={}", field.name(), widest_value(field))).collect();
    let key = KeySpec::from(kind).parse_flow(&flow.join(",")).unwrap();
    let wide = |value: f64| Estimate {
        value,
        low: value / 2.0,
        high: f64::from(u32::MAX) * value,
        confidence: Some(0.999),
    };
    let huge = wide(99_999_999_999.0);
    let size = SizeEstimate { packets: Some(wide(888_888.0)), bytes: Some(huge) };
    let seen = Seen {
        first_ns: 1_000_000_000,
        last_ns: 86_400_000_000_000,
        tcp_flags: 0xff,
        back: Size { packets: 888_888, bytes: u64::MAX },
    };
    let items: Vec<_> =
        (0..1200).map(|_| SizeItem { key, size, share: 0.999_99, seen: Some(seen) }).collect();
    let address = address(&far);
    let spread = |side, threshold| Report::Spread {
        side,
        of: SpreadOf::Address,
        threshold,
        items: vec![SpreadItem { address, distinct: wide(888_888.0) }; 1200],
        truncated: u64::MAX - 1200,
    };
    let hierarchy = |destination| Report::Hierarchical {
        threshold: 1e18,
        items: vec![
            HierarchyItem {
                source: address,
                source_bits: 128,
                destination,
                total: huge,
                discounted: wide(-888_888.0),
            };
            3
        ],
        truncated: 0,
    };
    let change = ChangeItem { key, before: huge, forecast: wide(888_888.0), now: wide(-888_888.0) };
    let mut report = plausible();
    report.epoch = u64::MAX;
    (report.start_ns, report.end_ns) = (Some(i64::MIN), Some(i64::MAX));
    report.key = KeySpec::from(kind).with_prefixes(31, 127);
    report.by = by;
    report.summary.memory_bytes = usize::MAX;
    let sizes =
        |selection| Report::Sizes { selection, items: items.clone(), truncated: 0, complete_to: 9 };
    report.tasks = vec![
        ("findings", findings(&address, &address, wide)),
        ("top-sources", addresses(Side::Source, &address, |value| wide(value as f64))),
        ("top", sizes(Selection::Largest)),
        ("heavy-hitters", sizes(Selection::Over(f64::MAX))),
        ("flow-size", sizes(Selection::Asked)),
        ("superspreaders", spread(Side::Source, u64::MAX)),
        ("victims", spread(Side::Destination, 888_888)),
        (
            "changes",
            Report::Changes {
                threshold: Some(1.5),
                items: vec![change; 3],
                truncated: 0,
                untracked: u64::MAX,
            },
        ),
        ("cardinality", Report::Cardinality { flows: huge }),
        ("entropy", Report::Entropy { bits: wide(63.999_999), normalized: 0.999_999 }),
        ("size-distribution", Report::SizeDistribution { bins: vec![(0, huge), (u64::MAX, huge)] }),
        (
            "quantiles",
            Report::Quantiles {
                of: QuantileOf::FlowPackets,
                sizes: vec![(0.999_9, huge)],
                keys: vec![(0.5, key)],
            },
        ),
        ("hierarchical", hierarchy(None)),
        ("hierarchical", hierarchy(Some((address, 128)))),
    ];
    report.breakdown = Some(Breakdown {
        protocols: vec![(255, Size { packets: u64::MAX, bytes: u64::MAX })],
        ports: vec![(255, 65_535, Size { packets: 888_888, bytes: u64::MAX })],
        untracked: report.account.untracked,
    });
    report.account.keyed = u64::MAX;
    report.account.read = u64::MAX;
    for layer in [Layer::Link, Layer::Vlan, Layer::Mpls, Layer::Ipv6, Layer::Tunnel] {
        for fault in [Fault::Cut, Fault::Contradiction] {
            *report.account.reasons.malformed_mut(layer, fault) += 888_888;
        }
    }
    report.notes = vec!["long ".repeat(60), "x".repeat(1000)];
    report
}

/// An epoch with an audit of one flow in 64.
pub(crate) fn audited() -> EpochReport {
    let observed = Observed {
        flows: 68,
        weight: 940,
        error: 17.0,
        squares: 425.0,
        violated: 1,
        allowed: 2.0,
        untracked: Size { packets: 3, bytes: 1_234 },
    };
    EpochReport { audit: Some(Box::new(Audit { one_in: 64, observed })), ..plausible() }
}

/// A network-wide report, which two agents are not in.
pub(crate) fn network() -> EpochReport {
    let network = Network {
        id: "main/2016-04-06T13:00:00.000000000Z/98/0123456789abcdef".to_owned(),
        revision: 98,
        agents: 100,
        reported: 98,
        missing: vec!["edge-\u{1b}[7m".to_owned()],
        left_out: vec![LeftOut {
            agent: "edge-9".to_owned(),
            field: "seed",
            reason: "it has file 1, and most agents have file 2".to_owned(),
        }],
        late: vec![("edge-3".to_owned(), 2)],
    };
    EpochReport { network: Some(Box::new(network)), ..plausible() }
}

/// An update of the epoch that ends as [`plausible`].
pub(crate) fn update() -> EpochReport {
    let mut report = plausible();
    report.update = true;
    report.end_ns = Some(START_NS + 20_000_000_000);
    report
}

/// An epoch without a packet.
pub(crate) fn empty() -> EpochReport {
    let mut report = plausible();
    (report.start_ns, report.end_ns) = (None, None);
    report.account = Account::default();
    report.breakdown = Some(Breakdown::default());
    report.notes.clear();
    let sizes =
        |selection| Report::Sizes { selection, items: Vec::new(), truncated: 0, complete_to: 9 };
    let spread = |side| Report::Spread {
        side,
        of: SpreadOf::Address,
        threshold: 128,
        items: Vec::new(),
        truncated: 0,
    };
    report.tasks = vec![
        ("top", sizes(Selection::Largest)),
        ("heavy-hitters", sizes(Selection::Over(0.0))),
        ("superspreaders", spread(Side::Source)),
        ("victims", spread(Side::Destination)),
        (
            "changes",
            Report::Changes { threshold: None, items: Vec::new(), truncated: 0, untracked: 0 },
        ),
        ("cardinality", Report::Cardinality { flows: Estimate::exact(0) }),
        ("entropy", Report::Entropy { bits: Estimate::exact(0), normalized: 0.0 }),
        ("size-distribution", Report::SizeDistribution { bins: Vec::new() }),
        (
            "quantiles",
            Report::Quantiles { of: QuantileOf::FlowPackets, sizes: Vec::new(), keys: Vec::new() },
        ),
        ("hierarchical", Report::Hierarchical { threshold: 0.0, items: Vec::new(), truncated: 0 }),
    ];
    report
}

/// A run of empty epochs.
pub(crate) fn gap() -> Gap {
    Gap {
        measurement: "main".into(),
        run: None,
        epoch: 1,
        epochs: 6,
        start_ns: START_NS + 60_000_000_000,
        end_ns: START_NS + 420_000_000_000,
    }
}

/// The end of a run over these files.
pub(crate) fn total(files: &[&str], epochs: u64) -> TotalReport {
    TotalReport {
        measurement: "main".into(),
        run: None,
        files: files.iter().map(|file| (*file).to_owned()).collect(),
        epochs,
        start_ns: Some(START_NS),
        end_ns: Some(START_NS + 59_990_123_456),
        account: account(),
        traffic: None,
        irregular: 4,
        counters: vec![Counter { count: 61_234, ..Counter::new("received", CounterKind::Other) }],
        problems: vec![
            "cut.pcap: byte 1234: the record ends after 60 of 1500 captured bytes".to_owned(),
        ],
        notes: Vec::new(),
        undelivered: 0,
    }
}
