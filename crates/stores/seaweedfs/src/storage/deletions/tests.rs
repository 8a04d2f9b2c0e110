use std::sync::{Mutex, PoisonError};

use super::*;
use crate::storage::doubles::{Paper, start};

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

#[test]
fn late_deletions_are_named_until_they_are_made_also_after_a_restart() {
    let paper = Arc::new(Mutex::new(Paper::default()));
    let catalog = start(&paper);
    let shard = ShardName { volume: volume(), shard: 3 };
    let (late, other) = (
        Late::new(&shard, &ServerId("a:8080".to_owned())),
        Late::new(&shard, &ServerId("b:8080".to_owned())),
    );
    {
        let mut state = catalog.system().known.state();
        state.note_late(&late, String::new());
        state.note_late(&other, String::new());
        assert_eq!(state.late_deletions.lines(), [""; 0], "the first attempt has not ended");
        state.note_late(&late, "it is in maintenance".to_owned());
        let lines = state.late_deletions.lines();
        assert_eq!(lines.len(), 1);
        for part in ["volume c_5 ", "volume server a:8080", "it is in maintenance"] {
            assert!(lines[0].contains(part), "{lines:?}");
        }
        state.forget_late(&other);
    }
    drop(catalog);
    let catalog = start(&paper);
    catalog.system().known.recall_late_deletions().expect("readable");
    let mut state = catalog.system().known.state();
    let late_ones = |state: &State| state.late_deletions.0.keys().cloned().collect::<Vec<_>>();
    assert_eq!(late_ones(&state), std::slice::from_ref(&late));
    state.forget_late(&late);
    assert_eq!(paper.lock().expect("not poisoned").kept.len(), 0);
}
