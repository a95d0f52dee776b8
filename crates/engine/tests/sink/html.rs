//! HTML: the items of JSON, from which no text escapes, in a page that loads nothing.

use flowgauge_engine::sink::{Format, Html, Json};
use serde_json::Value;

use crate::{Page, fixture, run};

const OPEN: &str = "<script type=\"application/json\" class=\"item\">";

/// The page, and behind it the items.
fn rendered(write: impl FnOnce(&mut Page<Html>)) -> (String, String) {
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
    assert_eq!(items(&rendered(run).1), json);
}

#[test]
fn no_text_leaves_its_item() {
    for hostile in ["</script><script>alert(1)</script>", "<!--<script>", "]]></SCRIPT ><b>", "<"] {
        let mut report = fixture::plausible();
        report.measurement = hostile.into();
        report.notes = vec![hostile.to_owned()];
        let mut total = fixture::total(&[hostile], 1);
        total.problems = vec![hostile.to_owned()];
        let (_, text) = rendered(|page| {
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
    let (page, _) = rendered(|_| {});
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
