//! Datagrams of all formats: valid ones, and others that are cut short, contradict themselves, or
//! demand too much.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod datagrams;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use datagrams::{
    Bytes, FIELDS4, FIELDS6, Flow, Sample, every, flow4, flow6, ipfix, netflow5, netflow9, records,
    sflow, template,
};
use flowgauge_core::packet::{Headers, LinkType, Ports, parse};
use flowgauge_records::{Collector, Count, EXPORTERS, MOST_PACKETS};
use proptest::prelude::*;

const ROUTER: SocketAddr =
    SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 254)), 2055);

/// Addresses, ports, protocol, packets and bytes of a record lent out.
type Row = ([IpAddr; 2], [u16; 2], u8, u64, u64);

fn row(flow: &Flow, one_in: u64) -> Row {
    let [packets, bytes] = [flow.packets, flow.bytes].map(|count| u64::from(count) * one_in);
    ([flow.source, flow.destination], flow.ports, flow.protocol, packets, bytes)
}

fn rows(flows: &[Flow], one_in: u64) -> Vec<Row> {
    flows.iter().map(|flow| row(flow, one_in)).collect()
}

/// The records that the collector lends out, read by the engine's parser.
fn lent(collector: &Collector) -> Vec<Row> {
    let lent = collector.lent().map(|lent| {
        let (addresses, protocol, ports): ([IpAddr; 2], _, _) = match parse(lent.link, lent.frame) {
            Headers::V4(ip) => {
                let half = |at: usize| <[u8; 4]>::try_from(&ip.addresses[at..at + 4]).unwrap();
                ([half(0).into(), half(4).into()], ip.protocol, ip.ports)
            }
            Headers::V6(ip) => {
                let half = |at: usize| <[u8; 16]>::try_from(&ip.addresses[at..at + 16]).unwrap();
                ([half(0).into(), half(16).into()], ip.protocol, ip.ports)
            }
            other => panic!("{other:?}"),
        };
        let ports = match ports {
            Ports::Found(ports) => [(ports >> 16) as u16, ports as u16],
            _ => [0; 2],
        };
        let bytes = lent.packets * u64::from(lent.wire) + lent.longer;
        (addresses, ports, protocol, lent.packets, bytes)
    });
    lent.collect()
}

fn count(collector: &Collector, count: Count) -> u64 {
    collector.total().get(count)
}

#[test]
fn netflow_5_has_the_rate_in_its_header() {
    let flows: Vec<_> = (0..30).map(flow4).collect();
    let mut collector = Collector::new(None);
    for (sampling, one_in) in [(0, 1), (100, 100), (0x4064, 100)] {
        collector.take(ROUTER, &netflow5(0, sampling, &flows));
        assert_eq!(lent(&collector), rows(&flows, one_in));
    }
    let mut collector = Collector::new(Some(7));
    collector.take(ROUTER, &netflow5(0, 100, &flows));
    assert_eq!(lent(&collector), rows(&flows, 7));
}

#[test]
fn records_count_once_their_template_is_known() {
    for (message, templates) in [(netflow9 as fn(u32, u32, &Bytes) -> Vec<u8>, 0), (ipfix, 2)] {
        let (flows4, flows6): (Vec<_>, Vec<_>) = (0..9).map(|n| (flow4(n), flow6(n))).unzip();
        let mut collector = Collector::new(None);
        let data = Bytes::default().set(256, &records(&flows4)).set(257, &records(&flows6));
        collector.take(ROUTER, &message(0, 1, &data));
        assert_eq!(lent(&collector), []);
        assert_eq!(count(&collector, Count::UnknownTemplate), 2);
        let both = template(256, &FIELDS4).put(&template(257, &FIELDS6).0);
        collector.take(ROUTER, &message(1, 1, &Bytes::default().set(templates, &both)));
        collector.take(ROUTER, &message(2, 1, &data));
        assert_eq!(lent(&collector), [rows(&flows4, 1), rows(&flows6, 1)].concat());
        // Templates are valid only for their exporter, port and domain.
        collector.take(ROUTER, &message(0, 2, &data));
        for other in [([192, 0, 2, 253], 2055), ([192, 0, 2, 254], 2056)] {
            collector.take(other.into(), &message(0, 1, &data));
        }
        assert_eq!(count(&collector, Count::UnknownTemplate), 8);
        assert_eq!(count(&collector, Count::Malformed), 0);
        // A template replaces the one with the same number.
        let other = Bytes::default().set(templates, &template(256, &FIELDS6));
        collector.take(ROUTER, &message(3, 1, &other.set(256, &records(&flows6))));
        assert_eq!(lent(&collector), rows(&flows6, 1));
    }
}

