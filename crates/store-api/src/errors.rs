//! Why a storage cannot be opened, and why a file cannot be put.

use std::io;
use std::path::PathBuf;

use codes::{CodeSpec, SpecError};
use repair::{BlockId, ChunkingError, StripeId};

use crate::{BlockSize, CatalogError, Fault, PutId};

/// Why a catalog cannot be created, opened or recovered.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The catalog's file does not exist.
    #[error("there is no catalog at {}; {remedy}", path.display())]
    Missing {
        /// The path at which the catalog was expected.
        path: PathBuf,
        /// The operator's next step.
        remedy: String,
    },
    /// The file exists already.
    #[error("{} exists already: open it, or choose another path for a new catalog", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The catalog was written by a newer program.
    #[error(
        "the catalog {} has version {found}, but this program reads versions up to {newest}: run a newer \
         mend",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The catalog's version.
        found: u32,
        /// The newest version that can be read.
        newest: u32,
    },
    /// The catalog was written by an older program.
    #[error(
        "the catalog {} has a version older than {oldest}, which this program cannot read: get its files \
         with the mend that wrote it, then put them with this one",
        path.display()
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// The oldest version that can be read.
        oldest: u32,
    },
    /// The catalog belongs to another cluster.
    #[error(
        "the catalog {} belongs to cluster {found}, but this is cluster {expected}: name the right catalog, \
         or the right cluster folder",
        path.display()
    )]
    OtherCluster {
        /// The file.
        path: PathBuf,
        /// The id of the cluster that the catalog belongs to.
        found: String,
        /// The id of the expected cluster.
        expected: String,
    },
    /// Another coordinator has the catalog open.
    #[error("the catalog {} is in use by another coordinator: stop that one first", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a catalog, or its bytes are damaged.
    #[error("{} is not a catalog or is damaged ({detail}); {remedy}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage.
        detail: String,
        /// The operator's next step.
        remedy: String,
    },
    /// After an I/O error, the file does not contain the last commit of this coordinator.
    #[error(
        "the catalog {} failed, and it no longer holds this coordinator's last commit (expected {known}, \
         found {found}): the file was replaced, or its disk lost a confirmed write; check the disk, then \
         start the coordinator again, or {remedy}",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// The number of the last successful commit.
        known: u64,
        /// The number of the last commit in the file.
        found: u64,
        /// The operator's next step.
        remedy: String,
    },
    /// After this coordinator opened the catalog, another one opened it and began a higher
    /// [term](crate::Term).
    #[error("the catalog {} was taken over by another coordinator: stop one of the two", path.display())]
    TakenOver {
        /// The file.
        path: PathBuf,
    },
    /// The operating system reports an error.
    #[error("cannot use the catalog {}: {source}", path.display())]
    Io {
        /// The file or its folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The catalog's tables cannot be read or written.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}

impl OpenError {
    /// Converts the error into a [`CatalogError`].
    pub fn into_fault(self) -> CatalogError {
        let detail = self.to_string();
        match self {
            Self::Catalog(error) => error,
            Self::Io { path, source } => CatalogError::Storage {
                place: path.display().to_string(),
                fault: Fault::Io(source.kind()),
                detail: source.to_string(),
            },
            _ => CatalogError::Storage { place: "file".to_owned(), fault: Fault::Stopped, detail },
        }
    }

    /// Whether a retry may succeed.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Io { .. }
            | Self::Locked { .. }
            | Self::Catalog(CatalogError::Storage { .. } | CatalogError::Moved { .. }) => true,
            Self::Missing { .. }
            | Self::Exists { .. }
            | Self::Newer { .. }
            | Self::Older { .. }
            | Self::OtherCluster { .. }
            | Self::Damaged { .. }
            | Self::Changed { .. }
            | Self::TakenOver { .. }
            | Self::Catalog(_) => false,
        }
    }
}

/// Why a file cannot be put.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// The name is not a valid file name.
    #[error("`{}` is not a valid file name: a name has 1 to 1024 bytes and no NUL", name.escape_debug())]
    BadName {
        /// The name.
        name: String,
    },
    /// The code's parameters are out of range.
    #[error(transparent)]
    Code(#[from] SpecError),
    /// The block size is out of range.
    #[error("a stripe of this file cannot have blocks of {block_bytes} bytes: choose 1 to {most} bytes")]
    BlockBytes {
        /// The requested block size.
        block_bytes: u64,
        /// The largest size.
        most: u64,
    },
    /// The chunk size fits neither the block size nor the code.
    #[error(transparent)]
    Chunks(#[from] ChunkingError),
    /// The file would have more stripes than can be counted.
    #[error("{stripes} stripes are more than a file can have: choose larger blocks")]
    TooManyStripes {
        /// The number of stripes that the file would have.
        stripes: u64,
    },
    /// A file of this name exists, and the put was begun without `replace`.
    #[error("there is a file `{name}` already")]
    Exists {
        /// The name.
        name: String,
    },
    /// The put does not exist: it was never begun, or was already committed or aborted.
    #[error("there is no put {0}: begin a new one")]
    NoSuchPut(PutId),
    /// The position is beyond the file's last stripe.
    #[error("put {put} has {stripes} stripes, so there is none at position {position}")]
    NoSuchPosition {
        /// The put.
        put: PutId,
        /// The position.
        position: u32,
        /// The number of stripes of the file.
        stripes: u64,
    },
    /// The number of nodes differs from the number of blocks of a stripe.
    #[error("a stripe of {code} needs {} nodes, not {given}", code.blocks())]
    WrongNodes {
        /// The code.
        code: CodeSpec,
        /// The number of nodes in the request.
        given: usize,
    },
    /// The stripe was already allocated with blocks of another size.
    #[error("stripe {stripe} has blocks of {found}, not {asked}: abort the put and begin a new one")]
    OtherSize {
        /// The stripe.
        stripe: StripeId,
        /// The size of the blocks that were allocated.
        found: BlockSize,
        /// The size in the repeated request.
        asked: BlockSize,
    },
    /// A stripe of the file was never allocated.
    #[error("put {put} lacks the stripe at position {position}: store this stripe, or abort the put")]
    MissingStripe {
        /// The put.
        put: PutId,
        /// The stripe's position in the file.
        position: u32,
    },
    /// A block of the file was never published.
    #[error("block {block} of put {put} is not stored yet: store the block, or abort the put")]
    Unpublished {
        /// The put.
        put: PutId,
        /// The block.
        block: BlockId,
    },
    /// The catalog fails.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}
