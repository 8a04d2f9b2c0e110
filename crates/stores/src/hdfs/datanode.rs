//! Telling a DataNode that runs of a replica that was put into its folders.
//!
//! The plug-in `mend.hdfs.MendPlugin` in the DataNode listens on a port of the machine alone. A connection brings one
//! line, `adopt POOL BLOCK STAMP BYTES`, and gets one, `taken` or `refused WHY`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::name::ReplicaName;

/// The DataNode is on the same machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// It may wait for a disk.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_ANSWER_BYTES: u64 = 4096;

/// Why a DataNode does not have a replica that is in its folders.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdoptError {
    /// It has said so, or cannot be reached: it knows nothing of the replica.
    #[error("the DataNode did not take the block: {0}")]
    Refused(String),
    /// It was asked and did not answer: it may have taken it.
    #[error("the DataNode was told of the block and did not answer: {0}")]
    Unanswered(io::Error),
}

/// A DataNode that can be told.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataNode(pub(super) SocketAddr);

impl DataNode {
    /// Makes it take a replica of `bytes` bytes, which then the NameNode knows of.
    pub(super) fn adopt(&self, pool: &str, name: &ReplicaName, bytes: u64) -> Result<(), AdoptError> {
        let unreachable = |error| {
            AdoptError::Refused(format!(
                "{}: {error}; is dfs.datanode.plugins=mend.hdfs.MendPlugin set there, and mend.datanode.port this one?",
                self.0
            ))
        };
        let stream = TcpStream::connect_timeout(&self.0, CONNECT_TIMEOUT).map_err(unreachable)?;
        let question = format!("adopt {pool} {} {} {bytes}\n", name.block(), name.stamp());
        let answer = ask(&stream, &question).map_err(AdoptError::Unanswered)?;
        match answer.trim_end().split_once(' ').unwrap_or((answer.trim_end(), "")) {
            ("taken", _) => Ok(()),
            ("refused", why) => Err(AdoptError::Refused(why.to_owned())),
            _ => {
                let text = format!("`{}` is no answer of Mend's plug-in", answer.escape_debug());
                Err(AdoptError::Unanswered(io::Error::new(io::ErrorKind::InvalidData, text)))
            }
        }
    }
}

fn ask(mut stream: &TcpStream, question: &str) -> io::Result<String> {
    stream.set_write_timeout(Some(CONNECT_TIMEOUT))?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.write_all(question.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream.take(MAX_ANSWER_BYTES)).read_line(&mut answer)?;
    Ok(answer)
}
