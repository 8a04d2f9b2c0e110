//! Chooses the files that policies require work on. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hdfs_raid::{
    Codec, Direction, Glob, Goal, Listing, Notes, ParityState, Policies, State, Survey, Unit, candidate,
    is_within, parity_path,
};

use super::schedule::{Encoding, Task, Urgency};

/// The characters of a pattern that stand for others.
const WILD: [char; 3] = ['*', '?', '{'];

/// How files are encoded: by each policy, and by each codec if no policy covers them. Tasks share it.
#[derive(Clone, Debug)]
pub(crate) struct Encodings {
    policies: Policies,
    by_policy: BTreeMap<String, Arc<Encoding>>,
    /// For files that were renamed without their parity, to a path without a policy.
    by_codec: BTreeMap<String, Arc<Encoding>>,
}

impl Encodings {
    /// Returns the encodings of all policies and codecs.
    pub fn of(policies: &Policies) -> Self {
        let encoding = |codec: &Codec, policy: Option<&hdfs_raid::RaidPolicy>| {
            let tolerated = codec.tolerates().expect("the code was checked when it was parsed");
            let goal = policy.map_or(Goal::Protected, hdfs_raid::RaidPolicy::goal);
            Arc::new(Encoding { codec: codec.clone(), policy: policy.cloned(), goal, tolerated })
        };
        let of_policy = |policy: &hdfs_raid::RaidPolicy| {
            (policy.name.clone(), encoding(policies.codec_of(policy), Some(policy)))
        };
        let of_codec = |codec: &Codec| (codec.name.clone(), encoding(codec, None));
        Self {
            policies: policies.clone(),
            by_policy: policies.policies().iter().map(of_policy).collect(),
            by_codec: policies.codecs().iter().map(of_codec).collect(),
        }
    }

    /// Returns the folders to list: those of all patterns, without folders inside of others.
    pub fn roots(&self) -> Vec<String> {
        let policies = self.by_policy.values().filter_map(|encoding| encoding.policy.as_ref());
        let patterns = policies.flat_map(|policy| &policy.paths);
        let roots: BTreeSet<String> = patterns.map(root_of).collect();
        let is_covered = |root: &str| roots.iter().any(|other| other != root && is_within(root, other));
        roots.iter().filter(|root| !is_covered(root)).cloned().collect()
    }

    /// Returns the files and folders of a surveyed listing that need work, if `covers` accepts their paths.
    pub fn tasks(&self, survey: &Survey, listing: &Listing, covers: impl Fn(&str) -> bool) -> Vec<Task> {
        let files = listing.files.iter().map(|file| (file.path.as_str(), file.modified_ms));
        let folders = listing.folders.iter().map(|folder| (folder.path.as_str(), folder.modified_ms));
        let times: BTreeMap<&str, u64> = folders.chain(files).collect();
        let task = |unit: &Unit| {
            let found = candidate(unit, &self.policies, Direction::Encode).ok()?;
            let encoding = match found.policy {
                Some(policy) => self.by_policy.get(&policy.name)?,
                None => self.by_codec.get(&found.codec.name)?,
            };
            let modified_ms = *times.get(unit.path.as_str())?;
            let urgency = urgency(unit, &listing.notes, &times).filter(|_| covers(&unit.path))?;
            let (path, encoding) = (unit.path.clone(), Arc::clone(encoding));
            let stray = unit.stray().map(str::to_owned);
            let has_parity = unit.protection.is_some();
            Some(Task { path, bytes: unit.bytes, modified_ms, urgency, encoding, stray, has_parity })
        };
        survey.units.iter().filter_map(task).collect()
    }
}

/// Returns the longest folder that contains everything that a pattern covers.
fn root_of(pattern: &Glob) -> String {
    let text = pattern.to_string();
    let fixed = text.split('/').filter(|part| !part.is_empty()).take_while(|part| !part.contains(WILD));
    let root: String = fixed.map(|part| format!("/{part}")).collect();
    if root.is_empty() { "/".to_owned() } else { root }
}

