//! Errors for unknown names, with the nearest known name.

use std::fmt;

/// An unknown name of an algorithm, an accelerator, a parameter, a task or a key.
///
/// ```
/// use flowgauge_core::unknown::Unknown;
///
/// let unknown = Unknown::new("algorithm", "count_min", ["count-min", "k-ary"]);
/// assert_eq!(unknown.to_string(), "unknown algorithm 'count_min'; did you mean 'count-min'?");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The kind of thing that was named.
    pub what: &'static str,
    /// The given name.
    pub name: String,
    /// What it belongs to, such as the algorithm of a parameter; `None` for names of the whole run.
    pub of: Option<&'static str>,
    /// The known names.
    pub known: Vec<&'static str>,
}

impl Unknown {
    /// An unknown name that belongs to the whole run.
    pub fn new(
        what: &'static str,
        name: &str,
        known: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        Self { what, name: name.to_owned(), of: None, known: known.into_iter().collect() }
    }
}

impl std::error::Error for Unknown {}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, name, of, known } = self;
        write!(f, "unknown {what} '{name}'")?;
        if let Some(of) = of {
            write!(f, " of {of}")?;
        }
        write!(f, "; {}", suggestion(name, known.iter().copied()))
    }
}

/// The remedy for an unknown name: the nearest known name, or all of them where none is near.
pub fn suggestion<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(name, known.iter().copied()) {
        Some(nearest) => format!("did you mean '{nearest}'?"),
        None if known.is_empty() => "there is none".to_owned(),
        None => format!("available: {}", known.join(", ")),
    }
}

/// The nearest known word, if one is near: at most a third of its letters differ, or the word
/// abbreviates it, as `src` does `source`.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let known: Vec<&str> = known.into_iter().collect();
    let far = known.iter().map(|known| (strsim::damerau_levenshtein(word, known), *known));
    let (edits, nearest) = far.min_by_key(|(edits, _)| *edits)?;
    if 3 * edits <= nearest.len() {
        return Some(nearest);
    }
    known.into_iter().filter(|known| abbreviates(word, known)).min_by_key(|known| known.len())
}

/// Whether the word abbreviates the whole: same first letter, and at least two of its letters in
/// order.
fn abbreviates(word: &str, whole: &str) -> bool {
    let mut letters = whole.chars();
    word.len() >= 2
        && word.chars().next() == whole.chars().next()
        && word.chars().all(|letter| letters.any(|of| of == letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 3] = ["count-min", "count-sketch", "k-ary"];

    #[test]
    fn a_name_that_is_near_is_suggested() {
        for (name, nearest) in
            [("count_min", "count-min"), ("countmin", "count-min"), ("kary", "k-ary")]
        {
            let said = Unknown::new("algorithm", name, KNOWN).to_string();
            let expected = format!("unknown algorithm '{name}'; did you mean '{nearest}'?");
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn an_abbreviation_is_understood() {
        let keys = ["source", "destination", "protocol", "source-port", "destination-port"];
        for (word, key) in [
            ("src", Some("source")),
            ("dst", Some("destination")),
            ("dport", Some("destination-port")),
            ("proto", Some("protocol")),
            ("s", None),
            ("ports", None),
        ] {
            assert_eq!(nearest(word, keys), key, "{word}");
        }
    }

    #[test]
    fn without_a_near_name_all_are_listed() {
        let said = Unknown::new("algorithm", "bloom", KNOWN).to_string();
        assert_eq!(said, "unknown algorithm 'bloom'; available: count-min, count-sketch, k-ary");
        let none = Unknown { of: Some("fm"), ..Unknown::new("parameter", "k", []) };
        assert_eq!(none.to_string(), "unknown parameter 'k' of fm; there is none");
    }
}
