//! The work on one file: encoding it, encoding it again after it changed, lowering its replication, and
//! undoing all of this.
//!
//! A folder whose files are encoded together is one file here, whose blocks are those of its files. Only the calls concern the
//! single files, see [`Facts::parts`].
//!
//! [`Work::next`] takes the [`Facts`] and returns the next [`Action`]. The driver carries it out, lists the
//! namespace again, and asks again. There is no journal: every step follows from the facts alone, so another
//! coordinator, or the same one after a crash, continues where the namespace stands. [`Work`] itself only
//! remembers the result of a check of parity until it is noted in HDFS, and how long the replicas have stayed
//! the same; after a crash, both are determined again.
//!
//! **Invariants:**
//! - A block has its former number of replicas, or a replica and proven parity, unless a client changed the
//!   file.
//! - Parity is valid only with a [`Note`] on these blocks of the source and of the parity, and on this code. A parity file
//!   is replaced or deleted only when all blocks of the source have their former number of replicas.
//! - Parity that was found wrong is marked as stale before anything else, so that no other program uses it.
//! - A parity file that belongs to another existing file is never touched. That file's own work renames it. Until then, the
//!   file at its path has its former replicas. Without a note, parity that does not fit the file at its path may belong to
//!   any other, and is never touched either.
//!
//! The modules `encode`, `lower` and `undo` have one sequence of steps each.

use crate::facts::{DataNodes, Facts, MarkedFile};
use crate::lower::SETTLED;
use crate::parity::{Evidence, Noted, check_parity};
use crate::survey::Source;
use crate::{
    Action, Block, Codec, End, Exclusion, File, Fingerprint, Layout, Mark, Members, Next, Note, Scope,
    StaleParity, Waiting, parity_path,
};

/// The replication of files before they were encoded, if no note records it: HDFS's default.
pub(crate) const USUAL_REPLICATION: u16 = 3;

/// The desired state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The file is encoded.
    Encoded {
        /// The replication of the file.
        replication: u16,
        /// The replication of its parity.
        parity_replication: u16,
    },
    /// The file stays unchanged, but its parity follows it if the file was renamed. No policy covers the file now.
    Protected,
    /// The file is replicated, and has no parity.
    Plain,
}

/// The work on one file.
#[derive(Clone, Debug)]
pub struct Work {
    pub(crate) codec: Codec,
    /// The number of blocks that a stripe may lose.
    pub(crate) tolerated: usize,
    pub(crate) term: u64,
    goal: Goal,
    /// The last parity that was found right.
    proven: Option<Note>,
    /// The last parity that was found wrong.
    refuted: Option<Note>,
    look: Option<Look>,
    /// The inode of the file that becomes a replicated file again, and its former replication.
    pub(crate) former: Option<(u64, u16)>,
    /// Replicas are settled if they have not changed for this long.
    pub(crate) settled_ms: u64,
}

/// The DataNodes of all replicas, and the time since which they have been the same.
#[derive(Clone, Debug)]
struct Look {
    since_ms: u64,
    places: Vec<Vec<String>>,
}

/// The relation between a file and the file at the path of its parity, which does not belong to another existing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The parity has no note, and does not fit the file. It may be the parity of a file that was renamed.
    Unclaimed,
    /// The parity is not that of the present contents.
    Stale,
    /// The parity looks valid, but Mend has not compared it with the data.
    Unproven,
    /// The parity is valid, but the modification times differ.
    Touched,
    /// The parity is valid.
    Proven,
}

/// A source, its parity file, and the former replication of the source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair<'a> {
    pub(crate) source: &'a File,
    pub(crate) parity: &'a MarkedFile,
    pub(crate) replication: u16,
}

impl Work {
    /// Creates the work on a file. `tolerated` is the number of losses that the codec
    /// [tolerates](Codec::tolerates), `term` the term of the coordinator.
    pub fn new(codec: Codec, tolerated: usize, goal: Goal, term: u64) -> Self {
        let settled_ms = SETTLED.as_millis() as u64;
        let (proven, refuted, look, former) = (None, None, None, None);
        Self { codec, tolerated, term, goal, proven, refuted, look, former, settled_ms }
    }

