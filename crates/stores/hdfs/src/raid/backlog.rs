//! The remarks and problems about encoding by policies that operators see. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hdfs_raid::Pause;

use super::schedule::{Amount, Backlog, Failure, Hold, Urgency, Wait};

/// Shorter waits for HDFS are usual: DataNodes create and remove replicas with their heartbeats.
const LONG_WAIT_MS: u64 = 120_000;

/// The names of the amounts of data, and their sizes.
const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl Backlog {
    /// Returns remarks for the status. The files were last listed this long ago; `None` if they were not listed yet.
    pub fn remarks(&self, hold: &Hold, listed_ms_ago: Option<u64>) -> Vec<String> {
        let total = self.total();
        let work = match (listed_ms_ago, total.files) {
            (None, 0) => "encoding by policies: HDFS has not been listed for this yet".to_owned(),
            (Some(_), 0) => "encoding by policies: nothing to do".to_owned(),
            _ => self.work(total, hold),
        };
        let mut remarks = vec![work];
        if let (1.., Hold::Background(why) | Hold::All(why)) = (total.files, hold) {
            remarks.push(format!("encoding by policies waits: {why}"));
        }
        remarks.extend(self.waits_text());
        remarks.extend(self.failures(|urgency| urgency != Urgency::Unsafe).map(|(count, text)| {
            format!("{} could not be encoded and will be tried again: {text}", files(count))
        }));
        remarks.extend(self.left_as_they_are());
        remarks
    }

    /// Returns the problem that files without enough redundancy could not be made safe.
    pub fn troubles(&self) -> Vec<String> {
        let failures = self.failures(|urgency| urgency == Urgency::Unsafe);
        let line = |(count, text): (u64, String)| {
            format!(
                "{} that one lost DataNode could damage could not be made safe and will be tried again: {text}; remove the \
                 cause, or raise the replication by hdfs dfs -setrep",
                files(count)
            )
        };
        failures.map(line).into_iter().collect()
    }

    /// Returns the sentence about the files that wait or are in progress.
    fn work(&self, total: Amount, hold: &Hold) -> String {
        let mut text = format!("encoding by policies: {} ({}) to do", files(total.files), size(total.bytes));
        for (number, (urgency, amount)) in self.waiting.iter().enumerate() {
            let separator = if number == 0 { ":" } else { "," };
            let _ = write!(text, "{separator} {} {}", amount.files, name(*urgency));
        }
        if self.left_out.files > 0 {
            let _ = write!(text, "; {} more", self.left_out.files);
        }
        if self.running.files > 0 {
            let _ = write!(text, "; {} in progress", self.running.files);
        }
        if let (Hold::None, Some(rate @ 1..)) = (hold, self.rate) {
            let _ = write!(text, "; {}/s, about {} left", size(rate), duration(total.bytes / rate));
        }
        text
    }

    /// Returns the number of files that failed, and the most frequent reason with a path.
    fn failures(&self, is_meant: impl Fn(Urgency) -> bool) -> Option<(u64, String)> {
        let failed: Vec<&Failure> = self.failed.iter().filter(|it| is_meant(it.urgency)).collect();
        let mut by_reason: BTreeMap<&str, (u64, &Failure)> = BTreeMap::new();
        for &failure in &failed {
            let (count, longest) = by_reason.entry(failure.why.as_str()).or_insert((0, failure));
            *count += 1;
            if failure.for_ms > longest.for_ms {
                *longest = failure;
            }
        }
        let (why, (count, longest)) = by_reason.into_iter().max_by_key(|(_, (count, _))| *count)?;
        let (path, time) = (&longest.path, time(longest.for_ms));
        let all = failed.len() as u64;
        let others =
            if all > count { format!("; {} for other reasons", files(all - count)) } else { String::new() };
        let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        Some((all, format!("{path}{more}{time}: {why}{others}")))
    }

    /// Returns the file that has waited longest for HDFS, if that is long, with the operator's next step.
    fn waits_text(&self) -> Option<String> {
        let long: Vec<&Wait> = self.waits.iter().filter(|wait| wait.for_ms >= LONG_WAIT_MS).collect();
        let Wait { path, why, for_ms } = long.iter().max_by_key(|wait| wait.for_ms)?;
        let all =
            if long.len() == 1 { "1 file waits".to_owned() } else { format!("{} files wait", long.len()) };
        let more = if long.len() > 1 { format!(" and {} more", long.len() - 1) } else { String::new() };
        let advice = match why {
            Pause::Waiting(waiting) => format!("; if this takes too long, {}", waiting.advice()),
            Pause::Retry(_) => String::new(),
        };
        Some(format!("{all} for HDFS: {path}{more}{}: {why}{advice}", time(*for_ms)))
    }

    fn left_as_they_are(&self) -> Option<String> {
        let count: u64 = self.later.values().sum();
        let (why, _) = self.later.iter().max_by_key(|(_, count)| **count)?;
        let reasons = if self.later.len() > 1 { ", or for other reasons" } else { "" };
        Some(format!("{} left as they are for now: {why}{reasons}", files(count)))
    }
}

