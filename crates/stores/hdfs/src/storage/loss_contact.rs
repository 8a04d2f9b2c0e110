//! [`LossContact`]: whether the NameNode's lists of losses are read. Pure: this module sends no queries.

use std::time::Duration;

/// If the lists could last be read longer ago than this, all groups are listed again and again instead.
const BLIND_AFTER: Duration = Duration::from_secs(300);

/// The result of the last looks at the lists.
#[derive(Debug, Default, PartialEq, Eq)]
enum Lists {
    /// They have not been read yet, and no attempt has failed.
    #[default]
    Untried,
    /// They tell of all losses.
    Read,
    /// They cannot be read.
    Unread,
}

/// The contact with the NameNode's lists of losses.
#[derive(Debug, Default)]
pub(super) struct LossContact {
    lists: Lists,
    /// The end of the last look at the lists that has succeeded, since the opening of the storage.
    looked: Duration,
    /// The end of the last complete listing, by the same clock.
    listed: Duration,
    /// Whether the lists could not be read for some time since the beginning of the last listing of all groups.
    was_interrupted: bool,
}

impl LossContact {
    /// Whether the lists tell of all losses.
    pub fn are_known(&self) -> bool {
        self.lists == Lists::Read
    }

    /// Records that a look at the lists has succeeded: either they were read, or they need not be read yet. Returns
    /// whether they counted as unread before.
    pub fn note_look(&mut self, now: Duration) -> bool {
        self.looked = now;
        std::mem::replace(&mut self.lists, Lists::Read) == Lists::Unread
    }

    /// Records that the lists do not tell of losses.
    pub fn note_unread(&mut self) {
        (self.lists, self.was_interrupted) = (Lists::Unread, true);
    }

    /// Whether the lists still count as read after a failure, because the last look is recent.
    pub fn is_recent(&self, now: Duration) -> bool {
        self.are_known() && now < self.looked + BLIND_AFTER
    }

    /// Returns how long no look has succeeded, if that is too long and was not recorded yet. A query may hang.
    pub fn silence(&self, now: Duration) -> Option<Duration> {
        let silence = now.saturating_sub(self.looked);
        (self.lists != Lists::Unread && silence >= BLIND_AFTER).then_some(silence)
    }

    /// Records that a listing of all groups begins. It shows the losses that were missed.
    pub fn begin_listing(&mut self) {
        if self.are_known() {
            self.was_interrupted = false;
        }
    }

    /// Records that a listing of all groups is complete. It may have shown stripes that the lists had named before.
    pub fn end_listing(&mut self, now: Duration) {
        self.listed = now;
    }

    /// Returns the end of the last complete listing; zero before the first one.
    pub fn listed(&self) -> Duration {
        self.listed
    }

    /// Whether a listing is necessary, because losses since the last call may have been missed.
    pub fn take_interrupted(&mut self) -> bool {
        std::mem::take(&mut self.was_interrupted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Duration = Duration::from_secs(5);

    #[test]
    fn a_look_that_does_not_end_is_noticed_once() {
        let mut contact = LossContact::default();
        assert_eq!(contact.silence(AT), None);
        assert_eq!(contact.silence(BLIND_AFTER), Some(BLIND_AFTER), "not even the first look has ended");
        assert!(!contact.note_look(AT));
        assert!(contact.are_known() && contact.is_recent(AT));
        assert_eq!(contact.silence(AT + BLIND_AFTER - Duration::from_secs(1)), None);
        assert_eq!(contact.silence(AT + BLIND_AFTER), Some(BLIND_AFTER));
        assert!(!contact.is_recent(AT + BLIND_AFTER));
        contact.note_unread();
        assert_eq!(contact.silence(AT + BLIND_AFTER * 2), None);
        assert!(!contact.are_known());
        assert!(contact.note_look(AT + BLIND_AFTER * 2), "what it told was forgotten");
        assert!(contact.are_known());
    }

    #[test]
    fn a_listing_that_begins_while_the_lists_are_read_makes_up_for_an_interruption() {
        let mut contact = LossContact::default();
        contact.note_unread();
        contact.begin_listing();
        contact.note_look(AT);
        assert!(contact.take_interrupted(), "losses may have come and gone since the listing began");
        assert!(!contact.take_interrupted());
        contact.note_unread();
        contact.note_look(AT);
        contact.begin_listing();
        assert!(!contact.take_interrupted());
    }
}
