//! Records the stripes of raided files and folders as the NameNode lists them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hdfs_raid::{
    Block, File, NodeIndex, Raided, RaidedSource, RaidedStripe, StripeCodes, UnusableParity, parity_path,
    source_of,
};
use repair::NodeId;
use store_api::CatalogError;

use super::coded::{Coded, RaidStripe, Replication, homes, is_raid};
use super::groups::Listed;
use super::names::{Place, is_within, split};
use super::open::Attachment;
use super::recounts::Recounts;
use super::state::{HdfsSystem, State};
use crate::listing::{FileRef, Listing, Phase, name_hash};

/// The state of raided files and folders, apart from their stripes.
#[derive(Default)]
pub(super) struct Raiding {
    codes: StripeCodes,
    /// Parity files that do not protect all blocks of their sources, with the reasons.
    unusable: BTreeMap<String, String>,
    /// The paths of these sources.
    unprotected: Arc<BTreeSet<String>>,
    /// Files and folders to query, because a query of one of their stripes has shown that their parity does not protect it
    /// any more. No stripe tells of them, so later events would concern nothing known.
    pub changed: BTreeSet<String>,
    /// Stripes, also those of groups, to query again until HDFS has as many replicas as it should.
    pub recounts: Recounts,
}

/// A stripe of a raided file as listed, and how many replicas its blocks should have.
type Counted = (Listed, Replication);

impl Attachment {
    /// Returns the folders with the parity of raided files and folders.
    pub(super) fn parity_roots(&self) -> impl Iterator<Item = &str> {
        self.raid.iter().map(|codec| codec.parity_root.trim_end_matches('/'))
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

    /// Whether a parity file should protect a file that is watched. Parity that is being written need not yet.
    fn wants_parity(&self, parity: &File) -> bool {
        !parity.is_open && self.source_of(&parity.path).is_some_and(|source| self.covers(source))
    }

    /// Returns the path of the file or folder to which a parity file belongs.
    pub(super) fn source_of<'a>(&self, parity: &'a str) -> Option<&'a str> {
        self.parity_roots().find_map(|root| source_of(root, parity))
    }
}

impl Raiding {
    /// Replaces what is known of the parity of these sources, or of all if `None`.
    fn replace(
        &mut self,
        attachment: &Attachment,
        asked: Option<&[(String, String)]>,
        unusable: BTreeMap<String, String>,
    ) {
        match asked {
            None => self.unusable.clear(),
            Some(asked) => {
                let was_asked = |path: &str| asked.iter().any(|(_, asked)| is_within(path, asked));
                self.unusable.retain(|path, _| !was_asked(path));
            }
        }
        self.unusable.extend(unusable);
        let sources = self.unusable.keys().filter_map(|parity| attachment.source_of(parity));
        self.unprotected = Arc::new(sources.map(str::to_owned).collect());
    }

    /// Returns the paths at which files without valid parity are or were, although there is a parity file.
    pub fn unprotected(&self) -> Arc<BTreeSet<String>> {
        Arc::clone(&self.unprotected)
    }

    /// Returns the problem that parity files protect nothing.
    fn problems(&self) -> Vec<String> {
        let Some((path, why)) = self.unusable.first_key_value() else { return Vec::new() };
        let more = match self.unusable.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        vec![format!(
            "parity that does not protect its file, so lost blocks of the file may be unrecoverable: {path} ({why}){more}; \
             run mend raid encode, which encodes the file again or renames the parity of a renamed file; without a policy \
             for it, raise its replication (hdfs dfs -setrep); delete parity only if its file was deleted"
        )]
    }
}

