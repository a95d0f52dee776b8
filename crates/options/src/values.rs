//! Parsers of option values.

use flowgauge_core::audit::SMALLEST_SLICE;
use flowgauge_core::summary::Parameters;
use flowgauge_core::terms::Threshold;
use flowgauge_engine::EpochLength;

/// Units of memory, in bytes.
const SIZES: [(&str, u64); 13] = [
    ("", 1),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// Units of time, in nanoseconds.
const TIMES: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// The name of an algorithm with its parameters: `NAME[:k=v,…]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The name.
    pub name: String,
    /// Its parameters.
    pub parameters: Parameters,
}

/// Memory such as `64MiB`, `1.5GB` or bytes.
///
/// ```
/// use flowgauge_options::values::{size, time};
///
/// assert_eq!(size("1.5MiB"), Ok(1_572_864));
/// assert_eq!(time("500ms"), Ok(500_000_000));
/// assert!(size("much").is_err());
/// ```
///
/// # Errors
/// With the expected form.
pub fn size(text: &str) -> Result<usize, String> {
    let bytes = quantity(text, &SIZES)
        .ok_or("write a number and a unit, as in 64MiB: kB, MB, GB, KiB, MiB, GiB, TiB, or K, M, G, T for the last four")?;
    match usize::try_from(bytes) {
        Ok(0) | Err(_) => Err("the size is out of range".to_owned()),
        Ok(bytes) => Ok(bytes),
    }
}

/// An epoch: `whole`, a time such as `10s`, or packets such as `2000000p`.
pub(crate) fn epoch(text: &str) -> Result<EpochLength, String> {
    if text == "whole" {
        return Ok(EpochLength::Whole);
    }
    let length = if text.ends_with('p') {
        quantity(text, &[("p", 1)]).map(EpochLength::Packets)
    } else {
        let ns = quantity(text, &TIMES);
        ns.and_then(|ns| i64::try_from(ns).ok()).map(EpochLength::Time)
    };
    match length {
        Some(EpochLength::Packets(0) | EpochLength::Time(0)) => {
            Err("an epoch must be longer than 0".to_owned())
        }
        Some(length) => Ok(length),
        None => {
            Err("write whole, a time such as 10s, 500ms or 1m, or packets such as 2000000p"
                .to_owned())
        }
    }
}

/// A time such as `500ms`, in nanoseconds.
///
/// # Errors
/// With the expected form.
pub fn time(text: &str) -> Result<u64, String> {
    quantity(text, &TIMES).ok_or_else(|| "write a time such as 10s, 500ms or 1m".to_owned())
}

/// A threshold: a share such as `0.1%`, or a number of packets or bytes.
pub(crate) fn threshold(text: &str) -> Result<Threshold, String> {
    let threshold = match text.strip_suffix('%') {
        Some(percent) => decimal(percent).map(|percent| percent / 100.0).map(Threshold::Share),
        None => text.parse().ok().map(Threshold::Weight),
    };
    match threshold {
        Some(Threshold::Share(share)) if share > 1.0 => Err("a share is at most 100%".to_owned()),
        Some(threshold) => Ok(threshold),
        None => Err("write a share such as 0.1%, or a whole number of packets or bytes".to_owned()),
    }
}

/// A share such as `0.1%` or `0`.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').or((text == "0").then_some(text));
    match percent.and_then(decimal) {
        Some(percent) if percent <= 100.0 => Ok(percent / 100.0),
        _ => Err("write a share such as 0.1%".to_owned()),
    }
}

/// A slice of the flows: one in N, written `1/N`.
pub(crate) fn slice(text: &str) -> Result<u32, String> {
    let one_in = text.strip_prefix("1/").and_then(|one_in| one_in.parse().ok());
    one_in
        .filter(|one_in| (1..=SMALLEST_SLICE).contains(one_in))
        .ok_or_else(|| "write 1/N, such as 1/64, with N from 1 to 1048576".to_owned())
}

/// Packets per second: `10Mpps`, `500kpps` or `1000pps`.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let units = [("pps", 1), ("kpps", 1_000), ("Mpps", 1_000_000), ("Gpps", 1_000_000_000)];
    match quantity(text, &units) {
        Some(rate) if rate > 0 => Ok(rate as f64),
        _ => Err("write a number and a unit, as in 10Mpps, 500kpps or 1000pps".to_owned()),
    }
}

