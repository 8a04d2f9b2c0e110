//! The findings about encoded files that `mend raid status` and `mend raid fsck` share.

use hdfs_raid::{
    Health, Listing, Omission, ParityState, Policies, Renaming, StaleParity, State, Survey, Unit, Waiting,
    is_within,
};
use serde_json::{Value, json};
use stores::RaidNameNode;
use stores::raid::Covered;

use super::{EXAMPLES, address, now_ms};
use crate::failure::Failure;
use crate::format::{count, date, printable, table};

/// The note on an encoded file outside of the folders whose files the coordinator repairs.
pub const OUTSIDE: &str = "outside of `paths` in [store.namenode] of mend.toml, so its lost blocks are not repaired: \
                           add its folder there and restart the coordinator, or undo its encoding";

/// A surveyed folder or file.
pub struct Findings {
    pub listing: Listing,
    pub survey: Survey,
    /// The folders whose files the coordinator repairs.
    covered: Covered,
}

/// The worst finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// All blocks are intact and in place, and all paths could be examined.
    Healthy,
    /// All data can be read without decoding, but an operator should look: parity is stale or elsewhere than its file,
    /// files have one replica and no parity, Mend cannot or does not repair files, blocks stand too close together, or
    /// paths could not be examined.
    Doubtful,
    /// Blocks have no intact replica. All of them can be rebuilt.
    Degraded,
    /// Data cannot be read.
    Unreadable,
}

impl Findings {
    /// Lists a path with the notes on its parity, and judges every file.
    pub async fn of(
        namenode: &RaidNameNode,
        path: &str,
        policies: &Policies,
        covered: Covered,
    ) -> Result<Self, Failure> {
        let listing = namenode.examination(path, policies).await?;
        Ok(Self::judged(listing, policies, covered))
    }

    pub fn judged(listing: Listing, policies: &Policies, covered: Covered) -> Self {
        let survey = hdfs_raid::survey(&listing, policies, now_ms());
        Self { listing, survey, covered }
    }

    pub fn verdict(&self) -> Verdict {
        let health = self.survey.health();
        match () {
            () if health.unrecoverable + health.unprotected > 0 => Verdict::Unreadable,
            () if health.incomplete() + health.still_protected > 0 => Verdict::Degraded,
            () if self.is_doubtful(&health) => Verdict::Doubtful,
            () => Verdict::Healthy,
        }
    }

    fn is_doubtful(&self, health: &Health) -> bool {
        let gaps = &self.listing.gaps;
        let is_renamed = |state: &ParityState| matches!(state, ParityState::Renamed(_));
        health.crowded_nodes + health.crowded_racks + health.single > 0
            || self.survey.units.iter().any(|unit| {
                matches!(unit.state, State::Stale(_) | State::Unrepairable(_)) || self.is_outside(unit)
            })
            || self.survey.parity.iter().any(|parity| is_renamed(&parity.state))
            || self.refused() > 0
            || !gaps.silent.is_empty()
            || !gaps.renamed.is_empty()
            || gaps.unwatched.is_some()
    }

    /// Whether parity protects a unit, or the unchanged files of a changed folder, but the coordinator does not repair it.
    pub fn is_outside(&self, unit: &Unit) -> bool {
        let protects = |state: &ParityState| {
            state.is_valid() || matches!(state, ParityState::Stale(StaleParity::Changed { .. }))
        };
        let is_encoded = unit.protection.as_ref().is_some_and(|it| protects(&it.state));
        is_encoded && !self.covered.contains(&unit.path)
    }

    /// Returns the number of existing paths that could not be examined.
    fn refused(&self) -> usize {
        self.listing.gaps.omitted.iter().filter(|omission| omission.is_refused).count()
    }

    /// Returns a sentence about the replicas that HDFS has not made for a file with stale parity, with the next step;
    /// `None` if none are missing.
    pub fn lacking(&self, unit: &Unit) -> Option<String> {
        let lacking = unit.health.lacking;
        if lacking == 0 {
            return None;
        }
        let files = self.listing.files.iter().filter(|file| unit.files.contains(&file.path));
        let changed_ms = files.map(|file| file.modified_ms).max().unwrap_or_default();
        let blocks = count(lacking as u64, "block");
        let (since, advice) = (date(changed_ms), Waiting::Replicas.advice());
        Some(format!(
            "{blocks} without all replicas since a change at {since}: if HDFS creates none, {advice}"
        ))
    }

