//! Numbers as people read them: exact where short, else three digits and a unit.

use flowgauge_core::terms::Measure;

/// A count such as `12,345` or `1.23 M`, at most 7 columns wide.
pub fn count(value: f64) -> String {
    let whole = value.round();
    if whole.abs() < 1e6 { grouped(whole) } else { scaled(value) }
}

/// Things a second: a count, with a fraction where there are few.
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

/// Memory such as `256 MiB`: in the largest unit of 1,024 that leaves no fraction to speak of.
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
        // What rounds to all of it is not all of it.
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

/// A bar of up to `columns` blocks for `share` of the longest; what is not zero shows.
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
}
