//! Work that a store does on whole files, such as encoding replicated ones. The coordinator does not plan this work; it
//! only records what became of it, for the history and the metrics.

/// The kind of work on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileWorkKind {
    /// The file is encoded.
    Encode,
    /// The file was encoded before. Its blocks or its parity are put into the right places, or its parity is checked.
    Adjust,
    /// The file becomes a replicated file again.
    Undo,
}

/// The end of the work on a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWork {
    /// The file.
    pub file: String,
    /// The kind of work.
    pub kind: FileWorkKind,
    /// The length of the file in bytes.
    pub bytes: u64,
    /// The time that the work took, in milliseconds.
    pub took_ms: u64,
    /// The policy or member that asked for it, such as `policy warehouse`.
    pub by: String,
    /// Why it failed; `None` if the file is in the desired state.
    pub failure: Option<String>,
}

/// The files on which a store works, and those that it has encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileBacklog {
    /// Files that wait or are in progress.
    pub files: u64,
    /// The length of these files in bytes.
    pub bytes: u64,
    /// Files whose last attempt failed.
    pub failed: u64,
    /// The encoded files; `None` before the store has listed its files.
    pub encoded: Option<EncodedFiles>,
}

/// Encoded files with valid parity, as of the last listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodedFiles {
    /// Number of files.
    pub files: u64,
    /// The length of these files in bytes.
    pub bytes: u64,
    /// The bytes of all replicas before the files were encoded, less those of the replicas and the parity now.
    pub saved_bytes: i64,
}
