//! Looks at one file or folder, and carries out the calls that encode it or undo this. The formats of the calls are
//! documented at `mend.hdfs.namenode.Changes` in `java/hdfs`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use codes::Recipe;
use hdfs_raid::{
    Action, Codec, DataNodes, Extent, FactFinder, Facts, File, Fingerprint, Layout, NewBlock, Note, Notes,
    RaidPolicy, Refusal, Trouble, parity_path,
};

use super::driving::{ParityMaker, Pending};
use super::{RaidNameNode, marks_of, noted};
use crate::listing::{ExistingInodes, encoded};
use crate::namenode::{LOOK_LIMIT, SILENCE_LIMIT};
use crate::{AskError, Listing};

/// A file to encode, or whose encoding is undone; or a folder whose files are encoded together.
#[derive(Clone, Debug)]
pub struct RaidFile {
    /// The path.
    pub path: String,
    /// The codec.
    pub codec: Codec,
    /// The policy that covers the file, if any.
    pub policy: Option<RaidPolicy>,
    /// The path of its parity if the file was renamed without it ([`hdfs_raid::Unit::stray`]).
    pub stray: Option<String>,
}

impl RaidNameNode {
    /// Looks at a file, its parity, and parity that is being made. `now_ms` is the time in milliseconds since
    /// 1970.
    ///
    /// # Errors
    /// [`Trouble`].
    pub async fn look(&self, file: &RaidFile, now_ms: u64) -> Result<(Facts, DataNodes), Trouble> {
        let RaidFile { path, codec, policy, stray } = file;
        let roots = [&codec.parity_root, &codec.draft_root()].map(|root| parity_path(root, path));
        let paths: Vec<String> = [path.clone()].into_iter().chain(roots).chain(stray.clone()).collect();
        let mut listing = self
            .namenode
            .files(&paths, &|_| {})
            .await
            .and_then(Listing::complete)
            .map_err(trouble)?
            .into_raid();
        let is_listed = |path: &&String| listing.files.iter().any(|file| file.path == **path);
        let mut marked = FactFinder::new(&listing).marked(codec, path);
        marked.extend(stray.iter().filter(is_listed).cloned());
        let attributes = self.attributes(&marked).await.map_err(trouble)?;
        let marks = marks_of(attributes).map_err(|text| refused(Refusal::Other, text))?;
        let ExistingInodes { present, in_snapshots } = self.existing(noted(&marks)).await.map_err(trouble)?;
        listing.notes = Notes { marks, living: present, kept: in_snapshots, ..Notes::default() };
        listing.repaired.clone_from(&self.repaired);
        let facts = FactFinder::new(&listing).facts(codec, policy.as_ref(), path, now_ms);
        Ok((facts, DataNodes::of(&listing)))
    }

    /// Carries out an action on a file, given the facts from which it follows. Returns whether parity is right,
    /// if the action is to prove it. The replication is not set after `until_ms`.
    ///
    /// # Errors
    /// [`Trouble`].
    pub async fn act(
        &self,
        file: &RaidFile,
        facts: &Facts,
        action: &Action,
        until_ms: u64,
    ) -> Result<Option<bool>, Trouble> {
        let (mut proof, mut first) = (None, None);
        for (call, limit) in calls(file, facts, action, until_ms)? {
            // A folder has a call for each file, and the last one must not take effect later than the first.
            let limit = if let Action::SetReplication { .. } = action { left(until_ms) } else { limit };
            match self.namenode.change(&call, limit).await.map_err(trouble) {
                Ok(answer) => proof = answer.changed.proof.or(proof),
                Err(trouble) if is_of_one_call(facts, action, &trouble) => {
                    first.get_or_insert(trouble);
                }
                Err(trouble) => return Err(trouble),
            }
        }
        first.map_or(Ok(proof), Err)
    }
}

/// The JVM reads all data blocks of a stripe and writes its parity blocks.
impl ParityMaker for RaidNameNode {
    fn encode<'a>(
        &'a self,
        file: &'a RaidFile,
        facts: &'a Facts,
        stripe: usize,
        blocks: &'a [NewBlock],
    ) -> Pending<'a, Result<(), Trouble>> {
        let action = Action::Write { stripe, blocks: blocks.to_vec() };
        Box::pin(async move { self.act(file, facts, &action, u64::MAX).await.map(drop) })
    }

    fn prove<'a>(
        &'a self,
        file: &'a RaidFile,
        facts: &'a Facts,
        note: Note,
        parity: &'a [String],
    ) -> Pending<'a, Result<bool, Trouble>> {
        let action = Action::Prove { note, parity: parity.to_vec() };
        let silent = || refused(Refusal::Other, "the JVM did not say whether the parity is right");
        Box::pin(async move { self.act(file, facts, &action, u64::MAX).await?.ok_or_else(silent) })
    }
}

