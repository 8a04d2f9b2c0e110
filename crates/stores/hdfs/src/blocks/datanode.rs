//! Handing a replica over to a DataNode that runs and has Mend's plug-in.
//!
//! The plug-in `mend.hdfs.MendPlugin` in the DataNode listens on a port of the machine alone. A connection brings one
//! line and gets one: `ready POOL`, or `adopt POOL BLOCK STAMP BYTES` once both files have their names; `yes`, or `no WHY`.

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

/// The DataNode is on the same machine, but it may wait for a disk or for its own locks.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// That, and what it takes to give two files their names.
const LIMIT: Duration = Duration::from_secs(45);
const MAX_ANSWER_BYTES: u64 = 4096;

/// A DataNode whose plug-in can be asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plugin(pub(super) SocketAddr);

impl Plugin {
    fn process(&self) -> String {
        format!("the DataNode whose plug-in should listen at {}", self.0)
    }

    /// Asks it something; an error unless it says yes.
    async fn ask(&self, question: String) -> Result<(), ProcessError> {
        let process = self.process();
        let answer = match timeout(ANSWER_LIMIT, exchange(self.0, &question)).await {
            Err(_) => return Err(ProcessError::TimedOut { process, limit: ANSWER_LIMIT }),
            Ok(Err(error)) => {
                let hint = "is dfs.datanode.plugins=mend.hdfs.MendPlugin set there, and mend.datanode.port this one?";
                return Err(ProcessError::Unreachable { process, why: format!("{error}; {hint}") });
            }
            Ok(Ok(answer)) => answer,
        };
        match answer.trim_end().split_once(' ').unwrap_or((answer.trim_end(), "")) {
            ("yes", _) => Ok(()),
            ("no", why) => Err(ProcessError::Refused { process, why: why.to_owned() }),
            _ => {
                let why = format!("`{}` is no answer of Mend's plug-in", answer.escape_debug());
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

/// A replica that a DataNode takes over.
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

    /// What the DataNode refuses is taken away again, unless it took another's place. Of what it does not answer to it may
    /// know, and a block that is there and whole is better than one that it looks for in vain.
    fn hand_over(mut self: Box<Self>) -> Later<'static, Result<(), BlockError>> {
        Box::pin(async move {
            self.prepare().await?;
            let question = self.writer.adoption();
            let block = self.writer.block().clone();
            let Self { writer, datanode } = *self;
            let named = tokio::task::spawn_blocking(move || writer.give_names()).await;
            let named = named.expect("giving names does not panic")?;
            let asked = datanode.ask(question).await;
            if matches!(asked, Err(ProcessError::Refused { .. })) {
                let _ = tokio::task::spawn_blocking(move || named.take_back()).await;
            }
            asked.map_err(|error| BlockError::Process { block, error })
        })
    }
}
