//! Keeps the metadata files of a volume (`.ecx`, `.vif`, `.ecsum`) identical on all its servers: compares the
//! copies of one volume after the other, and reports and replaces copies that differ from the majority.
//! Before a server receives a shard, the server's copies are compared too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::blocks::VolumeName;
use repair::{BlockId, StripeId};
use store_api::StoreChange;
use tokio::time::Instant;

use super::claims::Hold;
use super::deletions::{self, Deletions, foreign, second_looks};
use super::open::NOT_AUTOMATIC;
use super::remounts::Unmounted;
use super::side_files::{Checksums, Copies, Problem, Verdict};
use super::state::{Shared, State};
use super::view::Expected;
use crate::address::ServerAddress;
use crate::listing::ServerId;
use crate::server::{SmallFile, VolumeServer};

/// How many times, and at what interval, a copy is compared again if no majority confirms or rejects it.
const TRIES: u32 = 5;
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The number of servers with good copies with which a copy is compared after it was replaced.
const WITNESSES: usize = 2;
/// Minimum pause between the inspections of two volumes.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The pause after an inspection is at least this many times as long as the inspection, which may read large
/// indexes.
const REST: u32 = 9;
/// Timeouts for a server that copies a file from another one.
const BRING_LIMIT: Duration = Duration::from_secs(60);
const BRING_INDEX_LIMIT: Duration = Duration::from_secs(600);
/// The files in the order in which they are compared and copied: SeaweedFS needs the index first.
const FILES: [SmallFile; 3] = [SmallFile::Ecx, SmallFile::Vif, SmallFile::Ecsum];

/// Results of the inspections.
#[derive(Default)]
pub(super) struct Inspection {
    /// The volume that was inspected last in the order of all volumes.
    last: u32,
    /// The volume that was inspected last because of its late deletions.
    last_late: u32,
    /// Whether the last turn was that of such a volume.
    was_late: bool,
    /// The time that turns of such volumes have taken beyond that of the other turns. A server that hangs makes a turn
    /// take minutes, and the pause after it an hour.
    late_lead: Duration,
    /// Problems that are not solved, by volume, server and file: what is wrong, and why it has not been
    /// fixed.
    standing: BTreeMap<(u32, ServerId, SmallFile), String>,
    /// Problems that a requested inspection reports again.
    again: BTreeSet<(u32, ServerId, SmallFile)>,
    /// Files without a majority, by volume and file: no content is the same on more than half of the servers.
    split: BTreeMap<(u32, SmallFile), String>,
    /// Journals that another encoding has left, by volume and server.
    journals: BTreeMap<(u32, ServerId), String>,
    /// Volumes whose shards have moved since servers last dropped their cached locations.
    moved: BTreeSet<u32>,
    /// Shards that servers have unmounted for a moment and not mounted again.
    pub(super) unmounted: Unmounted,
}

/// Inspects one volume after the other until the storage is dropped.
pub(super) async fn inspect(storage: Weak<Shared>) {
    let mut rest = LOOK_EVERY;
    loop {
        tokio::time::sleep(rest).await;
        let Some(shared) = storage.upgrade() else { return };
        let (began, next) = (Instant::now(), shared.known.state().next_to_inspect());
        if let Some(volume) = next {
            shared.inspect(volume).await;
        }
        let took = began.elapsed();
        rest = LOOK_EVERY.max(took * REST);
        shared.known.state().inspection.note_turn(took + rest);
    }
}

impl Inspection {
    /// Records that a shard of a volume is about to move.
    pub fn note_move(&mut self, volume: u32) {
        self.moved.insert(volume);
    }

    /// Records how long the last turn takes with the pause after it.
    pub fn note_turn(&mut self, took: Duration) {
        self.late_lead = match self.was_late {
            true => self.late_lead + took,
            false => self.late_lead.saturating_sub(took),
        };
    }

    /// Whether servers have different checksums of a volume, of which none are used.
    pub fn disputes_checksums(&self, volume: u32) -> bool {
        self.split.contains_key(&(volume, SmallFile::Ecsum))
    }

    /// Returns the problems that could not be fixed, one sentence each.
    pub fn lines(&self) -> Vec<String> {
        let files = self.standing.values().chain(self.split.values()).chain(self.journals.values());
        files.chain(self.unmounted.lines()).cloned().collect()
    }

