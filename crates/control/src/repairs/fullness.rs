//! Full helpers, and whether there is room to rebuild another helper that fails.

use std::time::Duration;

use crate::facts::Facts;
use crate::nodes::sorted;
use views::FullNode;

/// A helper is nearly full when less than this part of its room is left.
pub(crate) const NEARLY: f64 = 0.05;
/// How long a finding is used before stripes are looked at again.
const GOOD_FOR: Duration = Duration::from_secs(10);

/// The latest finding.
#[derive(Default)]
pub(crate) struct Fullness {
    found: Option<(Duration, Option<String>)>,
}

impl Fullness {
    /// Whether it is to be looked at again.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.found.as_ref().is_none_or(|&(at, _)| now >= at + GOOD_FOR)
    }

    pub(crate) fn set(&mut self, advice: Option<String>, now: Duration) {
        self.found = Some((now, advice));
    }

    /// The warning that a failed helper could not be rebuilt, with reason and remedy.
    pub(crate) fn advice(&self) -> Option<String> {
        self.found.as_ref().and_then(|(_, text)| text.clone())
    }
}

impl<'a> Facts<'a> {
    /// The block size of the stripes with the largest blocks, or else of new ones.
    pub(crate) fn largest_block_bytes(self) -> u64 {
        let stored = self.stripes.picture.kinds().map(|kind| kind.block_bytes / kind.stripes.max(1)).max();
        stored.unwrap_or(self.base.settings.block_bytes)
    }
}

/// `; full: h5; nearly full: h7`, for the first line of the status.
pub(crate) fn full_text(nodes: &[FullNode]) -> String {
    let named = |full: bool, what: &str| {
        let names = sorted(nodes.iter().filter(|node| node.full == full).map(|node| node.node.clone()));
        if names.is_empty() { String::new() } else { format!("; {what}: {}", names.join(", ")) }
    };
    named(true, "full") + &named(false, "nearly full")
}
