//! Compares the `-dir` folders that volume servers report with `folders` of their helpers in `mend.toml`.
//!
//! A helper sees only the folders in `mend.toml`. In another one, it finds no shard, and neither an old copy of a shard nor
//! files that another encoding has left. So while the folders of a server differ, it gets no shards, and its helper's word
//! that a shard is missing does not count if the master lists the shard there.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::open::Attachment;
use super::state::{Knowledge, Shared};
use crate::listing::{Server, ServerId};
use crate::server::ServerStatus;

/// Interval at which a server is asked for its folders. A server may restart with other folders between two listings.
const ASK_EVERY: Duration = Duration::from_secs(300);
/// A server that has not answered is asked again after this time.
const ASK_AGAIN: Duration = Duration::from_secs(30);
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Interval at which new servers are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The servers whose folders differ from those of their helpers.
#[derive(Default)]
pub(super) struct ServerFolders {
    /// When each connected server is asked next. A server that connects is asked at once.
    next: BTreeMap<ServerId, Instant>,
    /// A sentence for each server whose folders differ, also while it is disconnected.
    differing: BTreeMap<ServerId, String>,
}

impl ServerFolders {
    /// Returns how the folders of a server differ from those of its helper; `None` if they do not, as far as that is known.
    pub fn difference(&self, server: &ServerId) -> Option<&str> {
        self.differing.get(server).map(String::as_str)
    }

    /// Returns one sentence for each connected server whose folders differ.
    pub fn lines<'f>(
        &'f self,
        connected: &'f BTreeMap<ServerId, Server>,
    ) -> impl Iterator<Item = String> + use<'f> {
        self.differing.iter().filter(move |(id, _)| connected.contains_key(*id)).map(|(_, line)| line.clone())
    }

    /// Returns the connected servers with helpers that are to be asked for their folders now.
    fn due(
        &mut self,
        connected: &BTreeMap<ServerId, Server>,
        attachment: &Attachment,
        now: Instant,
    ) -> Vec<ServerId> {
        self.next.retain(|id, _| connected.contains_key(id));
        let has_folders = connected.iter().filter(|(id, server)| attachment.folders_of(id, server).is_some());
        let due = has_folders.filter(|(id, _)| self.next.get(*id).is_none_or(|next| *next <= now));
        due.map(|(id, _)| id.clone()).collect()
    }

    /// Records the folders that a server has reported at this time; `None` if it has not answered.
    pub fn note(
        &mut self,
        (id, server): (&ServerId, &Server),
        attachment: &Attachment,
        reported: Option<&[PathBuf]>,
        now: Instant,
    ) {
        self.next.insert(id.clone(), now + reported.map_or(ASK_AGAIN, |_| ASK_EVERY));
        let (Some(reported), Some(own)) = (reported, attachment.folders_of(id, server)) else { return };
        if !differ(reported, own) {
            self.differing.remove(id);
            return;
        }
        let helper = attachment.helper_of(id, server).unwrap_or_default();
        let line = format!(
            "volume server {id} has the folders {}, but its helper {helper} has {}, so Mend builds no shards there; \
             set `folders` of this helper in mend.toml to the server's -dir folders, on the machines of the helper and \
             of the coordinator, and restart both",
            named(reported),
            named(own)
        );
        self.differing.insert(id.clone(), line);
    }
}

/// Whether the folders that a server has reported differ from those of its helper. If none of them has the same path, but
/// there are equally many, the server probably runs in a container with other paths. Relative paths may stand for any.
fn differ(reported: &[PathBuf], own: &[PathBuf]) -> bool {
    let is_same = |folder: &PathBuf| own.contains(folder);
    let is_other = |folder: &PathBuf| folder.is_absolute() && !is_same(folder);
    reported.len() != own.len() || reported.iter().any(is_same) && reported.iter().any(is_other)
}

fn named(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}

impl Knowledge {
    fn due_servers(&self) -> Vec<ServerId> {
        let mut state = self.state();
        let state = &mut *state;
        state.folders.due(state.view.volumes().servers(), &self.attachment, Instant::now())
    }

