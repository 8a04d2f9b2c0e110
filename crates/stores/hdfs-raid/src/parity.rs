//! Parity files: their names and metadata, and the test of whether they belong to their source.

use crate::survey::Source;
use crate::{Codec, File, Fingerprint, Layout, Note, Owner, Scope, Storing};

/// The name and metadata of a parity file.
///
/// Only these link HDFS-RAID's parity file with its source: the path, equal modification times, and the length
/// that follows from the source's. Mend's has a [`Note`](crate::Note) as well, which names the blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParityFile {
    /// The path: the source's path below the parity root.
    pub path: String,
    /// The block size in bytes, which is also the length of each block.
    pub block_bytes: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// The modification time of the source, in milliseconds since 1970.
    pub modified_ms: u64,
}

/// Why a parity file does not belong to the present contents of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaleParity {
    /// The modification times differ: the source was changed, or the encoding was interrupted.
    #[error("the source was modified {source_ms} ms after 1970, its parity file {parity_ms} ms")]
    Modified {
        /// The source's modification time.
        source_ms: u64,
        /// The parity file's modification time.
        parity_ms: u64,
    },
    /// The lengths do not match.
    #[error("the parity file has {bytes} bytes instead of {expected}")]
    Length {
        /// The parity file's length.
        bytes: u64,
        /// The length that follows from the source.
        expected: u64,
    },
    /// The blocks of the parity file are not those of the stripes.
    #[error("the parity file has blocks of {block_bytes} bytes instead of {expected}")]
    BlockSize {
        /// The parity file's block size.
        block_bytes: u64,
        /// The block size of the stripes.
        expected: u64,
    },
    /// A block of the source was written after the parity, and no note says that the parity fits.
    #[error(
        "a block of the source was written after the parity file, although their modification times are equal, so the \
         parity may be of other contents"
    )]
    Older,
    /// HDFS-RAID has made the parity of a folder. It recorded nowhere which of the folder's files it left out because they
    /// were small, so with a wrong guess, a repair could rebuild wrong bytes.
    #[error(
        "Mend has not checked this parity of a folder by HDFS-RAID: run `mend raid encode` with a policy for the folder"
    )]
    Unchecked,
    /// Another user could have made the parity from other bytes.
    #[error(
        "the parity file belongs neither to the owner of its file nor to HDFS's superuser, and Mend has not checked it: run \
         `mend raid encode` with a policy for the file; or if you trust its contents, give it the owner of the file (hdfs dfs \
         -chown)"
    )]
    Untrusted,
    /// The parity belongs to another file, which was renamed, or is only in a snapshot.
    #[error(
        "the parity file belongs to the file with inode {inode}, which was renamed or is only in a snapshot"
    )]
    Foreign {
        /// The inode of the other file.
        inode: u64,
    },
    /// The note on the parity file names other blocks than the present ones.
    #[error("the parity file was made for other contents: Mend's note on it names other blocks")]
    OtherBlocks,
    /// The codec had another code when the parity was made.
    #[error("the parity was made by another code than the codec has now, as Mend's note on it tells")]
    OtherCode,
    /// The note on the parity file cannot be read.
    #[error("another version of Mend has written the note on the parity file")]
    UnknownNote,
    /// The file was renamed without its parity. Readers look for parity at the path that the file has now.
    #[error("the file was renamed, and its parity is still at the path that belongs to its former name")]
    Elsewhere,
    /// The blocks of the source do not form stripes any more.
    #[error(
        "the blocks of the file do not form the stripes of the parity any more, for example after `concat`"
    )]
    Irregular,
    /// Files of the folder were added, changed or deleted. The stripes of the other blocks are still protected.
    #[error(
        "the folder was changed after its parity was made: {gone} blocks of the stripes do not exist any more, and {new} \
         blocks are new; the parity still protects the others"
    )]
    Changed {
        /// Number of data blocks of the stripes that do not exist any more.
        gone: usize,
        /// Number of blocks in the folder that belong to no stripe.
        new: usize,
    },
    /// The parity file is being written, or is not replicated.
    #[error("the parity file is being written, or HDFS encrypts or erasure-codes it")]
    Unusable,
}

impl StaleParity {
    /// Whether the parity may be right, but nothing is rebuilt from it before Mend has compared it with the data.
    pub fn is_unchecked(&self) -> bool {
        matches!(self, Self::Unchecked | Self::Untrusted)
    }
}

