//! The folders and names of files, by which events of the NameNode's edit log are matched with block groups.
//!
//! Names are kept as hashes. If two files of a folder have the same hash, an event about one of them is taken
//! to concern both, so the caller asks the NameNode before it drops a group. Pure: this module sends no
//! queries.

use std::collections::{BTreeMap, BTreeSet};

use super::pages::{Pages, Record, get_difference, put_difference};
use crate::listing::name_hash;

/// A folder in the table of folders.
pub(super) type FolderId = u32;

/// The folder and the hashed name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub folder: FolderId,
    pub name: u32,
}

/// A group of the file at a place.
#[derive(Clone, Copy, Debug)]
struct Named {
    place: Place,
    group: i64,
}

impl Record for Named {
    type Key = (Place, i64);

    fn key(&self) -> (Place, i64) {
        (self.place, self.group)
    }

    fn encode(&self, before: Option<&Self>, bytes: &mut Vec<u8>) {
        let of = |value: fn(&Self) -> u64| before.map_or(0, value);
        put_difference(self.place.folder.into(), of(|it| it.place.folder.into()), bytes);
        put_difference(self.place.name.into(), of(|it| it.place.name.into()), bytes);
        put_difference(self.group as u64, of(|it| it.group as u64), bytes);
    }

    fn decode(before: Option<&Self>, bytes: &mut &[u8]) -> Self {
        let of = |value: fn(&Self) -> u64| before.map_or(0, value);
        let folder = get_difference(of(|it| it.place.folder.into()), bytes) as FolderId;
        let name = get_difference(of(|it| it.place.name.into()), bytes) as u32;
        let group = get_difference(of(|it| it.group as u64), bytes);
        Self { place: Place { folder, name }, group: group as i64 }
    }
}

/// The folders, and the groups of their files.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Two folders have the same path for a moment if events lag behind a listing.
    folders: BTreeMap<String, Vec<FolderId>>,
    groups: Pages<Named>,
    next: FolderId,
}

impl Names {
    /// Returns the number of this folder, and numbers it if it is new.
    pub fn folder(&mut self, path: &str) -> FolderId {
        if let Some(&id) = self.folders.get(path).and_then(|ids| ids.first()) {
            return id;
        }
        self.next += 1;
        self.folders.insert(path.to_owned(), vec![self.next]);
        self.next
    }

    /// Records a group of the file at this place.
    pub fn insert(&mut self, place: Place, group: i64) {
        self.groups.insert(Named { place, group });
    }

    /// Forgets a group.
    pub fn remove(&mut self, place: Place, group: i64) {
        self.groups.remove((place, group));
    }

    /// Returns the groups of the file at this path.
    pub fn at(&self, path: &str) -> Vec<i64> {
        let (folder, name) = split(path);
        let folders = self.folders.get(folder).into_iter().flatten();
        let place = |&folder: &FolderId| Place { folder, name: name_hash(name) };
        folders.map(place).flat_map(|place| self.of_file(place)).collect()
    }

    /// Returns the groups of the file at this path, and of all files below it.
    pub fn below(&self, path: &str) -> Vec<i64> {
        let mut groups = self.at(path);
        for (_, ids) in self.folders_below(path) {
            groups.extend(ids.iter().flat_map(|&folder| self.of_folder(folder)));
        }
        groups
    }

    /// Moves the file at one path, and all folders below it, to another path. Returns the groups of the file,
    /// whose place has changed.
    pub fn rename(&mut self, from: &str, to: &str) -> Option<(Place, Vec<i64>)> {
        let moved: Vec<String> = self.folders_below(from).map(|(path, _)| path.clone()).collect();
        for path in moved {
            let ids = self.folders.remove(&path).unwrap_or_default();
            self.folders.entry(replaced(&path, from, to)).or_default().extend(ids);
        }
        let groups = self.at(from);
        if groups.is_empty() {
            return None;
        }
        let (folder, name) = split(to);
        Some((Place { folder: self.folder(folder), name: name_hash(name) }, groups))
    }

    /// Forgets the folders without groups.
    pub fn prune(&mut self) {
        let used: BTreeSet<FolderId> = self.groups.iter().map(|named| named.place.folder).collect();
        self.folders.retain(|_, ids| {
            ids.retain(|id| used.contains(id));
            !ids.is_empty()
        });
    }

