//! The page: as it should look, never too wide, and safe on a terminal.

use flowgauge_core::key::KeyKind;
use flowgauge_core::summary::{Estimate, QuantileOf, SizeEstimate};
use flowgauge_core::task::{Report, Selection, Side, SizeItem, SpreadItem};
use flowgauge_core::terms::{Measure, SpreadOf};
use flowgauge_engine::report::EpochReport;
use flowgauge_engine::sink::Text;
use flowgauge_engine::sink::layout::Look;

use crate::{Page, assert_golden, fixture, run};

fn rendered(rows: usize, write: impl FnOnce(&mut Page<Text>)) -> String {
    Page::rendered(Text { rows, look: Look::default() }, write)
}

fn rendered_as(look: Look, write: impl FnOnce(&mut Page<Text>)) -> String {
    Page::rendered(Text { rows: 10, look }, write)
}

#[test]
fn looks_as_it_should() {
    assert_golden("run.txt", &rendered(10, run));
    let single = rendered(2, |sink| {
        sink.epoch(&fixture::plausible()).unwrap();
        sink.total(&fixture::total(&["a.pcap"], 1)).unwrap();
    });
    assert_golden("single.txt", &single);
    assert_golden("empty.txt", &rendered(10, |sink| sink.epoch(&fixture::empty()).unwrap()));
}

#[test]
fn a_network_wide_report_says_of_how_many_agents_it_is() {
    let text = rendered(10, |sink| sink.epoch(&fixture::network()).unwrap());
    assert!(text.lines().any(|line| line == "98 of 100 agents"), "{text}");
}

#[test]
fn an_audit_says_how_far_sizes_are_off() {
    let text = rendered(10, |sink| sink.epoch(&fixture::audited()).unwrap());
    let at = text.find("Audit of 1 flow in 64").unwrap();
    let section: Vec<_> = text[at..].lines().skip(1).take(3).collect();
    assert_eq!(
        section,
        [
            "  compared with an exact count: 68 flows, 940 packets",
            "  error: +0.25 packets on average (bias), root mean square 2.50 packets",
            "  outside their bounds: 1.5 % of the flows (allowed: 2.9 %)",
        ]
    );
}

#[test]
fn an_update_says_so_and_counts_for_no_epoch() {
    let with = |updates: usize| {
        rendered(10, |sink| {
            (0..updates).for_each(|_| sink.epoch(&fixture::update()).unwrap());
            sink.epoch(&fixture::plausible()).unwrap();
            sink.total(&fixture::total(&["a.pcap"], 1)).unwrap();
        })
    };
    let (page, without) = (with(2), with(0));
    assert!(page.starts_with("━━ epoch 0 so far · 2016-04-06 13:00:00"), "{page}");
    assert_eq!(page.matches(" so far ").count(), 2);
    assert!(page.ends_with(&without), "{page}");
}

#[test]
fn claims_no_more_than_it_knows() {
    let mut report = fixture::plausible();
    let items = Vec::new();
    report.tasks = vec![
        (
            "heavy-hitters",
            Report::Sizes { selection: Selection::Over(0.96), items, truncated: 0, complete_to: 9 },
        ),
        (
            "superspreaders",
            Report::Spread {
                side: Side::Source,
                of: SpreadOf::Address,
                threshold: 128,
                items: Vec::new(),
                truncated: 0,
            },
        ),
        ("entropy", Report::Entropy { bits: Estimate::between(1.0, 4.0, 8.0), normalized: 1.0 }),
    ];
    for (untracked, has) in [(0, "has"), (317, "is known to have")] {
        report.account.untracked.packets = untracked;
        let page = rendered(10, |sink| sink.epoch(&report).unwrap());
        // A flow of one packet is over 0.96, so that 1 must not be printed.
        assert!(
            page.contains(&format!("No flow {has} more than a fraction of a packet.")),
            "{page}"
        );
        assert!(page.contains(&format!("No source {has} more than 128 destinations.")), "{page}");
        assert!(!page.contains("evenly"), "{page}");
    }
}

/// A flow or source whose lower bound is not over the threshold is not said to be over it.
#[test]
fn states_no_estimate_over_a_threshold_as_a_fact() {
    let mut report = fixture::plausible();
    let mut says = |task, rows| {
        report.tasks = vec![task];
        let page = rendered(rows, |sink| sink.epoch(&report).unwrap());
        let (_, task) =
            page.split_once("Heavy hitters").or(page.split_once("Superspreaders")).unwrap();
        task.lines().nth(1).unwrap().trim().to_owned()
    };
    for (lows, complete_to, rows, text) in [
        (
            [300.0, 250.0],
            2,
            2,
            "2 flows have more than 200 packets each, together 1.3 % of all packets.",
        ),
        // The line below the list says that others may be missing.
        (
            [300.0, 250.0],
            1,
            2,
            "2 flows have more than 200 packets each, together 1.3 % of all packets.",
        ),
        (
            [300.0, 250.0],
            1,
            1,
            "2 flows have more than 200 packets each, together 1.3 % of all packets. Others may be missing.",
        ),
        ([300.0, 150.0], 2, 2, "At least 1 flow has more than 200 packets; 2 may."),
        (
            [300.0, 150.0],
            1,
            1,
            "At least 1 flow has more than 200 packets; 2 may. Others may be missing.",
        ),
        ([190.0, 150.0], 1, 1, "2 flows may have more than 200 packets each."),
        (
            [190.0, 150.0],
            0,
            0,
            "2 flows may have more than 200 packets each. Others may be missing.",
        ),
    ] {
        let key = fixture::five_tuple("192.0.2.17", 443, "198.51.100.230", 51_234, 6);
        let item = |low| {
            let packets = Some(Estimate::between(low, 400.0, 500.0));
            SizeItem { key, size: SizeEstimate { packets, bytes: None }, share: 0.01, seen: None }
        };
        let (selection, items) = (Selection::Over(200.0), lows.map(item).to_vec());
        let sizes = Report::Sizes { selection, items, truncated: 0, complete_to };
        assert_eq!(says(("heavy-hitters", sizes), rows), text);
    }
    for (lows, text) in [
        (
            &[381.0, 385.0, 390.0][..],
            "3 sources have more than 380 destinations each. Others may be missing.",
        ),
        (
            &[368.0, 385.0, 390.0],
            "At least 2 sources have more than 380 destinations each; 3 may. Others may be missing.",
        ),
        (&[368.0], "1 source may have more than 380 destinations. Others may be missing."),
    ] {
        let item = |low: &f64| SpreadItem {
            address: fixture::address("192.0.2.17"),
            distinct: Estimate::between(*low, 391.0, 400.0),
        };
        let spread = Report::Spread {
            side: Side::Source,
            of: SpreadOf::Address,
            threshold: 380,
            items: lows.iter().map(item).collect(),
            truncated: 0,
        };
        assert_eq!(says(("superspreaders", spread), 10), text);
    }
}