impl ParityFile {
    /// Returns the parity file of a file or folder with this path, modification time and layout.
    pub fn expected(codec: &Codec, source: &str, modified_ms: u64, layout: &Layout) -> Self {
        let (block_bytes, bytes) = (layout.block_bytes(), layout.parity_bytes());
        Self { path: parity_path(&codec.parity_root, source), block_bytes, bytes, modified_ms }
    }

    /// Checks that a file at this path is valid parity of the source.
    ///
    /// # Errors
    /// [`StaleParity`].
    pub fn check(&self, found: &File) -> Result<(), StaleParity> {
        if found.is_open || found.storing != Storing::Replicated {
            return Err(StaleParity::Unusable);
        }
        if found.modified_ms != self.modified_ms {
            let (source_ms, parity_ms) = (self.modified_ms, found.modified_ms);
            return Err(StaleParity::Modified { source_ms, parity_ms });
        }
        let listed: u64 = found.blocks.iter().map(|block| block.bytes).sum();
        if found.bytes != self.bytes || listed != self.bytes {
            return Err(StaleParity::Length { bytes: found.bytes.min(listed), expected: self.bytes });
        }
        // Blocks of another size would hold parts of several parity blocks.
        let odd = found.blocks.iter().find(|block| block.bytes != self.block_bytes);
        match odd {
            Some(block) => {
                Err(StaleParity::BlockSize { block_bytes: block.bytes, expected: self.block_bytes })
            }
            None => Ok(()),
        }
    }
}

/// The note on a parity file, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// There is none, as on HDFS-RAID's parity.
    No,
    /// The note, and whether the file whose inode it names exists, also if only in a snapshot.
    Yes { note: Note, is_living: bool },
    /// Another version of Mend has written it.
    Unknown,
}

/// Why parity is valid; the best reason first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Evidence {
    /// Its note names the present blocks of both files, and the code.
    Note,
    /// Its note names the present blocks of both files. An earlier version of Mend wrote it, without the code.
    OldNote,
    /// It has no note, and passes HDFS-RAID's test.
    Metadata,
}

impl Evidence {
    /// Whether a note names the present blocks of both files.
    pub(crate) fn is_noted(self) -> bool {
        self != Self::Metadata
    }
}

/// Decides whether a file is valid parity of the present contents of a source. `RaidedFile` in `java/hdfs` has
/// the same rules for readers.
///
/// A note decides even if the modification times differ, because it names the blocks and the code. Without one, HDFS-RAID's
/// test applies, and the parity has to be newer than all blocks of the source. That of a folder, and that of a user who does
/// not own the source, has to be checked besides.
///
/// # Errors
/// [`StaleParity`].
pub(crate) fn check_parity(
    codec: &Codec,
    source: &Source<'_>,
    parity: &File,
    noted: Noted,
) -> Result<Evidence, StaleParity> {
    let check =
        |modified_ms| ParityFile::expected(codec, source.path, modified_ms, &source.layout).check(parity);
    match noted {
        Noted::Yes { note, is_living } => {
            check_note(source, parity, note, is_living)?;
            let evidence = check_code(codec, note)?;
            check(parity.modified_ms).map(|()| evidence)
        }
        Noted::Unknown => Err(StaleParity::UnknownNote),
        Noted::No => {
            check(source.modified_ms)?;
            check_age(&source.files, parity)?;
            match codec.scope {
                Scope::Folder => Err(StaleParity::Unchecked),
                Scope::File if !is_trusted(&source.files, parity) => Err(StaleParity::Untrusted),
                Scope::File => Ok(Evidence::Metadata),
            }
        }
    }
}

/// Returns why a file is valid parity of the present contents of a file, or of a folder as one file; `None` if it is not.
pub(crate) fn evidence(codec: &Codec, file: &File, parity: &File, noted: Noted) -> Option<Evidence> {
    let layout = Layout::of_source(file, codec).ok()?;
    check_parity(codec, &Source::of_file(file, layout), parity, noted).ok()
}

/// Chooses among the valid parity of one file, given in the order of the codecs: parity with a note precedes parity
/// without one, then the first codec counts. Surveys and the stripes in the catalog thus use the same parity.
pub(crate) fn best<T>(valid: impl Iterator<Item = (Evidence, T)>) -> Option<T> {
    valid.min_by_key(|&(evidence, _)| evidence).map(|(_, parity)| parity)
}