/// Whether a failure concerns one of several moves, for example because its DataNode is full; or one of the files of a folder
/// that are raised, for example because it was deleted. The other calls are carried out: until then, a lost DataNode may hold
/// several blocks of a stripe, or files have one replica.
fn is_of_one_call(facts: &Facts, action: &Action, trouble: &Trouble) -> bool {
    let is_single = matches!(trouble, Trouble::Refused { kind: Refusal::Changed | Refusal::Other, .. });
    let is_independent = match action {
        Action::Move(_) => true,
        Action::SetReplication { replication, .. } => !facts.below(*replication).is_empty(),
        _ => false,
    };
    is_single && is_independent
}

/// Returns the calls of an action, each with the longest time without output.
fn calls(
    file: &RaidFile,
    facts: &Facts,
    action: &Action,
    until_ms: u64,
) -> Result<Vec<(String, Duration)>, Trouble> {
    let short = |words: Vec<String>| vec![(words.join("\t"), LOOK_LIMIT)];
    let long = |words: Vec<String>| vec![(words.join("\t"), SILENCE_LIMIT)];
    let call = |word: &str, path: &str| format!("{word} {}", encoded(path));
    // A client may give the path to another file meanwhile.
    let known = |word: &str, path: &str| {
        let path = found(facts, path).map_or_else(|| path.to_owned(), |file| by_inode(file.inode));
        call(word, &path)
    };
    Ok(match action {
        Action::MakeFolder(path) => short(vec![call("mkdir", path)]),
        Action::TakeOver { from, to } => short(vec![call("rename", from), encoded(to)]),
        Action::Delete(path) => long(vec![known("delete", path)]),
        Action::Write { stripe, blocks } => long(write(file, facts, *stripe, blocks)?),
        Action::Prove { note, parity } => {
            let (layout, blocks) = (layout(file, facts)?, source(file, facts)?.blocks.len());
            let prints = [note.source, note.parity].map(|print| print.to_string());
            let mut words = vec![format!("prove {}", paths(&facts.extents(0..blocks)))];
            words.push(file.codec.data_blocks().to_string());
            words.extend([layout.block_bytes().to_string(), rows(&file.codec)]);
            words.extend(prints.into_iter().chain(parity.iter().map(|path| encoded(path))));
            long(words)
        }
        Action::Mark { path, mark } => {
            let (names, value) = mark.attributes();
            let attributes = names.iter().flat_map(|name| [(*name).to_owned(), encoded(&value)]);
            short([known("mark", path)].into_iter().chain(attributes).collect())
        }
        Action::Join { target, sources } => {
            let sources = sources.iter().map(|path| encoded(path));
            long([call("join", target)].into_iter().chain(sources).collect())
        }
        Action::SetTime { path, modified_ms } => short(vec![known("time", path), modified_ms.to_string()]),
        Action::Publish { from, to, .. } => {
            let replaced = found(facts, to).map_or_else(|| "-".to_owned(), |file| file.inode.to_string());
            let inode = source(file, facts)?.inode.to_string();
            let mut words = vec![known("publish", from), encoded(to), replaced, encoded(&file.path), inode];
            words.extend(facts.parts.iter().map(|part| encoded(&part.path)));
            short(words)
        }
        Action::SetReplication { path, replication } => {
            let calls = replicate(facts, path, *replication, until_ms)?;
            calls.into_iter().map(|call| (call, left(until_ms))).collect()
        }
        Action::Move(moves) => {
            let step = |step: &hdfs_raid::BlockMove| {
                let words =
                    [known("move", &step.path), step.block.to_string(), step.from.clone(), step.to.clone()];
                (words.join("\t"), SILENCE_LIMIT)
            };
            moves.iter().map(step).collect()
        }
    })
}

/// Returns how long an answer may take. A call that is not answered in time must not take effect later: the JVM is
/// replaced.
fn left(until_ms: u64) -> Duration {
    Duration::from_millis(until_ms.saturating_sub(now_ms())).max(Duration::from_secs(1))
}