/// Gaps are those within a lane, and keys without an address have one.
#[test]
fn says_between_which_packets_gaps_are() {
    for (kind, between) in [
        (KeyKind::SOURCE, "Times between packets of the same IP version\n"),
        (KeyKind::PROTOCOL, "Times between packets\n"),
    ] {
        let sizes = vec![(0.5, Estimate::exact(2_000))];
        let quantiles = Report::Quantiles { of: QuantileOf::GapNs, sizes, keys: Vec::new() };
        let tasks = vec![("quantiles", quantiles)];
        let report = EpochReport { key: kind.into(), tasks, ..fixture::plausible() };
        let page = rendered(10, |sink| sink.epoch(&report).unwrap());
        assert!(page.contains(between) && page.contains("2 µs\n"), "{page}");
    }
}

#[test]
fn is_never_wider_than_asked() {
    for width in [60, 80, 100, 200] {
        for kind in fixture::kinds() {
            for by in [Measure::Packets, Measure::Bytes] {
                for rows in [1, 20, 2000] {
                    let look = Look { width, ..Look::default() };
                    let page = Page::rendered(Text { rows, look }, |sink| {
                        sink.epoch(&fixture::widest(kind, by)).unwrap();
                        sink.gap(&fixture::gap()).unwrap();
                        sink.total(&fixture::total(&["x".repeat(300).as_str()], u64::MAX)).unwrap();
                    });
                    for line in page.lines() {
                        assert!(line.chars().count() <= width, "{kind:?} {by:?} {width}: {line}");
                        assert!(!line.ends_with(' '), "{line:?}");
                    }
                }
            }
        }
    }
    assert_golden(
        "widest.txt",
        &rendered(2, |sink| {
            sink.epoch(&fixture::widest(KeyKind::FIVE_TUPLE, Measure::Packets)).unwrap();
        }),
    );
}

#[test]
fn looks_as_it_should_at_every_width() {
    for width in [60, 80, 200] {
        let page = rendered_as(Look { width, ..Look::default() }, run);
        assert_golden(&format!("run-{width}.txt"), &page);
    }
}

/// Colours add escapes and nothing else; ASCII replaces signs one by one.
#[test]
fn colours_and_ascii_change_no_word() {
    let plain = rendered(10, run);
    let colored = rendered_as(Look { color: true, ..Look::default() }, run);
    let mut stripped = String::new();
    let mut rest = colored.as_str();
    while let Some((text, escape)) = rest.split_once("\x1b[") {
        stripped += text;
        rest = escape.split_once('m').unwrap().1;
    }
    assert_eq!(stripped + rest, plain);
    assert!(colored.contains("\x1b[1mWhat stands out\x1b[0m"), "{colored}");
    assert!(colored.contains("\x1b[1;31m  ! flood"), "{colored}");
    let ascii = rendered_as(Look { ascii: true, ..Look::default() }, run);
    assert!(ascii.is_ascii());
    assert_eq!(ascii.chars().count(), plain.chars().count());
    let words = |text: &str| {
        let word = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric());
        text.split(' ').filter(|part| word(part)).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(words(&ascii), words(&plain));
}

#[test]
fn prints_no_control_byte_from_outside() {
    let hostile = "a\0b\x1b[31mc\u{202e}d\u{85}e\nf\"g\u{2028}\u{200b}";
    let page = rendered(10, |sink| {
        let mut report = fixture::plausible();
        report.notes = vec![hostile.to_owned()];
        sink.epoch(&report).unwrap();
        let mut total = fixture::total(&[hostile, "日本.pcap"], 1);
        total.problems = vec![hostile.to_owned()];
        sink.total(&total).unwrap();
    });
    assert!(page.chars().all(|c| c == '\n' || !c.is_control()), "{page:?}");
    assert!(!page.contains(['\u{202e}', '\u{2028}', '\u{200b}']), "{page:?}");
    let shown = r#"a\u{0}b\u{1b}[31mc\u{202e}d\u{85}e\nf"g\u{2028}\u{200b}"#;
    assert_eq!(page.matches(shown).count(), 3, "{page}");
    assert!(page.contains("日本.pcap"));
}
