//! Time stamps for readers: RFC 3339, UTC.

const SECOND_NS: i64 = 1_000_000_000;
const DAY_NS: i64 = 86_400 * SECOND_NS;

/// Nanoseconds since the UNIX epoch as `2016-04-06T13:00:00.000000000Z`.
pub fn rfc3339(time_ns: i64) -> String {
    let (year, month, day) = date(time_ns.div_euclid(DAY_NS));
    let in_day = time_ns.rem_euclid(DAY_NS);
    let (seconds, ns) = (in_day / SECOND_NS, in_day % SECOND_NS);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ns:09}Z")
}

/// Nanoseconds since the UNIX epoch of a time such as `2016-04-06T13:00:00Z`, with or without a part of
/// the second; `None` where it is no such time.
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
    // A year is at most 366 days long, so this is never too late (nor, before 1970, is the year
    // before it), and the loop runs a few times at most.
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