fn check_note(source: &Source<'_>, parity: &File, found: Note, is_living: bool) -> Result<(), StaleParity> {
    if found.inode != source.inode && is_living {
        return Err(StaleParity::Foreign { inode: found.inode });
    }
    let (of_source, of_parity) = (Fingerprint::of(source.blocks()), Fingerprint::of(&parity.blocks));
    match (found.inode, found.source, found.parity) == (source.inode, of_source, of_parity) {
        true => Ok(()),
        false => Err(StaleParity::OtherBlocks),
    }
}

/// Checks that the present code of a codec made the parity with this note.
///
/// # Errors
/// [`StaleParity::OtherCode`].
pub(crate) fn check_code(codec: &Codec, note: Note) -> Result<Evidence, StaleParity> {
    match note.code {
        None => Ok(Evidence::OldNote),
        Some(code) if code == Fingerprint::of_code(&codec.code) => Ok(Evidence::Note),
        Some(_) => Err(StaleParity::OtherCode),
    }
}

/// Whether the parity belongs to the superuser or to the owner of its sources. Any user who may write below the parity root
/// could make a file that passes HDFS-RAID's test.
fn is_trusted(sources: &[&File], parity: &File) -> bool {
    parity.owner == Owner::Superuser || sources.iter().all(|source| source.owner == parity.owner)
}

/// Checks that the parity was written after its source. HDFS gives a block a higher generation stamp than all
/// others have whenever the block is created or changed.
fn check_age(sources: &[&File], parity: &File) -> Result<(), StaleParity> {
    let newest = sources.iter().flat_map(|source| &source.blocks).map(|block| block.stamp).max();
    let oldest = parity.blocks.iter().map(|block| block.stamp).min();
    match newest.zip(oldest).is_some_and(|(newest, oldest)| newest > oldest) {
        true => Err(StaleParity::Older),
        false => Ok(()),
    }
}

/// Returns the path of the parity file of a file or folder.
pub fn parity_path(root: &str, source: &str) -> String {
    format!("{}{source}", root.trim_end_matches('/'))
}

