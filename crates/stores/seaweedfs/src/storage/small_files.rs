//! Fetches the metadata files of volumes (`.vif`, `.ecsum`, `.ecx`) from the servers that hold shards, to
//! compare them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::needles::foreign_journal;
use super::side_files::{Copies, WINDOW_UNIT};
use super::state::Knowledge;
use crate::blocks::{Encoding, VolumeName};
use crate::listing::ServerId;
use crate::server::SmallFile;

/// The largest `.vif` or `.ecsum` file that is compared, in bytes.
const MAX_COMPARED: usize = 64 << 20;
/// Indexes are compared in windows of this many bytes, since an index may be larger than the memory.
pub(super) const WINDOW_BYTES: usize = WINDOW_UNIT << 12;
/// Timeouts for reading a server's copy of a file, and for reading one window of an index.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
const WINDOW_LIMIT: Duration = Duration::from_secs(10);
/// A server that timed out is not called again for this long.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// Fetches and compares metadata files, and skips servers that timed out recently.
pub(super) struct SmallFiles {
    known: Arc<Knowledge>,
    /// Servers that timed out, with the time of the timeout.
    silent: Mutex<BTreeMap<ServerId, Instant>>,
}

impl SmallFiles {
    pub fn new(known: Arc<Knowledge>) -> Self {
        Self { known, silent: Mutex::default() }
    }

    fn silent(&self) -> MutexGuard<'_, BTreeMap<ServerId, Instant>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_silent(&self, server: &ServerId) -> bool {
        let mut silent = self.silent();
        silent.retain(|_, since| since.elapsed() < SILENT_FOR);
        silent.contains_key(server)
    }

    /// Reads a file from all servers with shards of the volume, and from the server `besides`.
    pub async fn copies(
        self: &Arc<Self>,
        name: &VolumeName,
        file: SmallFile,
        besides: Option<&ServerId>,
    ) -> Copies {
        let mut servers = self.known.state().view.volumes().holders_of(name.id());
        servers.extend(besides.filter(|it| !servers.contains(it)).cloned());
        self.copies_at(name, file, servers).await
    }

    /// Reads a file of a volume from these servers.
    pub async fn copies_at(
        self: &Arc<Self>,
        name: &VolumeName,
        file: SmallFile,
        mut servers: Vec<ServerId>,
    ) -> Copies {
        let all = servers.len();
        servers.retain(|server| !self.is_silent(server));
        let mut copies = match file {
            SmallFile::Ecx => self.indexes(name, servers).await,
            _ => self.whole_files(name, file, servers).await,
        };
        copies.note_asked(all);
        copies
    }

    /// Returns why servers' journals of a volume are of another encoding; `None` for servers whose journal is of this
    /// one, or that have none. Servers that do not answer are left out.
    pub async fn journals(
        self: &Arc<Self>,
        name: &VolumeName,
        encoding: Encoding,
    ) -> Vec<(ServerId, Option<&'static str>)> {
        let mut servers = self.known.state().view.volumes().holders_of(name.id());
        servers.retain(|server| !self.is_silent(server));
        let mut asking = JoinSet::new();
        for server in servers {
            let (shared, name) = (Arc::clone(self), name.clone());
            let has_idle_disk = self.known.state().view.volumes().has_idle_disk(name.id(), &server);
            asking.spawn(async move {
                let asked = async {
                    let connection = shared.known.connect(&server).await.ok()?;
                    foreign_journal(&connection, &name, encoding, has_idle_disk).await.ok()
                };
                let why = shared.in_time(&server, ANSWER_LIMIT, asked).await?;
                Some((server, why))
            });
        }
        asking.join_all().await.into_iter().flatten().collect()
    }

    /// Reads and compares a short file of several servers.
    async fn whole_files(
        self: &Arc<Self>,
        name: &VolumeName,
        file: SmallFile,
        servers: Vec<ServerId>,
    ) -> Copies {
        let mut asking = JoinSet::new();
        for server in servers {
            let (shared, name) = (Arc::clone(self), name.clone());
            asking.spawn(async move { (shared.copy_at(&name, file, &server).await, server) });
        }
        // A server that does not answer is left out and not blamed.
        let mut answers = asking.join_all().await;
        answers.sort_by(|one, other| one.1.cmp(&other.1));
        let mut copies = Copies::default();
        for (answer, server) in answers {
            if let Some(copy) = answer {
                let (bytes, modified_ns) = copy.unzip();
                copies.note_modified(&server, modified_ns.unwrap_or_default());
                copies.add(file, server, bytes);
            }
        }
        copies
    }

    /// Compares the indexes of several servers, reading all of them in parallel.
    async fn indexes(self: &Arc<Self>, name: &VolumeName, servers: Vec<ServerId>) -> Copies {
        let mut opening = JoinSet::new();
        for server in servers {
            let (shared, name) = (Arc::clone(self), name.clone());
            opening.spawn(async move {
                let opened = async {
                    shared
                        .known
                        .connect(&server)
                        .await
                        .ok()?
                        .open_small_file(&name, SmallFile::Ecx)
                        .await
                        .ok()
                };
                let index = shared.in_time(&server, ANSWER_LIMIT, opened).await?;
                Some((server, index))
            });
        }
        let mut indexes: Vec<_> = opening.join_all().await.into_iter().flatten().collect();
        let (mut copies, mut is_first) = (Copies::default(), true);
        loop {
            let mut reading = JoinSet::new();
            for (server, mut index) in indexes {
                let shared = Arc::clone(self);
                reading.spawn(async move {
                    let window = async { index.next_window(WINDOW_BYTES).await.ok() };
                    let window = shared.in_time(&server, WINDOW_LIMIT, window).await?;
                    Some((server, index, window))
                });
            }
            let mut windows = BTreeMap::new();
            indexes = Vec::new();
            for (server, index, window) in reading.join_all().await.into_iter().flatten() {
                indexes.push((server.clone(), index));
                windows.insert(server, window);
            }
            let is_end = windows.values().all(Vec::is_empty);
            if is_first {
                for (server, window) in windows {
                    copies.add(SmallFile::Ecx, server, Some(window));
                }
            } else {
                copies.compare_next(windows);
            }
            if is_end {
                return copies;
            }
            is_first = false;
        }
    }

    /// Fetches a server's copy of a file, and the time at which it was modified. The outer `None` means that the
    /// server did not answer, the inner `None` that it has no such file.
    async fn copy_at(
        &self,
        name: &VolumeName,
        file: SmallFile,
        server: &ServerId,
    ) -> Option<Option<(Vec<u8>, i64)>> {
        let asked = async {
            self.known.connect(server).await.ok()?.dated_small_file(name, file, MAX_COMPARED).await.ok()
        };
        self.in_time(server, ANSWER_LIMIT, asked).await
    }

    /// Waits for a server's answer up to a limit. After a timeout, the server is not called again for
    /// [`SILENT_FOR`].
    async fn in_time<T>(
        &self,
        server: &ServerId,
        limit: Duration,
        answer: impl Future<Output = Option<T>>,
    ) -> Option<T> {
        let answer = tokio::time::timeout(limit, answer).await;
        if answer.is_err() {
            self.silent().insert(server.clone(), Instant::now());
        }
        answer.ok().flatten()
    }
}
