//! Escapes text from outside, so that it is safe to print.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a terminal would act on `c` or a reader would not see it: control characters, and
/// characters that reorder, join or hide the text around them.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{00ad}' | '\u{061c}' | '\u{115f}'..='\u{1160}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// The text with every invisible character written as an escape (`
/// `, `\u{1b}`). Backslashes are not escaped, so text that was escaped before stays the same.
///
/// ```
/// use flowgauge_engine::sink::visible;
///
/// assert_eq!(visible("a\u{1b}[7m\n"), r"a\u{1b}[7m\n");
/// ```
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => safe.extend(c.escape_default()),
            c if acts(c) => safe.extend(c.escape_unicode()),
            c => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// JSON text with the same characters escaped. In JSON they occur only inside strings, where an
/// escape means the same.
pub fn visible_json(json: String) -> String {
    if !json.contains(acts) {
        return json;
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if acts(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    safe
}
