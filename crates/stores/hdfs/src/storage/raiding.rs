//! Records the stripes of raided files as the NameNode lists them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hdfs_raid::{Block, NodeIndex, RaidedFile, parity_path};
use repair::NodeId;
use store_api::CatalogError;

use super::coded::{Coded, RaidStripe, ShortCodes, homes, is_raid};
use super::groups::Listed;
use super::names::{Place, is_within, split};
use super::open::Attachment;
use super::state::{Shared, State};
use crate::listing::{DataNode, FileRef, Listing, Phase, name_hash};

/// What is known of raided files besides their stripes.
#[derive(Default)]
pub(super) struct Raiding {
    codes: ShortCodes,
    /// Parity files that do not protect all blocks of their sources, with the reasons.
    unusable: BTreeMap<String, String>,
}

impl Attachment {
    /// Returns the folders with the parity of raided files.
    pub(super) fn parity_roots(&self) -> impl Iterator<Item = &str> {
        let codecs = self.raid.iter().filter(|codec| codec.scope == hdfs_raid::Scope::File);
        codecs.map(|codec| codec.parity_root.trim_end_matches('/'))
    }

    /// Returns the paths of the parity of these files and folders, each with its parity root.
    pub(super) fn parity_of(&self, sources: &BTreeSet<String>) -> Vec<(String, String)> {
        let path = |root: &str, source: &str| parity_path(root, source.trim_end_matches('/'));
        let of_root = |root: &str| {
            let paths = sources.iter().map(|source| (root.to_owned(), path(root, source)));
            paths.collect::<Vec<_>>()
        };
        self.parity_roots().flat_map(of_root).collect()
    }

    fn covers(&self, path: &str) -> bool {
        self.paths.iter().any(|folder| is_within(path, folder))
    }
}

impl Raiding {
    /// Replaces what is known of the parity of these sources, or of all if `None`.
    fn replace(&mut self, asked: Option<&[(String, String)]>, unusable: BTreeMap<String, String>) {
        match asked {
            None => self.unusable.clear(),
            Some(asked) => {
                let was_asked = |path: &str| asked.iter().any(|(_, asked)| is_within(path, asked));
                self.unusable.retain(|path, _| !was_asked(path));
            }
        }
        self.unusable.extend(unusable);
    }

    /// Returns the problem that parity files protect nothing.
    fn problems(&self) -> Vec<String> {
        let Some((path, why)) = self.unusable.first_key_value() else { return Vec::new() };
        let count = self.unusable.len();
        let more = if count > 1 { format!(", and {} more files", count - 1) } else { String::new() };
        vec![format!(
            "parity that does not protect its file, so lost blocks of the file may be unrecoverable: {path} ({why}){more}; \
             raise the replication of such a file (hdfs dfs -setrep) until it is encoded again, and delete parity that is \
             not needed"
        )]
    }
}

impl Shared {
    /// Records the raided files that an answer lists. The query was sent at `asked`, for the parity at these paths,
    /// or for all parity if `None`.
    ///
    /// # Errors
    /// As [`take_nodes`](Self::take_nodes).
    pub(super) fn take_raided(
        &self,
        asked: Duration,
        listing: Listing,
        paths: Option<&[(String, String)]>,
    ) -> Result<(), CatalogError> {
        let (now, Listing { nodes, raid, .. }) = (self.now(), listing);
        let raided = hdfs_raid::raided(&raid, &self.attachment.raid);
        let mut state = self.state();
        let numbers = state.number(&self.attachment, &nodes)?;
        let unusable = raided.unusable.iter().map(|(parity, why)| (parity.path.clone(), why.to_string()));
        let (mut unusable, mut listed): (BTreeMap<_, _>, _) = (unusable.collect(), Vec::new());
        for file in raided.files.iter().filter(|file| self.attachment.covers(&file.source.path)) {
            let skipped = state.list_stripes(file, &numbers, &mut listed);
            unusable.extend(skipped.map(|why| (file.parity.path.clone(), why)));
        }
        state.raiding.replace(paths, unusable);
        let problems = state.raiding.problems();
        state.note_troubles("raided files", problems);
        state.take_stripes(now, asked, listed)
    }

    /// Records the present holders of a stripe's blocks, or removes the stripe if `None`: its parity does not protect
    /// it any more. The query was sent at `asked`.
    ///
    /// # Errors
    /// As [`take_nodes`](Self::take_nodes).
    pub(super) fn take_stripe(
        &self,
        asked: Duration,
        known: &Listed,
        nodes: &[DataNode],
        homes: Option<Vec<(u8, NodeIndex)>>,
    ) -> Result<(), CatalogError> {
        let number = known.group.number();
        let Some(homes) = homes else {
            let is_current = self.known([number]).pop().is_some_and(|listed| listed.group == known.group);
            if is_current {
                self.suspect_file(known);
                self.remove_groups(&[(number, known.file.inode)])?;
            }
            return Ok(());
        };
        let mut state = self.state();
        let numbers = state.number(&self.attachment, nodes)?;
        let homes = homes.into_iter().map(|(index, node)| (index, numbers[node.0])).collect();
        state.take_stripes(self.now(), asked, vec![Listed { homes, ..known.clone() }])
    }

    /// Has the other stripes of a raided file queried.
    fn suspect_file(&self, known: &Listed) {
        let mut state = self.state();
        let State { view, suspects, .. } = &mut *state;
        let names = view.groups().names();
        let of_file = known.place.into_iter().flat_map(|place| names.of_file(place));
        suspects.extend(of_file.filter(|&number| is_raid(number) && number != known.group.number()));
    }
}

impl State {
    /// Adds the stripes of a raided file to `listed`. Returns why a stripe was left out, if one was.
    fn list_stripes(
        &mut self,
        file: &RaidedFile<'_>,
        numbers: &[NodeId],
        listed: &mut Vec<Listed>,
    ) -> Option<String> {
        let (folder, name) = split(&file.source.path);
        let place = Place { folder: self.view.groups_mut().folder(folder), name: name_hash(name) };
        let mut skipped = None;
        for stripe in file.stripes() {
            let code = match self.raiding.codes.get(file.codec, stripe.data.len()) {
                Ok(code) => code,
                Err(why) => {
                    skipped = Some(why.to_string());
                    continue;
                }
            };
            let blocks: Vec<&Block> = stripe.data.iter().chain(stripe.parity).collect();
            let homes = homes(&blocks).into_iter().map(|(index, node)| (index, numbers[node.0]));
            let (source, parity) = (file.source.inode, file.parity.inode);
            listed.push(Listed {
                file: FileRef { inode: source, held_at: None },
                place: Some(place),
                phase: Phase::Old,
                start: stripe.start,
                homes: homes.collect(),
                group: Coded::Raid(Arc::new(RaidStripe::new(source, parity, &stripe, code))),
            });
        }
        skipped
    }

    /// Records stripes of raided files.
    fn take_stripes(
        &mut self,
        now: Duration,
        asked: Duration,
        listed: Vec<Listed>,
    ) -> Result<(), CatalogError> {
        let changed = self.view.take_groups(now, asked, listed, false);
        let mut changes = self.view.tell(now, changed);
        changes.extend(self.tell_service(now));
        self.tell(changes);
        self.forget_marks()
    }
}
