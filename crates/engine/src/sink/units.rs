//! Numbers and times as people read them: exact where short, else three digits and a unit.

use flowgauge_core::terms::Measure;

/// A count such as `12,345` or `1.23 M`, at most 7 columns wide.
///
/// ```
/// use flowgauge_engine::sink::units;
///
/// assert_eq!(units::count(12_345.0), "12,345");
/// assert_eq!(units::bytes(34_500_000.0), "34.5 MB");
/// assert_eq!(units::percent(0.123), "12.3 %");
/// ```
pub fn count(value: f64) -> String {
    let whole = value.round();
    if whole.abs() < 1e6 { grouped(whole) } else { scaled(value) }
}

/// A number per second: a count, with a fraction if it is small.
pub fn rate(value: f64) -> String {
    if value < 9.95 { format!("{value:.1}") } else { count(value) }
}

/// Bytes such as `9,999 B` or `34.5 MB` (of 1,000 kB), at most 7 columns wide.
pub fn bytes(value: f64) -> String {
    if value.round().abs() < 1e4 {
        format!("{} B", grouped(value.round()))
    } else {
        scaled(value) + "B"
    }
}

/// Bits such as `34.5 Mbit`.
pub fn bits(value: f64) -> String {
    if value.round() < 1e3 { format!("{value:.0} bit") } else { scaled(value) + "bit" }
}

/// A size in `measure`.
pub fn size(measure: Measure, value: f64) -> String {
    match measure {
        Measure::Packets => count(value),
        Measure::Bytes => bytes(value),
    }
}

/// Memory such as `256 MiB`: in the largest unit of 1,024 that needs no long fraction.
pub fn memory(bytes: usize) -> String {
    let mut value = bytes as f64;
    let mut units = ["bytes", "KiB", "MiB", "GiB", "TiB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    for larger in units {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    let digits = usize::from(value < 99.95 && value.fract() > 0.05 && value.fract() < 0.95);
    format!("{value:.digits$} {unit}")
}

/// A share of 1 such as `12.3 %`, at most 7 columns wide.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        _ if !percent.is_finite() => "?".to_owned(),
        _ if share == 0.0 => "0 %".to_owned(),
        _ if percent < 0.01 => "<0.01 %".to_owned(),
        // A share below 1 must not be shown as 100 %.
        _ if share < 1.0 && percent >= 99.95 => ">99.9 %".to_owned(),
        _ if percent < 0.995 => format!("{percent:.2} %"),
        _ if percent < 99.95 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// A number of things: `1 flow`, `12,345 flows`.
pub fn plural(value: u64, noun: &str) -> String {
    let plural = if value == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(value as f64))
}

/// A length of time such as `12.3 ms`, `59.9 s`, `2 h 05 min`.
pub fn duration(ns: i128) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        _ if seconds < 0.999_5e-3 => format!("{:.0} µs", seconds * 1e6),
        _ if seconds < 0.999_95 => format!("{:.1} ms", seconds * 1e3),
        _ if seconds < 120.0 => format!("{seconds:.1} s"),
        _ if seconds < 7200.0 => {
            format!("{:.0} min {:02.0} s", (seconds / 60.0).floor(), (seconds % 60.0).floor())
        }
        _ if seconds < 172_800.0 => {
            let minutes = (seconds / 60.0).floor();
            format!("{:.0} h {:02.0} min", (minutes / 60.0).floor(), minutes % 60.0)
        }
        _ => format!("{} days", count(seconds / 86_400.0)),
    }
}

