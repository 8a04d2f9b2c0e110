//! The client's certificate, which is renewed while a program runs.
//!
//! Each new connection presents the certificate that is in the cluster folder by then. The coordinator closes
//! a connection when the certificate expires that it was opened with, so a connection gets a successor
//! before. Requests in progress end on the former one.
//!
//! The folder may be on a network file system that does not answer. Callers then wait for the files once, for
//! about a second. Until that read ends, all connections present the certificate that was loaded last.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use cluster::Identity;
use helper::load_renewed;
use tokio::time::{Instant, timeout};

use crate::get::waiting;

/// A connection with less time left than this expires soon.
const SOON: Duration = Duration::from_secs(60 * 60);
/// The least time between two checks of an open connection for a renewed certificate.
const CHECK_EVERY: Duration = Duration::from_secs(10);
/// How long a caller waits for the files. A read that takes longer hangs; callers no longer wait for it.
const READ_LIMIT: Duration = Duration::from_secs(1);

/// The certificate of a client; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    identity: Identity,
    /// Locked while the files are read, so that a folder that hangs occupies only one thread.
    reading: Arc<tokio::sync::Mutex<()>>,
    /// When the read in progress began.
    begun: Arc<Mutex<Option<Instant>>>,
}

/// The certificate with which a connection was opened.
#[derive(Debug)]
pub(crate) struct Presented {
    expires: SystemTime,
    /// When the connection last checked for a renewed certificate.
    checked: Instant,
}

impl Certificate {
    pub(crate) fn new(identity: Identity) -> Self {
        Self { identity, reading: Arc::default(), begun: Arc::default() }
    }

    /// Returns the identity with the certificate that was loaded last.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the certificate for a connection that is opened next, after loading it if it was renewed.
    pub(crate) async fn present(&self) -> Presented {
        self.refresh().await;
        Presented { expires: self.identity.expires(), checked: Instant::now() }
    }

    /// Whether another certificate is there than the one with which a connection was opened. Reads the files
    /// only every `CHECK_EVERY`, and returns false otherwise.
    pub(crate) async fn was_renewed(&self, presented: &mut Presented) -> bool {
        if presented.checked.elapsed() < CHECK_EVERY {
            return false;
        }
        presented.checked = Instant::now();
        self.refresh().await;
        self.identity.expires() != presented.expires
    }

    /// Loads the certificate if it was renewed. If the files are missing, or the key does not match yet, the
    /// former certificate stays in use.
    async fn refresh(&self) {
        if self.hangs() {
            return; // The read in progress loads the certificate if the folder answers after all.
        }
        let reading = async {
            let turn = self.reading.clone().lock_owned().await;
            *self.begun() = Some(Instant::now());
            let certificate = self.clone();
            waiting(move || {
                load_renewed(&certificate.identity);
                *certificate.begun() = None;
                drop(turn);
            })
            .await;
        };
        if timeout(READ_LIMIT, reading).await.is_err() {
            tracing::debug!("the folder of the certificate does not answer");
        }
    }

    /// Whether the folder does not answer a read of the files.
    fn hangs(&self) -> bool {
        self.begun().is_some_and(|begun| begun.elapsed() >= READ_LIMIT)
    }

    fn begun(&self) -> MutexGuard<'_, Option<Instant>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Presented {
    /// Whether the coordinator closes the connection soon.
    pub(crate) fn expires_soon(&self) -> bool {
        self.expires.duration_since(SystemTime::now()).unwrap_or_default() < SOON
    }

    /// Lets the next use of the connection check for a renewed certificate.
    #[cfg(test)]
    pub(crate) fn make_due(&mut self) {
        self.checked -= CHECK_EVERY;
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::process::Command;

    use cluster::{Cluster, InitOptions, Role};
    use tokio::time::sleep;

    use super::*;

    #[tokio::test]
    async fn callers_wait_once_for_a_folder_that_hangs() {
        const MINUTE: Duration = Duration::from_secs(60);
        let scratch = tempfile::tempdir().unwrap();
        let cluster = Cluster::init(&scratch.path().join("demo"), &InitOptions::default()).unwrap();
        let ann = Role::Client("ann".parse().unwrap());
        cluster.issue_for(&ann, Some(10 * MINUTE)).unwrap();
        let certificate = Certificate::new(cluster.identity(&ann).unwrap());
        let mut presented = certificate.present().await;
        assert!(presented.expires_soon());
        assert!(!certificate.was_renewed(&mut presented).await);

        // A read of a pipe hangs until the pipe is opened for writing.
        let path = cluster.certificate(&ann);
        cluster.issue(&ann).unwrap();
        let (renewed, pipe) = (path.with_file_name("renewed"), path.with_file_name("pipe"));
        fs::rename(&path, &renewed).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let begun = Instant::now();
        for _ in 0..60 {
            presented.make_due();
            certificate.was_renewed(&mut presented).await;
        }
        let (took, hung) = (begun.elapsed(), certificate.hangs());
        fs::rename(&path, &pipe).unwrap();
        fs::rename(&renewed, &path).unwrap();
        drop(File::options().read(true).write(true).open(&pipe).unwrap());
        assert!(hung && took < 30 * READ_LIMIT, "{took:?}");

        let renewal = async {
            while !certificate.was_renewed(&mut presented).await {
                presented.make_due();
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(MINUTE, renewal).await.expect("the read that hung loads the certificate");
        assert_eq!(Some(certificate.identity().expires()), cluster.expires(&ann));
        assert!(!certificate.present().await.expires_soon());
    }
}
