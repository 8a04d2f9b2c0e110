//! Finds the parity that is left after `mend raid undo`. A file may have parity of several codecs, of which one counts,
//! and the parity of a folder also protects files that are named alone.

use std::collections::{BTreeMap, BTreeSet};

use hdfs_raid::{Listing, ParityState, ParityUnit, Policies, is_within, source_of};
use serde_json::{Value, json};
use stores::RaidNameNode;

use super::findings::listed;
use super::now_ms;
use crate::failure::Failure;
use crate::interrupt::interrupted;

/// A file or folder that still has parity, or may have.
#[derive(Debug, PartialEq, Eq)]
pub struct Left {
    path: String,
    why: String,
}

impl Left {
    /// Lists a path again, and returns what still has parity there. Files that the command has `named` are left out.
    ///
    /// # Errors
    /// [`Failure`] if the user interrupts the listing.
    pub async fn of(
        namenode: &RaidNameNode,
        path: &str,
        policies: &Policies,
        named: &BTreeSet<String>,
    ) -> Result<Vec<Self>, Failure> {
        tokio::select! {
            left = Self::at(namenode, path, policies, named) => Ok(left),
            () = interrupted() => Err(Failure::interrupted(
                "the files were worked on, but were not listed again to see whether any still has parity",
            )
            .help("run the same command again: it works on those that still have parity")),
        }
    }

    /// Returns what still has parity at a path; nothing if the path was deleted meanwhile.
    async fn at(
        namenode: &RaidNameNode,
        path: &str,
        policies: &Policies,
        named: &BTreeSet<String>,
    ) -> Vec<Self> {
        let unknown = |why: String| vec![Self { path: path.to_owned(), why }];
        let listing = match namenode.listing(path, policies).await {
            Ok(listing) => listing,
            Err(error) => {
                let missing = namenode.missing(&[path.to_owned()]).await;
                let is_gone = missing.is_ok_and(|missing| !missing.is_empty());
                let why = format!("it could not be listed again: {error}");
                return if is_gone { Vec::new() } else { unknown(why) };
            }
        };
        let mut left = Self::within(&listing, policies, named);
        let Some(file) = listing.files.iter().find(|file| file.path == listing.root) else { return left };
        match namenode.parity_of_folder(file, policies).await {
            Ok(parity) => {
                left.extend(parity.iter().map(|parity| Self::together(&listing.root, file.folder(), parity)))
            }
            Err(error) => {
                left.extend(unknown(format!("the parity of its folder could not be listed: {error}")))
            }
        }
        left
    }

    /// Returns the files and folders in a listing that have parity. The parity of a file that was renamed out of the listed
    /// folder is that file's, and stays.
    fn within(listing: &Listing, policies: &Policies, named: &BTreeSet<String>) -> Vec<Self> {
        let survey = hdfs_raid::survey(listing, policies, now_ms());
        let surveyed = survey.units.iter().filter(|unit| unit.protection.is_some());
        let surveyed: BTreeSet<&str> = surveyed.map(|unit| unit.path.as_str()).collect();
        let sources = Sources::of(listing, policies);
        let left = survey.parity.iter().filter_map(|parity| {
            let path = sources.of_parity(parity).filter(|&path| !named.contains(path))?;
            let (state, advice) = (parity.state.name(), advice(&parity.state, surveyed.contains(path)));
            let why = format!("it still has parity, {} ({state}): {advice}", parity.path);
            Some(Self { path: path.to_owned(), why })
        });
        left.collect()
    }

    /// Returns a file whose blocks are in stripes with those of other files.
    fn together(path: &str, folder: &str, parity: &str) -> Self {
        let why = format!(
            "its folder has parity, {parity}: undo the encoding of all of its files, mend raid undo {folder}"
        );
        Self { path: path.to_owned(), why }
    }

    /// Returns the JSON form, which is that of files without calls.
    pub fn facts(&self) -> Value {
        let Self { path, why } = self;
        json!({ "path": path, "codec": null, "steps": [], "reason": why, "needs_attention": true })
    }
}

/// The files and folders of a listing.
struct Sources<'a> {
    policies: &'a Policies,
    by_inode: BTreeMap<u64, &'a str>,
    paths: BTreeSet<&'a str>,
}

impl<'a> Sources<'a> {
    fn of(listing: &'a Listing, policies: &'a Policies) -> Self {
        let files = listing.files.iter().map(|file| (file.inode, file.path.as_str()));
        let folders = listing.folders.iter().map(|folder| (folder.inode, folder.path.as_str()));
        let is_listed = |&(_, path): &(u64, &str)| is_within(path, &listing.root);
        let all: Vec<(u64, &str)> = files.chain(folders).filter(is_listed).collect();
        let paths = all.iter().map(|&(_, path)| path).collect();
        Self { policies, by_inode: all.into_iter().collect(), paths }
    }

