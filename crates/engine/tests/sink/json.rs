//! JSON: exactly as documented, valid by the schema, and the same when read back. HTML: the items
//! of JSON, from which no text escapes, in a page that loads nothing.

use flowgauge_core::key::KeyKind;
use flowgauge_core::packet::{Fault, Layer, NoKey};
use flowgauge_core::terms::Measure;
use flowgauge_engine::sink::{Format, Html, Json};
use proptest::prelude::*;
use serde_json::Value;

use crate::{Page, assert_golden, fixture, run};

fn rendered(write: impl FnOnce(&mut Page<Json>)) -> String {
    Page::rendered(Json, write)
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn schema() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/report.schema.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn is_as_documented() {
    assert_golden("run.jsonl", &rendered(run));
}

#[test]
fn every_line_fits_the_schema() {
    let schema = schema();
    jsonschema::meta::validate(&schema).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let text = rendered(|sink| {
        run(sink);
        sink.epoch(&fixture::empty()).unwrap();
        sink.epoch(&fixture::update()).unwrap();
        sink.epoch(&fixture::network()).unwrap();
        sink.epoch(&fixture::audited()).unwrap();
        for kind in fixture::kinds() {
            for by in [Measure::Packets, Measure::Bytes] {
                let mut widest = fixture::widest(kind, by);
                // A flow has one packet at least.
                widest.tasks.retain(|(name, _)| *name != "size-distribution");
                sink.epoch(&widest).unwrap();
            }
        }
    });
    for line in lines(&text) {
        let errors: Vec<_> = validator.iter_errors(&line).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{line:#}: {errors:?}");
    }
}

#[test]
fn the_schema_has_every_reason_for_a_packet_without_a_key() {
    let validator = jsonschema::draft202012::new(&schema()).unwrap();
    let (mut report, mut total) = (fixture::plausible(), fixture::total(&[], 1));
    for reasons in [&mut report.account.reasons, &mut total.account.reasons] {
        for layer in Layer::ALL {
            for fault in Fault::ALL {
                *reasons.malformed_mut(layer, fault) += 1;
            }
        }
        for reason in NoKey::ALL {
            reasons.count_no_key(reason);
        }
    }
    let text = rendered(|sink| {
        sink.epoch(&report).unwrap();
        sink.total(&total).unwrap();
    });
    for line in lines(&text) {
        let account = &line["account"];
        assert_eq!(account["malformed_reasons"].as_object().unwrap().len(), 16);
        assert_eq!(account["no_key_reasons"].as_object().unwrap().len(), NoKey::ALL.len());
        let errors: Vec<_> = validator.iter_errors(&line).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
}

#[test]
fn a_network_wide_report_names_its_agents() {
    let line = &lines(&rendered(|sink| sink.epoch(&fixture::network()).unwrap()))[0]["network"];
    assert_eq!((&line["agents"], &line["reported"]), (&100.into(), &98.into()));
    assert_eq!(line["missing"], serde_json::json!(["edge-\u{1b}[7m"]));
    assert_eq!(line["left_out"][0]["field"], "seed");
    assert_eq!(line["late"], serde_json::json!({ "edge-3": 2 }));
}

#[test]
fn an_audit_says_how_far_sizes_are_off() {
    let audit = &lines(&rendered(|sink| sink.epoch(&fixture::audited()).unwrap()))[0]["audit"];
    let expected = serde_json::json!({
        "one_in": 64, "flows": 68, "weight": 940, "bias": 0.25, "rmse": 2.5,
        "violated": 1.0 / 68.0, "allowed": 2.0 / 68.0, "untracked": 3, "untracked_bytes": 1234,
    });
    assert_eq!(*audit, expected);
}

#[test]
fn the_schema_is_strict() {
    let validator = jsonschema::draft202012::new(&schema()).unwrap();
    let sound = &lines(&rendered(run))[0];
    assert!(validator.is_valid(sound));
    for (pointer, value) in [
        ("/start", Value::from("2016-04-06 13:00")),
        ("/account/read", Value::from(-1)),
        ("/account/read", Value::from(1.5)),
        ("/key", Value::from("colour")),
        ("/tasks/top/items/0/packets/low", Value::from("0")),
        ("/tasks/top/items/0/key/source", Value::from("example.org")),
        ("/tasks/entropy/normalized", Value::from(1.1)),
        ("/summary", Value::Null),
    ] {
        let mut line = sound.clone();
        *line.pointer_mut(pointer).unwrap() = value;
        assert!(!validator.is_valid(&line), "{pointer}");
    }
    for pointer in ["", "/account", "/tasks", "/tasks/top/items/0", "/tasks/top/items/0/bytes"] {
        let mut line = sound.clone();
        line.pointer_mut(pointer).unwrap()["surprise"] = Value::from(1);
        assert!(!validator.is_valid(&line), "{pointer}");
    }
}

#[test]
fn an_update_is_an_epoch_but_for_its_type() {
    let lines = lines(&rendered(|sink| {
        let mut report = fixture::update();
        sink.epoch(&report).unwrap();
        report.update = false;
        sink.epoch(&report).unwrap();
    }));
    let [mut update, epoch] = <[Value; 2]>::try_from(lines).unwrap();
    assert_eq!((&update["type"], &epoch["type"]), (&"update".into(), &"epoch".into()));
    update["type"] = "epoch".into();
    assert_eq!(update, epoch);
}

#[test]
fn a_prefix_stands_with_its_length() {
    let mut report = fixture::widest(KeyKind::SOURCE, Measure::Packets);
    report.tasks.retain(|(name, _)| *name == "top");
    let line = &lines(&rendered(|sink| sink.epoch(&report).unwrap()))[0];
    let key = &line["tasks"]["top"]["items"][0]["key"];
    assert_eq!(key["source"], "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/127");
    assert_eq!(key.as_object().unwrap().len(), 1);
    assert_eq!(line["key"], "source/31,127");
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(16), ..ProptestConfig::default() })]

    #[test]
    fn hostile_text_reads_back_and_shows_no_control_character(
        text in "[\\x00-\\x20\"'\\\\=+@,;\u{7f}-\u{9f}\u{200b}-\u{202f}\u{2066}-\u{2069}\u{fe00}-\u{feff}\u{e0001}a-c]{0,24}|\\PC{0,24}|.{0,24}",
    ) {
        let mut report = fixture::plausible();
        report.notes = vec![text.clone()];
        let mut total = fixture::total(&[&text], 1);
        total.problems = vec![text.clone()];
        let json = rendered(|sink| {
            sink.epoch(&report).unwrap();
            sink.total(&total).unwrap();
        });
        prop_assert_eq!(json.lines().count(), 2);
        prop_assert!(json.chars().all(|c| c == '\n' || !c.is_control()));
        let hidden = ['\u{202e}', '\u{200b}', '\u{2028}', '\u{feff}', '\u{e0001}'];
        prop_assert!(!json.contains(hidden), "{json:?}");
        let lines = lines(&json);
        prop_assert_eq!(&lines[0]["notes"][0], &text);
        prop_assert_eq!(&lines[1]["files"][0], &text);
        prop_assert_eq!(&lines[1]["problems"][0], &text);
    }
}