/// Returns why a [candidate] needs work; `None` if it needs none. `times` are the modification times of all files and
/// folders.
fn urgency(unit: &Unit, notes: &Notes, times: &BTreeMap<&str, u64>) -> Option<Urgency> {
    match &unit.state {
        _ if unit.is_unsafe() => Some(Urgency::Unsafe),
        State::Stale(_) => Some(Urgency::Changed),
        // The blocks of a damaged file are repaired first.
        State::Damaged(_) | State::Excluded(_) => None,
        State::NotLowered => Some(Urgency::Unfinished),
        _ if is_unfinished(unit, notes, times) => Some(Urgency::Unfinished),
        State::Misplaced(_) => Some(Urgency::Misplaced),
        State::ShouldEncode => Some(Urgency::New),
        State::Raided if has_old_note(unit, notes) => Some(Urgency::OldNote),
        // Operators decide about files that cannot be repaired.
        State::Unrepairable(_) | State::Raided => None,
    }
}

/// Whether valid parity is to be removed, to be proven for the first time, or to get the modification time of its file.
fn is_unfinished(unit: &Unit, notes: &Notes, times: &BTreeMap<&str, u64>) -> bool {
    let Some(protection) = &unit.protection else { return false };
    let [source, parity] = [&unit.path, &protection.path].map(|path| times.get(path.as_str()));
    match protection.state {
        ParityState::Undone => true,
        ParityState::Unproven if !has_old_note(unit, notes) => true,
        _ => parity.is_some_and(|parity| Some(parity) != source),
    }
}

/// Whether the parity is valid by a note that does not name the code. After an upgrade, all parity may have such a note.
fn has_old_note(unit: &Unit, notes: &Notes) -> bool {
    let protection = unit.protection.as_ref().filter(|it| it.state == ParityState::Unproven);
    let marks = protection.and_then(|protection| notes.marks.get(&protection.path));
    marks.and_then(|marks| marks.note).is_some_and(|note| note.code.is_none())
}

/// Leaves out files that may have been renamed, and returns whether there are any. A file with one replica, and without a
/// file at the path of its parity, may have its parity at the path of its former name. Only a listing of all folders shows
/// this; from one of single files, parity would be made anew, and the old one would stay where it is.
pub(crate) fn not_renamed(tasks: Vec<Task>, listing: &Listing) -> (Vec<Task>, bool) {
    let paths: BTreeSet<&str> = listing.files.iter().map(|file| file.path.as_str()).collect();
    let has_parity =
        |task: &Task| paths.contains(parity_path(&task.encoding.codec.parity_root, &task.path).as_str());
    let all = tasks.len();
    let certain = tasks.into_iter().filter(|task| task.urgency != Urgency::Unsafe || has_parity(task));
    let certain: Vec<Task> = certain.collect();
    let is_less = certain.len() < all;
    (certain, is_less)
}

/// Checks that the coordinator follows the codecs of all policies. It would not repair files of other codecs. `followed` is
/// empty without `[store.raid]` in `mend.toml`.
///
/// # Errors
/// A text for operators that names the first policy with another codec.
pub(crate) fn check_followed(policies: &Policies, followed: &[Codec]) -> Result<(), String> {
    let mut pairs = policies.policies().iter().map(|policy| (policy, policies.codec_of(policy)));
    let Some((policy, codec)) = pairs.find(|(_, codec)| !followed.contains(codec)) else { return Ok(()) };
    let next = match followed.is_empty() {
        true => "add [store.raid] to mend.toml on all machines, and restart coordinator and helpers",
        false => "add the same codec as [[store.raid.codec]] to mend.toml, and restart the coordinator",
    };
    let (policy, codec) = (&policy.name, &codec.name);
    Err(format!("policy {policy} uses codec {codec}, and files with it would not be repaired: {next}"))
}

#[cfg(test)]
mod tests {
    use hdfs_raid::{Block, File, Fingerprint, Mark, Node, NodeIndex, Note, Owner, Storing};

    use super::*;

    const POLICIES: &str =
        "[[policy]]\nname = \"p\"\npaths = [\"/d\"]\ncodec = \"xor\"\nmin_age = \"0s\"\nmin_blocks = 1\n";