    /// Takes the result of [`Action::Prove`].
    pub fn handle_proof(&mut self, note: Note, is_right: bool) {
        match is_right {
            true => self.proven = Some(note),
            false => self.refuted = Some(note),
        }
    }

    /// Whether the file is to be encoded.
    pub(crate) fn is_encoding(&self) -> bool {
        matches!(self.goal, Goal::Encoded { .. })
    }

    /// Takes note that a look has failed. Replicas may change unseen until the next one, so the time without changes begins
    /// again.
    pub(crate) fn handle_failed_look(&mut self) {
        self.look = None;
    }

    /// Returns the next step, given the facts and the DataNodes of a listing made at `now_ms`.
    pub fn next(&mut self, facts: &Facts, nodes: &DataNodes, now_ms: u64) -> Next {
        let next = match &facts.source {
            Some(source) => self.pursue(facts, source, nodes, now_ms),
            // The file of this parity was renamed, and may have too few replicas without its parity.
            None => {
                let end = facts.living.map_or(End::SourceMissing, |inode| End::Occupied { inode });
                self.discard_drafts(facts, end)
            }
        };
        // Unseen changes may lie between this look at the replicas and another one.
        if next != Next::Wait(Waiting::Settled) {
            self.look = None;
        }
        next
    }

    /// Returns the next step towards the goal.
    fn pursue(&mut self, facts: &Facts, source: &MarkedFile, nodes: &DataNodes, now_ms: u64) -> Next {
        if let Some(inode) = foreign_inode(facts, &source.file) {
            return self.give_way(facts, &source.file, inode, nodes);
        }
        if let (None, Some(stray)) = (&facts.parity, &facts.stray) {
            return self.follow(facts, pair(source, stray));
        }
        let is_undone = facts.parity.as_ref().is_some_and(|parity| parity.marks.is_undone);
        match (self.goal, &facts.parity) {
            (Goal::Plain, None) => self
                .raise_former(facts, &source.file, nodes)
                .unwrap_or_else(|| self.discard_drafts(facts, End::Plain)),
            (Goal::Plain, Some(parity)) => self.undo(facts, pair(source, parity), nodes, now_ms),
            // The wish to undo an encoding outlives the coordinator that was told.
            (Goal::Encoded { .. }, Some(parity)) if is_undone => {
                self.undo(facts, pair(source, parity), nodes, now_ms)
            }
            (Goal::Protected, Some(parity)) if self.has_valid_parity(facts, &source.file, parity) => {
                Next::End(End::Encoded)
            }
            (Goal::Protected, _) => Next::End(End::Unfit(Exclusion::NoPolicy)),
            (Goal::Encoded { replication, parity_replication }, _) => {
                let targets = [replication, parity_replication];
                self.reach(facts, source, targets, nodes, now_ms)
            }
        }
    }

    /// Renames the parity of a file that was renamed without it. Nothing is overwritten. If the file was changed, too, its
    /// replication is raised first: the parity protects nothing, wherever it is.
    fn follow(&self, facts: &Facts, pair: Pair<'_>) -> Next {
        let is_stale = !self.has_valid_parity(facts, pair.source, pair.parity);
        if is_stale && !facts.below(pair.replication).is_empty() {
            let (path, replication) = (pair.source.path.clone(), pair.replication);
            return Next::Act(Action::SetReplication { path, replication });
        }
        let to = parity_path(&self.codec.parity_root, &pair.source.path);
        Next::Act(Action::Publish { from: pair.parity.file.path.clone(), to, replaces: false })
    }

    /// Raises the replication of a file whose parity path is taken by the parity of another existing file, and ends.
    fn give_way(&mut self, facts: &Facts, source: &File, inode: u64, nodes: &DataNodes) -> Next {
        match self.raise_former(facts, source, nodes) {
            // HDFS cannot replicate a lost block. It can be rebuilt once the file's own parity is at the path.
            None | Some(Next::Wait(Waiting::Repair)) => self.discard_drafts(facts, End::Occupied { inode }),
            Some(next) => next,
        }
    }