fn name(urgency: Urgency) -> &'static str {
    match urgency {
        Urgency::Unsafe => "that one lost DataNode could damage",
        Urgency::Changed => "changed since they were encoded",
        Urgency::Unfinished => "unfinished",
        Urgency::Misplaced => "with blocks too close together",
        Urgency::New => "new",
        Urgency::OldNote => "with parity that an earlier version of Mend has noted",
    }
}

fn files(count: u64) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

fn size(bytes: u64) -> String {
    let unit = UNITS.iter().find(|(_, unit)| bytes >= *unit);
    unit.map_or_else(
        || format!("{bytes} B"),
        |(name, unit)| format!("{:.1} {name}", bytes as f64 / *unit as f64),
    )
}

/// Returns how long something has lasted, for a sentence. A short time would change with each look.
fn time(ms: u64) -> String {
    if ms < 120_000 { String::new() } else { format!(", for {}", duration(ms / 1000)) }
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backlog() -> Backlog {
        let amount = |files, bytes| Amount { files, bytes };
        Backlog {
            waiting: BTreeMap::from([
                (Urgency::Changed, amount(2, 3 << 30)),
                (Urgency::New, amount(40, 60 << 30)),
            ]),
            running: amount(1, 1 << 30),
            rate: Some(16 << 20),
            ..Backlog::default()
        }
    }

    #[test]
    fn the_backlog_has_files_bytes_a_rate_and_an_end() {
        let said = "encoding by policies: 43 files (64.0 GiB) to do: 2 changed since they were encoded, 40 new; 1 in progress";
        assert_eq!(
            backlog().remarks(&Hold::None, Some(0)),
            [format!("{said}; 16.0 MiB/s, about 68 min left")]
        );
        let hold = Hold::Background("3 stripes are being repaired".to_owned());
        let waits = "encoding by policies waits: 3 stripes are being repaired".to_owned();
        assert_eq!(backlog().remarks(&hold, Some(0)), [said.to_owned(), waits]);
        let idle = Backlog::default();
        assert_eq!(idle.remarks(&hold, Some(0)), ["encoding by policies: nothing to do"]);
        assert_eq!(
            idle.remarks(&hold, None),
            ["encoding by policies: HDFS has not been listed for this yet"]
        );
    }

    /// HDFS creates no replicas of a file whose replication was raised, and says nothing about it.
    #[test]
    fn a_file_that_waits_for_hdfs_is_named_with_the_time_and_the_next_step() {
        let wait = |path: &str, minutes: u64| Wait {
            path: path.to_owned(),
            why: Pause::Waiting(hdfs_raid::Waiting::Replicas),
            for_ms: minutes * 60_000,
        };
        let told = |waits| Backlog { waits, ..backlog() }.remarks(&Hold::None, Some(0));
        assert_eq!(told(vec![wait("/a", 1)]).len(), 1, "a short wait is usual");
        let remarks = told(vec![wait("/a", 3), wait("/b", 9), wait("/c", 1)]);
        let said =
            "2 files wait for HDFS: /b and 1 more, for 9 min: wait until HDFS has created all replicas; ";
        assert!(remarks[1].starts_with(said), "{remarks:?}");
        assert!(remarks[1].contains("dfs.namenode.replication.max-streams"), "{remarks:?}");
    }

    #[test]
    fn files_that_stay_unprotected_are_a_problem_and_other_failures_a_remark() {
        let failed = |path: &str, urgency, why: &str| Failure {
            path: path.to_owned(),
            urgency,
            why: why.to_owned(),
            for_ms: if path == "/b" { 25 * 60_000 } else { 0 },
        };
        let failures = vec![
            failed("/a", Urgency::New, "full"),
            failed("/b", Urgency::Unsafe, "quota"),
            failed("/c", Urgency::New, "full"),
            failed("/d", Urgency::Misplaced, "refused"),
        ];
        let later = BTreeMap::from([("too new".to_owned(), 2)]);
        let backlog = Backlog { failed: failures, later, ..Backlog::default() };
        let remarks = backlog.remarks(&Hold::None, Some(0));
        let expected = "3 files could not be encoded and will be tried again: /a and 1 more: full; 1 file for other reasons";
        assert_eq!(remarks[1..], [expected, "2 files left as they are for now: too new"]);
        let troubles = backlog.troubles();
        assert!(
            troubles.len() == 1 && troubles[0].starts_with("1 file that one lost DataNode could damage"),
            "{troubles:?}"
        );
        assert!(troubles[0].contains("/b, for 25 min: quota"), "{troubles:?}");
        assert_eq!(Backlog::default().troubles(), Vec::<String>::new());
    }
}