    fn file(path: &str, inode: u64, replication: u16, first: i64) -> File {
        let replicas =
            |at: usize| (0..usize::from(replication)).map(|more| NodeIndex((at + more) % 5)).collect();
        let block = |at: usize| Block {
            number: first + at as i64,
            stamp: 1001,
            bytes: 1 << 20,
            replicas: replicas(at),
        };
        let blocks: Vec<Block> = (0..2).map(block).collect();
        File {
            inode,
            path: path.to_owned(),
            bytes: 2 << 20,
            block_bytes: 1 << 20,
            replication,
            modified_ms: inode,
            owner: Owner::Superuser,
            storing: Storing::Replicated,
            is_open: false,
            blocks,
        }
    }

    fn parity(source: &File, first: i64) -> File {
        let mut parity = file(&format!("/raid{}", source.path), source.inode + 100, 1, first);
        parity.blocks.truncate(1);
        parity.blocks[0].replicas = vec![NodeIndex(2)];
        (parity.bytes, parity.modified_ms) = (1 << 20, source.modified_ms);
        parity
    }

    /// Returns a note on parity for the present blocks.
    fn prove(listing: &mut Listing, source: &File, parity: &File) {
        let [of_source, of_parity] = [source, parity].map(|file| Fingerprint::of(&file.blocks));
        let code = Some(Fingerprint::of_code(&Codec::hdfs_raid()[1].code));
        let note = Note { inode: source.inode, replication: 3, source: of_source, parity: of_parity, code };
        let (names, value) = Mark::Proven(note).attributes();
        let trusted = names.iter().find(|name| name.starts_with("trusted")).expect("one is trusted");
        listing.notes.take(&parity.path, trusted, &value).expect("a note");
        listing.notes.living.insert(source.inode);
    }

    fn whole_tasks(listing: &Listing) -> Vec<Task> {
        let policies = Policies::parse(POLICIES).expect("policies");
        let survey = hdfs_raid::survey(listing, &policies, 1 << 40);
        Encodings::of(&policies).tasks(&survey, listing, |path| !path.starts_with("/d/not"))
    }

    fn tasks(listing: &Listing) -> Vec<(String, Urgency)> {
        whole_tasks(listing).into_iter().map(|task| (task.path, task.urgency)).collect()
    }

    #[test]
    fn files_that_may_have_been_renamed_wait_for_a_full_listing() {
        let node = |at| Node { address: format!("n{at}"), rack: "/r".to_owned(), is_usable: true };
        let mut listing =
            Listing { root: "/d".to_owned(), nodes: (0..5).map(node).collect(), ..Listing::default() };
        let (renamed, stale, new) =
            (file("/d/renamed", 1, 1, 10), file("/d/stale", 2, 1, 20), file("/d/new", 3, 3, 30));
        let old = parity(&stale, 25);
        prove(&mut listing, &File { blocks: Vec::new(), ..stale.clone() }, &old);
        listing.files.extend([renamed, stale, new, old]);
        let (certain, is_less) = not_renamed(whole_tasks(&listing), &listing);
        let mut certain: Vec<(&str, Urgency)> =
            certain.iter().map(|task| (task.path.as_str(), task.urgency)).collect();
        certain.sort();
        assert_eq!(certain, [("/d/new", Urgency::New), ("/d/stale", Urgency::Unsafe)]);
        assert!(is_less);
        listing.files.retain(|file| file.path != "/d/renamed");
        assert!(!not_renamed(whole_tasks(&listing), &listing).1);
    }

    /// The folder is listed because of a policy, but the pattern does not cover the new path.
    #[test]
    fn parity_follows_a_file_that_no_policy_covers_any_more() {
        let node = |at| Node { address: format!("n{at}"), rack: "/r".to_owned(), is_usable: true };
        let mut listing =
            Listing { root: "/".to_owned(), nodes: (0..5).map(node).collect(), ..Listing::default() };
        let before = file("/d/f", 1, 1, 10);
        let parity = parity(&before, 15);
        prove(&mut listing, &before, &parity);
        listing.files.extend([File { path: "/e/f".to_owned(), ..before }, parity]);
        let tasks = whole_tasks(&listing);
        let [task] = &tasks[..] else { panic!("one task: {tasks:?}") };
        assert_eq!((task.path.as_str(), task.urgency), ("/e/f", Urgency::Unsafe));
        assert_eq!(task.stray.as_deref(), Some("/raid/d/f"));
        assert_eq!((task.encoding.goal, task.encoding.policy.as_ref()), (Goal::Protected, None));
    }

