//! Text handling that the encoder leaves to its callers: label escapes, and the classic Prometheus
//! format for clients that do not accept OpenMetrics.

use std::fmt::Write;

/// Converts OpenMetrics to the classic format, in which a counter's family also has the suffix
/// `_total`.
pub fn classic(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len() + 1024);
    let counter = |name: &str| open_metrics.contains(&format!("# TYPE {name} counter\n"));
    for line in open_metrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("EOF" | "UNIT"), ..) => {}
            (Some("#"), Some(what), Some(name), Some(rest)) if counter(name) => {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "# {what} {name}_total {rest}");
            }
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

/// Escapes a label value for use between quotes.
pub(super) fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
