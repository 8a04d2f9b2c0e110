//! Formats numbers, names and tables for people.

use std::borrow::Cow;
use std::time::Duration;

use cluster::Bandwidth;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Formats a size in binary units: `1.02 GiB`, `64 MiB`, `17 B`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1023.995 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", trimmed(value), UNITS[unit])
}

/// Formats a block size: `64 MiB`, or `64 MiB in 1 MiB` if blocks are encoded in chunks of 1 MiB.
pub fn block_size(block_bytes: u64, chunk_bytes: Option<u64>) -> String {
    let chunks = chunk_bytes.map_or(String::new(), |bytes| format!(" in {}", size(bytes)));
    size(block_bytes) + &chunks
}

/// Formats a number with at most two decimals, without trailing zeros.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats a measured time for comparisons: `12.3 ms`, `4.56 s`. From one minute on, uses [`lasting`].
pub fn time(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 1.0 => format!("{} ms", trimmed((seconds * 1e4).round() / 10.0)),
        seconds if seconds < 60.0 => format!("{seconds:.2} s"),
        _ => lasting(time),
    }
}

/// Formats a duration: `350 ms`, `4.2 s`, `4 min 30 s`, `2 h 5 min`.
pub fn lasting(time: Duration) -> String {
    let rounded_to = |unit: u64| (time.as_secs() + unit / 2) / unit * unit;
    let seconds = (time.as_secs_f64() + 0.5) as u64;
    let two = |first: String, rest: u64, unit: &str| match rest {
        0 => first,
        rest => format!("{first} {rest} {unit}"),
    };
    match seconds {
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{} s", trimmed((time.as_secs_f64() * 10.0).round() / 10.0)),
        60..3600 => two(format!("{} min", seconds / 60), seconds % 60, "s"),
        3600..172_770 => two(format!("{} h", rounded_to(60) / 3600), rounded_to(60) % 3600 / 60, "min"),
        _ => two(format!("{} days", rounded_to(3600) / 86_400), rounded_to(3600) % 86_400 / 3600, "h"),
    }
}

/// Formats a transfer rate: `113 MiB/s`.
pub fn rate(bytes: u64, time: Duration) -> String {
    format!("{}/s", size((bytes as f64 / time.as_secs_f64().max(1e-6)) as u64))
}

/// Formats the rate of a disk in the units of mend.toml: `200 MB/s`.
pub fn disk_rate(bytes_per_s: u64) -> String {
    decimal(bytes_per_s, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
}

/// Formats a cap in both units in which users can type it: `500 Mbit/s (62.5 MB/s)`.
pub fn cap(bytes_per_s: u64) -> String {
    let bits = decimal(bytes_per_s.saturating_mul(8), ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]);
    format!("{bits} ({})", disk_rate(bytes_per_s))
}

/// Formats the rate of a link, truncated to three digits: `1gbit`, `937mbit`.
pub fn link_rate(bytes_per_s: u64) -> String {
    let bits = bytes_per_s.saturating_mul(8);
    let unit = 10_u64.pow(bits.max(1).ilog10().saturating_sub(2));
    let rounded = bits / unit * unit;
    Bandwidth::from_bits_per_second(rounded).map_or_else(|| "nothing".to_owned(), |rate| rate.to_string())
}

fn decimal(number: u64, units: [&str; 5]) -> String {
    let (mut value, mut unit) = (number as f64, 0);
    while value >= 999.995 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{} {}", trimmed(value), units[unit])
}

/// Formats a number with its noun: `1 stripe`, `2 stripes`.
pub fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Formats a time in UTC: `2026-11-21T14:03:07Z`.
pub fn date(unix_ms: u64) -> String {
    let moment = std::time::UNIX_EPOCH.checked_add(Duration::from_secs(unix_ms / 1000));
    // `humantime` rejects years after 9999; only a wrong clock produces them.
    match moment {
        Some(moment) if unix_ms < 253_402_300_800_000 => {
            humantime::format_rfc3339_seconds(moment).to_string()
        }
        _ => format!("{unix_ms} ms after 1970"),
    }
}

/// Escapes untrusted text for display on one line: control characters, line separators, and characters that
/// change the writing direction.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_obeyed)
}

