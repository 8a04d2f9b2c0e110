//! Follows the cluster: applies the masters' listings, and reads the files of new encodings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::blocks::{Encoding, VolumeName};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::encoding_files::Known;
use super::judging::{left_overs, misaddressed, returned};
use super::state::{Shared, State, unseen};
use super::view::Lost;
use super::withdrawals::withdraw_pending;
use crate::listing::ServerId;
use crate::server::SmallFile;
use crate::watch::{Event, Watch};

/// Interval at which failed reads and confirmations are retried.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// The number of volumes whose files are read in parallel.
const READ_AT_ONCE: usize = 16;
/// Timeout for confirming losses with one server; a later round retries.
const CONFIRM_LIMIT: Duration = Duration::from_secs(5);
/// If the last listing is older than this plus two intervals between listings, the state of the cluster is
/// reported as unknown.
const BLIND_LIMIT: Duration = Duration::from_secs(10);

/// Applies changes of the cluster until the storage is dropped.
pub(super) async fn watch(storage: Weak<Shared>) {
    let Some(shared) = storage.upgrade() else { return };
    let mut watch = Watch::start(shared.known.master.clone(), shared.known.attachment.list_every);
    drop(shared);
    loop {
        let event = tokio::time::timeout(ASK_AGAIN, watch.next()).await;
        let Some(shared) = storage.upgrade() else { return };
        match event {
            Ok(Event::Blind(error)) => {
                let before = shared.known.state().blind.replace(error.to_string());
                if before.is_none() {
                    tracing::warn!(%error, "cannot list the cluster; trying again");
                }
                report(&shared);
            }
            Ok(Event::Listed(listing, asked, pause)) => {
                if shared.known.state().blind.take().is_some() {
                    tracing::info!("the cluster can be listed again");
                }
                if let Err(error) = shared.known.take_all(listing, asked, pause) {
                    tracing::error!(%error, "the records");
                }
                report(&shared);
                shared.known.listed.notify_one();
            }
            Err(_) => {}
        }
    }
}

/// Reports a master that does not answer, until the storage is dropped. The requests of other tasks may wait for
/// it longer.
pub(super) async fn watch_silence(storage: Weak<Shared>) {
    loop {
        tokio::time::sleep(ASK_AGAIN).await;
        let Some(shared) = storage.upgrade() else { return };
        let limit = BLIND_LIMIT + 2 * shared.known.attachment.list_every;
        shared.known.state().tell_blindness(limit, Instant::now());
    }
}

/// Reads metadata files, confirms lost shards, and retries to write refused records, until the storage is dropped.
/// This task is separate from `watch`, so that a server that hangs does not delay the listings.
pub(super) async fn tend(storage: Weak<Shared>) {
    loop {
        let Some(shared) = storage.upgrade() else { return };
        learn(&shared).await;
        confirm(&shared).await;
        shared.known.state().keep_records([]);
        report(&shared);
        // Retry failed reads and confirmations after a pause.
        let _ = tokio::time::timeout(ASK_AGAIN, shared.known.listed.notified()).await;
    }
}

