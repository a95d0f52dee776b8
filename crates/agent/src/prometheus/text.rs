//! Text that the encoder leaves to its callers: escapes of labels, and the older text of Prometheus for
//! clients that do not ask for OpenMetrics.

use std::fmt::Write;

/// The same metrics in the older text: there a counter's family has its `_total`, too.
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

/// The value of a label as it stands between quotes.
pub(super) fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
