//! Datagrams that are cut short, contradict themselves, or demand too much.

use std::net::{IpAddr, Ipv4Addr};

use flowgauge_records::{Collector, Count, EXPORTERS, MOST_PACKETS};
use proptest::prelude::*;

use super::datagrams::{Bytes, FIELDS4, every, flow4, ipfix, netflow9, records, template};
use super::{ROUTER, count};

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
        let from = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number));
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
            collector.take(IpAddr::from([10, 0, 0, from]), &datagram);
            check(&collector);
        }
    }
}
