//! Reports as one HTML page that holds and draws their JSON.

use std::io::{self, Write};

use super::{Format, Json};
use crate::report::{EpochReport, Gap, TotalReport};

const PAGE: &str = include_str!("html/page.html");

/// A self-contained HTML page. Each item is the JSON of [`Json`] in its own element at the end of
/// the page, so the numbers are those of JSON and items can be appended.
///
/// ```
/// use flowgauge_engine::report::TotalReport;
/// use flowgauge_engine::sink::{Format, Html};
///
/// let mut page = Vec::new();
/// Html.total(&TotalReport::new("main".into()), &mut page)?;
/// let page = String::from_utf8(page)?;
/// assert!(page.contains(r#"<script type="application/json""#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Html;

impl Html {
    /// The style sheet of the page.
    pub const STYLE: &str = include_str!("html/style.css");
    /// The script that draws the page.
    pub const SCRIPT: &str = concat!(
        include_str!("html/words.js"),
        include_str!("html/plots.js"),
        include_str!("html/page.js"),
    );
}

impl Format for Html {
    fn header(&self, out: &mut dyn Write) -> io::Result<()> {
        let page = PAGE
            .replacen("VERSION", env!("CARGO_PKG_VERSION"), 1)
            .replacen("STYLE", Self::STYLE, 1)
            .replacen("SCRIPT", Self::SCRIPT, 1);
        out.write_all(page.as_bytes())
    }

    fn epoch(&self, report: &EpochReport, out: &mut dyn Write) -> io::Result<()> {
        element(out, |json| Json.epoch(report, json))
    }

    fn gap(&self, gap: &Gap, out: &mut dyn Write) -> io::Result<()> {
        element(out, |json| Json.gap(gap, json))
    }

    fn total(&self, report: &TotalReport, out: &mut dyn Write) -> io::Result<()> {
        element(out, |json| Json.total(report, json))
    }
}

/// Writes an element that holds JSON.
fn element(
    out: &mut dyn Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    out.write_all(b"<script type=\"application/json\" class=\"item\">")?;
    write(&mut Contained(out))?;
    out.write_all(b"</script>\n")
}

/// Writes JSON with `<` escaped, so that no string in it ends the surrounding element. In JSON, `<`
/// occurs only in strings.
struct Contained<'a>(&'a mut dyn Write);

impl Write for Contained<'_> {
    fn write(&mut self, json: &[u8]) -> io::Result<usize> {
        for (at, part) in json.split(|byte| *byte == b'<').enumerate() {
            if at > 0 {
                self.0.write_all(b"\\u003c")?;
            }
            self.0.write_all(part)?;
        }
        Ok(json.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
