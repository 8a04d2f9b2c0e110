//! Hands a replica over to a running DataNode that has Mend's plug-in.
//!
//! The plug-in `mend.hdfs.MendPlugin` in the DataNode listens on a loopback port. Each connection carries one
//! request line and one answer line. The request is `ready POOL`, or `adopt POOL BLOCK STAMP BYTES` once both
//! files have been renamed, or `tell POOL BLOCK` to have the NameNode told of a block; the answer is `yes`, or
//! `no WHY`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use repair::Digest;
use store_api::{BlockError, BlockReader, BlockWriter, HandOver, HandOverTerms, Intake, Later, ProcessError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::writer::ReplicaWriter;

/// Timeout for an answer. The DataNode is on the same machine, but may wait for a disk or for its own locks.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Timeout for the whole hand-over: the answer, plus the time to rename two files.
const LIMIT: Duration = Duration::from_secs(45);
const MAX_ANSWER_BYTES: u64 = 4096;
/// Timeout for each step of a request whose answer does not matter.
const TELL_LIMIT: Duration = Duration::from_secs(2);

/// The plug-in of a DataNode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plugin(pub(super) SocketAddr);

impl Plugin {
    fn process(&self) -> String {
        format!("the DataNode whose plug-in should listen at {}", self.0)
    }

    /// Has the DataNode tell the NameNode of a block that it has, as the DataNode's next report of all blocks would.
    /// The NameNode then lists the block or has it deleted. Waits for the DataNode.
    pub(super) fn tell(&self, pool: &str, block: i64) {
        if let Err(error) = tell(self.0, &format!("tell {pool} {block}\n")) {
            tracing::debug!(block, %error, "cannot have the NameNode told of a block");
        }
    }

    /// Sends a request. Any answer but `yes` is an error.
    async fn ask(&self, question: String) -> Result<(), ProcessError> {
        let process = self.process();
        let answer = match timeout(ANSWER_LIMIT, exchange(self.0, &question)).await {
            Err(_) => return Err(ProcessError::TimedOut { process, limit: ANSWER_LIMIT }),
            Ok(Err(error)) => {
                let hint = "check dfs.datanode.plugins=mend.hdfs.MendPlugin and mend.datanode.port there";
                return Err(ProcessError::Unreachable { process, why: format!("{error}; {hint}") });
            }
            Ok(Ok(answer)) => answer,
        };
        match answer.trim_end().split_once(' ').unwrap_or((answer.trim_end(), "")) {
            ("yes", _) => Ok(()),
            ("no", why) => Err(ProcessError::Refused { process, why: why.to_owned() }),
            _ => {
                let why = format!("`{}` is not a valid answer of Mend's plug-in", answer.escape_debug());
                Err(ProcessError::Unreachable { process, why })
            }
        }
    }
}

async fn exchange(address: SocketAddr, question: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(question.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER_BYTES).read_to_string(&mut answer).await?;
    Ok(answer)
}

fn tell(address: SocketAddr, request: &str) -> io::Result<()> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect_timeout(&address, TELL_LIMIT)?;
    stream.set_write_timeout(Some(TELL_LIMIT))?;
    stream.set_read_timeout(Some(TELL_LIMIT))?;
    stream.write_all(request.as_bytes())?;
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut Vec::new()).map(drop)
}

/// Writes a replica that is handed over to the DataNode's plug-in.
pub(super) struct ToldWriter {
    writer: Box<ReplicaWriter>,
    datanode: Plugin,
}

impl ToldWriter {
    pub(super) fn new(writer: ReplicaWriter, datanode: Plugin) -> Self {
        Self { writer: Box::new(writer), datanode }
    }

    fn refused(&self, error: ProcessError) -> BlockError {
        BlockError::Process { block: self.writer.block().clone(), error }
    }
}

impl Intake for ToldWriter {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.writer.write_at(offset, bytes)
    }

    fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError> {
        self.writer.reader()
    }
}

impl BlockWriter for ToldWriter {
    fn seal(&mut self) -> Result<Option<Digest>, BlockError> {
        self.writer.seal()
    }
}

impl HandOver for ToldWriter {
    fn prepare(&mut self) -> Later<'_, Result<(), BlockError>> {
        Box::pin(async {
            let asked = self.datanode.ask(format!("ready {}\n", self.writer.pool())).await;
            asked.map_err(|error| self.refused(error))
        })
    }

    fn terms(&self) -> HandOverTerms {
        HandOverTerms { process: self.datanode.process(), limit: LIMIT }
    }

    /// If the DataNode refuses the replica, the new files are removed again, except if they replaced another
    /// replica. If the DataNode does not answer, the files always stay: the DataNode may have adopted the
    /// replica, and an intact replica is better than a missing one.
    fn hand_over(mut self: Box<Self>) -> Later<'static, Result<(), BlockError>> {
        Box::pin(async move {
            self.prepare().await?;
            let question = self.writer.adoption();
            let block = self.writer.block().clone();
            let Self { writer, datanode } = *self;
            let named = tokio::task::spawn_blocking(move || writer.give_names()).await;
            let named = named.expect("naming replicas does not panic")?;
            let asked = datanode.ask(question).await;
            if matches!(asked, Err(ProcessError::Refused { .. })) {
                let _ = tokio::task::spawn_blocking(move || named.take_back()).await;
            }
            asked.map_err(|error| BlockError::Process { block, error })
        })
    }
}
