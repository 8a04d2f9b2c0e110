//! [`Listings`]: when the policies' folders are listed, and when the files that have changed. Pure: time comes in as an
//! argument, in milliseconds since 1970.
//!
//! A listing of all folders may take many minutes. A changed file may have one replica of its new bytes, so it is listed
//! beside that. The listing of the folders may have older facts about the file, which do not count.

use std::collections::BTreeSet;

/// The pause after a listing that failed.
const LIST_AGAIN_MS: u64 = 60_000;
/// Listings of the folders that changes cause are at least this part of the interval apart.
const EARLY: u64 = 10;
/// Listings of the folders that decide about unsafe files are at least this far apart, unless the interval requires less.
const DOUBTFUL_MS: u64 = 5 * 60_000;

/// The state of the listings; see the module's documentation.
#[derive(Debug)]
pub(super) struct Listings {
    interval_ms: u64,
    folders: Kind,
    changed: Kind,
    /// Whether the last listing of changed files failed before the present listing of the folders began, which finds them.
    is_failure_older: bool,
    /// The time at which the last listing of the folders ended, and the pause before the next one.
    listed_ms: Option<u64>,
    pause_ms: u64,
    /// The files and folders that were listed since the present listing of the folders has begun.
    newer: BTreeSet<String>,
}

/// A kind of listing. One listing of each kind runs at a time.
#[derive(Debug, Default)]
struct Kind {
    is_running: bool,
    /// Why the last one failed, and the end of the pause after it.
    failed: Option<(String, u64)>,
}

impl Kind {
    fn is_free(&self, now_ms: u64) -> bool {
        !self.is_running && self.failed.as_ref().is_none_or(|&(_, until_ms)| now_ms >= until_ms)
    }

    /// Returns what a failure means, with its reason.
    fn problem(&self, meaning: &str) -> Option<String> {
        self.failed.as_ref().map(|(why, _)| format!("{meaning}: {why}"))
    }
}

impl Listings {
    /// Creates the state before the first listing. The folders are listed once per interval.
    pub fn new(interval_ms: u64) -> Self {
        Self {
            interval_ms,
            folders: Kind::default(),
            changed: Kind::default(),
            is_failure_older: false,
            listed_ms: None,
            pause_ms: interval_ms,
            newer: BTreeSet::new(),
        }
    }

    /// Forgets all listings, because the policies have changed.
    pub fn forget(&mut self) {
        *self = Self::new(self.interval_ms);
    }

    /// Has the folders listed earlier than planned: files were left out, or so many have changed that they are unknown.
    pub fn note_left_out(&mut self) {
        self.list_after(self.interval_ms / EARLY);
    }

    /// Has the folders listed earlier than planned, because only this decides about an unsafe file.
    pub fn note_doubtful(&mut self) {
        self.list_after((self.interval_ms / EARLY).min(DOUBTFUL_MS));
    }

    fn list_after(&mut self, pause_ms: u64) {
        self.pause_ms = self.pause_ms.min(pause_ms);
    }

    /// Whether the folders are being listed.
    pub fn is_listing_folders(&self) -> bool {
        self.folders.is_running
    }

    /// Whether a listing of the folders begins now.
    pub fn are_folders_due(&self, now_ms: u64) -> bool {
        let is_over = self.listed_ms.is_none_or(|listed_ms| now_ms >= listed_ms + self.pause_ms);
        is_over && self.folders.is_free(now_ms)
    }

    /// Whether a listing of changed files may begin now.
    pub fn may_list_changed(&self, now_ms: u64) -> bool {
        self.changed.is_free(now_ms)
    }

    /// Records that a listing of the folders has begun.
    pub fn begin_folders(&mut self) {
        self.folders.is_running = true;
        self.pause_ms = self.interval_ms;
        self.is_failure_older = true;
        self.newer.clear();
    }

    /// Records that a listing of these files and folders has begun.
    pub fn begin_changed(&mut self, paths: &[String]) {
        self.changed.is_running = true;
        if self.folders.is_running {
            self.newer.extend(paths.iter().cloned());
        }
    }

    /// Records that the folders were listed. Returns the files and folders whose present state the listing may not contain.
    pub fn end_folders(&mut self, now_ms: u64) -> BTreeSet<String> {
        self.folders = Kind::default();
        if self.is_failure_older {
            self.changed.failed = None;
        }
        self.listed_ms = Some(now_ms);
        std::mem::take(&mut self.newer)
    }

    /// Records that the changed files were listed.
    pub fn end_changed(&mut self) {
        self.changed = Kind::default();
    }

    /// Records that the folders could not be listed.
    pub fn fail_folders(&mut self, why: String, now_ms: u64) {
        self.folders = self.failed(why, now_ms);
        self.list_after(0);
    }

    /// Records that changed files could not be listed. A listing of the folders finds them.
    pub fn fail_changed(&mut self, why: String, now_ms: u64) {
        self.changed = self.failed(why, now_ms);
        self.is_failure_older = false;
        self.list_after(LIST_AGAIN_MS);
    }

    fn failed(&self, why: String, now_ms: u64) -> Kind {
        let until_ms = now_ms + LIST_AGAIN_MS.min(self.interval_ms);
        Kind { is_running: false, failed: Some((why, until_ms)) }
    }