impl HdfsSystem {
    /// Records the raided files that an answer lists. The query was sent at `asked`, for the parity at these
    /// paths, or for all parity if `None`.
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
        let unusable = raided.unusable.iter().filter(|(parity, _)| self.attachment.wants_parity(parity));
        let unusable = unusable.map(|(parity, why)| (parity.path.clone(), why.to_string()));
        let (mut unusable, mut listed): (BTreeMap<_, _>, _) = (unusable.collect(), Vec::new());
        let mut gone = Vec::new();
        for source in raided.sources.iter().filter(|source| self.attachment.covers(source.path)) {
            let from = listed.len();
            let skipped = state.list_stripes(source, &numbers, &mut listed);
            unusable.extend(skipped.map(|why| (source.parity.path.clone(), why)));
            gone.extend(state.superseded(asked, source.path, source.inode, &listed[from..]));
        }
        for (path, inode) in stale_sources(&raid, &raided, &self.attachment) {
            gone.extend(state.superseded(asked, path, inode, &[]));
        }
        state.view.groups_mut().remove(now, &gone);
        state.raiding.replace(&self.attachment, paths, unusable);
        let problems = state.raiding.problems();
        state.note_troubles("raided files", problems);
        state.take_stripes(now, asked, listed)
    }

    /// Records the present holders of a stripe's blocks, and how many there should be; or removes the stripe if
    /// `None`: its parity does not protect it any more. The query was sent at `asked`.
    ///
    /// # Errors
    /// As [`take_nodes`](Self::take_nodes).
    pub(super) fn take_stripe(
        &self,
        asked: Duration,
        known: &Listed,
        listing: &Listing,
        found: Option<(Vec<(u8, NodeIndex)>, Replication)>,
    ) -> Result<(), CatalogError> {
        let number = known.group.number();
        let Some((homes, replication)) = found else {
            let is_current = self.known([number]).pop().is_some_and(|listed| listed.group == known.group);
            if is_current {
                self.suspect_file(known);
                self.query_sources_of(listing);
                self.remove_groups(&[(number, known.file.inode)])?;
            }
            return Ok(());
        };
        let mut state = self.state();
        let numbers = state.number(&self.attachment, &listing.nodes)?;
        let homes = homes.into_iter().filter_map(|(index, node)| Some((index, numbers[node.0]?))).collect();
        state.take_stripes(self.now(), asked, vec![(Listed { homes, ..known.clone() }, replication)])
    }

    /// Has the files and folders queried whose parity this answer lists: their blocks may be in other stripes now.
    fn query_sources_of(&self, listing: &Listing) {
        let files = listing.raid.files.iter();
        let sources = files.filter_map(|file| self.attachment.source_of(&file.path)).map(str::to_owned);
        self.state().raiding.changed.extend(sources);
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

/// Returns the listed files and folders that have no valid parity any more, although they have a parity file: their paths and
/// inode numbers.
fn stale_sources<'a>(
    raid: &'a hdfs_raid::Listing,
    raided: &Raided<'_>,
    attachment: &Attachment,
) -> Vec<(&'a str, u64)> {
    let is_stale = |why: &UnusableParity| matches!(why, UnusableParity::Stale(_));
    let stale = raided.unusable.iter().filter(|(_, why)| is_stale(why));
    let stale: BTreeSet<&str> = stale.filter_map(|(parity, _)| attachment.source_of(&parity.path)).collect();
    let valid: BTreeSet<&str> = raided.sources.iter().map(|source| source.path).collect();
    let files = raid.files.iter().map(|file| (file.path.as_str(), file.inode));
    let all = files.chain(raid.folders.iter().map(|folder| (folder.path.as_str(), folder.inode)));
    all.filter(|(path, _)| stale.contains(path) && !valid.contains(path)).collect()
}

/// Returns the blocks of a stripe that exist, data first.
fn blocks_of<'a>(stripe: &RaidedStripe<'a>) -> Vec<&'a Block> {
    stripe.data.iter().map(|data| data.block).chain(stripe.parity).collect()
}

impl State {
    /// Adds the stripes of a raided file or folder to `listed`. Returns why a stripe was left out, if one was.
    fn list_stripes(
        &mut self,
        source: &RaidedSource<'_>,
        numbers: &[Option<NodeId>],
        listed: &mut Vec<Counted>,
    ) -> Option<String> {
        let place = self.place_of(source.path);
        let files: BTreeMap<u64, &File> = source.files.iter().map(|file| (file.inode, *file)).collect();
        let mut skipped = None;
        for stripe in source.stripes() {
            let (blocks, data) = (blocks_of(&stripe), stripe.data.len() + stripe.gone.len());
            let code = self.raiding.codes.code(source.codec, blocks.iter().copied(), data, &stripe.gone);
            let code = match code {
                Ok(code) => code,
                Err(why) => {
                    skipped = Some(why.to_string());
                    continue;
                }
            };
            let homes = homes(&blocks).into_iter();
            let homes = homes.filter_map(|(index, node)| Some((index, numbers[node.0]?)));
            let stripe = RaidStripe::new(source, &stripe, code);
            let data = stripe.data.iter().map(|extent| files[&extent.inode]);
            let replication = Replication::of(data.chain([source.parity]));
            let stripe = Listed {
                file: FileRef { inode: source.inode, held_at: None },
                place: Some(place),
                phase: Phase::Old,
                start: stripe.start(),
                homes: homes.collect(),
                group: Coded::Raid(Arc::new(stripe)),
            };
            listed.push((stripe, replication));
        }
        skipped
    }