    /// Whether a problem was reported, and is not to be reported again.
    fn is_reported(&mut self, problem: &(u32, ServerId, SmallFile)) -> bool {
        !self.again.remove(problem) && self.standing.contains_key(problem)
    }

    /// Records which of these servers have a journal of another encoding, and why it is one.
    fn note_journals(&mut self, name: &VolumeName, found: Vec<(ServerId, Option<&'static str>)>) {
        for (server, why) in found {
            let key = (name.id(), server);
            match why {
                Some(why) => {
                    let line = foreign(name, &key.1, why);
                    self.journals.insert(key, line);
                }
                None => drop(self.journals.remove(&key)),
            }
        }
    }
}

/// Returns the next of these volumes after `last`, or else the first.
fn following(ids: &BTreeSet<u32>, last: &mut u32) -> Option<u32> {
    let next = ids.iter().copied().find(|id| *id > *last).or(ids.first().copied());
    *last = next.unwrap_or_default();
    next
}

impl State {
    /// Returns the next volume to inspect. If there are volumes with late deletions, every second turn is that of one of
    /// them, because deleted needles are readable until then. But these turns take at most half of the time.
    pub(super) fn next_to_inspect(&mut self) -> Option<u32> {
        second_looks::begin_due(self, second_looks::now_s());
        let ids: BTreeSet<u32> = self.view.volumes().iter().map(|(id, _)| id).collect();
        let late = self.late_deletions.due(self.view.volumes());
        let inspection = &mut self.inspection;
        inspection.was_late = !inspection.was_late && !late.is_empty() && inspection.late_lead.is_zero();
        let next = match inspection.was_late {
            true => following(&late, &mut inspection.last_late),
            false => following(&ids, &mut inspection.last),
        };
        self.inspection.split.retain(|(id, _), _| ids.contains(id));
        // No later comparison includes a server that has no shards of the volume any more.
        let volumes = self.view.volumes();
        self.inspection.standing.retain(|(id, server, _), _| volumes.serves(*id, server));
        self.inspection.journals.retain(|(id, server), _| volumes.serves(*id, server));
        self.inspection.unmounted.forget_found(volumes);
        deletions::forget_those_of_gone_volumes(self);
        next
    }
}

impl State {
    /// Returns the stripe's volume if servers should drop their cached locations of its shards. This is the
    /// case once the volume is complete again after some shards have moved.
    pub(super) fn next_to_refresh(&mut self, stripe: &StripeId) -> Option<VolumeName> {
        let id = self.view.volume_of(stripe)?;
        let is_due = self.view.volumes().is_whole(id) && self.inspection.moved.remove(&id);
        if is_due { Some(self.view.named(id)?.0) } else { None }
    }

    /// Records the result of comparing all copies of a file.
    fn note_comparison(
        &mut self,
        name: &VolumeName,
        file: SmallFile,
        copies: &Copies,
        verdict: &Verdict,
        expected: Expected,
    ) {
        let volume = name.id();
        match dispute(name, file, copies, verdict, expected) {
            Some(why) => drop(self.inspection.split.insert((volume, file), why)),
            None => drop(self.inspection.split.remove(&(volume, file))),
        }
        let good = |server: &ServerId| verdict.good.contains(server);
        self.inspection.standing.retain(|(id, server, it), _| *id != volume || *it != file || !good(server));
        if file == SmallFile::Ecsum {
            self.note_checksums(name, copies, expected);
        }
    }

    /// Uses the checksums that most servers have now, and none if servers have different ones.
    fn note_checksums(&mut self, name: &VolumeName, copies: &Copies, expected: Expected) {
        let checksums = copies.checksums(expected.encoding, expected.ratio, Some(expected.shard_bytes));
        let Some(digests) = checksums.digests() else { return };
        let modified_ns = match checksums {
            Checksums::Agreed(sums) => copies.modified_ns(sums),
            _ => None,
        };
        if !matches!(checksums, Checksums::Disputed { .. }) {
            self.view.end_doubt(name.id(), expected.encoding, &digests, modified_ns);
        }
        if self.view.set_digests(name.id(), expected.encoding, digests) {
            tracing::info!(volume = %name, "the checksums of a volume have changed on most of its servers");
            // Helpers may have found shards corrupt before these checksums were known here.
            self.doubt_checksums(&BTreeSet::from([name.id()]));
            self.tell_volumes([name.id()]);
        }
        self.keep_doubts();
        let ended = self.tell_doubts();
        self.tell(ended.into_iter().collect());
    }

