//! Records and reports which checksums are doubted. A coordinator that starts therefore does not use them, and
//! control has the parity of these volumes checked.

use std::collections::{BTreeMap, BTreeSet};

use repair::StripeId;
use store_api::{CatalogError, StoreChange};

use super::encoding_files::Doubted;
use super::parity_verdicts::wrong_by_parity;
use super::state::{Knowledge, State};
use super::unwritten;
use crate::blocks::Encoding;

/// The prefix of the record keys; the volume's ID, a slash and the encoding follow.
const PREFIX: &str = "seaweedfs/doubted/";

/// The doubts as they were recorded and reported last.
#[derive(Default)]
pub(super) struct Doubts {
    recorded: BTreeMap<(u32, Encoding), Doubted>,
    told: BTreeSet<StripeId>,
}

fn key((volume, encoding): (u32, Encoding)) -> String {
    format!("{PREFIX}{volume}/{}", encoding.0)
}

fn parse(key: &str) -> Option<(u32, Encoding)> {
    let (volume, encoding) = key.strip_prefix(PREFIX)?.split_once('/')?;
    Some((volume.parse().ok()?, Encoding(encoding.parse().ok()?)))
}

impl State {
    /// Records the doubts if they have changed.
    pub(super) fn keep_doubts(&mut self) {
        let (now, recorded) = (self.view.files().doubts(), &self.doubts.recorded);
        if now == recorded {
            return;
        }
        let ended = recorded.keys().filter(|of| !now.contains_key(of)).map(|&of| (key(of), None));
        let new = now.iter().filter(|(of, doubted)| recorded.get(of) != Some(doubted));
        let value = |doubted: &Doubted| serde_json::to_value(doubted).expect("plain numbers and text");
        let records: Vec<unwritten::Record> =
            ended.chain(new.map(|(&of, doubted)| (key(of), Some(value(doubted))))).collect();
        self.doubts.recorded = now.clone();
        self.keep_records(records);
    }

    /// Returns the report of the stripes with doubted checksums, if the list has changed. It belongs in the same
    /// message as the stripes: otherwise stripes whose bad blocks are forgotten would look safe for a moment.
    pub(super) fn tell_doubts(&mut self) -> Option<StoreChange> {
        let doubted = self.view.doubted_stripes();
        if doubted == self.doubts.told {
            return None;
        }
        self.doubts.told.clone_from(&doubted);
        Some(StoreChange::Doubted(doubted))
    }

    /// Returns the stripes with doubted checksums, as a report for a new listener.
    pub fn doubted(&self) -> StoreChange {
        StoreChange::Doubted(self.doubts.told.clone())
    }
}

impl Knowledge {
    /// Loads the doubts that an earlier coordinator recorded. The bad copies must have been loaded before.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub(super) fn recall_doubts(&self) -> Result<(), CatalogError> {
        let mut state = self.state();
        let wrong = wrong_by_parity(&state.ledger)?;
        for (key, value) in state.ledger.list(PREFIX)? {
            let doubt = parse(&key).zip(serde_json::from_value::<Doubted>(value).ok());
            let Some(((volume, encoding), doubted)) = doubt else { continue };
            state.doubts.recorded.insert((volume, encoding), doubted.clone());
            state.view.recall_doubt(volume, encoding, doubted, &wrong);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parsed() {
        for of in [(5, Encoding(0)), (7, Encoding(1_795_322_287_727_440_871))] {
            assert_eq!(parse(&key(of)), Some(of));
        }
        assert_eq!(parse("seaweedfs/doubted/5"), None);
    }
}