    fn place_of(&mut self, path: &str) -> Place {
        let (folder, name) = split(path);
        Place { folder: self.view.groups_mut().folder(folder), name: name_hash(name) }
    }

    /// Returns the known stripes of a file that its listing lacks, with the file: the file was encoded again, or
    /// other parity of it counts now. The query was sent at `asked`.
    fn superseded(&mut self, asked: Duration, path: &str, inode: u64, listed: &[Counted]) -> Vec<(i64, u64)> {
        let place = self.place_of(path);
        let listed: BTreeSet<i64> = listed.iter().map(|(listed, _)| listed.group.number()).collect();
        let older = self.view.groups().older_at(place, asked).into_iter();
        older.filter(|(number, of)| is_raid(*number) && *of == inode && !listed.contains(number)).collect()
    }

    /// Records stripes of raided files. Stripes with too many or too few replicas are queried again.
    fn take_stripes(
        &mut self,
        now: Duration,
        asked: Duration,
        listed: Vec<Counted>,
    ) -> Result<(), CatalogError> {
        for (listed, replication) in &listed {
            let Some(stripe) = listed.group.raid() else { continue };
            let counts = |node| self.view.nodes().counts(node);
            let count = replication.count(stripe, &listed.homes, counts);
            self.raiding.recounts.note(now, asked, listed.group.number(), count);
        }
        let listed = listed.into_iter().map(|(listed, _)| listed).collect();
        let changed = self.view.take_groups(now, asked, listed, false);
        let mut changes = self.view.tell(now, changed);
        changes.extend(self.tell_service(now));
        self.tell(changes);
        self.forget_marks()
    }
}

#[cfg(test)]
mod tests {
    use hdfs_raid::Codec;

    use super::*;

    fn file(path: &str, blocks: Vec<Block>) -> File {
        File {
            inode: 1,
            path: path.to_owned(),
            bytes: 0,
            block_bytes: 9,
            replication: 1,
            modified_ms: 0,
            owner: hdfs_raid::Owner::Superuser,
            storing: hdfs_raid::Storing::Replicated,
            is_open: false,
            blocks,
        }
    }

    fn attachment() -> Attachment {
        Attachment {
            namenode: None,
            paths: vec!["/warehouse".to_owned()],
            helpers: BTreeMap::new(),
            folders: BTreeMap::new(),
            raid: Codec::hdfs_raid().to_vec(),
            encoding: None,
            pushes: false,
        }
    }

    #[test]
    fn parity_is_queried_below_all_roots() {
        let attachment = attachment();
        let of = |source: &str| attachment.parity_of(&BTreeSet::from([source.to_owned()]));
        let pair = |root: &str, path: &str| (root.to_owned(), path.to_owned());
        let all = ["/raidrs", "/raid", "/dir-raidrs", "/dir-raid"];
        assert_eq!(of("/"), all.map(|root| pair(root, root)));
        assert_eq!(of("/a/f"), all.map(|root| pair(root, &format!("{root}/a/f"))));
        assert!(attachment.covers("/warehouse/f") && !attachment.covers("/a/f"));
        let wants =
            |path: &str, is_open| attachment.wants_parity(&File { is_open, ..file(path, Vec::new()) });
        assert!(wants("/raid/warehouse/f", false) && !wants("/raid/warehouse/f", true));
        assert!(!wants("/raid/a/f", false), "its file is not watched");
    }

    #[test]
    fn a_query_replaces_only_what_it_has_asked_about() {
        let (mut raiding, attachment) = (Raiding::default(), attachment());
        let why =
            |paths: &[&str]| paths.iter().map(|path| ((*path).to_owned(), "stale".to_owned())).collect();
        raiding.replace(&attachment, None, why(&["/raidrs/a/f", "/raidrs/a/g", "/raidrs/b"]));
        assert!(
            raiding.problems()[0].contains("/raidrs/a/f (stale), and 2 more;"),
            "{:?}",
            raiding.problems()
        );
        raiding.replace(
            &attachment,
            Some(&[("/raidrs".to_owned(), "/raidrs/a".to_owned())]),
            why(&["/raidrs/a/g"]),
        );
        assert!(
            raiding.problems()[0].contains("/raidrs/a/g (stale), and 1 more;"),
            "{:?}",
            raiding.problems()
        );
        assert_eq!(*raiding.unprotected(), ["/a/g", "/b"].map(str::to_owned).into());
        raiding.replace(&attachment, None, why(&[]));
        assert!(raiding.problems().is_empty() && raiding.unprotected().is_empty());
    }
}
