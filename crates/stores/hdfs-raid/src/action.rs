//! The calls that change HDFS, and the reasons for which none is made.

use std::fmt;

use crate::{Exclusion, Mark, Note};

/// A call, or a few calls that can be interrupted anywhere.
///
/// Every action can be repeated. It fails without an effect if the namespace no longer is as the facts say,
/// except where HDFS has no conditional call: see [`SetReplication`](Self::SetReplication). Files that the facts contain
/// are deleted, marked, touched and renamed by their inodes, so that a client may rename them meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Creates a folder and those above it.
    MakeFolder(String),
    /// Renames the folder that a former coordinator has filled, so that this coordinator continues its work
    /// and the former one cannot. Fails if the new name exists.
    TakeOver {
        /// The folder's path.
        from: String,
        /// The new path.
        to: String,
    },
    /// Deletes a file, or a folder and its contents. A missing one is a success.
    Delete(String),
    /// Computes parity blocks of a stripe, and writes each as a file of one block. Never creates a folder, so
    /// it fails once another coordinator has taken over.
    Write {
        /// The stripe.
        stripe: usize,
        /// The files to write.
        blocks: Vec<NewBlock>,
    },
    /// Reads all parity blocks back and checks them against the data, if the blocks of both are exactly those
    /// in the note. The result is passed to [`Work::handle_proof`](crate::Work::handle_proof).
    Prove {
        /// The note that records the proof.
        note: Note,
        /// The files with the parity blocks, in order.
        parity: Vec<String>,
    },
    /// Sets the attributes of a mark. Modification times do not change.
    Mark {
        /// The file.
        path: String,
        /// The mark.
        mark: Mark,
    },
    /// Joins files into the first one by `concat`.
    Join {
        /// The first file.
        target: String,
        /// The other files in order.
        sources: Vec<String>,
    },
    /// Sets the modification time of a file.
    SetTime {
        /// The file.
        path: String,
        /// Milliseconds since 1970.
        modified_ms: u64,
    },
    /// Creates the folders above the parity file's path, and renames the parity file, which is known by its inode.
    Publish {
        /// The path in the draft, or the parity path of the source's former name.
        from: String,
        /// The path of the parity file.
        to: String,
        /// Whether it atomically replaces the parity file that was looked up. Otherwise, it fails if there is one.
        replaces: bool,
    },
    /// Sets the replication of a file, or of the files of a folder, by their inodes, and lowers that of a file only if it and the
    /// parity have the same blocks.
    /// HDFS has no call that does this atomically. So it must follow the look at the namespace within [`DECISION_MS`].
    SetReplication {
        /// The file.
        path: String,
        /// The replication.
        replication: u16,
    },
    /// Moves replicas in this order.
    Move(Vec<BlockMove>),
}

/// The maximum time between a look at the namespace and the action that follows from it. Another coordinator
/// that undoes an encoding waits longer before it removes the parity.
pub const DECISION_MS: u64 = 30_000;

/// A parity block to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBlock {
    /// The file.
    pub path: String,
    /// Position of the block among the stripe's parity blocks.
    pub parity: usize,
    /// The address of the DataNode.
    pub datanode: String,
}

/// A move of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockMove {
    /// The file.
    pub path: String,
    /// Position of the block in the file.
    pub block: usize,
    /// The address of the DataNode whose replica is dropped after the copy.
    pub from: String,
    /// The address of the DataNode that gets a replica.
    pub to: String,
}

/// The next step for a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Do this, then look at the namespace again.
    Act(Action),
    /// Look at the namespace again later.
    Wait(Waiting),
    /// The work on the file has ended.
    End(End),
}

/// The event for which a file waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// HDFS creates replicas.
    Replicas,
    /// The number and places of replicas do not change any more.
    Settled,
    /// Lost blocks are repaired.
    Repair,
}