/// Retries to undo failed publications, until the storage is dropped. This may wait for a server for minutes, and
/// losses of other shards must be confirmed meanwhile, so this task is separate from `tend`.
pub(super) async fn undo(storage: Weak<Shared>) {
    loop {
        let Some(shared) = storage.upgrade() else { return };
        withdraw_pending(&shared).await;
        drop(shared);
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Reads the files of all encodings that have not been read.
pub(super) async fn learn(shared: &Arc<Shared>) {
    let unknown = {
        let state = shared.known.state();
        state.view.files().unknown(state.view.volumes())
    };
    let mut reading: JoinSet<Option<(u32, Encoding, Known)>> = JoinSet::new();
    let mut found = Vec::new();
    for (volume, encoding) in unknown {
        if reading.len() >= READ_AT_ONCE {
            found.extend(reading.join_next().await.and_then(Result::ok).flatten());
        }
        let shared = Arc::clone(shared);
        reading.spawn(
            async move { read(&shared, volume, encoding).await.map(|known| (volume, encoding, known)) },
        );
    }
    while let Some(read) = reading.join_next().await {
        found.extend(read.ok().flatten());
    }
    if found.is_empty() {
        return;
    }
    let mut state = shared.known.state();
    let volumes: Vec<u32> = found.iter().map(|&(volume, ..)| volume).collect();
    found.into_iter().for_each(|(volume, encoding, known)| state.view.learn(volume, encoding, known));
    state.keep_homes(volumes.iter().copied()); // The records contain the ratios.
    state.tell_volumes(volumes);
}

/// Reads an encoding's files from all servers that hold shards of the encoding.
async fn read(shared: &Shared, volume: u32, encoding: Encoding) -> Option<Known> {
    let (name, servers, listed) = {
        let state = shared.known.state();
        let found = state.view.volumes().get(volume)?;
        let homes = found.generations.get(&encoding)?.homes.values().flatten();
        let servers: BTreeSet<ServerId> = homes.clone().map(|home| home.server.clone()).collect();
        let listed = most_frequent(homes.map(|home| home.bytes).filter(|&bytes| bytes > 0));
        (VolumeName::new(&found.collection, volume)?, servers.into_iter().collect(), listed)
    };
    match read_at(shared, &name, encoding, servers, listed).await {
        Ok(known) => Some(known),
        Err(why) => {
            if shared.known.state().view.note_unread(volume, encoding, why.clone()) {
                tracing::warn!(volume = %name, why, "cannot read the files of an encoding");
            }
            None
        }
    }
}

fn most_frequent(lengths: impl Iterator<Item = u64>) -> Option<u64> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    lengths.for_each(|bytes| *counts.entry(bytes).or_default() += 1);
    counts.into_iter().max_by_key(|&(_, count)| count).map(|(bytes, _)| bytes)
}

/// Reads an encoding's files from these servers, and compares them: a server may still have files of another
/// encoding.
async fn read_at(
    shared: &Shared,
    name: &VolumeName,
    encoding: Encoding,
    servers: Vec<ServerId>,
    listed: Option<u64>,
) -> Result<Known, String> {
    let vif = shared.small_files.copies_at(name, SmallFile::Vif, servers.clone()).await;
    let info = vif.description(encoding)?;
    let ecsum = shared.small_files.copies_at(name, SmallFile::Ecsum, servers).await;
    Known::of(&info, &ecsum, listed).ok_or_else(|| "no server reports the size of its shards".to_owned())
}

/// The servers' answers about lost shards.
#[derive(Default)]
struct Answers {
    /// Shards that their servers have not mounted.
    gone: BTreeSet<Lost>,
    /// Shards that their servers have mounted although no master lists them.
    mounted: BTreeSet<Lost>,
}

/// Confirms lost shards with their last servers, since a returning server is listed a moment before its
/// shards are. All servers are called in parallel; a server that times out confirms nothing, and after a minute its
/// lost shards count as missing.
pub(super) async fn confirm(shared: &Arc<Shared>) {
    let mut questions: BTreeMap<ServerId, BTreeMap<u32, Vec<(Encoding, u8)>>> = BTreeMap::new();
    let mut open = BTreeSet::new();
    for (volume, encoding, shard, server) in shared.known.state().view.unconfirmed() {
        open.insert((volume, encoding, shard));
        questions.entry(server).or_default().entry(volume).or_default().push((encoding, shard));
    }
    let mut asking = JoinSet::new();
    for (server, volumes) in questions {
        let shared = Arc::clone(shared);
        asking.spawn(async move {
            let mut answers = Answers::default();
            let asked =
                tokio::time::timeout(CONFIRM_LIMIT, ask_about(&shared, &server, volumes, &mut answers));
            if asked.await.is_err() {
                tracing::debug!(%server, "a server did not report its shards in time");
            }
            answers
        });
    }
    let mut answers = Answers::default();
    for answer in asking.join_all().await {
        answers.gone.extend(answer.gone);
        answers.mounted.extend(answer.mounted);
    }
    note_answers(&mut shared.known.state(), open, answers, std::time::Instant::now());
}

/// Records what servers have answered about lost shards, out of all that were asked about, and reports the changes.
fn note_answers(state: &mut State, open: BTreeSet<Lost>, answers: Answers, now: std::time::Instant) {
    let is_silent = |lost: &Lost| !answers.gone.contains(lost) && !answers.mounted.contains(lost);
    let silent = open.into_iter().filter(is_silent).collect();
    let mut volumes = state.view.unlisted.note_silent(&silent, now);
    // While no master lists anything, that it does not list a shard says nothing.
    let mounted = if state.is_in_sight() { answers.mounted } else { BTreeSet::new() };
    volumes.extend(state.view.unlisted.note_mounted(&mounted, now));
    volumes.extend(answers.gone.iter().map(|&(volume, ..)| volume));
    if volumes.is_empty() {
        return;
    }
    state.view.confirm(answers.gone);
    state.keep_homes(volumes.iter().copied());
    state.tell_volumes(volumes);
}

/// Adds a server's answers about shards that no master lists.
async fn ask_about(
    shared: &Shared,
    server: &ServerId,
    volumes: BTreeMap<u32, Vec<(Encoding, u8)>>,
    answers: &mut Answers,
) {
    let Ok(connection) = shared.known.connect(server).await else { return };
    for (volume, shards) in volumes {
        match connection.mounted(volume).await {
            Ok(mounted) => {
                // A shard that is mounted under another encoding is missing from this encoding.
                let is_other = |encoding: Encoding, shard: u8| {
                    let listed = shared.known.state().view.volumes().encodings_at(volume, shard, server);
                    !listed.is_empty() && !listed.contains(&encoding)
                };
                let (there, gone): (Vec<_>, Vec<_>) = shards.into_iter().partition(|&(encoding, shard)| {
                    mounted.shards.contains_key(&shard) && !is_other(encoding, shard)
                });
                let lost = |(encoding, shard)| (volume, encoding, shard);
                answers.gone.extend(gone.into_iter().map(lost));
                answers.mounted.extend(there.into_iter().map(lost));
            }
            Err(error) => tracing::debug!(%error, "cannot confirm that a shard is missing"),
        }
    }
}

/// Reports and logs new problems: volumes of unknown state, outdated shards, rebuilt shards that cannot be
/// removed although they are not served correctly, and servers without a helper.
pub(super) fn report(shared: &Shared) {
    let mut state = shared.known.state();
    let unjudged = state.judge();
    state.tell(unjudged.into_iter().collect());
    let mut news: Vec<String> = state.blind.iter().map(|why| unseen(why)).collect();
    news.extend(misaddressed(state.view.volumes()));
    news.extend(left_overs(state.view.volumes()));
    news.extend(returned(state.view.volumes(), &shared.known.attachment.abandoned));
    news.extend(state.unwritten.line());
    news.extend(state.withdrawals.lines());
    news.extend(state.late_deletions.lines());
    news.extend(state.inspection.lines());
    news.extend(state.view.unlisted.lines(state.view.volumes()));
    news.extend(state.folders.lines(state.view.volumes().servers()));
    news.extend(state.view.doubts());
    for (id, server) in state.view.volumes().servers() {
        let shards = state.view.volumes().shards_at(id);
        if shards > 0 && shared.known.attachment.helper_of(id, server).is_none() {
            news.push(format!(
                "volume server {id} has {shards} shards but no helper, so they are neither read nor repaired \
                 there; add a helper with `mend node add`, set `volume_server = \"{id}\"` and `folders` in mend.toml, \
                 and restart the coordinator"
            ));
        }
    }
    for line in state.tell_troubles(news) {
        tracing::warn!("{line}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use store_api::{BlockRecord, BlockState, StoreChange};

    use super::*;
    use crate::address::ListedAddress;
    use crate::blocks::Ratio;
    use crate::listing::Listing;
    use crate::storage::doubles::{LIST_EVERY, Paper, listing, start};

    /// A master no longer lists the shards of three servers. One server denies its shard, one has it, and one does not
    /// answer.
    #[test]
    fn only_the_servers_themselves_vouch_for_shards_that_are_not_listed() {
        let catalog = start(&Arc::new(Mutex::new(Paper::default())));
        let known = &catalog.system().known;
        let all = listing(["a", "b", "c"]);
        known.take_all(all.clone(), Instant::now(), LIST_EVERY).expect("recorded");
        let ratio = Ratio::new(2, 1).expect("possible");
        known.state().view.learn(5, Encoding(1), Known { ratio, shard_bytes: 100, digests: Vec::new() });
        let none = Listing { volumes: BTreeMap::new(), ..all };
        known.take_all(none, Instant::now(), LIST_EVERY).expect("recorded");
        let lost = |shard: u8| (5, Encoding(1), shard);
        let began = std::time::Instant::now();
        let states_after = |seconds: u64| {
            let answers = Answers { gone: [lost(0)].into(), mounted: [lost(1)].into() };
            let now = began + Duration::from_secs(seconds);
            note_answers(&mut known.state(), [0, 1, 2].map(lost).into(), answers, now);
            let stripe = known.state().view.stripe(5).expect("it is known");
            stripe.blocks.iter().map(|block| block.state).collect::<Vec<_>>()
        };
        let (healthy, missing) = (BlockState::Healthy, BlockState::Missing);
        assert_eq!(states_after(0), [missing, healthy, healthy]);
        assert_eq!(states_after(60), [missing, healthy, missing]);
        assert_eq!(states_after(299), [missing, healthy, missing]);
        let lines = || {
            let state = known.state();
            state.view.unlisted.lines(state.view.volumes())
        };
        assert_eq!(lines(), [""; 0]);
        assert_eq!(states_after(300), [missing; 3], "clients do not find it");
        let lines = lines();
        assert!(
            lines.len() == 1 && lines[0].contains("server b says that it has mounted c_5.ec01"),
            "{lines:?}"
        );
        known.state().blind = Some("no master answers".to_owned());
        assert_eq!(states_after(301), [missing, healthy, missing], "the next master lists it");
        known.state().blind = None;
        assert_eq!(states_after(600), [missing, healthy, missing], "the wait begins again");
    }

    #[test]
    fn a_server_with_a_malformed_address_is_named_and_keeps_its_shards() {
        let catalog = start(&Arc::new(Mutex::new(Paper::default())));
        let (shared, server) = (catalog.system(), ServerId("b".to_owned()));
        let mut all = listing(["a", "b", "c"]);
        all.servers.get_mut(&server).expect("listed").address = ListedAddress::of("b:60000", 0);
        shared.known.take_all(all, Instant::now(), LIST_EVERY).expect("recorded");
        let ratio = Ratio::new(2, 1).expect("possible");
        let description = Known { ratio, shard_bytes: 100, digests: Vec::new() };
        shared.known.state().view.learn(5, Encoding(1), description);
        let stripe = shared.known.state().view.stripe(5).expect("it is known");
        let is_there = |block: &BlockRecord| block.node.is_some() && block.state == BlockState::Healthy;
        assert!(stripe.blocks.iter().all(is_there), "{stripe:?}");
        report(shared);
        let StoreChange::Troubles(lines) = shared.known.state().troubles() else { panic!("problems") };
        let named: Vec<&String> = lines.iter().filter(|line| line.contains("malformed address")).collect();
        assert!(named.len() == 1 && named[0].contains("volume server b with"), "{lines:?}");
        let connected = catalog.runtime().block_on(shared.known.connect(&server));
        assert!(connected.is_err_and(|why| why.contains("`b:60000`")), "Mend cannot call it");
    }
}
