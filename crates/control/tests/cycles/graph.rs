//! Cycles of a graph of files.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// The files that each file imports, with one path by which it does.
pub type Imports = BTreeMap<String, BTreeMap<String, String>>;

/// A shortest cycle among files that all import each other, directly or through others of them.
pub struct Cycle {
    /// The number of these files.
    files: usize,
    first: String,
    /// The next files, each with the path by which the one before imports it. The last one is the first.
    steps: Vec<(String, String)>,
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} files: {}", self.files, self.first)?;
        self.steps.iter().try_for_each(|(file, path)| write!(f, " -> {file} ({path})"))
    }
}

/// Returns a shortest cycle of each strongly connected group of files.
pub fn cycles(imports: &Imports) -> Vec<Cycle> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|file| (file.as_str(), reachable(imports, file))).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (&file, others) in &reached {
        if !others.contains(file) || seen.contains(file) {
            continue;
        }
        let group = others.iter().filter(|&&other| reached.get(other).is_some_and(|it| it.contains(file)));
        let group: BTreeSet<&str> = group.copied().collect();
        let shortest = group.iter().map(|first| shortest(imports, &group, first));
        found.extend(shortest.min_by_key(|cycle| cycle.steps.len()));
        seen.extend(group);
    }
    found
}

/// Returns the files that a file imports directly or through others.
fn reachable<'a>(imports: &'a Imports, from: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(file) = next.pop() {
        let new = imports.get(file).into_iter().flat_map(BTreeMap::keys);
        next.extend(new.map(String::as_str).filter(|file| reached.insert(*file)));
    }
    reached
}

/// Returns a shortest cycle through this file of the group.
fn shortest(imports: &Imports, group: &BTreeSet<&str>, first: &str) -> Cycle {
    let mut before: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    let mut next = VecDeque::from([first]);
    while let Some(file) = next.pop_front() {
        for (other, path) in imports.get(file).into_iter().flatten() {
            if group.contains(other.as_str()) && !before.contains_key(other.as_str()) {
                before.insert(other, (file, path));
                next.push_back(other);
            }
        }
    }
    let mut steps = Vec::new();
    let mut at = first;
    while steps.is_empty() || at != first {
        let (file, path) = before[at];
        steps.push((at.to_owned(), path.to_owned()));
        at = file;
    }
    steps.reverse();
    Cycle { files: group.len(), first: first.to_owned(), steps }
}
