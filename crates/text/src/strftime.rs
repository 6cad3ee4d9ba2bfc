//! Dates in chat templates: the part of C's `strftime` that they use, in UTC.

use std::time::{Duration, SystemTime};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// Directives it does not know stay as they are.
pub(crate) fn strftime(now: SystemTime, format: &str) -> String {
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day, day_of_year) = civil(days);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    let hour12 = (hour + 11) % 12 + 1;
    // 1970-01-01 was a Thursday.
    let weekday = WEEKDAYS[((days + 3) % 7) as usize];
    let month_name = MONTHS[(month - 1) as usize];

    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let (padded, directive) = match chars.next() {
            Some('-') => (false, chars.next()),
            other => (true, other),
        };
        let number = |value: u64, width: usize| if padded { format!("{value:0width$}") } else { value.to_string() };
        match directive {
            Some('Y') => out += &year.to_string(),
            Some('y') => out += &number(year % 100, 2),
            Some('m') => out += &number(month, 2),
            Some('d') => out += &number(day, 2),
            Some('j') => out += &number(day_of_year, 3),
            Some('H') => out += &number(hour, 2),
            Some('I') => out += &number(hour12, 2),
            Some('M') => out += &number(minute, 2),
            Some('S') => out += &number(second, 2),
            Some('p') => out += if hour < 12 { "AM" } else { "PM" },
            Some('B') => out += month_name,
            Some('b' | 'h') => out += &month_name[..3],
            Some('A') => out += weekday,
            Some('a') => out += &weekday[..3],
            Some('F') => out += &format!("{year}-{month:02}-{day:02}"),
            Some('T') => out += &format!("{hour:02}:{minute:02}:{second:02}"),
            Some('Z') => out += "UTC",
            Some('z') => out += "+0000",
            Some('%') => out.push('%'),
            other => {
                out.push('%');
                out.extend(other);
            }
        }
    }
    out
}

/// (year, month, day, day of the year, all from 1) of a number of days since 1970-01-01.
fn civil(mut days: u64) -> (u64, u64, u64, u64) {
    let mut year = 1970;
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let day_of_year = days + 1;
    let mut month = 1;
    for len in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < len {
            break;
        }
        days -= len;
        month += 1;
    }
    (year, month, days + 1, day_of_year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        for (seconds, format, expected) in [
            (0, "%Y-%m-%d %H:%M:%S %a", "1970-01-01 00:00:00 Thu"),
            (951_782_399, "%d %b %Y, %A, %I:%M %p", "28 Feb 2000, Monday, 11:59 PM"),
            (951_782_400, "%F %j", "2000-02-29 060"),
            (1_735_689_599, "%-d %B %y %T %Z", "31 December 24 23:59:59 UTC"),
            (1_772_323_200, "%-m/%-d %-I%p 100%% %q %", "3/1 12AM 100% %q %"),
        ] {
            assert_eq!(strftime(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds), format), expected);
        }
    }
}