/// Why nothing is left to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// The file is encoded and well placed.
    #[error("encoded")]
    Encoded,
    /// The file is replicated and has no parity.
    #[error("replicated, without parity")]
    Plain,
    /// The file cannot or should not be encoded now, or its encoding cannot be undone. Its replication is not lowered.
    #[error("excluded: {0}")]
    Unfit(Exclusion),
    /// Another coordinator encodes the file.
    #[error("another coordinator encodes it")]
    Superseded,
    /// An encoding cannot be undone: HDFS makes no replicas of a block that it cannot read.
    #[error(
        "block {block} has no intact replica, {}. The parity is kept",
        if *is_decodable { "but can be rebuilt from the parity" } else { "and its stripe has lost too much to rebuild it" }
    )]
    Lost {
        /// Position of the block in the file.
        block: usize,
        /// Whether the parity suffices to rebuild all lost blocks of the file.
        is_decodable: bool,
    },
    /// There is no file at the source's path any more.
    #[error("the file no longer exists at this path")]
    SourceMissing,
    /// The parity path is taken by the parity of another file, which was renamed, or is only in a snapshot. If there is a file
    /// at the source's path, it has its former replication.
    #[error(
        "the path of its parity is taken by the parity of the file with inode {inode}, which was renamed or is only in \
         a snapshot"
    )]
    Occupied {
        /// The other file's inode number.
        inode: u64,
    },
    /// The parity path is taken by parity without a note that does not fit the file, and may be that of a renamed file.
    #[error(
        "{parity} has no note by Mend and is not the parity of the file's present contents, so it may be that of a file that was \
         renamed: HDFS-RAID does not record whose it is. If a file was renamed, rename {parity} like it (hdfs dfs -mv); if not, \
         because the file itself was changed, delete {parity} (hdfs dfs -rm); then run the command again"
    )]
    Unclaimed {
        /// The parity file.
        parity: String,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MakeFolder(path) => write!(f, "create the folder {path}"),
            Self::TakeOver { from, to } => write!(f, "continue the work in {from}: rename it to {to}"),
            Self::Delete(path) => write!(f, "delete {path}"),
            Self::Write { stripe, blocks } => {
                write!(f, "encode stripe {stripe}:")?;
                blocks.iter().enumerate().try_for_each(|(at, block)| {
                    let separator = if at == 0 { "" } else { "," };
                    write!(f, "{separator} parity block {} on {}", block.parity, block.datanode)
                })
            }
            Self::Prove { parity, .. } => {
                let files =
                    if parity.len() == 1 { "1 file".to_owned() } else { format!("{} files", parity.len()) };
                write!(f, "read the parity back and check it against the data ({files})")
            }
            Self::Mark { path, mark: Mark::Members(_) } => {
                write!(f, "record the blocks of the folder on {path}")
            }
            Self::Mark { path, mark } => {
                let (names, value) = mark.attributes();
                write!(f, "set {} of {path} to `{value}`", names.join(" and "))
            }
            Self::Join { target, sources } => write!(f, "append {} files to {target}", sources.len()),
            Self::SetTime { path, modified_ms } => {
                write!(f, "set the modification time of {path} to {modified_ms} ms after 1970")
            }
            Self::Publish { from, to, replaces } => {
                let how = if *replaces { "replace" } else { "become" };
                write!(f, "let {from} {how} {to}")
            }
            Self::SetReplication { path, replication } => {
                write!(f, "set the replication of {path} to {replication}")
            }
            Self::Move(moves) => moves.iter().enumerate().try_for_each(|(at, step)| {
                let separator = if at == 0 { "" } else { "; " };
                let BlockMove { path, block, from, to } = step;
                write!(f, "{separator}move block {block} of {path} from {from} to {to}")
            }),
        }
    }
}

impl Waiting {
    /// Returns what an operator checks if the event does not come.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Replicas => {
                "check that enough DataNodes are in service and have room (hdfs dfsadmin -report), and that \
                 dfs.namenode.replication.max-streams of the NameNode is not 0: with 0, HDFS creates no replicas"
            }
            Self::Settled => {
                "check that all DataNodes are in service and send heartbeats (hdfs dfsadmin -report). HDFS removes no replicas of \
                 a file that was moved out of a folder with snapshots: raise its replication (hdfs dfs -setrep)"
            }
            Self::Repair => {
                "start the DataNodes with the missing blocks (hdfs fsck PATH -files -blocks -locations)"
            }
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Replicas => "wait until HDFS has created all replicas",
            Self::Settled => "wait until HDFS has created or removed replicas",
            Self::Repair => "wait until lost blocks have been repaired",
        })
    }
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Act(action) => fmt::Display::fmt(action, f),
            Self::Wait(waiting) => fmt::Display::fmt(waiting, f),
            Self::End(end) => fmt::Display::fmt(end, f),
        }
    }
}