/// Templates, sequence numbers and sampling rates are those of a port.
#[test]
fn two_processes_of_one_host_do_not_mix() {
    for (message, templates) in [(netflow9 as fn(u32, u32, &Bytes) -> Vec<u8>, 0), (ipfix, 2)] {
        let processes = [(2055, 0, &FIELDS4, flow4(1)), (2056, 500_000, &FIELDS6, flow6(1))];
        let mut collector = Collector::new(None);
        for (port, sequence, fields, _) in processes {
            let sets = Bytes::default().set(templates, &template(256, fields));
            collector.take(SocketAddr::new(ROUTER.ip(), port), &message(sequence, 0, &sets));
        }
        for (port, sequence, _, flow) in processes {
            // A template is no record, which IPFIX counts.
            let sequence = sequence + u32::from(templates == 0);
            let data = Bytes::default().set(256, &records(&[flow]));
            collector.take(SocketAddr::new(ROUTER.ip(), port), &message(sequence, 0, &data));
            assert_eq!(lent(&collector), [row(&flow, 1)]);
        }
        let lost = [Count::LostDatagrams, Count::LostRecords, Count::Restarts];
        assert_eq!(lost.map(|of| count(&collector, of)), [0; 3]);
        assert_eq!(collector.accounts().count(), 1);
    }
}

/// Its records count again with the first template after its ports were too many.
#[test]
fn an_exporter_may_change_its_port_with_each_datagram() {
    let mut collector = Collector::new(None);
    let known = Bytes::default().set(2, &template(256, &FIELDS4));
    let data = Bytes::default().set(256, &records(&[flow4(1)]));
    for port in 5000..5100 {
        let sets = if port % 10 == 0 { &known } else { &data };
        collector.take(SocketAddr::new(ROUTER.ip(), port), &ipfix(0, 1, sets));
    }
    // Those of 64 ports are lost, and those before the template of port 5070.
    assert_eq!(count(&collector, Count::Records), 27);
    assert_eq!(count(&collector, Count::UnknownTemplate), 63);
}

#[test]
fn sflow_agents_behind_a_relay_do_not_mix() {
    let mut collector = Collector::new(None);
    for sequence in 0..3 {
        for (agent, begin) in [(200, 0), (201, 700_000)] {
            let mut datagram = sflow(begin + sequence, &[]);
            // The last byte of the agent's address.
            datagram[11] = agent;
            collector.take(ROUTER, &datagram);
        }
    }
    let lost = [Count::LostDatagrams, Count::Restarts];
    assert_eq!(lost.map(|of| count(&collector, of)), [0; 2]);
    let mut late = sflow(700_005, &[]);
    late[11] = 201;
    collector.take(ROUTER, &late);
    assert_eq!(count(&collector, Count::LostDatagrams), 2);
}

/// RFC 7011, 8.4.
#[test]
fn withdrawals_over_udp_are_ignored() {
    let data = Bytes::default().set(256, &records(&[flow4(1)]));
    let mut collector = Collector::new(None);
    let known = Bytes::default().set(2, &template(256, &FIELDS4));
    collector.take(ROUTER, &ipfix(0, 1, &known));
    // The last one is padding.
    for (set, withdrawn) in [(2, 256), (2, 2), (3, 3), (2, 0)] {
        let sets = Bytes::default().set(set, &template(withdrawn, &[]));
        collector.take(ROUTER, &ipfix(0, 1, &sets));
    }
    collector.take(ROUTER, &ipfix(0, 1, &data));
    assert_eq!(lent(&collector).len(), 1);
    assert_eq!(count(&collector, Count::RefusedTemplates), 0);
}

#[test]
fn a_refused_template_replaces_the_one_before() {
    let too_long = [(82, 1); 513];
    for (message, templates) in [(netflow9 as fn(u32, u32, &Bytes) -> Vec<u8>, 0), (ipfix, 2)] {
        let mut collector = Collector::new(None);
        for fields in [&FIELDS4[..], &too_long] {
            let sets = Bytes::default().set(templates, &template(256, fields));
            collector.take(ROUTER, &message(0, 1, &sets));
        }
        assert_eq!(count(&collector, Count::RefusedTemplates), 1);
        let data = Bytes::default().set(256, &records(&[flow4(1)]).put(&[0; 513]));
        collector.take(ROUTER, &message(1, 1, &data));
        assert_eq!(lent(&collector), []);
        assert_eq!(count(&collector, Count::UnknownTemplate), 1);
    }
}