// HTML: the items of JSON, from which no text escapes, in a page that loads nothing.

const OPEN: &str = "<script type=\"application/json\" class=\"item\">";

/// The page, and behind it the items.
fn rendered_page(write: impl FnOnce(&mut Page<Html>)) -> (String, String) {
    let header = Page::rendered(Html, |page| page.format.header(&mut page.out).unwrap());
    let all = Page::rendered(Html, |page| {
        page.format.header(&mut page.out).unwrap();
        write(page);
    });
    let items = all.strip_prefix(&header).unwrap().to_owned();
    (header, items)
}

fn items(text: &str) -> Vec<Value> {
    let inner = |line: &str| {
        let json = line.strip_prefix(OPEN).unwrap().to_owned();
        serde_json::from_str(json.strip_suffix("</script>").unwrap()).unwrap()
    };
    // JSON ends with a line end of its own.
    text.replace("\n</script>", "</script>").lines().map(inner).collect()
}

#[test]
fn holds_the_items_of_json() {
    let json = Page::rendered(Json, run);
    let json: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(items(&rendered_page(run).1), json);
}

#[test]
fn no_text_leaves_its_item() {
    for hostile in ["</script><script>alert(1)</script>", "<!--<script>", "]]></SCRIPT ><b>", "<"] {
        let mut report = fixture::plausible();
        report.measurement = hostile.into();
        report.notes = vec![hostile.to_owned()];
        let mut total = fixture::total(&[hostile], 1);
        total.problems = vec![hostile.to_owned()];
        let (_, text) = rendered_page(|page| {
            page.epoch(&report).unwrap();
            page.total(&total).unwrap();
        });
        assert_eq!(text.matches('<').count(), 2 * 2, "{text}");
        let items = items(&text);
        assert_eq!(items[0]["measurement"], hostile);
        assert_eq!(items[0]["notes"][0], hostile);
        assert_eq!(items[1]["files"][0], hostile);
        assert_eq!(items[1]["problems"][0], hostile);
    }
}

/// The browser enforces the policy; these find a mistake before it does.
#[test]
fn the_page_loads_nothing() {
    let (page, _) = rendered_page(|_| {});
    assert!(page.contains("content=\"default-src 'none'; style-src 'unsafe-inline'; script-src"));
    let page = page.replace("http://www.w3.org/2000/svg", "");
    for outside in ["http:", "https:", "//cdn", "src=", "href=", "url(", "@import", "fetch("] {
        assert!(!page.contains(outside), "{outside}");
    }
    for markup in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
        assert!(!page.contains(markup), "{markup}");
    }
    assert_eq!(page.matches("<script").count(), 1);
    assert_eq!(page.matches("</script").count(), 1);
    assert_eq!(page.matches("</style").count(), 1);
    assert!(!["VERSION", "STYLE\n", "SCRIPT"].iter().any(|mark| page.contains(mark)));
}
