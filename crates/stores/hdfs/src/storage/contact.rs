//! [`Contact`]: whether the state of HDFS is known. It is unknown before the first listing of all groups, and
//! while the NameNode does not answer. Pure: this module sends no queries.

use std::time::Duration;

use store_api::StoreChange;

use super::loss_contact::LossContact;
use crate::listing::Progress;

/// If the last answer with all DataNodes is older than this, the state of HDFS is reported as unknown.
const BLIND_AFTER: Duration = Duration::from_secs(20);
/// The status before the first listing.
const UNLISTED: &str = "HDFS has not been listed yet";

/// The reports about the contact with the NameNode.
///
/// **Invariant:** the state is reported as known once after each report that it is unknown.
pub(super) struct Contact {
    /// Why HDFS has not been listed yet, as last reported; `None` after the first listing.
    unlisted: Option<String>,
    /// The time of the last answer with all DataNodes.
    nodes_heard: Option<Duration>,
    /// Why the state of HDFS was last reported as unknown after the first listing; `None` while it is known.
    blind: Option<String>,
    /// Whether the NameNode's lists of losses are read.
    pub(super) losses: LossContact,
}

impl Contact {
    /// Creates the state before the first answer; `listed` if there is no NameNode to list anything.
    pub fn new(listed: bool) -> Self {
        let unlisted = (!listed).then(|| UNLISTED.to_owned());
        Self { unlisted, nodes_heard: None, blind: None, losses: LossContact::default() }
    }

    /// Returns why HDFS has not been listed yet; `None` after the first listing.
    pub fn unlisted(&self) -> Option<&str> {
        self.unlisted.as_deref()
    }

    /// Returns the time of the last answer with all DataNodes.
    pub fn nodes_heard(&self) -> Option<Duration> {
        self.nodes_heard
    }

    /// Records an answer with all DataNodes. If the state was reported as unknown, returns the report that it
    /// is known again.
    pub fn note_nodes(&mut self, now: Duration) -> Option<StoreChange> {
        self.nodes_heard = Some(now);
        self.blind.take().map(|_| StoreChange::Unlisted(None))
    }

    /// Records that all groups are listed. Returns the report of the first time.
    pub fn note_listed(&mut self) -> Option<StoreChange> {
        self.unlisted.take().map(|_| StoreChange::Unlisted(None))
    }

    /// Records the progress of the first listing, and returns it as a report.
    pub fn note_progress(&mut self, Progress { folders, files }: Progress) -> Option<StoreChange> {
        let unlisted = self.unlisted.as_mut()?;
        *unlisted = format!("{UNLISTED}: {folders} folders and {files} files are listed so far");
        Some(StoreChange::Unlisted(Some(unlisted.clone())))
    }

    /// Returns the report that the state is unknown, if the NameNode has not listed the DataNodes for some
    /// time. `error` is the last error of the query.
    pub fn note_silence(&mut self, now: Duration, error: Option<&String>) -> Option<StoreChange> {
        let silence = now.saturating_sub(self.nodes_heard.unwrap_or_default());
        if silence < BLIND_AFTER || self.blind.is_some() || self.unlisted.is_some() {
            return None;
        }
        let why = match error {
            Some(error) => error.clone(),
            None => format!("the NameNode has not answered for {} s", silence.as_secs()),
        };
        self.blind = Some(why.clone());
        Some(StoreChange::Unlisted(Some(why)))
    }

    /// Returns whether the state is known, as a report for a new listener.
    pub fn told(&self) -> StoreChange {
        StoreChange::Unlisted(self.unlisted.clone().or_else(|| self.blind.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Duration = Duration::from_secs(5);

    /// Returns what a change reports about the state of HDFS: `None` if nothing, otherwise why it is unknown.
    fn told(change: Option<StoreChange>) -> Option<Option<String>> {
        change.map(|change| match change {
            StoreChange::Unlisted(why) => why,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn silence_is_reported_once_and_so_is_its_end() {
        let mut contact = Contact::new(true);
        assert_eq!(told(contact.note_nodes(AT)), None);
        assert_eq!(told(contact.note_silence(AT + BLIND_AFTER / 2, None)), None);
        let why = "the NameNode has not answered for 20 s".to_owned();
        assert_eq!(told(contact.note_silence(AT + BLIND_AFTER, None)), Some(Some(why.clone())));
        assert_eq!(contact.told(), StoreChange::Unlisted(Some(why)));
        assert_eq!(told(contact.note_silence(AT + BLIND_AFTER * 2, None)), None);
        assert_eq!(told(contact.note_nodes(AT + BLIND_AFTER * 2)), Some(None));
        assert_eq!(told(contact.note_nodes(AT + BLIND_AFTER * 2)), None);
        assert_eq!(contact.told(), StoreChange::Unlisted(None));
    }

    #[test]
    fn before_the_first_listing_only_its_progress_is_reported() {
        let mut contact = Contact::new(false);
        assert_eq!(told(contact.note_silence(BLIND_AFTER * 2, None)), None);
        let why = format!("{UNLISTED}: 2 folders and 7 files are listed so far");
        assert_eq!(told(contact.note_progress(Progress { folders: 2, files: 7 })), Some(Some(why.clone())));
        assert_eq!(contact.unlisted(), Some(&why[..]));
        assert_eq!(told(contact.note_listed()), Some(None));
        assert_eq!(told(contact.note_listed()), None);
        assert_eq!(told(contact.note_progress(Progress { folders: 2, files: 8 })), None);
    }
}