#[test]
fn options_give_the_interval_of_each_sampler() {
    // Records have one more byte for their sampler.
    let fields: Vec<_> = FIELDS4.into_iter().chain([(48, 1)]).collect();
    let with = |sampler: u8| records(&[flow4(3)]).u8(sampler);
    let options = Bytes::default().u16(300).u16(4).u16(8).u16(1).u16(4).u16(48).u16(1);
    let options = options.u16(50).u16(4);
    let rates = [(1u8, 100u32), (2, 2000)]
        .into_iter()
        .fold(Bytes::default(), |bytes, (id, rate)| bytes.u32(0).u8(id).u32(rate));
    let mut collector = Collector::new(None);
    let head = Bytes::default().set(0, &template(256, &fields)).set(1, &options);
    collector.take(ROUTER, &netflow9(0, 9, &head));
    let packets = |collector: &mut Collector, sampler| {
        collector.take(ROUTER, &netflow9(1, 9, &Bytes::default().set(256, &with(sampler))));
        lent(collector)[0].3
    };
    // No template is known yet.
    assert_eq!(packets(&mut collector, 1), u64::from(flow4(3).packets));
    collector.take(ROUTER, &netflow9(2, 9, &Bytes::default().set(300, &rates)));
    assert_eq!(count(&collector, Count::UnknownRate), 1);
    for (sampler, one_in) in [(1, 100), (2, 2000), (3, 1), (0, 1)] {
        assert_eq!(packets(&mut collector, sampler), u64::from(flow4(3).packets) * one_in);
    }
    // Of sampler 3. None is of sampler 0.
    assert_eq!(count(&collector, Count::UnknownRate), 2);
}

/// In both formats: the scope "interface" of NetFlow 9 is the element 10 of IPFIX.
#[test]
fn options_of_an_interface_are_for_its_records() {
    let fields: Vec<_> = FIELDS4.into_iter().chain([(10, 2)]).collect();
    let data = [1, 2, 3].into_iter().fold(Bytes::default(), |bytes, interface| {
        bytes.put(&records(&[flow4(3)]).0).u16(interface)
    });
    let options9 = Bytes::default().u16(300).u16(4).u16(4).u16(2).u16(4).u16(34).u16(4);
    let options10 = Bytes::default().u16(300).u16(2).u16(1).u16(10).u16(4).u16(34).u16(4);
    let rates = Bytes::default().u32(1).u32(100).u32(2).u32(2000);
    let of9 = (netflow9 as fn(u32, u32, &Bytes) -> Vec<u8>, 0, options9);
    for (message, templates, options) in [of9, (ipfix, 2, options10)] {
        let mut collector = Collector::new(None);
        let sets = Bytes::default().set(templates, &template(256, &fields));
        let sets = sets.set(templates + 1, &options).set(300, &rates).set(256, &data);
        collector.take(ROUTER, &message(0, 1, &sets));
        let one_in = [100, 2000, 1];
        assert_eq!(lent(&collector), one_in.map(|one_in| row(&flow4(3), one_in)));
    }
}