    #[test]
    fn files_have_the_urgency_of_their_states() {
        let node = |at| Node { address: format!("n{at}"), rack: "/r".to_owned(), is_usable: true };
        let mut listing =
            Listing { root: "/d".to_owned(), nodes: (0..5).map(node).collect(), ..Listing::default() };
        // Blocks on the last two DataNodes stand too close together, because the others are in other racks.
        listing.nodes.iter_mut().enumerate().for_each(|(at, node)| node.rack = format!("/r{}", at.min(3)));
        let mut in_one_rack = file("/d/rack", 11, 1, 110);
        in_one_rack
            .blocks
            .iter_mut()
            .zip([3, 4])
            .for_each(|(block, node)| block.replicas = vec![NodeIndex(node)]);
        let new = file("/d/new", 1, 3, 10);
        let single = file("/d/single", 2, 1, 20);
        let done = file("/d/done", 3, 1, 30);
        let high = file("/d/high", 4, 3, 40);
        let mut crowded = file("/d/crowded", 5, 1, 50);
        crowded.blocks[1].replicas = crowded.blocks[0].replicas.clone();
        let stale = file("/d/stale", 6, 3, 60);
        let open = File { is_open: true, ..file("/d/open", 7, 1, 70) };
        let unproven = file("/d/unproven", 8, 1, 80);
        let elsewhere = [file("/d/not", 9, 3, 90), file("/e/f", 10, 3, 95)];
        for source in [&done, &high, &crowded, &in_one_rack] {
            let parity = parity(source, source.blocks[0].number + 5);
            prove(&mut listing, source, &parity);
            listing.files.push(parity);
        }
        for source in [&stale, &open] {
            let parity = parity(source, source.blocks[0].number + 5);
            prove(&mut listing, &File { blocks: Vec::new(), ..source.clone() }, &parity);
            listing.files.push(parity);
        }
        let mut newer = parity(&unproven, 85);
        newer.blocks[0].stamp += 1;
        listing.files.push(newer);
        listing.files.extend([new, single, done, high, crowded, in_one_rack, stale, open, unproven]);
        listing.files.extend(elsewhere);
        let mut found = tasks(&listing);
        found.sort();
        let expected = [
            ("/d/crowded", Urgency::Unsafe),
            ("/d/high", Urgency::Unfinished),
            ("/d/new", Urgency::New),
            ("/d/open", Urgency::Unsafe),
            ("/d/rack", Urgency::Misplaced),
            ("/d/single", Urgency::Unsafe),
            ("/d/stale", Urgency::Changed),
            ("/d/unproven", Urgency::Unfinished),
        ];
        assert_eq!(found, expected.map(|(path, urgency)| (path.to_owned(), urgency)));
    }

    /// The coordinator was restarted after the file was lowered. One block is lost, and two are on one DataNode: its loss would be
    /// too much.
    #[test]
    fn a_damaged_file_whose_blocks_were_not_moved_apart_is_unsafe() {
        let node = |at| Node { address: format!("n{at}"), rack: "/r".to_owned(), is_usable: true };
        let mut listing =
            Listing { root: "/d".to_owned(), nodes: (0..5).map(node).collect(), ..Listing::default() };
        let mut lowered = file("/d/f", 1, 1, 10);
        let parity = parity(&lowered, 15);
        prove(&mut listing, &lowered, &parity);
        lowered.blocks[0].replicas.clear();
        listing.files.extend([lowered, parity]);
        assert!(tasks(&listing).is_empty(), "its block is repaired first");
        listing.files[1].blocks[0].replicas = listing.files[0].blocks[1].replicas.clone();
        assert_eq!(tasks(&listing), [("/d/f".to_owned(), Urgency::Unsafe)]);
    }