    /// Reports that a server's copy of a file is bad.
    fn tell_spoiled(&mut self, name: &VolumeName, server: &ServerId, file: SmallFile, problem: &Problem) {
        let Some(node) = self.view.nodes().node(server) else { return };
        let (stripe, file) = (StripeId(name.to_string()), BlockId(file.of(name)));
        self.tell(vec![StoreChange::Spoiled { node, stripe, file, problem: problem.to_string() }]);
    }
}

impl Shared {
    /// Inspects all volumes, and reports all problems, including those that were reported before.
    pub(super) async fn inspect_all(self: &Arc<Self>) {
        let volumes: Vec<u32> = {
            let mut state = self.known.state();
            state.inspection.again = state.inspection.standing.keys().cloned().collect();
            state.view.volumes().iter().map(|(id, _)| id).collect()
        };
        for volume in volumes {
            self.inspect(volume).await;
        }
    }

    /// Compares the metadata files of a volume on all its servers, and replaces copies that differ from the
    /// majority. Also makes deletions of needles that have failed before.
    pub(super) async fn inspect(self: &Arc<Self>, volume: u32) {
        let Some((name, expected)) = self.known.state().view.named(volume) else { return };
        for file in FILES {
            let copies = self.small_files.copies(&name, file, None).await;
            let verdict = copies.verdict(file, expected);
            self.known.state().note_comparison(&name, file, &copies, &verdict, expected);
            if self.doubts(&name, file, expected) {
                continue;
            }
            for (server, problem) in &verdict.bad {
                self.put_right(&name, server, file, problem).await;
            }
        }
        let journals = self.small_files.journals(&name, expected.encoding).await;
        self.known.state().inspection.note_journals(&name, journals);
        Deletions::of(self).retry(&name).await;
    }

    /// Whether a file contains checksums that contradict too many shards. It is not copied to other servers.
    fn doubts(&self, name: &VolumeName, file: SmallFile, expected: Expected) -> bool {
        file == SmallFile::Ecsum && self.known.state().view.files().is_doubted(name.id(), expected.encoding)
    }

    /// Reports a bad copy of a file, and replaces it if Mend may change servers unasked.
    async fn put_right(
        self: &Arc<Self>,
        name: &VolumeName,
        server: &ServerId,
        file: SmallFile,
        problem: &Problem,
    ) {
        let key = (name.id(), server.clone(), file);
        let is_known = self.known.state().inspection.is_reported(&key);
        if !is_known {
            tracing::warn!(file = file.of(name), %server, %problem, "a small file of a volume is missing or wrong");
            self.known.state().tell_spoiled(name, server, file, problem);
        }
        if !self.known.attachment.may_change {
            let why = format!("{NOT_AUTOMATIC}, so Mend does not replace it");
            let line = describe(name, server, (file, problem), &why);
            self.known.state().inspection.standing.insert(key, line);
            return;
        }
        let stripe = StripeId(name.to_string());
        let done = match self.begin_upkeep(&stripe).await {
            Ok(hold) => {
                let done = self.look_again(&hold, name, server, file).await;
                self.lock.end_upkeep(hold).await;
                done
            }
            Err(error) => Err(error.to_string()),
        };
        let mut state = self.known.state();
        match done {
            Ok(()) => drop(state.inspection.standing.remove(&key)),
            Err(why) => {
                let why = format!("replacing it has failed so far: {why}");
                let line = describe(name, server, (file, problem), &why);
                state.inspection.standing.insert(key, line);
            }
        }
    }

    /// Compares the file again under the lock, since another client may have changed it before the lock was
    /// taken. Replaces the server's copy if it still differs from the majority.
    async fn look_again(
        self: &Arc<Self>,
        hold: &Hold,
        name: &VolumeName,
        server: &ServerId,
        file: SmallFile,
    ) -> Result<(), String> {
        let (_, expected) =
            self.known.state().view.named(name.id()).ok_or("the state of the volume is unknown")?;
        let verdict = self.small_files.copies(name, file, None).await.verdict(file, expected);
        match verdict.bad.get(server) {
            Some(problem) => self.replace(hold, name, server, (file, problem), &verdict).await,
            None => Ok(()),
        }
    }