    /// Raises the replication of a file that seems to be encoded, and has no parity at its path: another program has deleted
    /// it before or while the encoding was undone, or other parity is there.
    fn raise_former(&mut self, facts: &Facts, source: &File, nodes: &DataNodes) -> Option<Next> {
        let encoded = match self.goal {
            Goal::Encoded { replication, .. } => replication,
            Goal::Protected | Goal::Plain => 1,
        };
        let stray = facts.stray.as_ref().and_then(|stray| stray.marks.note);
        let noted = stray.map(|note| note.replication.max(source.replication));
        let seen =
            self.former.filter(|&(inode, _)| inode == source.inode).map(|(_, replication)| replication);
        let usual = (facts.least_replication() <= encoded).then_some(USUAL_REPLICATION);
        let replication = noted.or(seen).or(usual)?;
        self.former = Some((source.inode, replication)); // The replicas are still missing after the call.
        raise(facts, source, replication, nodes)
    }

    /// Returns the next step towards an encoded file.
    fn reach(
        &mut self,
        facts: &Facts,
        source: &MarkedFile,
        targets: [u16; 2],
        nodes: &DataNodes,
        now_ms: u64,
    ) -> Next {
        let Some(parity) = &facts.parity else {
            return self.encode(facts, source, former_replication(&source.file, targets[0]), nodes);
        };
        let pair = pair(source, parity);
        match self.standing(facts, &source.file, parity) {
            Standing::Unclaimed => self.leave(facts, pair, nodes),
            Standing::Stale => self.encode_again(facts, source, pair, nodes),
            Standing::Unproven => self.prove_present(pair),
            Standing::Touched => {
                let (path, modified_ms) = (parity.file.path.clone(), source.file.modified_ms);
                Next::Act(Action::SetTime { path, modified_ms })
            }
            Standing::Proven => self.lower(facts, pair, targets, nodes, now_ms),
        }
    }

    fn standing(&self, facts: &Facts, source: &File, parity: &MarkedFile) -> Standing {
        let is_same_time = parity.file.modified_ms == source.modified_ms;
        match self.check(facts, source, parity) {
            Some(Ok(Evidence::Note)) if is_same_time => Standing::Proven,
            Some(Ok(Evidence::Note)) => Standing::Touched,
            // The check compares the bytes, so older parity may turn out to be right.
            Some(Ok(Evidence::OldNote | Evidence::Metadata) | Err(StaleParity::Older)) => Standing::Unproven,
            Some(Err(why)) if why.is_unchecked() => Standing::Unproven,
            Some(Err(_)) | None if self.is_unclaimed(facts, source, parity) => Standing::Unclaimed,
            Some(Err(_)) | None => Standing::Stale,
        }
    }

    /// Whether parity has no note, and is not that of the file by HDFS-RAID's test. A check of the bytes cannot show whose it is.
    pub(crate) fn is_unclaimed(&self, facts: &Facts, source: &File, parity: &MarkedFile) -> bool {
        let fits = match self.judge(facts, source, parity) {
            Some(Ok(_)) => true,
            Some(Err(why)) => why.is_unchecked(),
            None => false,
        };
        parity.marks.note.is_none() && !fits
    }

    /// Raises the replication of a file, and ends: its parity may belong to another file.
    pub(crate) fn leave(&self, facts: &Facts, pair: Pair<'_>, nodes: &DataNodes) -> Next {
        let parity = pair.parity.file.path.clone();
        raise(facts, pair.source, pair.replication, nodes)
            .unwrap_or_else(|| self.discard_drafts(facts, End::Unclaimed { parity }))
    }

    /// Decides whether the parity is valid; `None` if the file is open or irregular, or the parity was found wrong.
    fn check(
        &self,
        facts: &Facts,
        source: &File,
        parity: &MarkedFile,
    ) -> Option<Result<Evidence, StaleParity>> {
        let is_refuted = self.is_refuted(source, parity);
        if source.is_open || is_refuted { None } else { self.judge(facts, source, parity) }
    }