#[test]
fn a_biflow_is_two_flows() {
    let template = Bytes::default().u16(256).u16(6).u16(8).u16(4).u16(12).u16(4).u16(2).u16(4);
    let template = template.u16(1).u16(4).u16(0x8002).u16(4).u32(29305);
    let template = template.u16(0x8001).u16(4).u32(29305);
    let data = Bytes::default().put(&[10, 0, 0, 1, 10, 0, 0, 2]).u32(3).u32(300).u32(5).u32(700);
    let mut collector = Collector::new(Some(10));
    collector.take(ROUTER, &ipfix(0, 1, &Bytes::default().set(2, &template).set(256, &data)));
    let [one, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
    let expected = [([one, other], [0; 2], 0, 30, 3000), ([other, one], [0; 2], 0, 50, 7000)];
    assert_eq!(lent(&collector), expected);
}

#[test]
fn samples_of_sflow_are_frames() {
    let udp = [0, 53, 0, 54, 0, 8, 0, 0];
    let ip = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let packet = [&ip[..], &udp].concat();
    let frame = [&[0; 12][..], &[8, 0], &packet].concat();
    let sample = Sample { expanded: false, one_in: 400, kind: 1, wire: 1514, header: &frame };
    let samples = [
        sample,
        Sample { expanded: true, one_in: 1, ..sample },
        Sample { kind: 11, header: &packet, ..sample },
        Sample { kind: 2, ..sample },
        Sample { one_in: 0, ..sample },
    ];
    let mut collector = Collector::new(None);
    collector.take(ROUTER, &sflow(1, &samples));
    let addresses = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
    let of = |packets| (addresses, [53, 54], 17, packets, 1514 * packets);
    assert_eq!(lent(&collector), [of(400), of(1), of(400), of(1)]);
    let links: Vec<_> = collector.lent().map(|lent| lent.link).collect();
    assert_eq!(links[1..3], [LinkType::ETHERNET, LinkType::IPV4]);
    assert_eq!(collector.lent().next().unwrap().frame, frame);
    assert_eq!(count(&collector, Count::NoHeader), 1);
    assert_eq!(count(&collector, Count::Malformed), 0);
    collector.take(ROUTER, &sflow(5, &[]));
    assert_eq!(count(&collector, Count::LostDatagrams), 3);
}

#[test]
fn each_exporter_has_an_account() {
    let mut collector = Collector::new(None);
    let flows: Vec<_> = (0..10).map(flow4).collect();
    let mapped = (Ipv4Addr::new(192, 0, 2, 254).to_ipv6_mapped(), 2055).into();
    let other = SocketAddr::from(([192, 0, 2, 1], 2055));
    collector.take(ROUTER, &netflow5(0, 0, &flows));
    collector.take(mapped, &netflow5(15, 0, &flows));
    collector.take(other, &netflow5(0, 0, &flows)[..24 + 48 * 4]);
    collector.take(other, b"hello");
    collector.take(other, &[]);
    let accounts: Vec<_> = {
        let mut accounts: Vec<_> = collector.accounts().collect();
        accounts.sort_by_key(|(address, _)| *address);
        let counts = [
            Count::Datagrams,
            Count::Records,
            Count::LostRecords,
            Count::Malformed,
            Count::UnknownVersion,
        ];
        accounts.iter().map(|(at, of)| (*at, counts.map(|count| of.get(count)))).collect()
    };
    assert_eq!(accounts, [(other.ip(), [3, 4, 0, 1, 2]), (ROUTER.ip(), [2, 20, 5, 0, 0])]);
    assert_eq!(count(&collector, Count::Records), 24);
    let packets: u64 = flows.iter().map(|flow| u64::from(flow.packets)).sum();
    let four: u64 = flows[..4].iter().map(|flow| u64::from(flow.packets)).sum();
    assert_eq!(count(&collector, Count::Packets), 2 * packets + four);
}

// Datagrams that are cut short, contradict themselves, or demand too much.

/// Checks the invariants after any datagram.
fn check(collector: &Collector) {
    for lent in collector.lent() {
        assert!((1..=MOST_PACKETS).contains(&lent.packets));
        assert!(lent.longer < lent.packets);
    }
    assert!(collector.accounts().count() <= EXPORTERS);
    let sum = |of: Count| collector.accounts().map(|(_, account)| account.get(of)).sum::<u64>();
    if count(collector, Count::ForgottenExporters) == 0 {
        for of in [Count::Datagrams, Count::Records, Count::Malformed, Count::UnknownTemplate] {
            assert_eq!(sum(of), count(collector, of));
        }
    }
}

#[test]
fn valid_datagrams_are_read_completely() {
    let mut collector = Collector::new(None);
    for datagram in every() {
        collector.take(ROUTER, &datagram);
        check(&collector);
    }
    let refused = [
        Count::Malformed,
        Count::UnknownVersion,
        Count::UnknownTemplate,
        Count::NoFlow,
        Count::NoHeader,
        Count::TooLarge,
        Count::LostDatagrams,
        Count::LostRecords,
        Count::Restarts,
        Count::RefusedTemplates,
    ];
    assert_eq!(refused.map(|of| count(&collector, of)), [0; 10]);
    // Each direction of a record counts.
    assert_eq!(count(&collector, Count::Records), 20 + 20 + 20 + 1 + 2 + 2 + 1);
}

/// No prefix of a datagram has more records than the whole, and a cut IPFIX message counts as
/// damaged.
#[test]
fn every_prefix_of_a_datagram_is_read_and_counted() {
    let all = every();
    for (at, datagram) in all.iter().enumerate() {
        let mut last = 0;
        for len in 0..=datagram.len() {
            let mut collector = Collector::new(None);
            all[..at].iter().for_each(|before| collector.take(ROUTER, before));
            let before = count(&collector, Count::Records);
            collector.take(ROUTER, &datagram[..len]);
            check(&collector);
            let records = count(&collector, Count::Records) - before;
            assert!(records >= last, "{at}: {len}");
            last = records;
            if datagram[1] == 10 && len < datagram.len() {
                let bad = [Count::Malformed, Count::UnknownVersion];
                assert_eq!(bad.map(|of| count(&collector, of)).iter().sum::<u64>(), 1);
            }
        }
    }
}

#[test]
fn an_empty_template_is_refused() {
    for datagram in [
        netflow9(0, 1, &Bytes::default().set(0, &template(256, &[(8, 0), (12, 0)]))),
        ipfix(0, 1, &Bytes::default().set(2, &template(256, &[(8, 0), (12, 0)]))),
        ipfix(0, 1, &Bytes::default().set(2, &template(255, &FIELDS4))),
    ] {
        let mut collector = Collector::new(None);
        collector.take(ROUTER, &datagram);
        assert_eq!(count(&collector, Count::RefusedTemplates), 1);
        assert_eq!(count(&collector, Count::Malformed), 0);
    }
}

#[test]
fn floods_of_templates_and_exporters_keep_the_latest() {
    let mut collector = Collector::new(None);
    let fields: Vec<_> = FIELDS4.into_iter().chain([(82, 1); 300]).collect();
    for number in 256..4000 {
        let set = Bytes::default().set(2, &template(number, &fields));
        collector.take(ROUTER, &ipfix(0, u32::from(number % 97), &set));
    }
    assert!(count(&collector, Count::RefusedTemplates) > 3000);
    let data = records(&[flow4(1)]).put(&[0; 300]);
    collector.take(ROUTER, &ipfix(0, 3999 % 97, &Bytes::default().set(3999, &data)));
    assert_eq!(collector.lent().count(), 1);
    for number in 0..3 * EXPORTERS as u32 {
        let from = (Ipv4Addr::from_bits(0x0a00_0000 + number), 2055).into();
        collector.take(from, &ipfix(0, 1, &Bytes::default()));
    }
    check(&collector);
    assert_eq!(collector.accounts().count(), EXPORTERS);
    assert_eq!(count(&collector, Count::ForgottenExporters), 2 * EXPORTERS as u64 + 1);
}

#[test]
fn counts_beyond_the_datagram_are_malformed() {
    for (datagram, records) in [
        ([&[0, 5, 255, 255][..], &[0; 20 + 48]].concat(), 0),
        ([&[0, 0, 0, 5, 0, 0, 0, 1][..], &[0; 16], &[255; 4]].concat(), 0),
        (ipfix(0, 1, &Bytes::default().u16(2).u16(3)), 0),
        (ipfix(0, 1, &Bytes::default().u16(2).u16(65535)), 0),
        (ipfix(0, 1, &Bytes::default().set(2, &Bytes::default().u16(256).u16(65535))), 0),
        (vec![0, 10, 0, 15], 0),
        (vec![0, 9], 0),
    ] {
        let mut collector = Collector::new(None);
        collector.take(ROUTER, &datagram);
        assert_eq!(count(&collector, Count::Malformed), 1, "{datagram:?}");
        assert_eq!(count(&collector, Count::Records), records);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Arbitrary datagrams from a few exporters, after valid templates.
    #[test]
    fn arbitrary_datagrams_keep_the_invariants(
        datagrams in proptest::collection::vec(
            (0u8..3, 0usize..10, proptest::collection::vec((any::<u16>(), any::<u8>()), 0..12),
             proptest::collection::vec(any::<u8>(), 0..40)),
            1..20,
        )
    ) {
        let every = every();
        let mut collector = Collector::new(None);
        for (from, which, changes, more) in datagrams {
            let mut datagram = every[which].clone();
            for (at, byte) in changes {
                let len = datagram.len();
                // The version stays valid, so that most datagrams are read.
                datagram[2 + usize::from(at) % (len - 2)] = byte;
            }
            datagram.extend(more);
            collector.take(([10, 0, 0, from / 2], 2055 + u16::from(from % 2)).into(), &datagram);
            check(&collector);
        }
    }
}