    /// Returns one line about all findings.
    pub fn summary(&self) -> String {
        let health = self.survey.health();
        let files = |is: fn(&State) -> bool| {
            let units = self.survey.units.iter().filter(|unit| is(&unit.state));
            units.map(|unit| unit.files.len()).sum::<usize>()
        };
        let renamed = self.survey.parity.iter().filter(|it| matches!(it.state, ParityState::Renamed(_)));
        let outside = self.survey.units.iter().filter(|unit| self.is_outside(unit));
        let parts = [
            (health.unrecoverable, "unrecoverable stripe", "unrecoverable stripes"),
            (health.unprotected, "lost block without valid parity", "lost blocks without valid parity"),
            (health.incomplete() - health.unrecoverable, "degraded stripe", "degraded stripes"),
            (
                health.still_protected,
                "lost block that the parity of a changed folder protects",
                "lost blocks that the parity of changed folders protects",
            ),
            (health.crowded_nodes + health.crowded_racks, "misplaced stripe", "misplaced stripes"),
            (
                files(
                    |state| matches!(state, State::Stale(why) if *why != StaleParity::Elsewhere && !why.is_unchecked()),
                ),
                "file with stale parity",
                "files with stale parity",
            ),
            (
                files(|state| matches!(state, State::Stale(why) if why.is_unchecked())),
                "file with parity that Mend has not checked",
                "files with parity that Mend has not checked",
            ),
            (
                files(|state| matches!(state, State::Unrepairable(_))),
                "file that Mend cannot repair",
                "files that Mend cannot repair",
            ),
            (
                outside.map(|unit| unit.files.len()).sum::<usize>(),
                "encoded file outside of `paths`",
                "encoded files outside of `paths`",
            ),
            (renamed.count(), "parity file of a renamed file", "parity files of renamed files"),
            (
                health.single,
                "file with one replica and no valid parity",
                "files with one replica and no valid parity",
            ),
            (self.listing.gaps.renamed.len(), "path renamed meanwhile", "paths renamed meanwhile"),
            (usize::from(self.listing.gaps.unwatched.is_some()), "unread edit log", "unread edit logs"),
            (self.refused(), "refused path", "refused paths"),
            (self.listing.gaps.silent.len(), "silent DataNode", "silent DataNodes"),
        ];
        let counted = |&(number, one, several): &(usize, &str, &str)| match number {
            0 => None,
            1 => Some(format!("1 {one}")),
            _ => Some(format!("{number} {several}")),
        };
        let parts: Vec<String> = parts.iter().filter_map(counted).collect();
        let saving = self.survey.saving();
        let encoded = count(saving.files, "encoded file");
        if parts.is_empty() {
            format!("{encoded}, all healthy")
        } else {
            format!("{encoded}: {}", parts.join(", "))
        }
    }

    /// Returns lines about everything that the listing does not cover.
    pub fn limits_text(&self, is_detailed: bool) -> String {
        let mut text = left_out_text(&self.listing, is_detailed);
        for folder in self.snapshots() {
            let folder = printable(folder);
            text += &format!("files that exist only in snapshots of {folder} are not examined\n");
        }
        let gaps = &self.listing.gaps;
        for &node in &gaps.silent {
            let address = address(&self.listing, node);
            text += &format!(
                "DataNode {address} is silent; HDFS still lists its replicas, which count as intact\n"
            );
        }
        for &node in &gaps.in_maintenance {
            let address = address(&self.listing, node);
            text += &format!(
                "DataNode {address} is in maintenance; blocks that are only there count as missing\n"
            );
        }
        for Renaming { from, to } in &gaps.renamed {
            let (from, to) = (printable(from), printable(to));
            text += &format!("{from} was renamed to {to} during the listing, which may lack it\n");
        }
        if let Some(why) = &gaps.unwatched {
            text += &format!(
                "it is not known which files were renamed during the listing, which may lack them: {}\n",
                printable(why)
            );
        }
        text
    }

    /// Returns the folders with snapshots within the listed path or above it.
    fn snapshots(&self) -> impl Iterator<Item = &String> {
        let root = &self.listing.root;
        let touches = move |folder: &&String| is_within(folder, root) || is_within(root, folder);
        self.listing.snapshots.iter().filter(touches)
    }

    /// Returns the JSON form of everything that the listing does not cover.
    pub fn limits(&self) -> Value {
        let gaps = &self.listing.gaps;
        let addresses = |nodes: &[hdfs_raid::NodeIndex]| {
            nodes.iter().map(|&node| address(&self.listing, node).to_owned()).collect::<Vec<_>>()
        };
        let renamed = |Renaming { from, to }: &Renaming| json!({ "from": from, "to": to });
        json!({
            "left_out": left_out(&self.listing),
            "unexamined_snapshots": self.snapshots().collect::<Vec<_>>(),
            "renamed_meanwhile": gaps.renamed.iter().map(renamed).collect::<Vec<_>>(),
            "renames_unknown": gaps.unwatched,
            "silent_datanodes": addresses(&gaps.silent),
            "datanodes_in_maintenance": addresses(&gaps.in_maintenance),
        })
    }
}

/// Returns the JSON form of the paths that a listing leaves out.
pub fn left_out(listing: &Listing) -> Value {
    let facts = |Omission { path, why, is_refused }: &Omission| json!({ "path": path, "why": why, "refused": is_refused });
    listing.gaps.omitted.iter().map(facts).collect()
}

/// Returns a table of the paths that a listing leaves out.
pub fn left_out_text(listing: &Listing, is_detailed: bool) -> String {
    let omitted = &listing.gaps.omitted;
    if omitted.is_empty() {
        return String::new();
    }
    let rows = omitted.iter().map(|Omission { path, why, .. }| [path.clone(), why.clone()]).collect();
    let paths = count(omitted.len() as u64, "path");
    format!("\nleft out, {paths}:\n{}", listed(["path", "reason"], rows, is_detailed))
}

/// Returns a table of rows: of all, or of the first ones with the number of the others.
pub fn listed<const N: usize>(headings: [&str; N], mut rows: Vec<[String; N]>, is_detailed: bool) -> String {
    let shown = if is_detailed { rows.len() } else { EXAMPLES.min(rows.len()) };
    let hidden = rows.split_off(shown).len();
    let more = if hidden > 0 { format!("… and {hidden} more; -v lists all\n") } else { String::new() };
    table(headings, rows) + &more
}