/// A bar of up to `columns` blocks for `share` of the longest bar. A share above 0 is always
/// visible.
pub fn bar(share: f64, columns: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if !share.is_finite() || share <= 0.0 {
        return String::new();
    }
    let eighths = ((share.min(1.0) * (columns * 8) as f64).round() as usize).max(1);
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// Three digits and a power of 1,000.
fn scaled(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() { "?" } else { "∞" }.to_owned();
    }
    let mut value = value;
    let mut unit = "";
    for larger in ["k", "M", "G", "T", "P", "E"] {
        // From here on, three digits would round to 1,000.
        if value.abs() < 999.5 {
            break;
        }
        (value, unit) = (value / 1000.0, larger);
    }
    let digits = match value.abs() {
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

/// Digits in groups of three.
fn grouped(whole: f64) -> String {
    let digits = format!("{:.0}", whole.abs());
    let mut text = String::from(if whole < 0.0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

const SECOND_NS: i64 = 1_000_000_000;
const DAY_NS: i64 = 86_400 * SECOND_NS;

/// Nanoseconds since the UNIX epoch as `2016-04-06T13:00:00.000000000Z`.
///
/// ```
/// use flowgauge_engine::sink::{parse_rfc3339, rfc3339};
///
/// assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000000000Z");
/// assert_eq!(parse_rfc3339("1970-01-01T00:00:01.5Z"), Some(1_500_000_000));
/// ```
pub fn rfc3339(time_ns: i64) -> String {
    let (year, month, day) = date(time_ns.div_euclid(DAY_NS));
    let in_day = time_ns.rem_euclid(DAY_NS);
    let (seconds, ns) = (in_day / SECOND_NS, in_day % SECOND_NS);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ns:09}Z")
}

/// Nanoseconds since the UNIX epoch of a time such as `2016-04-06T13:00:00Z`, with or without a
/// fraction of a second; `None` if the text is not such a time.
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (time, part) = time.split_once('.').unwrap_or((time, ""));
    let numbers = |text: &str, between, lengths: [usize; 3]| {
        let parts: Vec<_> = text.split(between).collect();
        let parts = <[&str; 3]>::try_from(parts).ok()?;
        let fits = parts.iter().zip(lengths).all(|(part, length)| {
            part.len() == length && part.bytes().all(|digit| digit.is_ascii_digit())
        });
        fits.then(|| parts.map(|part| part.parse::<i64>().unwrap_or(0)))
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let months = month_lengths(year);
    let before = usize::try_from(month - 1).ok().filter(|before| *before < months.len())?;
    if !(1..=months[before]).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let digits = part.len() <= 9 && part.bytes().all(|digit| digit.is_ascii_digit());
    let ns: i64 = format!("{part:0<9}").parse().ok().filter(|_| digits)?;
    let days = first_day(year) + months[..before].iter().sum::<i64>() + day - 1;
    let seconds = (hour * 60 + minute) * 60 + second;
    days.checked_mul(DAY_NS)?.checked_add(seconds * SECOND_NS)?.checked_add(ns)
}

/// The time of day, UTC, in milliseconds: `13:00:00.000`.
pub(super) fn clock(time_ns: i64) -> String {
    rfc3339(time_ns)[11..23].to_owned()
}

/// Year, month and day of a number of days since 1970-01-01.
fn date(days: i64) -> (i64, usize, i64) {
    // A year has at most 366 days, so this year is never too late (nor is the year before it,
    // before 1970), and the loop runs a few times at most.
    let mut year = 1969 + days.div_euclid(if days < 0 { 365 } else { 366 });
    while first_day(year + 1) <= days {
        year += 1;
    }
    let mut day = days - first_day(year);
    let mut month = 1;
    for length in month_lengths(year) {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    (year, month, day + 1)
}

/// Days of each month of a year.
fn month_lengths(year: i64) -> [i64; 12] {
    let february = 28 + i64::from(first_day(year + 1) - first_day(year) == 366);
    [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
}

/// Days from 1970-01-01 to the first of January of `year`.
fn first_day(year: i64) -> i64 {
    let leap_days = |year: i64| year / 4 - year / 100 + year / 400;
    365 * (year - 1970) + leap_days(year - 1) - leap_days(1969)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_bytes() {
        for (value, text) in [
            (0.0, "0"),
            (999.0, "999"),
            (1000.0, "1,000"),
            (-12_345.0, "-12,345"),
            (999_999.4, "999,999"),
            (999_999.5, "1.00 M"),
            (1_234_567.0, "1.23 M"),
            (99_950_000.0, "100 M"),
            (999_499_999.0, "999 M"),
            (999_500_000.0, "1.00 G"),
            (1.8e19, "18.0 E"),
            (f64::INFINITY, "∞"),
        ] {
            assert_eq!(count(value), text, "{value}");
        }
        assert_eq!(bytes(9_999.0), "9,999 B");
        assert_eq!(bytes(10_000.0), "10.0 kB");
        assert_eq!(bytes(34_512_345.0), "34.5 MB");
    }

    #[test]
    fn shares_times_and_memory() {
        for (share, text) in [
            (0.0, "0 %"),
            (0.000_01, "<0.01 %"),
            (0.001_23, "0.12 %"),
            (0.009_96, "1.0 %"),
            (0.123_4, "12.3 %"),
            (0.999_8, ">99.9 %"),
            (1.0, "100 %"),
        ] {
            assert_eq!(percent(share), text, "{share}");
        }
        assert_eq!(duration(59_990_000_000), "60.0 s");
        assert_eq!(duration(3_599_999_999_999), "59 min 59 s");
        assert_eq!(duration(7_500_000_000_000), "2 h 05 min");
        assert_eq!(memory(256 << 20), "256 MiB");
        assert_eq!(memory(1 << 20 | 1 << 19), "1.5 MiB");
        assert_eq!(memory(1000), "1000 bytes");
    }

    #[test]
    fn bars() {
        assert_eq!(bar(1.0, 3), "███");
        assert_eq!(bar(0.5, 3), "█▌");
        assert_eq!(bar(1e-9, 3), "▏");
        assert_eq!(bar(0.0, 3), "");
        assert_eq!(bar(f64::NAN, 3), "");
    }

    #[test]
    fn known_times() {
        for (ns, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (1_459_947_600 * SECOND_NS, "2016-04-06T13:00:00.000000000Z"),
            (951_782_400 * SECOND_NS + 7, "2000-02-29T00:00:00.000000007Z"),
            (-2_203_891_201 * SECOND_NS, "1900-02-28T23:59:59.000000000Z"),
            (-2_203_891_200 * SECOND_NS, "1900-03-01T00:00:00.000000000Z"),
            (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
            (i64::MIN, "1677-09-21T00:12:43.145224192Z"),
        ] {
            assert_eq!(rfc3339(ns), text, "{ns}");
            if ns != i64::MIN {
                assert_eq!(parse_rfc3339(text), Some(ns), "{text}");
            }
        }
        assert_eq!(parse_rfc3339("2026-11-25T06:30:00.5Z"), Some(1_795_588_200_500_000_000));
        for text in [
            "",
            "2026-11-25",
            "2026-11-25T06:30:00",
            "2026-11-31T06:30:00Z",
            "2026-13-01T06:30:00Z",
            "2026-11-25T24:30:00Z",
            "2026-11-25T06:30Z",
            "2026-11-25T+6:30:00Z",
            "2026-11-25T06:30:00.1234567890Z",
            "9999-11-25T06:30:00Z",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn days_follow_each_other() {
        let mut last = date(-106_752);
        for days in -106_751..=106_751 {
            let next = date(days);
            let (year, month, day) = last;
            let followers = [(year, month, day + 1), (year, month + 1, 1), (year + 1, 1, 1)];
            assert!(followers.contains(&next), "{last:?} {next:?}");
            assert!(next.2 > 1 || last.2 >= 28, "{last:?} {next:?}");
            assert!(next.2 <= 31 && next.1 <= 12, "{next:?}");
            last = next;
        }
    }
}