    /// Makes sure that a server has the majority's metadata files of a volume. The caller must hold the
    /// cluster's lock for the volume.
    ///
    /// # Errors
    /// The reason for the failure, as text.
    pub(super) async fn complete(
        self: &Arc<Self>,
        hold: &Hold,
        name: &VolumeName,
        server: &ServerId,
        serves: bool,
    ) -> Result<(), String> {
        let files = if serves { &FILES[1..] } else { &FILES };
        for &file in files {
            let (_, expected) =
                self.known.state().view.named(name.id()).ok_or("the state of the volume is unknown")?;
            if self.doubts(name, file, expected) {
                continue;
            }
            let mut verdict = self.small_files.copies(name, file, Some(server)).await.verdict(file, expected);
            // There may be no verdict yet on a server that has just started or whose copy is being replaced.
            // Compare again after a while.
            for _ in 0..TRIES {
                let is_known = verdict.good.contains(server) || verdict.bad.contains_key(server);
                if is_known || serves || file == SmallFile::Ecsum {
                    break;
                }
                tokio::time::sleep(TRY_AGAIN_AFTER).await;
                verdict = self.small_files.copies(name, file, Some(server)).await.verdict(file, expected);
            }
            if verdict.good.contains(server) {
                continue;
            }
            match verdict.bad.get(server) {
                Some(problem) => {
                    if *problem != Problem::Missing {
                        self.known.state().tell_spoiled(name, server, file, problem);
                    }
                    self.replace(hold, name, server, (file, problem), &verdict).await?;
                }
                None if serves || file == SmallFile::Ecsum => {}
                None => {
                    return Err(format!(
                        "its {} cannot be verified: no majority of servers agrees on this file",
                        file.of(name)
                    ));
                }
            }
        }
        Ok(())
    }

    /// Replaces a server's file by a copy from a server of the majority. The caller must hold the cluster's
    /// lock for the volume.
    async fn replace(
        self: &Arc<Self>,
        hold: &Hold,
        name: &VolumeName,
        server: &ServerId,
        (file, problem): (SmallFile, &Problem),
        verdict: &Verdict,
    ) -> Result<(), String> {
        if relabels(file, problem) {
            self.check_other_shards(name, server, problem)?;
            // Beside the current `.vif`, a journal of another encoding would look like a current one.
            self.check_journal(name, server).await?;
            Deletions::of(self).check_idle_disk(name, server).await?;
        }
        let source = verdict.good.first().ok_or("no server has a good copy")?;
        let witnesses = verdict.good.iter().filter(|witness| *witness != server).take(WITNESSES);
        let compared: Vec<ServerId> = witnesses.chain([server]).cloned().collect();
        if marks_deletions(file, problem) {
            // Deletions that only this index marks would be lost with it.
            Deletions::of(self).preserve(hold, name, server, &verdict.good).await?;
        }
        let (connection, source) = (self.known.connect(server).await?, self.known.connect(source).await?);
        tracing::info!(
            file = file.of(name), %server, from = %source.address(), %problem,
            "replacing a small file of a volume"
        );
        let files = [file];
        // If the server chooses the disk, it may store the file on one disk but read an old file from another
        // disk first. So try each disk in turn until the server reads the new file.
        for disk in self.disks_of(server) {
            self.lock.check(hold).await?;
            let bring = bring(&connection, name, &files, source.address(), disk);
            let serves = self.known.state().view.volumes().serves(name.id(), server);
            match (file, problem) {
                // The server does not have open what it creates now, so nothing is unmounted during the copy.
                (SmallFile::Ecx, Problem::Missing) if serves && disk == 0 => {
                    bring.await?;
                    self.remount(hold, name, server, &connection).await?;
                }
                // An index must not change while the server has it open.
                (SmallFile::Ecx, _) if serves => {
                    self.remounted(hold, name, server, &connection, bring).await?;
                }
                _ => bring.await?,
            }
            let (_, expected) =
                self.known.state().view.named(name.id()).ok_or("the state of the volume is unknown")?;
            let again = self.small_files.copies_at(name, file, compared.clone()).await;
            if again.verdict(file, expected).good.contains(server) {
                return Ok(());
            }
        }
        Err("the server still has a different file".to_owned())
    }