    /// Whether Mend has found the parity wrong.
    fn is_refuted(&self, source: &File, parity: &MarkedFile) -> bool {
        let present = note(&self.codec, source, &parity.file.blocks, 0);
        self.refuted.is_some_and(|refuted| refuted.is_about(&present))
    }

    /// Decides whether the parity is valid, without regard to its bytes; `None` if the file is irregular.
    fn judge(
        &self,
        facts: &Facts,
        source: &File,
        parity: &MarkedFile,
    ) -> Option<Result<Evidence, StaleParity>> {
        let MarkedFile { file: parity, marks } = parity;
        let layout = Layout::of_source(source, &self.codec).ok()?;
        let noted = marks
            .note
            .map_or(Noted::No, |note| Noted::Yes { note, is_living: facts.living == Some(note.inode) });
        Some(check_parity(&self.codec, &Source::of_file(source, layout), parity, noted))
    }

    /// Whether the parity belongs to the present contents, as far as the listing shows.
    pub(crate) fn has_valid_parity(&self, facts: &Facts, source: &File, parity: &MarkedFile) -> bool {
        matches!(self.check(facts, source, parity), Some(Ok(_)))
    }

    /// Raises the replication of a file whose parity is stale, then encodes it again. Until the new parity is
    /// published, the old one protects the stripes that have not changed.
    fn encode_again(&self, facts: &Facts, source: &MarkedFile, pair: Pair<'_>, nodes: &DataNodes) -> Next {
        if let Some(mark) = self.denounce(facts, pair) {
            return Next::Act(mark);
        }
        if let Some(next) = raise(facts, pair.source, pair.replication, nodes) {
            return next;
        }
        self.encode(facts, source, pair.replication, nodes)
    }

    /// Returns the mark on parity that was found wrong, and looks valid to other programs: readers and repairs would use it
    /// until it is replaced.
    fn denounce(&self, facts: &Facts, pair: Pair<'_>) -> Option<Action> {
        let is_used = matches!(self.judge(facts, pair.source, pair.parity), Some(Ok(_)));
        let void = note(&self.codec, pair.source, [], pair.replication).void();
        let mark = || Action::Mark { path: pair.parity.file.path.clone(), mark: Mark::Proven(void) };
        (is_used && self.is_refuted(pair.source, pair.parity)).then(mark)
    }

    /// Proves parity that Mend has not made, or whose note was lost.
    fn prove_present(&self, pair: Pair<'_>) -> Next {
        if [pair.source, &pair.parity.file].iter().any(|file| file.missing_block().is_some()) {
            return Next::Wait(Waiting::Repair);
        }
        if let Some(next) = self.record(pair.source, pair.parity) {
            return next;
        }
        let note = note(&self.codec, pair.source, &pair.parity.file.blocks, pair.replication);
        self.prove(note, vec![pair.parity.file.path.clone()]).expect("refuted parity is stale")
    }

    /// Returns the step that records the blocks of a folder on its parity, which has no note about them yet.
    pub(crate) fn record(&self, source: &File, parity: &MarkedFile) -> Option<Next> {
        let members = (self.codec.scope == Scope::Folder).then(|| Members::of(&source.blocks))?;
        let is_recorded = parity.marks.members.as_ref() == Some(&members);
        let path = parity.file.path.clone();
        (!is_recorded).then_some(Next::Act(Action::Mark { path, mark: Mark::Members(members) }))
    }

    /// Returns the check of parity, or the note on the first file if the check succeeded; `None` if it
    /// failed.
    pub(crate) fn prove(&self, note: Note, parity: Vec<String>) -> Option<Next> {
        let is_about = |found: Option<Note>| found.is_some_and(|found| found.is_about(&note));
        if is_about(self.refuted) {
            return None;
        }
        if !is_about(self.proven) {
            return Some(Next::Act(Action::Prove { note, parity }));
        }
        let path = parity.into_iter().next().expect("parity has a file");
        Some(Next::Act(Action::Mark { path, mark: Mark::Proven(note) }))
    }