    /// An upgrade of Mend leaves such notes on the parity of all files. Their checks may take weeks at the `rate`.
    #[test]
    fn parity_with_an_old_note_is_checked_after_new_files_are_encoded() {
        let node = |at| Node { address: format!("n{at}"), rack: "/r".to_owned(), is_usable: true };
        let mut listing =
            Listing { root: "/d".to_owned(), nodes: (0..5).map(node).collect(), ..Listing::default() };
        let [done, touched, high] =
            [("/d/done", 1, 1), ("/d/touched", 2, 1), ("/d/high", 3, 3)].map(|(path, inode, replication)| {
                let source = file(path, inode, replication, inode as i64 * 10);
                let mut parity = parity(&source, inode as i64 * 10 + 5);
                prove(&mut listing, &source, &parity);
                let marks = listing.notes.marks.get_mut(&parity.path).expect("marks");
                marks.note.as_mut().expect("a note").code = None;
                parity.modified_ms += u64::from(path == "/d/touched");
                listing.files.push(parity);
                source
            });
        listing.files.extend([done, touched, high, file("/d/new", 4, 3, 40)]);
        let mut found = tasks(&listing);
        found.sort_by_key(|&(_, urgency)| urgency);
        let expected = [
            ("/d/high", Urgency::Unfinished),
            ("/d/touched", Urgency::Unfinished),
            ("/d/new", Urgency::New),
            ("/d/done", Urgency::OldNote),
        ];
        assert_eq!(found, expected.map(|(path, urgency)| (path.to_owned(), urgency)));
    }

    /// Operators are advised to undo the encoding of such a file. The command was killed after it had marked the parity.
    #[test]
    fn an_interrupted_undo_of_an_unrepairable_file_is_continued() {
        let node = |at| Node { address: format!("n{at}"), rack: "/r".to_owned(), is_usable: true };
        let mut listing =
            Listing { root: "/d".to_owned(), nodes: (0..5).map(node).collect(), ..Listing::default() };
        let old = file("/d/old", 1, 1, -20);
        let parity = parity(&old, 15);
        prove(&mut listing, &old, &parity);
        let path = parity.path.clone();
        listing.files.extend([old, parity]);
        let policies = Policies::parse(POLICIES).expect("policies");
        let survey = hdfs_raid::survey(&listing, &policies, 1 << 40);
        assert!(survey.units.iter().any(|unit| matches!(unit.state, State::Unrepairable(_))));
        assert!(tasks(&listing).is_empty(), "an operator decides");
        let (names, value) = Mark::Undo.attributes();
        listing.notes.take(&path, names[0], &value).expect("a mark");
        assert_eq!(tasks(&listing), [("/d/old".to_owned(), Urgency::Unfinished)]);
    }

    #[test]
    fn the_folders_of_patterns_are_listed_once() {
        let text = "[[policy]]\nname = \"p\"\npaths = [\"/a/*/x\", \"/a/b\", \"/c/d{e,f}\", \"/g/\"]\ncodec = \"rs\"\n\
                    [[policy]]\nname = \"q\"\npaths = [\"/h\"]\ncodec = \"dir-rs\"\n";
        let policies = Policies::parse(text).expect("policies");
        assert_eq!(Encodings::of(&policies).roots(), ["/a", "/c", "/g", "/h"]);
        let all = Policies::parse(&text.replace("/g/", "/**/g")).expect("policies");
        assert_eq!(Encodings::of(&all).roots(), ["/"]);
    }

    #[test]
    fn codecs_that_are_not_followed_are_found() {
        let policies = Policies::parse(POLICIES).expect("policies");
        assert_eq!(check_followed(&policies, &Codec::hdfs_raid()), Ok(()));
        let told = |followed: &[Codec]| check_followed(&policies, followed).expect_err("it is not followed");
        assert!(told(&[]).starts_with("policy p uses codec xor") && told(&[]).contains("add [store.raid] "));
        assert!(told(&Codec::hdfs_raid()[..1]).contains("[[store.raid.codec]]"));
    }
}
