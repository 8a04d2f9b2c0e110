use std::sync::{Arc, Mutex, PoisonError};

use super::*;

/// A volume server with shard `n` of a volume on its disk `n`. As in SeaweedFS, each disk has its own
/// deletions, and a deletion is made on the first disk only.
#[derive(Clone)]
struct Server(Arc<Mutex<Disks>>);

struct Disks {
    /// The needles in the index.
    index: BTreeSet<u64>,
    deleted: Vec<BTreeSet<u64>>,
    /// The deletions that were requested.
    asked: Vec<u64>,
}

impl Server {
    fn new(index: impl IntoIterator<Item = u64>, disks: usize) -> Self {
        let deleted = vec![BTreeSet::new(); disks];
        Self(Arc::new(Mutex::new(Disks { index: index.into_iter().collect(), deleted, asked: Vec::new() })))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Disks) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Deletes for Server {
    async fn heeds(&self, _: &VolumeName, shard: u8, needle: u64) -> Result<bool, AskError> {
        Ok(self.with(|disks| disks.deleted[usize::from(shard)].contains(&needle)))
    }

    async fn make(&self, _: &VolumeName, needle: u64) -> Result<bool, AskError> {
        Ok(self.with(|disks| {
            disks.asked.push(needle);
            let is_known = disks.index.contains(&needle);
            if is_known {
                disks.deleted[0].insert(needle);
            }
            is_known
        }))
    }
}

fn volume() -> VolumeName {
    VolumeName::new("c", 5).expect("a name")
}

/// Returns an index of these needles, each with whether it is marked as deleted.
fn index(needles: &[(u64, bool)]) -> Vec<u8> {
    let entry = |&(needle, is_marked): &(u64, bool)| {
        let size = if is_marked { [0xff; 4] } else { [0, 0, 1, 0] };
        [needle.to_be_bytes().as_slice(), &[0, 0, 0, 9], &size].concat()
    };
    needles.iter().flat_map(entry).collect()
}

#[tokio::test]
async fn deletions_take_effect_without_a_remount() {
    let server = Server::new(1..100, 1);
    server.with(|disks| disks.deleted[0].extend([3, 4]));
    let needles: Vec<u64> = (3..50).chain([1000]).collect();
    assert_eq!(not_heeded(&server, &volume(), &[0], &needles).await.expect("answered").len(), 46);
    let open = delete(&server, &volume(), &[0], &needles).await.expect("answered");
    assert_eq!(open, [0; 0], "a needle that is not in the index cannot be read");
    let (deleted, asked) = server.with(|disks| (disks.deleted[0].clone(), disks.asked.clone()));
    assert_eq!(deleted, (3..50).collect::<BTreeSet<u64>>());
    assert_eq!(asked, (5..50).chain([1000]).collect::<Vec<_>>(), "the server heeds 3 and 4 already");
}

#[tokio::test]
async fn a_disk_that_heeds_no_deletion_is_found() {
    let server = Server::new(1..100, 2);
    server.with(|disks| disks.deleted[1].extend([7]));
    let open = delete(&server, &volume(), &[0, 1], &[6, 7]).await.expect("answered");
    assert_eq!(open, [6], "the second disk still serves it");
    let times = times_heeded(&server, &volume(), &[0, 1], &[5, 6, 7]).await.expect("answered");
    assert_eq!(times, [(5, 0), (6, 1), (7, 2)]);
}

/// Returns these shards of a server with several disks, or with one.
fn asked(shards: &[u8], has_several_disks: bool) -> Asked {
    Asked { shards: shards.to_vec(), has_several_disks }
}

/// The journal that the server returns is the one of its last disk, also if all of its mounted shards are on the
/// first one: the journal outlives the shards that were moved away.
#[tokio::test]
async fn deletions_on_the_first_of_several_disks_are_found() {
    let server = Server::new(1..5, 2);
    server.with(|disks| disks.deleted[0].extend([3]));
    let window = index(&[(1, false), (2, true), (3, false), (4, false)]);
    let returned = || Deleted { needles: [1].into(), ..Deleted::default() };
    for (asked, found) in [
        (asked(&[0], false), vec![1, 2]),
        (asked(&[0], true), vec![1, 2, 3]),
        (asked(&[0, 1], true), vec![1, 2, 3]),
        (asked(&[], true), vec![1, 2]),
    ] {
        let mut deleted = returned();
        add_deleted(&server, &volume(), &asked, (&window, true), &mut deleted).await.expect("answered");
        assert_eq!(deleted.needles, found.into_iter().collect(), "{asked:?}");
    }
}

const DAY_NS: i64 = 24 * 60 * 60 * 1_000_000_000;
const ENCODING: Encoding = Encoding(1_795_322_287_727_440_871);

fn entries_of(needles: &[u64]) -> Vec<u8> {
    needles.iter().flat_map(|needle| needle.to_be_bytes()).collect()
}

/// A volume was decoded and encoded again, and its needle 3 was written again in between. The journal that the
/// earlier encoding has left would hide it.
#[tokio::test]
async fn a_journal_of_an_earlier_encoding_deletes_nothing() {
    let bytes = [entries_of(&[3, 4]), vec![7]].concat();
    for (modified_ns, needles) in
        [(ENCODING.0 - 2 * DAY_NS, vec![]), (ENCODING.0 - DAY_NS / 2, vec![3, 4]), (0, vec![3, 4])]
    {
        let deleted = Deleted::from(Journal::of(&bytes, modified_ns, ENCODING));
        assert_eq!(deleted.has_journal, !needles.is_empty(), "only a current journal is copied");
        assert_eq!(deleted.needles, needles.into_iter().collect(), "{modified_ns}");
    }
    // A disk of the server heeds that journal. Another one may have a current one.
    let server = Server::new(1..6, 2);
    server.with(|disks| disks.deleted[1].extend([3, 4]));
    server.with(|disks| disks.deleted[0].extend([5]));
    let mut deleted = Deleted::from(Journal::of(&bytes, ENCODING.0 - 2 * DAY_NS, ENCODING));
    let window = index(&[(1, false), (3, false), (4, true), (5, false)]);
    add_deleted(&server, &volume(), &asked(&[0, 1], true), (&window, true), &mut deleted)
        .await
        .expect("answered");
    assert_eq!((deleted.needles, deleted.unclear), ([4, 5].into(), 1), "the index marks 4");
}

#[tokio::test]
async fn marks_in_an_index_of_an_earlier_encoding_are_ignored() {
    let server = Server::new(1..5, 1);
    let mut deleted = Deleted::default();
    let window = index(&[(1, false), (2, true)]);
    add_deleted(&server, &volume(), &asked(&[0], false), (&window, false), &mut deleted)
        .await
        .expect("answered");
    assert_eq!(deleted, Deleted::default());
}

#[test]
fn files_beside_the_vif_of_another_encoding_are_foreign() {
    let vif = |encoding: Encoding| {
        let config = format!(r#"{{"dataShards": 2, "parityShards": 1, "encodeTsNs": "{}"}}"#, encoding.0);
        format!(r#"{{"ecShardConfig": {config}}}"#).into_bytes()
    };
    for (beside, found) in [(ENCODING, true), (Encoding(ENCODING.0 - 1), false), (Encoding(0), true)] {
        assert_eq!(may_be_beside(Some(&vif(beside)), ENCODING), found, "{beside:?}");
    }
    assert!(may_be_beside(None, ENCODING) && may_be_beside(Some(b"{"), ENCODING));
    assert!(may_be_beside(Some(&vif(ENCODING)), Encoding(0)), "older volumes name no encoding");
}

#[tokio::test]
async fn marks_in_damaged_parts_of_an_index_are_ignored() {
    let server = Server::new(1..5, 1);
    let mut deleted = Deleted::default();
    let damaged = index(&[(1, false), (9, true), (3, false)]);
    add_deleted(&server, &volume(), &asked(&[0], false), (&damaged, true), &mut deleted)
        .await
        .expect("answered");
    assert_eq!(deleted, Deleted { is_damaged: true, ..Deleted::default() });
}

#[tokio::test]
async fn a_deletion_is_recorded_unless_a_disk_has_it() {
    let server = Server::new(1..100, 2);
    server.with(|disks| disks.deleted[1].extend([7]));
    assert_eq!(record(&server, &volume(), &[0, 1], &[6, 7, 1000]).await.expect("answered"), 0);
    assert_eq!(server.with(|disks| disks.asked.clone()), [6, 1000]);
}