    fn folders_below<'a>(&'a self, path: &'a str) -> impl Iterator<Item = (&'a String, &'a Vec<FolderId>)> {
        // A sibling such as `/a-b` is sorted between `/a` and `/a/b`.
        let own = self.folders.get_key_value(path);
        let prefix = prefix(path);
        let below =
            self.folders.range(prefix.clone()..).take_while(move |(other, _)| other.starts_with(&prefix));
        own.into_iter().chain(below.filter(move |(other, _)| *other != path))
    }

    /// Returns the groups of the file at this place.
    pub fn of_file(&self, place: Place) -> impl Iterator<Item = i64> + '_ {
        let from = self.groups.from((place, i64::MIN));
        from.take_while(move |named| named.place == place).map(|named| named.group)
    }

    fn of_folder(&self, folder: FolderId) -> impl Iterator<Item = i64> + '_ {
        let from = self.groups.from((Place { folder, name: 0 }, i64::MIN));
        from.take_while(move |named| named.place.folder == folder).map(|named| named.group)
    }
}

/// Whether a path is this file or folder, or is below it.
pub(super) fn is_within(path: &str, folder: &str) -> bool {
    let rest = path.strip_prefix(folder);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || folder.ends_with('/'))
}

/// Returns a path within `from` as it is called after `from` was renamed.
pub(super) fn replaced(path: &str, from: &str, to: &str) -> String {
    format!("{to}{}", &path[from.len()..])
}

fn prefix(folder: &str) -> String {
    if folder.ends_with('/') { folder.to_owned() } else { format!("{folder}/") }
}

/// Splits a path into its folder and its name.
pub(super) fn split(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some(parts) => parts,
        None => ("", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(paths: &[&str]) -> Names {
        let mut names = Names::default();
        for (path, group) in paths.iter().zip((16..).step_by(16)) {
            let (folder, name) = split(path);
            let place = Place { folder: names.folder(folder), name: name_hash(name) };
            names.insert(place, group);
        }
        names
    }

    #[test]
    fn groups_are_found_by_path() {
        let names = names(&["/f", "/a/f", "/a/b/f", "/a-b/f", "/a/g"]);
        assert_eq!(names.at("/a/f"), [32]);
        assert!(names.at("/a").is_empty());
        let below = |path: &str| names.below(path).into_iter().collect::<BTreeSet<_>>();
        assert_eq!(below("/a"), BTreeSet::from([32, 48, 80]));
        assert_eq!(below("/f"), BTreeSet::from([16]));
        assert_eq!(below("/"), BTreeSet::from([16, 32, 48, 64, 80]));
    }

    #[test]
    fn numbers_of_blocks_are_kept_as_they_are() {
        let (mut names, place) = (Names::default(), Place { folder: 1, name: 7 });
        let numbers = [-9_223_372_036_854_775_792, -16, 1_073_741_825, 1_073_741_826];
        numbers.iter().for_each(|&number| names.insert(place, number));
        assert_eq!(names.of_file(place).collect::<Vec<_>>(), numbers);
    }

    #[test]
    fn renamed_folders_keep_their_groups() {
        let mut names = names(&["/a/f", "/a/b/f", "/a-b/f"]);
        assert_eq!(names.rename("/a", "/c/d"), None);
        assert_eq!((names.below("/a"), names.at("/c/d/b/f")), (Vec::new(), vec![32]));
        let (place, groups) = names.rename("/c/d/f", "/a-b/g").expect("a file");
        assert_eq!(groups, [16]);
        let before = Place { folder: names.folder("/c/d"), name: name_hash("f") };
        names.remove(before, 16);
        names.insert(place, 16);
        assert_eq!((names.at("/c/d/f"), names.at("/a-b/g")), (Vec::new(), vec![16]));
    }

    #[test]
    fn folders_without_groups_are_forgotten() {
        let mut names = names(&["/a/f", "/b/f"]);
        let place = Place { folder: names.folder("/a"), name: name_hash("f") };
        names.remove(place, 16);
        names.prune();
        assert_eq!(names.folders.keys().collect::<Vec<_>>(), ["/b"]);
    }
}