    /// Returns the time at which the last listing of the folders ended.
    pub fn listed_ms(&self) -> Option<u64> {
        self.listed_ms
    }

    /// Returns the problem that the last listing of either kind failed, for operators.
    pub fn problem(&self) -> Option<String> {
        let folders = self.folders.problem(
            "the folders of policies cannot be listed, so files are not encoded; this will be tried again",
        );
        let changed = || {
            self.changed.problem(
                "files that have changed could not be listed, and wait for the next listing of the policies' folders",
            )
        };
        folders.or_else(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;

    /// Returns the state after a listing of the folders that ended at this time.
    fn listed(at_ms: u64) -> Listings {
        let mut listings = Listings::new(HOUR_MS);
        assert!(listings.are_folders_due(at_ms));
        listings.begin_folders();
        assert_eq!(listings.end_folders(at_ms), BTreeSet::new());
        listings
    }

    #[test]
    fn changed_files_do_not_wait_for_a_listing_of_the_folders() {
        let mut listings = listed(5);
        let paths = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
        listings.begin_changed(&paths(&["/before"]));
        listings.begin_folders();
        listings.end_changed();
        assert!(listings.is_listing_folders() && listings.may_list_changed(6));
        listings.begin_changed(&paths(&["/a", "/b"]));
        assert!(!listings.may_list_changed(6), "one at a time");
        listings.end_changed();
        listings.begin_changed(&paths(&["/c"]));
        // The listing of `/c` is still in progress, and will be the newer one.
        assert_eq!(listings.end_folders(7), BTreeSet::from(["/a", "/b", "/c"].map(str::to_owned)));
    }

    #[test]
    fn the_folders_are_listed_once_per_interval_unless_changes_require_it() {
        let mut listings = listed(5);
        let due_ms = |listings: &Listings| {
            let times = [0, DOUBTFUL_MS, HOUR_MS / EARLY, HOUR_MS].map(|pause_ms| 5 + pause_ms);
            times.into_iter().find(|&now_ms| listings.are_folders_due(now_ms))
        };
        assert_eq!(due_ms(&listings), Some(5 + HOUR_MS));
        listings.note_left_out();
        assert_eq!(due_ms(&listings), Some(5 + HOUR_MS / EARLY));
        listings.note_doubtful();
        assert_eq!(due_ms(&listings), Some(5 + DOUBTFUL_MS));
        listings.begin_folders();
        assert_eq!(due_ms(&listings), None, "they are being listed");
        listings.end_folders(5);
        assert_eq!(due_ms(&listings), Some(5 + HOUR_MS));
        // Doubts that arise during a listing remain after it.
        listings.begin_folders();
        listings.note_doubtful();
        listings.end_folders(5);
        assert_eq!(due_ms(&listings), Some(5 + DOUBTFUL_MS));
    }

    /// Returns whose failed listing is the problem.
    fn failed(listings: &Listings) -> Option<&'static str> {
        let problem = listings.problem()?;
        assert!(problem.ends_with(": no answer"), "{problem}");
        Some(if problem.starts_with("the folders of policies") { "folders" } else { "changed files" })
    }

    #[test]
    fn a_listing_that_fails_is_repeated_after_a_pause() {
        let mut listings = listed(5);
        listings.begin_folders();
        listings.fail_folders("no answer".to_owned(), 9);
        assert_eq!(failed(&listings), Some("folders"));
        let again_ms = 9 + LIST_AGAIN_MS;
        assert!(!listings.are_folders_due(again_ms - 1) && listings.are_folders_due(again_ms));
        listings.begin_folders();
        listings.end_folders(again_ms);
        assert_eq!((failed(&listings), listings.listed_ms()), (None, Some(again_ms)));

        listings.begin_changed(&["/a".to_owned()]);
        listings.fail_changed("no answer".to_owned(), again_ms);
        assert_eq!(failed(&listings), Some("changed files"));
        let later_ms = again_ms + LIST_AGAIN_MS;
        assert!(!listings.may_list_changed(later_ms - 1) && !listings.are_folders_due(later_ms - 1));
        assert!(listings.may_list_changed(later_ms) && listings.are_folders_due(later_ms));
        listings.begin_folders();
        listings.end_folders(later_ms);
        assert_eq!(failed(&listings), None, "the folders contain these files");
        listings.forget();
        assert!(listings.problem().is_none() && listings.are_folders_due(0));
    }

    #[test]
    fn changed_files_that_could_not_be_listed_wait_for_a_later_listing_of_the_folders() {
        let mut listings = listed(5);
        listings.begin_folders();
        listings.begin_changed(&["/a".to_owned()]);
        listings.fail_changed("no answer".to_owned(), 9);
        listings.end_folders(10);
        assert_eq!(failed(&listings), Some("changed files"), "they may have changed since it began");
        assert!(listings.are_folders_due(10 + LIST_AGAIN_MS));
        // Other changed files are being listed when the next one ends.
        listings.begin_folders();
        listings.begin_changed(&["/b".to_owned()]);
        listings.end_folders(20);
        assert_eq!(failed(&listings), None);
        assert!(!listings.may_list_changed(20), "one at a time");
    }
}