/// Like [`printable`], but keeps line breaks and tabs.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_obeyed(c) && !matches!(c, '\n' | '\t'))
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match is_escaped(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Formats a view of the API. `text` gets the view with all its names and messages [escaped](printable), so
/// none of them begins a line.
pub fn shown<T: Serialize + DeserializeOwned>(view: &T, text: impl FnOnce(&T) -> String) -> String {
    let exact = serde_json::to_value(view).expect("views have string keys");
    if is_printable(&exact) {
        return text(view);
    }
    text(&serde_json::from_value(all_printable(exact)).expect("escaped text is text"))
}

fn is_printable(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.contains(is_obeyed),
        Value::Array(values) => values.iter().all(is_printable),
        Value::Object(fields) => {
            fields.iter().all(|(name, value)| !name.contains(is_obeyed) && is_printable(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

fn all_printable(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(printable(&text).into_owned()),
        Value::Array(values) => Value::Array(values.into_iter().map(all_printable).collect()),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            Value::Object(
                fields.map(|(name, value)| (printable(&name).into_owned(), all_printable(value))).collect(),
            )
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

/// Whether a terminal interprets a character instead of showing it.
pub fn is_obeyed(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Formats a table without borders. Columns whose heading starts with `>` are right-aligned.
pub fn table<const N: usize>(headings: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings.map(|heading| heading.trim_start_matches('>')));
    for row in rows {
        table.add_row(row.iter().map(|cell| printable(cell)));
    }
    for (column, heading) in table.column_iter_mut().zip(headings) {
        column.set_padding((0, 2));
        if heading.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text = table.to_string();
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        let sizes = [0, 1023, 1024, 64 << 20, 1_100_000_000, u64::MAX].map(size);
        assert_eq!(sizes, ["0 B", "1023 B", "1 KiB", "64 MiB", "1.02 GiB", "16384 PiB"]);
        assert_eq!(size((1 << 30) - 1), "1 GiB");
    }

    #[test]
    fn times_read_well() {
        let times = [0, 350, 4_230, 59_600, 270_000, 3_600_000, 7_500_000, 190_000_000];
        let times = times.map(|ms| lasting(Duration::from_millis(ms)));
        assert_eq!(
            times,
            ["0 ms", "350 ms", "4.2 s", "1 min", "4 min 30 s", "1 h", "2 h 5 min", "2 days 5 h"]
        );
        let times = [12_345, 300_000, 4_560_000, 6_538_350_000].map(|us| time(Duration::from_micros(us)));
        assert_eq!(times, ["12.3 ms", "300 ms", "4.56 s", "1 h 49 min"]);
        let times = [3_599_600, 7_199_000, 172_769_000, 172_799_000, 259_199_000];
        let times = times.map(|ms| lasting(Duration::from_millis(ms)));
        assert_eq!(times, ["1 h", "2 h", "47 h 59 min", "2 days", "3 days"]);
        assert_eq!([cap(62_500_000), cap(3_000_000)], ["500 Mbit/s (62.5 MB/s)", "24 Mbit/s (3 MB/s)"]);
        assert_eq!([disk_rate(999), disk_rate(200_000_000)], ["999 B/s", "200 MB/s"]);
        assert_eq!(rate(6 << 20, Duration::from_secs(2)), "3 MiB/s");
    }

    #[test]
    fn tables_are_aligned_and_have_no_trailing_blanks() {
        let rows = [["a".to_owned(), "1".to_owned()], ["bcd".to_owned(), "1000".to_owned()]];
        assert_eq!(table(["name", ">bytes"], rows), "name  bytes\na         1\nbcd    1000\n");
    }

    #[test]
    fn terminal_control_characters_are_escaped() {
        assert_eq!(printable("Grüße, 世界 👩‍👩‍👧 a\\b"), "Grüße, 世界 👩‍👩‍👧 a\\b");
        assert_eq!(printable("a\u{1b}[2J\r\n\t\u{7f}"), r"a\u{1b}[2J\r\n\t\u{7f}");
        assert_eq!(printable("\u{9b}31m\u{202e}gpj\u{2028}"), r"\u{9b}31m\u{202e}gpj\u{2028}");
        assert_eq!(printable_lines("a\n\tb\u{1b}]0;x\u{7}\r"), "a\n\tb\\u{1b}]0;x\\u{7}\\r");
        let rows = [["a\nb".to_owned(), "c\u{1b}".to_owned()]];
        assert_eq!(table(["name", "code"], rows), "name  code\na\\nb  c\\u{1b}\n");
    }

    #[test]
    fn no_text_of_a_view_begins_a_line() {
        let view = serde_json::json!({ "a\nb": ["c\nd", { "e": "f\r" }, 1, true, null], "g": "h\\n" });
        let text = shown(&view, Value::to_string);
        assert_eq!(text, r#"{"a\\nb":["c\\nd",{"e":"f\\r"},1,true,null],"g":"h\\n"}"#);
    }

    #[test]
    fn dates_are_utc() {
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert!(date(u64::MAX).contains("1970"));
    }
}