/// Returns the file with this path among the facts.
fn found<'a>(facts: &'a Facts, path: &str) -> Option<&'a File> {
    let drafts = facts.drafts.iter().flat_map(|draft| &draft.files);
    let own = [&facts.source, &facts.parity, &facts.stray].into_iter().flatten();
    own.chain(drafts).map(|found| &found.file).chain(&facts.parts).find(|file| file.path == path)
}

/// Returns the path at which HDFS finds a file by its inode, whatever its name is.
fn by_inode(inode: u64) -> String {
    format!("/.reserved/.inodes/{inode}")
}

/// Returns the calls that set the replication of a file, or of the files of a folder. As long as there are files of a folder
/// to raise, no other is lowered: lowering follows from further checks.
fn replicate(facts: &Facts, path: &str, replication: u16, until_ms: u64) -> Result<Vec<String>, Trouble> {
    let is_source = facts.source.as_ref().is_some_and(|source| source.file.path == path);
    let low = facts.below(replication);
    let files: Vec<&File> = match is_source {
        true if low.is_empty() => facts.above(replication),
        true => low,
        false => found(facts, path).into_iter().collect(),
    };
    match files.is_empty() {
        true => Err(refused(Refusal::Changed, format!("{path} does not exist any more"))),
        false => Ok(files.iter().map(|file| replicate_file(facts, file, replication, until_ms)).collect()),
    }
}

/// Returns the call that sets the replication of a file. Another file may be at its path meanwhile. The replication of this
/// one is raised regardless of its contents, and lowered only if it and its parity have the same blocks.
fn replicate_file(facts: &Facts, file: &File, replication: u16, until_ms: u64) -> String {
    let begin = format!("replicate {}\t{replication}\t{until_ms}", encoded(&file.path));
    if replication >= file.replication {
        return format!("{begin}\t{}\t-", file.inode);
    }
    let known = |file: &File| format!("{}\t{}", file.inode, Fingerprint::of(&file.blocks));
    let parity = facts.parity.as_ref().map(|found| &found.file);
    let is_parity = parity.is_some_and(|parity| parity.inode == file.inode);
    let others: Vec<&File> = if is_parity { facts.files().collect() } else { parity.into_iter().collect() };
    let other = |other: &&File| format!("\t{}\t{}", encoded(&other.path), known(other));
    format!("{begin}\t{}{}", known(file), others.iter().map(other).collect::<String>())
}

/// Returns the paths of files as one word.
fn paths(extents: &[Extent<'_>]) -> String {
    extents.iter().map(|extent| encoded(&extent.file.path)).collect::<Vec<_>>().join(",")
}

/// Returns the words of the call that writes parity blocks of a stripe.
fn write(file: &RaidFile, facts: &Facts, stripe: usize, blocks: &[NewBlock]) -> Result<Vec<String>, Trouble> {
    let layout = layout(file, facts)?;
    let changed = || refused(Refusal::Changed, format!("{} has no stripe {stripe} any more", file.path));
    let members = layout.stripes().nth(stripe).ok_or_else(changed)?;
    let from = members.first().map_or(0, |member| member.block);
    let extents = facts.extents(from..from + members.len());
    let first = extents.first().map_or(0, |extent| extent.first);
    let mut words = vec![format!("encode {}", paths(&extents)), first.to_string()];
    words.extend([members.len().to_string(), layout.block_bytes().to_string(), rows(&file.codec)]);
    let target = |block: &NewBlock| [block.parity.to_string(), encoded(&block.path), block.datanode.clone()];
    words.extend(blocks.iter().flat_map(target));
    Ok(words)
}

pub(super) fn source<'a>(file: &RaidFile, facts: &'a Facts) -> Result<&'a File, Trouble> {
    let gone = || refused(Refusal::Changed, format!("{} does not exist any more", file.path));
    facts.source.as_ref().map(|found| &found.file).ok_or_else(gone)
}

pub(super) fn layout(file: &RaidFile, facts: &Facts) -> Result<Layout, Trouble> {
    Layout::of_source(source(file, facts)?, &file.codec).map_err(|why| refused(Refusal::Changed, why))
}

/// Returns the equations of a codec's parity blocks as text: the number of sub-blocks in a block, and for each
/// sub-block of parity the numbers of sub-blocks of data with their coefficients.
fn rows(codec: &Codec) -> String {
    let code = codec.code.build().expect("the code was checked when it was parsed");
    let (recipe, sub_blocks) = (code.encoding(), codec.code.sub_blocks());
    let row = |output: usize| {
        let term = |&(source, coefficient): &(u32, u8)| {
            let source = recipe.sources()[source as usize];
            let number = usize::from(source.block.0) * sub_blocks + usize::from(source.sub);
            format!("{number}:{coefficient}")
        };
        recipe.row(output).iter().map(term).collect::<Vec<_>>().join(",")
    };
    let rows: Vec<String> = in_order(recipe).into_iter().map(row).collect();
    format!("{sub_blocks}/{}", rows.join(";"))
}