    /// Returns the path of the file or folder that has this parity, if it is listed.
    fn of_parity(&self, parity: &ParityUnit) -> Option<&'a str> {
        use ParityState::{Draft, NoSource, Renamed, SnapshotsOnly, SourceUnlisted};
        match parity.state {
            Renamed(inode) => self.by_inode.get(&inode).copied(),
            Draft | NoSource | SnapshotsOnly | SourceUnlisted => None,
            _ => {
                let root = self.policies.parity_root_of(&parity.path)?;
                self.paths.get(source_of(root, &parity.path)?).copied()
            }
        }
    }
}

/// Returns the operator's next step for parity that is left. An undo works only on files that the survey has found
/// together with parity.
fn advice(state: &ParityState, is_surveyed: bool) -> &'static str {
    match state {
        _ if is_surveyed => "run the command again",
        ParityState::Renamed(_) => "the file cannot use it: delete the parity (hdfs dfs -rm)",
        _ => {
            "the file cannot use it: delete the parity (hdfs dfs -rm), unless it belongs to another file, which was renamed \
             from this path"
        }
    }
}

/// Returns a table of what still has parity.
pub fn text(left: &[Left], is_detailed: bool) -> String {
    if left.is_empty() {
        return String::new();
    }
    let rows = left.iter().map(|Left { path, why }| [path.clone(), why.clone()]).collect();
    format!("files that still have parity:\n{}", listed(["path", "reason"], rows, is_detailed))
}

#[cfg(test)]
mod tests {
    use hdfs_raid::Storing;

    use super::*;
    use crate::raid::doubles::{encoded, note};

    fn left(listing: &Listing, named: &[&str]) -> Vec<String> {
        let named = named.iter().map(|&path| path.to_owned()).collect();
        let left = Left::within(listing, &Policies::none(), &named);
        left.into_iter().map(|left| format!("{}: {}", left.path, left.why)).collect()
    }

    /// HDFS-RAID has encoded it twice, with different codecs. The command has undone the encoding that counted.
    #[test]
    fn parity_by_another_codec_is_found() {
        let mut listing = encoded(0);
        assert_eq!(
            left(&listing, &[]),
            ["/data/f: it still has parity, /raid/data/f (unproven): run the command again"]
        );
        assert!(left(&listing, &["/data/f"]).is_empty(), "the command has named it");
        listing.root = "/data/f".to_owned();
        assert_eq!(left(&listing, &[]).len(), 1);
        listing.root = "/other".to_owned();
        assert!(left(&listing, &[]).is_empty(), "its source is elsewhere");
    }

    #[test]
    fn parity_without_a_file_is_not_left() {
        let mut listing = encoded(0);
        listing.files.remove(0);
        assert!(left(&listing, &[]).is_empty());
    }

    /// A client has renamed the file without its parity.
    #[test]
    fn parity_of_a_renamed_file_is_left_if_the_file_is_listed() {
        let mut listing = encoded(0);
        note(&mut listing);
        listing.files[0].path = "/e/g".to_owned();
        let parity = "/e/g: it still has parity, /raid/data/f (renamed-source): ";
        assert_eq!(left(&listing, &[]), [format!("{parity}run the command again")]);
        assert!(left(&listing, &["/e/g"]).is_empty(), "the command has named it");
        listing.files[0].blocks[0].stamp += 1;
        assert_eq!(left(&listing, &[]), [format!("{parity}run the command again")], "it was changed, too");
        listing.files[0].storing = Storing::Striped;
        let striped = left(&listing, &[]).concat();
        assert!(striped.starts_with(parity) && striped.ends_with("(hdfs dfs -rm)"), "{striped}");
        // A listing of the folder that it was in does not contain it.
        listing.files.remove(0);
        listing.root = "/data".to_owned();
        assert!(left(&listing, &[]).is_empty());
    }

    /// An operator has moved a file that HDFS erasure-codes to the path.
    #[test]
    fn parity_that_no_undo_can_delete_is_left_to_the_operator() {
        let mut listing = encoded(0);
        listing.files[0].storing = Storing::Striped;
        let unused = left(&listing, &[]).concat();
        assert!(
            unused.starts_with("/data/f: it still has parity, /raid/data/f (unused): the file"),
            "{unused}"
        );
        // Its file was renamed, and encoded again at its new path.
        let mut listing = encoded(0);
        note(&mut listing);
        let own = listing.files.iter().cloned().zip(["/e/g", "/raid/e/g"]);
        let own: Vec<_> = own.map(|(file, path)| hdfs_raid::File { path: path.to_owned(), ..file }).collect();
        listing.files.remove(0);
        listing.files.extend(own);
        let left = left(&listing, &["/e/g"]);
        assert!(left.is_empty(), "no file is at the path: {left:?}");
    }

    #[test]
    fn everything_that_is_left_has_a_reason() {
        let left = Left::together("/d/f", "/d", "/dir-raidrs/d");
        assert!(text(std::slice::from_ref(&left), false).contains("mend raid undo /d"));
        assert_eq!((&left.facts()["path"], &left.facts()["needs_attention"]), (&json!("/d/f"), &json!(true)));
        assert_eq!(text(&[], false), "");
    }
}