/// An algorithm or accelerator with its parameters. A parameter without a value means `yes`: `auto`
/// is `auto=yes`.
pub(crate) fn spec(text: &str) -> Result<Spec, String> {
    let (name, list) = text.split_once(':').unwrap_or((text, ""));
    let mut parameters: Vec<(String, String)> = Vec::new();
    for pair in list.split(',').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, "yes"));
        if name.is_empty() || value.is_empty() {
            return Err(format!("'{pair}' is not PARAMETER=VALUE"));
        }
        let (name, value) = (name.to_owned(), value.to_owned());
        if parameters.iter().any(|(known, _)| *known == name) {
            return Err(format!("parameter '{name}' is given twice; give it once"));
        }
        parameters.push((name, value));
    }
    Ok(Spec { name: name.to_owned(), parameters: Parameters::new(parameters) })
}

/// A number with one of these units, rounded to a whole number of the smallest.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(*factor);
    }
    let value = decimal(number)? * *factor as f64;
    (value < u64::MAX as f64).then_some(value.round() as u64)
}

/// A plain decimal number: digits, and a point between or before them.
fn decimal(text: &str) -> Option<f64> {
    let plain = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.parse().ok().filter(|value: &f64| plain && value.is_finite())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("1", 1),
            ("67108864", 64 << 20),
            ("64MiB", 64 << 20),
            ("64M", 64 << 20),
            ("1.5G", 3 << 29),
            ("64 MiB", 64 << 20),
            ("256MB", 256_000_000),
            ("1GiB", 1 << 30),
            ("1.5GiB", 3 << 29),
            (".5kB", 500),
            ("2TiB", 2 << 40),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in
            ["", "0", "0MiB", "64 mib", "MiB", "-1", "1e6", "1.2.3MB", "99999999TiB", "∞", "."]
        {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn epochs() {
        for (text, length) in [
            ("whole", EpochLength::Whole),
            ("10s", EpochLength::Time(10_000_000_000)),
            ("0.5s", EpochLength::Time(500_000_000)),
            ("500ms", EpochLength::Time(500_000_000)),
            ("1m", EpochLength::Time(60_000_000_000)),
            ("24h", EpochLength::Time(86_400_000_000_000)),
            ("2000000p", EpochLength::Packets(2_000_000)),
        ] {
            assert_eq!(epoch(text), Ok(length), "{text}");
        }
        for text in ["", "0s", "0p", "10", "p", "s", "-1s", "10sec", "9999999999h", "1w", "0.1ns"] {
            assert!(epoch(text).is_err(), "{text}");
        }
    }

    #[test]
    fn thresholds() {
        assert_eq!(threshold("0.1%"), Ok(Threshold::Share(0.001)));
        assert_eq!(threshold("0%"), Ok(Threshold::Share(0.0)));
        assert_eq!(threshold("100%"), Ok(Threshold::Share(1.0)));
        assert_eq!(threshold("1000"), Ok(Threshold::Weight(1000)));
        for text in ["", "%", "101%", "-1%", "0.001", "nan%", "inf%", "1e3", "-1", "12k"] {
            assert!(threshold(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_and_rates() {
        for (text, value) in [("0", 0.0), ("0.1%", 0.001), ("100%", 1.0)] {
            assert_eq!(share(text), Ok(value), "{text}");
        }
        for (text, value) in [("10Mpps", 1e7), ("1.5kpps", 1500.0), ("7pps", 7.0)] {
            assert_eq!(rate(text), Ok(value), "{text}");
        }
        for text in ["", "1", "%", "101%", "-1%", "0pps", "10", "10 mpps", "Mpps"] {
            assert!(share(text).is_err() && rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn slices() {
        for (text, one_in) in [("1/64", 64), ("1/1", 1), ("1/1048576", 1 << 20)] {
            assert_eq!(slice(text), Ok(one_in), "{text}");
        }
        for text in ["", "64", "1/0", "1/1048577", "2/64", "1/ 64", "1/-1", "1.5%"] {
            assert!(slice(text).is_err(), "{text}");
        }
    }

    #[test]
    fn specs() {
        let plain = spec("linear-table").unwrap();
        assert_eq!(
            (plain.name.as_str(), plain.parameters),
            ("linear-table", Parameters::default())
        );
        let full = spec("x:rows=2,buckets=1024").unwrap();
        assert_eq!(full.parameters.get("rows"), Some("2"));
        assert_eq!(full.parameters.get("buckets"), Some("1024"));
        let switched = spec("x:auto,rows=2").unwrap();
        assert_eq!(switched.parameters.get("auto"), Some("yes"));
        for text in ["x:rows=", "x:=1", "x:a=1,a=2", "x:a,a=no"] {
            assert!(spec(text).is_err(), "{text}");
        }
    }
}