/// Returns the outputs of a recipe in the order of their blocks and sub-blocks.
fn in_order(recipe: &Recipe) -> Vec<usize> {
    let mut outputs: Vec<usize> = (0..recipe.outputs().len()).collect();
    outputs.sort_by_key(|&output| recipe.outputs()[output]);
    outputs
}

/// Returns the time in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

pub(super) fn refused(kind: Refusal, text: impl ToString) -> Trouble {
    Trouble::Refused { kind, text: text.to_string() }
}

/// Returns the failure of a query or a change. The JVM's message about a change begins with its kind.
pub(super) fn trouble(error: AskError) -> Trouble {
    let AskError::Failed(text) = &error else {
        return match error {
            AskError::SafeMode => Trouble::SafeMode,
            AskError::Refused { .. } => refused(Refusal::Permission, error),
            AskError::Line(_) | AskError::LineBreak { .. } | AskError::NoJava { .. } => {
                refused(Refusal::Other, error)
            }
            _ => Trouble::Unreachable(error.to_string()),
        };
    };
    let (kind, rest) = text.split_once(' ').unwrap_or((text, text));
    match kind {
        "safemode" => Trouble::SafeMode,
        "permission" => refused(Refusal::Permission, rest),
        "quota" => refused(Refusal::Quota, rest),
        "space" => refused(Refusal::Space, rest),
        "changed" => refused(Refusal::Changed, rest),
        "other" => refused(Refusal::Other, rest),
        // Looks fail without a kind; the NameNode may be restarting.
        _ => Trouble::Unreachable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use hdfs_raid::{Block, MarkedFile, Marks, NodeIndex, Owner, Scope, Storing};

    use super::*;

    fn file(code: &str) -> RaidFile {
        let codec = Codec::new("c", code.parse().expect("a code"), "/p", Scope::File);
        RaidFile { path: "/a b".to_owned(), codec, policy: None, stray: None }
    }

    /// Returns the facts about a file of three blocks, of which the last is short.
    fn facts() -> Facts {
        let block = |(number, bytes)| Block { number, stamp: 1, bytes, replicas: vec![NodeIndex(0)] };
        let file = File {
            inode: 1,
            path: "/a b".to_owned(),
            bytes: 1100,
            block_bytes: 512,
            replication: 3,
            modified_ms: 0,
            owner: Owner::Superuser,
            storing: Storing::Replicated,
            is_open: false,
            blocks: [(1, 512), (2, 512), (3, 76)].map(block).to_vec(),
        };
        Facts { source: Some(MarkedFile { file, marks: Marks::default() }), ..Facts::default() }
    }

    fn texts(file: &RaidFile, action: &Action) -> Vec<String> {
        let calls = calls(file, &facts(), action, 7).expect("calls");
        calls.into_iter().map(|(call, _)| call.replace('\t', " | ")).collect()
    }

    #[test]
    fn parity_is_written_by_the_equations_of_the_code() {
        let block = |parity, datanode: &str| NewBlock {
            path: format!("/t/1-{parity}"),
            parity,
            datanode: datanode.to_owned(),
        };
        let action = Action::Write { stripe: 1, blocks: vec![block(0, "10.0.0.1:9866")] };
        let expected = "encode %2Fa%20b | 2 | 1 | 512 | 1/0:1,1:1 | 0 | %2Ft%2F1%2D0 | 10.0.0.1:9866";
        assert_eq!(texts(&file("xor-3-2"), &action), [expected]);
        let beyond = Action::Write { stripe: 2, blocks: Vec::new() };
        let error = calls(&file("xor-3-2"), &facts(), &beyond, 7).expect_err("two stripes");
        assert!(matches!(error, Trouble::Refused { kind: Refusal::Changed, .. }), "{error}");
    }

    /// The folder `/a b` with two files: block 1, and blocks 2 and 3.
    #[test]
    fn calls_for_a_folder_name_its_files() {
        let whole = facts().source.expect("a file").file;
        let part = |inode, path: &str, blocks: &[Block]| File {
            inode,
            path: path.to_owned(),
            blocks: blocks.to_vec(),
            ..whole.clone()
        };
        let parts = vec![part(11, "/a b/c", &whole.blocks[..1]), part(12, "/a b/d", &whole.blocks[1..])];
        let facts = Facts { parts, ..facts() };
        let codec = Codec { scope: Scope::Folder, ..file("xor-3-2").codec };
        let folder = RaidFile { codec, ..file("xor-3-2") };
        let texts = |action: &Action| {
            let calls = calls(&folder, &facts, action, 7).expect("calls");
            calls.into_iter().map(|(call, _)| call.replace('\t', " | ")).collect::<Vec<String>>()
        };
        let write = |stripe| Action::Write {
            stripe,
            blocks: vec![NewBlock { path: "/t".to_owned(), parity: 0, datanode: "n:1".to_owned() }],
        };
        let (c, d) = ("%2Fa%20b%2Fc", "%2Fa%20b%2Fd");
        assert_eq!(texts(&write(0)), [format!("encode {c},{d} | 0 | 2 | 512 | 1/0:1,1:1 | 0 | %2Ft | n:1")]);
        assert_eq!(texts(&write(1)), [format!("encode {d} | 1 | 1 | 512 | 1/0:1,1:1 | 0 | %2Ft | n:1")]);
        let set = Action::SetReplication { path: "/a b".to_owned(), replication: 4 };
        let expected =
            [(c, 11), (d, 12)].map(|(path, inode)| format!("replicate {path} | 4 | 7 | {inode} | -"));
        assert_eq!(texts(&set), expected);
        // A small file is raised with the others, but never lowered. While one is raised, no other is lowered.
        let small = File { replication: 2, ..part(13, "/a b/e", &whole.blocks[2..]) };
        let facts = Facts { small: vec![small], ..facts.clone() };
        let inodes = |replication| {
            let calls = replicate(&facts, "/a b", replication, 7).expect("calls");
            calls.iter().filter_map(|call| call.split('\t').nth(3)?.parse().ok()).collect::<Vec<u64>>()
        };
        assert_eq!([inodes(4), inodes(3), inodes(1)], [vec![11, 12, 13], vec![13], vec![11, 12]]);
        let (from, to) = ("/t".to_owned(), "/p/a b".to_owned());
        let publish = texts(&Action::Publish { from, to, replaces: false });
        assert_eq!(publish, [format!("publish %2Ft | %2Fp%2Fa%20b | - | %2Fa%20b | 1 | {c} | {d}")]);
        let (from, to) = ("a:1".to_owned(), "b:1".to_owned());
        let step = hdfs_raid::BlockMove { path: "/a b/d".to_owned(), block: 1, from, to };
        let moved = "move %2F%2Ereserved%2F%2Einodes%2F12 | 1 | a:1 | b:1";
        assert_eq!(texts(&Action::Move(vec![step])), [moved]);
    }

    #[test]
    fn rows_of_codes_with_sub_blocks() {
        let rows = rows(&file("clay-6-4-5").codec);
        assert!(rows.starts_with("8/"), "{rows}");
        assert_eq!(rows.split(';').count(), 16);
    }

    #[test]
    fn each_replica_is_moved_by_its_own_call() {
        let step = |block| hdfs_raid::BlockMove {
            path: "/f".to_owned(),
            block,
            from: "a:1".to_owned(),
            to: "b:1".to_owned(),
        };
        let moves = Action::Move(vec![step(0), step(4)]);
        assert_eq!(
            texts(&file("xor-3-2"), &moves),
            ["move %2Ff | 0 | a:1 | b:1", "move %2Ff | 4 | a:1 | b:1"]
        );
    }

    /// A client may rename them meanwhile, and create other files at their paths.
    #[test]
    fn files_that_were_looked_up_are_changed_by_their_inodes() {
        let at = |inode, path: &str| {
            let file = File { inode, path: path.to_owned(), ..facts().source.expect("a file").file };
            MarkedFile { file, marks: Marks::default() }
        };
        let (xor, parity) = (file("xor-3-2"), || "/p/a b".to_owned());
        let call = |facts: &Facts, action: &Action| {
            let calls = calls(&xor, facts, action, 7).expect("calls");
            calls.into_iter().map(|(call, _)| call.replace('\t', " | ")).collect::<String>()
        };
        let encoded = Facts { parity: Some(at(2, "/p/a b")), ..facts() };
        assert_eq!(call(&encoded, &Action::Delete(parity())), "delete %2F%2Ereserved%2F%2Einodes%2F2");
        let touch = Action::SetTime { path: parity(), modified_ms: 9 };
        assert_eq!(call(&encoded, &touch), "time %2F%2Ereserved%2F%2Einodes%2F2 | 9");
        let mark = Action::Mark { path: parity(), mark: hdfs_raid::Mark::Undo };
        let marked = "mark %2F%2Ereserved%2F%2Einodes%2F2 | trusted.mend.undo | yes";
        assert_eq!(call(&encoded, &mark), marked);
        let publish = |from: &str| Action::Publish { from: from.to_owned(), to: parity(), replaces: false };
        let (to, source) = ("%2Fp%2Fa%20b", "%2Fa%20b | 1");
        assert_eq!(call(&encoded, &publish("/t")), format!("publish %2Ft | {to} | 2 | {source}"));
        let stray = Facts { stray: Some(at(3, "/p/b")), ..facts() };
        let expected = format!("publish %2F%2Ereserved%2F%2Einodes%2F3 | {to} | - | {source}");
        assert_eq!(call(&stray, &publish("/p/b")), expected);
        // A folder has no inode among the facts.
        assert_eq!(call(&stray, &Action::Delete("/t".to_owned())), "delete %2Ft");
    }

    /// Without its parity, the file must keep its replicas.
    #[test]
    fn the_replication_is_lowered_only_if_the_parity_is_the_same() {
        let other = File { inode: 2, path: "/p/a b".to_owned(), ..facts().source.expect("a file").file };
        let print = Fingerprint::of(&other.blocks);
        let parity = Some(MarkedFile { file: other, marks: Marks::default() });
        let facts = Facts { parity, ..facts() };
        let lower = replicate(&facts, "/a b", 1, 7).expect("a call").concat().replace('\t', " | ");
        let expected = format!("replicate %2Fa%20b | 1 | 7 | 1 | {print} | %2Fp%2Fa%20b | 2 | {print}");
        assert_eq!(lower, expected);
    }

    /// A client may have renamed the file, and created another one at its path.
    #[test]
    fn the_replication_is_set_for_the_file_that_was_looked_up() {
        let set = |replication| Action::SetReplication { path: "/a b".to_owned(), replication };
        let print = Fingerprint::of(&facts().source.expect("a file").file.blocks);
        let expected = format!("replicate %2Fa%20b | 1 | 7 | 1 | {print}");
        assert_eq!(texts(&file("xor-3-2"), &set(1)), [expected]);
        assert_eq!(texts(&file("xor-3-2"), &set(4)), ["replicate %2Fa%20b | 4 | 7 | 1 | -"]);
        let error = calls(&file("xor-3-2"), &Facts::default(), &set(1), 7).expect_err("no file");
        assert!(matches!(error, Trouble::Refused { kind: Refusal::Changed, .. }), "{error}");
    }

    #[test]
    fn a_move_that_fails_does_not_prevent_others() {
        let full = refused(Refusal::Other, "the DataNode cannot copy the block");
        let is_of_one = |action: &Action, trouble: &Trouble| is_of_one_call(&facts(), action, trouble);
        assert!(is_of_one(&Action::Move(Vec::new()), &full));
        assert!(!is_of_one(&Action::Delete("/t".to_owned()), &full));
        let denied = refused(Refusal::Permission, "superuser privilege is required");
        assert!([denied, Trouble::SafeMode].iter().all(|it| !is_of_one(&Action::Move(Vec::new()), it)));
    }

    /// The other files of a folder would stay at one replica. But none is lowered after another one was found changed.
    #[test]
    fn a_file_that_cannot_be_raised_does_not_prevent_others() {
        let set = |replication| Action::SetReplication { path: "/a b".to_owned(), replication };
        let changed = refused(Refusal::Changed, "the file does not exist any more");
        assert!(is_of_one_call(&facts(), &set(4), &changed));
        assert!(!is_of_one_call(&facts(), &set(1), &changed));
        assert!(!is_of_one_call(&facts(), &set(4), &Trouble::SafeMode));
    }

    #[test]
    fn failures_have_kinds() {
        let kind = |text: &str| trouble(AskError::Failed(text.to_owned()));
        assert_eq!(kind("safemode Name node is in safe mode."), Trouble::SafeMode);
        let quota = Trouble::Refused { kind: Refusal::Quota, text: "The quota is 1".to_owned() };
        assert_eq!(kind("quota The quota is 1"), quota);
        assert!(matches!(kind("Connection refused"), Trouble::Unreachable(_)));
    }
}