    fn note_status(&self, id: &ServerId, status: Option<&ServerStatus>) {
        let reported = status.map(|status| {
            status.folders.iter().map(|(folder, _)| PathBuf::from(folder)).collect::<Vec<PathBuf>>()
        });
        let mut state = self.state();
        let state = &mut *state;
        let Some(server) = state.view.volumes().servers().get(id) else { return };
        state.folders.note((id, server), &self.attachment, reported.as_deref(), Instant::now());
    }

    async fn status_of(&self, server: &ServerId) -> Option<ServerStatus> {
        let asked = async { self.connect(server).await.ok()?.status().await.ok() };
        tokio::time::timeout(ANSWER_LIMIT, asked).await.ok().flatten()
    }
}

/// Compares the folders of servers that connect, and of all servers now and then, until the storage is dropped.
pub(super) async fn watch(storage: Weak<Shared>) {
    loop {
        let Some(shared) = storage.upgrade() else { return };
        compare(&shared).await;
        drop(shared);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Asks all servers that are due for their folders, in parallel.
pub(super) async fn compare(shared: &Arc<Shared>) {
    let mut asking = JoinSet::new();
    for server in shared.known.due_servers() {
        let known = Arc::clone(&shared.known);
        asking.spawn(async move { (known.status_of(&server).await, server) });
    }
    for (status, server) in asking.join_all().await {
        shared.known.note_status(&server, status.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::doubles::{attachment, listing};

    fn paths(folders: &str) -> Vec<PathBuf> {
        folders.split_whitespace().map(PathBuf::from).collect()
    }

    #[test]
    fn folders_differ_if_the_helper_cannot_see_all_of_them() {
        for (reported, own, found) in [
            ("/a /b", "/a /b", false),
            ("/a/ /b", "/b /a", false),
            ("/a /b", "/a", true),
            ("/a", "/a /b", true),
            ("/a /c", "/a /b", true),
            ("/data1 /data2", "/srv/weed/1 /srv/weed/2", false),
            ("/data1 /data2", "/srv/weed/1", true),
            ("data /b", "/srv/data /b", false),
        ] {
            assert_eq!(differ(&paths(reported), &paths(own)), found, "{reported} and {own}");
        }
    }

    #[test]
    fn a_server_with_other_folders_is_named_until_they_are_the_same() {
        let (servers, id) = (listing(["a", "b"]).servers, ServerId("a".to_owned()));
        let attachment = Attachment {
            helpers: [("a".to_owned(), "vs-a".to_owned())].into(),
            folders: [("a".to_owned(), paths("/d0 /d1"))].into(),
            ..attachment()
        };
        let start = Instant::now();
        let mut folders = ServerFolders::default();
        assert_eq!(folders.due(&servers, &attachment, start), std::slice::from_ref(&id), "`b` has no helper");
        let note = |folders: &mut ServerFolders, reported: Option<&str>, now: Instant| {
            let reported = reported.map(paths);
            folders.note((&id, &servers[&id]), &attachment, reported.as_deref(), now);
        };
        note(&mut folders, Some("/d0 /d1 /d2"), start);
        let line = folders.difference(&id).expect("they differ").to_owned();
        for part in ["server a has the folders /d0, /d1, /d2,", "helper vs-a has /d0, /d1,", "mend.toml"] {
            assert!(line.contains(part), "{line}");
        }
        assert_eq!(folders.lines(&servers).collect::<Vec<_>>(), [line]);
        assert_eq!(folders.due(&servers, &attachment, start + ASK_EVERY / 2), []);
        assert_eq!(folders.due(&BTreeMap::new(), &attachment, start), [], "it has disconnected");
        assert_eq!(folders.lines(&BTreeMap::new()).count(), 0);
        assert_eq!(
            folders.due(&servers, &attachment, start),
            std::slice::from_ref(&id),
            "it may have restarted"
        );
        note(&mut folders, None, start);
        assert!(folders.difference(&id).is_some(), "it has not answered");
        assert_eq!(folders.due(&servers, &attachment, start + ASK_AGAIN), std::slice::from_ref(&id));
        note(&mut folders, Some("/d0 /d1"), start);
        assert_eq!(folders.difference(&id), None);
    }
}