    /// Fails if a server may have shards of another encoding next to its `.vif`. Mend can only see the mounted ones, so a
    /// server that has no current shards must not get the current `.vif` in place of one that names another encoding.
    fn check_other_shards(
        &self,
        name: &VolumeName,
        server: &ServerId,
        problem: &Problem,
    ) -> Result<(), String> {
        let state = self.known.state();
        let volumes = state.view.volumes();
        if volumes.serves_another_encoding(name.id(), server) {
            return Err("it serves shards of another encoding of the volume".to_owned());
        }
        let has_current = !volumes.shards_by_disk(name.id(), server).is_empty();
        if *problem == Problem::OtherEncoding && !has_current {
            return Err(format!(
                "its {name}.vif names another encoding of the volume, and unmounted shards of that encoding may be \
                 next to it, which the current {name}.vif would turn into current ones; move the files of volume \
                 {name} out of the folders of this server"
            ));
        }
        Ok(())
    }

    /// Returns the disk numbers to use in copy requests. The first is 0, which lets the server choose the
    /// disk.
    pub(super) fn disks_of(&self, server: &ServerId) -> Vec<u32> {
        let state = self.known.state();
        let disks = state.view.volumes().servers().get(server).map(|server| &server.disks);
        [0].into_iter()
            .chain(disks.into_iter().flatten().map(|(&disk, _)| disk).filter(|&disk| disk > 0))
            .collect()
    }
}

/// Whether a file may describe shards of another encoding. Its replacement would label these shards as
/// current ones.
fn relabels(file: SmallFile, problem: &Problem) -> bool {
    file == SmallFile::Vif && matches!(problem, Problem::Differs | Problem::OtherEncoding)
}

/// Whether the copy is an index, perhaps a damaged one, which may mark deletions that no other server knows.
fn marks_deletions(file: SmallFile, problem: &Problem) -> bool {
    file == SmallFile::Ecx && *problem != Problem::Missing
}

/// Describes a copy that stays bad, and why. Advises to copy the file by hand only if Mend itself would replace it
/// without further checks.
fn describe(
    name: &VolumeName,
    server: &ServerId,
    (file, problem): (SmallFile, &Problem),
    why: &str,
) -> String {
    let line = format!("{} on {server}: {problem}; {why}", file.of(name));
    if relabels(file, problem) || marks_deletions(file, problem) {
        return line;
    }
    format!("{line}; if this persists, copy the file by hand from another server")
}

/// Describes copies of a file if none of them can be taken for right.
fn dispute(
    name: &VolumeName,
    file: SmallFile,
    copies: &Copies,
    verdict: &Verdict,
    expected: Expected,
) -> Option<String> {
    if let Some(why) = newer(name, file, copies) {
        return Some(why);
    }
    let checksums = copies.checksums(expected.encoding, expected.ratio, Some(expected.shard_bytes));
    if let Checksums::Disputed { agree, of } = checksums {
        return Some(format!(
            "only {agree} of {of} servers agree on {}, so Mend does not know the checksums of this volume's \
             shards: compare these files by hand, copy the right one to all servers, and remove those that \
             an earlier encoding has left",
            file.of(name)
        ));
    }
    if !verdict.good.is_empty() {
        return None;
    }
    left_over(name, file, copies, expected).or_else(|| {
        copies.is_split().then(|| {
            format!(
                "servers have different {}, and no majority agrees: compare these files by hand",
                file.of(name)
            )
        })
    })
}

/// Describes files that a newer version of SeaweedFS has written.
fn newer(name: &VolumeName, file: SmallFile, copies: &Copies) -> Option<String> {
    let servers: Vec<&str> = copies.newer().iter().map(|server| server.0.as_str()).collect();
    (!servers.is_empty()).then(|| {
        format!(
            "{} on {} has a newer version than this program supports, so Mend neither uses nor replaces it: run a \
             newer mend",
            file.of(name),
            servers.join(", ")
        )
    })
}

/// Describes checksums that an earlier encoding has left.
fn left_over(name: &VolumeName, file: SmallFile, copies: &Copies, expected: Expected) -> Option<String> {
    let servers: Vec<&str> =
        copies.outdated(expected.encoding).into_iter().map(|server| server.0.as_str()).collect();
    (!servers.is_empty()).then(|| {
        format!(
            "{} on {} is older than the volume's encoding, so Mend does not use it; remove it from the folders \
             of these servers",
            file.of(name),
            servers.join(", ")
        )
    })
}

pub(super) async fn bring(
    server: &VolumeServer,
    name: &VolumeName,
    files: &[SmallFile],
    from: &ServerAddress,
    disk: u32,
) -> Result<(), String> {
    let limit = if files.contains(&SmallFile::Ecx) { BRING_INDEX_LIMIT } else { BRING_LIMIT };
    let brought = tokio::time::timeout(limit, server.bring(name, files, from, disk)).await;
    brought.map_err(|_| "the server did not copy it in time".to_owned())?.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use codes::BlockIndex;
    use repair::NodeId;
    use store_api::{BlockState, Term};

    use super::*;
    use crate::blocks::{Encoding, Ratio, made};
    use crate::storage::doubles::{LIST_EVERY, Paper, listing, start, start_passive};
    use crate::storage::encoding_files::Known;

    #[test]
    fn shards_that_were_found_corrupt_before_checksums_were_known_count_against_these() {
        let paper = Arc::new(Mutex::new(Paper::default()));
        let catalog = start(&paper);
        let known = Arc::clone(&catalog.system().known);
        known.take_all(listing(["a", "b", "c"]), Instant::now(), LIST_EVERY).expect("recorded");
        let ratio = Ratio::new(2, 1).expect("possible");
        known.state().view.learn(5, Encoding(1), Known { ratio, shard_bytes: 100, digests: Vec::new() });
        for shard in [0, 1] {
            let (stripe, node) = (StripeId("c_5".to_owned()), NodeId(shard.into()));
            let found = (stripe, BlockIndex(shard), node, BlockState::Corrupt);
            known.note_states(Term(1), &[found]).expect("recorded");
        }
        let ecsum = made::ecsum(ratio, 1 << 20, &vec![vec![1; 100]; 3]);
        let mut copies = Copies::default();
        for server in ["a", "b"] {
            copies.add(SmallFile::Ecsum, ServerId(server.to_owned()), Some(ecsum.clone()));
        }
        copies.note_asked(3);
        let name = VolumeName::new("c", 5).expect("a name");
        let expected = Expected { encoding: Encoding(1), ratio, shard_bytes: 100 };
        known.state().note_checksums(&name, &copies, expected);
        let stripe = known.state().view.stripe(5).expect("it is known");
        let found: Vec<_> = stripe.blocks.iter().map(|block| (block.state, block.digest)).collect();
        assert_eq!(found, [(BlockState::Healthy, None); 3]);
    }

    #[test]
    fn a_file_of_a_newer_version_is_reported() {
        let ratio = Ratio::new(2, 1).expect("possible");
        let mut bytes = made::ecsum(ratio, 1 << 20, &vec![vec![1; 100]; 3]);
        bytes[5] = 2;
        let mut copies = Copies::default();
        copies.add(SmallFile::Ecsum, ServerId("a".to_owned()), Some(bytes));
        let name = VolumeName::new("c", 5).expect("a name");
        let expected = Expected { encoding: Encoding(1), ratio, shard_bytes: 100 };
        let line = dispute(&name, SmallFile::Ecsum, &copies, &Verdict::default(), expected);
        assert!(line.is_some_and(|line| line.contains("c_5.ecsum on a has a newer version")));
    }

    #[test]
    fn journals_of_other_encodings_are_named_until_they_are_gone() {
        let name = VolumeName::new("c", 5).expect("a name");
        let (a, b) = (ServerId("a".to_owned()), ServerId("b".to_owned()));
        let mut inspection = Inspection::default();
        inspection.note_journals(&name, vec![(a.clone(), Some("is older")), (b, None)]);
        let lines = inspection.lines();
        assert!(lines.len() == 1 && lines[0].starts_with("c_5.ecj on a is older"), "{lines:?}");
        inspection.note_journals(&name, Vec::new());
        assert_eq!(inspection.lines().len(), 1, "it has not answered");
        inspection.note_journals(&name, vec![(a, None)]);
        assert_eq!(inspection.lines(), [""; 0]);
    }

    #[test]
    fn a_requested_inspection_reports_standing_problems_again_and_keeps_them() {
        let catalog = start_passive(&Arc::new(Mutex::new(Paper::default())));
        let (shared, key) = (catalog.system(), (5, ServerId("a".to_owned()), SmallFile::Vif));
        let known = &shared.known;
        known.take_all(listing(["a", "b", "c"]), Instant::now(), LIST_EVERY).expect("recorded");
        known.state().inspection.standing.insert(key.clone(), "it is damaged".to_owned());
        assert!(known.state().inspection.is_reported(&key));
        catalog.runtime().block_on(shared.inspect_all()); // The files of the volume were not read, so it is left out.
        let mut state = known.state();
        assert_eq!(state.inspection.lines(), ["it is damaged"]);
        assert_eq!([(); 2].map(|()| state.inspection.is_reported(&key)), [false, true]);
    }

    #[test]
    fn servers_without_shards_of_the_volume_are_not_named_any_more() {
        let catalog = start(&Arc::new(Mutex::new(Paper::default())));
        let known = Arc::clone(&catalog.system().known);
        known.take_all(listing(["a", "b", "c"]), Instant::now(), LIST_EVERY).expect("recorded");
        let name = VolumeName::new("c", 5).expect("a name");
        let found = ["a", "d"].map(|server| (ServerId(server.to_owned()), Some("is older")));
        let mut state = known.state();
        state.inspection.note_journals(&name, found.to_vec());
        state.next_to_inspect();
        let lines = state.inspection.lines();
        assert!(lines.len() == 1 && lines[0].starts_with("c_5.ecj on a is older"), "{lines:?}");
    }

    #[test]
    fn a_dry_run_names_bad_files_and_replaces_none() {
        let catalog = start_passive(&Arc::new(Mutex::new(Paper::default())));
        let (shared, server) = (catalog.system(), ServerId("a".to_owned()));
        let name = VolumeName::new("c", 5).expect("a name");
        let put_right = shared.put_right(&name, &server, SmallFile::Vif, &Problem::Differs);
        catalog.runtime().block_on(put_right); // A call of a server would fail, and there is none.
        let lines = shared.known.state().inspection.lines();
        assert!(lines.len() == 1 && lines[0].contains(NOT_AUTOMATIC), "{lines:?}");
        assert!(!lines[0].contains("by hand"), "{lines:?}");
    }

    /// Mend itself replaces the other copies only after checks.
    #[test]
    fn a_copy_by_hand_is_advised_only_if_it_can_do_no_harm() {
        let (name, server) = (VolumeName::new("c", 5).expect("a name"), ServerId("a".to_owned()));
        let is_advised = |file: SmallFile, problem: &Problem| {
            describe(&name, &server, (file, problem), "it is silent").contains("by hand")
        };
        let damaged = Problem::Damaged("it is no JSON".to_owned());
        assert!(is_advised(SmallFile::Vif, &Problem::Missing) && is_advised(SmallFile::Vif, &damaged));
        assert!(
            is_advised(SmallFile::Ecx, &Problem::Missing) && is_advised(SmallFile::Ecsum, &Problem::Differs)
        );
        assert!(
            !is_advised(SmallFile::Vif, &Problem::Differs),
            "shards of another encoding may be beside it"
        );
        assert!(!is_advised(SmallFile::Ecx, &Problem::Differs) && !is_advised(SmallFile::Ecx, &damaged));
    }

    /// With the current `.vif`, a server would mount the other shards as current ones at its next start.
    #[test]
    fn the_vif_of_shards_of_another_encoding_is_not_replaced() {
        assert!(relabels(SmallFile::Vif, &Problem::Differs));
        assert!(relabels(SmallFile::Vif, &Problem::OtherEncoding));
        let damaged = Problem::Damaged("it is no JSON".to_owned());
        assert!(!relabels(SmallFile::Vif, &damaged) && !relabels(SmallFile::Ecx, &Problem::Differs));
    }

    /// A server had shards of an earlier encoding, and has their files still, but has mounted none.
    #[test]
    fn a_server_with_the_vif_of_another_encoding_gets_no_shard() {
        let catalog = start(&Arc::new(Mutex::new(Paper::default())));
        let shared = catalog.system();
        shared.known.take_all(listing(["a", "b", "c"]), Instant::now(), LIST_EVERY).expect("recorded");
        let ratio = Ratio::new(2, 1).expect("possible");
        let files = Known { ratio, shard_bytes: 100, digests: Vec::new() };
        shared.known.state().view.learn(5, Encoding(1), files);
        let name = VolumeName::new("c", 5).expect("a name");
        let refused = |server: &str, problem: &Problem| {
            shared.check_other_shards(&name, &ServerId(server.to_owned()), problem).err()
        };
        let why = refused("d", &Problem::OtherEncoding).expect("its files may be of the other encoding");
        assert!(why.contains("c_5.vif names another encoding"), "{why}");
        assert_eq!(refused("d", &Problem::Differs), None, "it names this encoding or none");
        // What its server returns may be left over on a disk without shards; other checks decide.
        assert_eq!(refused("a", &Problem::OtherEncoding), None);
    }
}
