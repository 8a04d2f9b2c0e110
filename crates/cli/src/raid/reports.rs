//! Reports to the coordinator's history what a command has done.

use std::time::Duration;

use client::{Client, FileWorkKind, FileWorkReport};
use hdfs_raid::End;
use stores::raid::Outcome;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use super::outcomes;

/// How long a command waits for its last reports.
const LAST_REPORTS: Duration = Duration::from_secs(5);

/// Sends reports while the command runs. Without a coordinator, none are sent.
pub struct Reports {
    works: Option<(UnboundedSender<FileWorkReport>, JoinHandle<()>)>,
}

impl Reports {
    pub fn new(client: Option<Client>) -> Self {
        let start = |client| {
            let (sender, works) = unbounded_channel();
            (sender, tokio::spawn(send_all(client, works)))
        };
        Self { works: client.map(start) }
    }

    /// Reports the end of the work on a file, if something was done or has failed.
    pub fn note(&self, outcome: &Outcome) {
        if let (Some((sender, _)), Some(report)) = (&self.works, report(outcome)) {
            // Nobody receives it after a report has failed.
            drop(sender.send(report));
        }
    }

    /// Waits until all reports are sent, for a few seconds at most.
    pub async fn finish(self) {
        let Some((sender, sending)) = self.works else { return };
        drop(sender);
        drop(tokio::time::timeout(LAST_REPORTS, sending).await);
    }
}

async fn send_all(client: Client, mut works: UnboundedReceiver<FileWorkReport>) {
    while let Some(work) = works.recv().await {
        if let Err(error) = client.note_file_work(&work).await {
            outcomes::tell("history", format_args!("files of this command are not recorded: {error}"));
            return;
        }
    }
}

fn report(outcome: &Outcome) -> Option<FileWorkReport> {
    let failure = match &outcome.result {
        Ok(End::Encoded | End::Plain) if outcome.deeds.has_changed => None,
        Ok(end @ (End::Occupied { .. } | End::Unclaimed { .. } | End::Lost { .. })) => Some(end.to_string()),
        Err(stop) => Some(stop.to_string()),
        Ok(_) => return None,
    };
    let work = match outcome.deeds.kind(failure.is_some()) {
        store_api::FileWorkKind::Encode => FileWorkKind::Encode,
        store_api::FileWorkKind::Adjust => FileWorkKind::Adjust,
        store_api::FileWorkKind::Undo => FileWorkKind::Undo,
    };
    let (bytes, took_ms) = (outcome.deeds.bytes, outcome.deeds.took_ms);
    Some(FileWorkReport { file: outcome.path.clone(), work, bytes, took_ms, failure })
}

#[cfg(test)]
mod tests {
    use hdfs_raid::{Stop, Waiting};
    use stores::raid::Deeds;

    use super::*;

    #[test]
    fn files_that_were_left_as_they_are_are_not_reported() {
        let deeds = Deeds { bytes: 7, took_ms: 9, has_changed: true, ..Deeds::default() };
        let told = |result, deeds| report(&Outcome { path: "/a".to_owned(), result, deeds });
        assert_eq!(told(Ok(End::Encoded), Deeds::default()), None, "it was encoded already");
        assert_eq!(told(Ok(End::SourceMissing), deeds), None);
        assert_eq!(told(Ok(End::Superseded), deeds), None);
        let adjusted = FileWorkReport {
            file: "/a".to_owned(),
            work: FileWorkKind::Adjust,
            bytes: 7,
            took_ms: 9,
            failure: None,
        };
        assert_eq!(told(Ok(End::Encoded), deeds), Some(adjusted.clone()));
        let undone = FileWorkReport { work: FileWorkKind::Undo, ..adjusted };
        assert_eq!(told(Ok(End::Plain), Deeds { is_undo: true, ..deeds }), Some(undone));
        let failed = told(Err(Stop::Stalled(Waiting::Replicas)), Deeds::default()).expect("a failure");
        assert_eq!(failed.work, FileWorkKind::Encode);
        assert!(failed.failure.is_some_and(|why| why.contains("wait until HDFS has created all replicas")));
    }
}
