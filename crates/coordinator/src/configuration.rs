//! Reads the cluster's configuration again for every connection, on threads of their own: the folder may be on a
//! disk that responds slowly, and the runtime may have a single worker, which also sends all pings.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cluster::{Cluster, OpenError};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// A connection waits this long for the configuration; the silence limit of helpers is longer.
const READ_LIMIT: Duration = Duration::from_secs(2);
/// The number of threads that read the configuration at the same time. If the disk hangs, so many threads hang.
const READS_AT_ONCE: usize = 8;

/// The configuration as it was read last; cheap to clone.
#[derive(Clone)]
pub(crate) struct Configuration {
    latest: Arc<Mutex<Latest>>,
    reads: Arc<Semaphore>,
}

struct Latest {
    /// When the read began.
    begun: Instant,
    cluster: Cluster,
}

impl Configuration {
    pub(crate) fn new(cluster: Cluster) -> Self {
        let latest = Arc::new(Mutex::new(Latest { begun: Instant::now(), cluster }));
        Self { latest, reads: Arc::new(Semaphore::new(READS_AT_ONCE)) }
    }

    /// Reads the configuration, and returns it with `true`. If that fails or takes longer than [`READ_LIMIT`],
    /// returns the previous configuration with `false`.
    pub(crate) async fn read(&self) -> (Cluster, bool) {
        let folder = self.latest().cluster.folder().to_owned();
        self.read_by(move || Cluster::open(&folder)).await
    }

    async fn read_by(
        &self,
        open: impl FnOnce() -> Result<Cluster, OpenError> + Send + 'static,
    ) -> (Cluster, bool) {
        let reading = async {
            let permit = self.reads.clone().acquire_owned().await.expect("the semaphore is never closed");
            let this = self.clone();
            let read = move || {
                let _permit = permit; // Held until the read ends, even if nobody waits for it any more.
                let begun = Instant::now();
                open().map(|cluster| this.keep(Latest { begun, cluster }))
            };
            tokio::task::spawn_blocking(read).await.expect("reading does not panic")
        };
        let problem = match timeout(READ_LIMIT, reading).await {
            Ok(Ok(())) => return (self.latest().cluster.clone(), true),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("reading it takes longer than {} s", READ_LIMIT.as_secs()),
        };
        tracing::warn!(
            problem,
            "cannot reload the cluster's configuration; the previous one stays in effect"
        );
        (self.latest().cluster.clone(), false)
    }

    /// Keeps a configuration, unless a later read has ended already.
    fn keep(&self, read: Latest) {
        let mut latest = self.latest();
        if latest.begun <= read.begun {
            *latest = read;
        }
    }

    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use cluster::InitOptions;

    use super::*;

    #[tokio::test]
    async fn a_slow_folder_delays_no_other_task_and_is_used_when_it_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster");
        let cluster = Cluster::init(&path, &InitOptions::default()).unwrap();
        let configuration = Configuration::new(cluster.clone());
        assert!(configuration.read().await.1);
        let first = configuration.latest().begun;
        let (release, released) = mpsc::channel::<()>();
        let slow = configuration.read_by(move || {
            let _ = released.recv();
            Cluster::open(&path)
        });
        tokio::pin!(slow);
        let mut ticks = 0;
        let (cluster, is_current) = loop {
            tokio::select! {
                read = &mut slow => break read,
                () = tokio::time::sleep(Duration::from_millis(10)) => ticks += 1,
            }
        };
        assert!(!is_current && cluster.folder() == folder.path().join("cluster"));
        assert!(ticks > 10, "the only worker goes on meanwhile");
        drop(release);
        while configuration.latest().begun == first {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        configuration.keep(Latest { begun: first, cluster });
        assert_ne!(configuration.latest().begun, first, "an older read changes nothing");
    }
}