    /// Deletes all drafts, unless another coordinator has taken over, and ends.
    pub(crate) fn discard_drafts(&self, facts: &Facts, end: End) -> Next {
        match facts.drafts.first() {
            Some(_) if self.is_superseded(facts) => Next::End(End::Superseded),
            Some(draft) => Next::Act(Action::Delete(draft.path.clone())),
            None => Next::End(end),
        }
    }

    /// Whether a coordinator with a higher term encodes the file.
    pub(crate) fn is_superseded(&self, facts: &Facts) -> bool {
        facts.drafts.iter().any(|draft| draft.name.term > self.term)
    }

    /// Whether all replicas have been in the same places for a time.
    pub(crate) fn is_settled(&mut self, pair: Pair<'_>, nodes: &DataNodes, now_ms: u64, for_ms: u64) -> bool {
        let places = places(pair, nodes);
        match &self.look {
            Some(look) if look.places == places => now_ms.saturating_sub(look.since_ms) >= for_ms,
            _ => {
                self.look = Some(Look { since_ms: now_ms, places });
                false
            }
        }
    }
}

/// Raises the replication of a source to its former value, and waits for the replicas. `None` once all are
/// there. Replicas on silent DataNodes do not count.
pub(crate) fn raise(facts: &Facts, source: &File, replication: u16, nodes: &DataNodes) -> Option<Next> {
    if !facts.below(replication).is_empty() {
        return Some(Next::Act(Action::SetReplication { path: source.path.clone(), replication }));
    }
    if source.missing_block().is_some() {
        return Some(Next::Wait(Waiting::Repair));
    }
    let lacks = source.blocks.iter().any(|block| nodes.answering(&block.replicas) < usize::from(replication));
    lacks.then_some(Next::Wait(Waiting::Replicas))
}

/// Returns the note on these blocks.
pub(crate) fn note<'a>(
    codec: &Codec,
    source: &File,
    parity: impl IntoIterator<Item = &'a Block>,
    replication: u16,
) -> Note {
    Note {
        inode: source.inode,
        replication,
        source: Fingerprint::of(&source.blocks),
        parity: Fingerprint::of(parity),
        code: Some(Fingerprint::of_code(&codec.code)),
    }
}

/// Returns why a file cannot or should not be encoded now.
pub(crate) fn unfit(facts: &Facts) -> Option<Exclusion> {
    let is_never = facts.source.as_ref().is_some_and(|source| source.marks.is_never_encoded);
    if is_never { Some(Exclusion::Undone) } else { facts.unfit.clone() }
}

/// Returns the inode of another existing file to which the parity belongs.
fn foreign_inode(facts: &Facts, source: &File) -> Option<u64> {
    let inode = facts.parity.as_ref()?.marks.note?.inode;
    (inode != source.inode && facts.living == Some(inode)).then_some(inode)
}

/// Returns a source and its parity, with the replication that the source had before it was encoded.
pub(crate) fn pair<'a>(source: &'a MarkedFile, parity: &'a MarkedFile) -> Pair<'a> {
    let source = &source.file;
    let noted = parity.marks.note.filter(|note| note.inode == source.inode).map(|note| note.replication);
    let replication = source.replication.max(noted.unwrap_or(USUAL_REPLICATION));
    Pair { source, parity, replication }
}

/// Returns the replication of a file before it was encoded, if nothing records it. A file with no more
/// replicas than encoded files have may have been encoded, and lost its parity by a renaming.
fn former_replication(source: &File, encoded: u16) -> u16 {
    if source.replication > encoded { source.replication } else { source.replication.max(USUAL_REPLICATION) }
}

fn places(pair: Pair<'_>, nodes: &DataNodes) -> Vec<Vec<String>> {
    let blocks = pair.source.blocks.iter().chain(&pair.parity.file.blocks);
    let addresses = |block: &Block| {
        let mut places: Vec<String> =
            block.replicas.iter().map(|&node| nodes.address(node).to_owned()).collect();
        places.sort_unstable();
        places
    };
    blocks.map(addresses).collect()
}