/// Returns the path of the file or folder to which a parity file belongs; `None` if the path is not below the
/// parity root.
pub fn source_of<'a>(root: &str, parity: &'a str) -> Option<&'a str> {
    parity.strip_prefix(root.trim_end_matches('/')).filter(|source| source.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Block;
    use crate::work::note;

    fn file(path: &str, blocks: &[u64], block_bytes: u64) -> File {
        let block = |&bytes| Block { number: 1, stamp: 1, bytes, replicas: Vec::new() };
        File {
            inode: 1,
            path: path.to_owned(),
            bytes: blocks.iter().sum(),
            block_bytes,
            replication: 1,
            modified_ms: 7000,
            owner: Owner::Superuser,
            storing: Storing::Replicated,
            is_open: false,
            blocks: blocks.iter().map(block).collect(),
        }
    }

    #[test]
    fn parity_is_checked_as_hdfs_raid_does() {
        let codec = &Codec::hdfs_raid()[0];
        let source = file("/a/b", &[512, 512, 9], 512);
        let layout = Layout::of_file(&source, codec).expect("full blocks");
        let expected = ParityFile::expected(codec, &source.path, source.modified_ms, &layout);
        assert_eq!((expected.path.as_str(), expected.bytes), ("/raidrs/a/b", 4 * 512));
        let parity = file("/raidrs/a/b", &[512; 4], 512);
        assert_eq!(expected.check(&parity), Ok(()));
        let modified = File { modified_ms: 7001, ..parity.clone() };
        assert_eq!(
            expected.check(&modified),
            Err(StaleParity::Modified { source_ms: 7000, parity_ms: 7001 })
        );
        let short = file("/raidrs/a/b", &[512; 3], 512);
        assert_eq!(expected.check(&short), Err(StaleParity::Length { bytes: 1536, expected: 2048 }));
        let unlisted = File { blocks: parity.blocks[..3].to_vec(), ..parity.clone() };
        assert_eq!(expected.check(&unlisted), Err(StaleParity::Length { bytes: 1536, expected: 2048 }));
        let large = file("/raidrs/a/b", &[1024; 2], 1024);
        assert_eq!(expected.check(&large), Err(StaleParity::BlockSize { block_bytes: 1024, expected: 512 }));
        let open = File { is_open: true, ..parity };
        assert_eq!(expected.check(&open), Err(StaleParity::Unusable));
    }

    #[test]
    fn parity_without_a_note_is_newer_than_its_source() {
        let stamped = |path: &str, stamps: &[u64], blocks: usize| {
            let mut file = file(path, &vec![512; blocks], 512);
            file.blocks.iter_mut().zip(stamps).for_each(|(block, &stamp)| block.stamp = stamp);
            file
        };
        let codec = &Codec::hdfs_raid()[1];
        let checked = |file: &File, parity: &File, noted| {
            let layout = Layout::of_file(file, codec).expect("full blocks");
            check_parity(codec, &Source::of_file(file, layout), parity, noted)
        };
        let (source, parity) = (stamped("/f", &[7, 9], 2), stamped("/raid/f", &[11], 1));
        assert_eq!(checked(&source, &parity, Noted::No), Ok(Evidence::Metadata));
        let appended = stamped("/f", &[7, 13], 2);
        assert_eq!(checked(&appended, &parity, Noted::No), Err(StaleParity::Older));
        // Mend has compared the bytes.
        let noted = Noted::Yes { note: note(codec, &appended, &parity.blocks, 3), is_living: true };
        assert_eq!(checked(&appended, &parity, noted), Ok(Evidence::Note));
        let touched = File { modified_ms: 9000, ..appended.clone() };
        assert_eq!(checked(&touched, &parity, noted), Ok(Evidence::Note));
        assert_eq!(checked(&source, &parity, noted), Err(StaleParity::OtherBlocks));
        let restored = File { inode: 2, ..appended.clone() };
        assert_eq!(checked(&restored, &parity, noted), Err(StaleParity::Foreign { inode: 1 }));
        assert_eq!(checked(&appended, &parity, Noted::Unknown), Err(StaleParity::UnknownNote));
    }

    /// An operator changes the code of a codec to another one with as many data and parity blocks.
    #[test]
    fn parity_by_another_code_is_stale() {
        let [codec, other] = ["lrc-12-2-2", "rs-16-12"]
            .map(|code| Codec::new("local", code.parse().expect("a code"), "/local", Scope::File));
        let (source, parity) = (file("/f", &[512; 3], 512), file("/local/f", &[512; 4], 512));
        let note = note(&codec, &source, &parity.blocks, 3);
        let checked = |codec: &Codec, note: Note| {
            let layout = Layout::of_file(&source, codec).expect("full blocks");
            let noted = Noted::Yes { note, is_living: true };
            check_parity(codec, &Source::of_file(&source, layout), &parity, noted)
        };
        assert_eq!(checked(&codec, note), Ok(Evidence::Note));
        assert_eq!(checked(&other, note), Err(StaleParity::OtherCode));
        // Notes of version 1 do not name the code.
        let old = Note { code: None, ..note };
        assert_eq!(
            [checked(&codec, old), checked(&other, old)],
            [Ok(Evidence::OldNote), Ok(Evidence::OldNote)]
        );
    }

    #[test]
    fn parity_of_other_users_needs_a_note() {
        let codec = &Codec::hdfs_raid()[1];
        let [own, other] = ["own", "other"].map(|name| Owner::User(name.into()));
        let source = File { owner: own.clone(), ..file("/f", &[512; 2], 512) };
        let checked = |owner: &Owner, noted| {
            let parity = File { owner: owner.clone(), ..file("/raid/f", &[512], 512) };
            let layout = Layout::of_file(&source, codec).expect("full blocks");
            check_parity(codec, &Source::of_file(&source, layout), &parity, noted)
        };
        for trusted in [own, Owner::Superuser] {
            assert_eq!(checked(&trusted, Noted::No), Ok(Evidence::Metadata));
        }
        assert_eq!(checked(&other, Noted::No), Err(StaleParity::Untrusted));
        let parity = file("/raid/f", &[512], 512);
        let noted = Noted::Yes { note: note(codec, &source, &parity.blocks, 3), is_living: true };
        assert_eq!(checked(&other, noted), Ok(Evidence::Note));
    }

    #[test]
    fn paths_of_parity_files() {
        assert_eq!(parity_path("/raid/", "/a"), "/raid/a");
        assert_eq!(source_of("/raid", "/raid/a/b"), Some("/a/b"));
        assert_eq!([source_of("/raid", "/raidrs/a"), source_of("/raid", "/raid")], [None, None]);
    }
}
