//! The stripes of files that are encoded, as the NameNode lists them.

use std::collections::BTreeMap;

use crate::parity::{Evidence, best, check_parity};
use crate::policy::check_storing;
use crate::survey::Source;
use crate::{
    Block, Codec, Exclusion, File, Layout, LayoutError, Listing, Notes, Scope, StaleParity, source_of,
};

/// The encoded files of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raided<'a> {
    /// The files with valid parity, each once.
    pub files: Vec<RaidedFile<'a>>,
    /// The parity files that protect nothing, each with the reason.
    pub unusable: Vec<(&'a File, UnusableParity)>,
}

/// A file with valid parity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaidedFile<'a> {
    /// The file.
    pub source: &'a File,
    /// Its parity file.
    pub parity: &'a File,
    /// The code and the place of the parity.
    pub codec: &'a Codec,
    layout: Layout,
}

/// A stripe of an encoded file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaidedStripe<'a> {
    /// The offset in the source at which the stripe starts.
    pub start: u64,
    /// The offset in the parity file at which the stripe's parity starts.
    pub parity_start: u64,
    /// Length of a block for the code; a shorter block is padded with zeros.
    pub block_bytes: u64,
    /// The data blocks. The last stripe of a file may have fewer than the code.
    pub data: &'a [Block],
    /// The parity blocks.
    pub parity: &'a [Block],
}

/// Why a parity file protects nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableParity {
    /// The source does not exist, or is a folder.
    #[error(
        "there is no file {0}; if it was renamed, `mend raid encode` of its new folder renames the parity too"
    )]
    NoSource(String),
    /// The source cannot be encoded any more, for example because a client is writing to it.
    #[error("its source is excluded: {0}")]
    Source(Exclusion),
    /// The blocks of the source do not form stripes.
    #[error("its source is irregular: {0}")]
    Layout(#[from] LayoutError),
    /// The parity belongs to other contents.
    #[error(transparent)]
    Stale(#[from] StaleParity),
}

/// Returns the files of a listing that have valid parity by one of these codecs. If a file has valid parity by several
/// codecs, one with a note counts, or else the first one. Codecs whose stripes run over folders are left out.
pub fn raided<'a>(listing: &'a Listing, codecs: &'a [Codec]) -> Raided<'a> {
    let by_path: BTreeMap<&str, &File> =
        listing.files.iter().map(|file| (file.path.as_str(), file)).collect();
    let mut unusable = Vec::new();
    let mut valid: BTreeMap<&str, Vec<(Evidence, RaidedFile<'a>)>> = BTreeMap::new();
    for codec in codecs.iter().filter(|codec| codec.scope == Scope::File) {
        for &parity in by_path.values() {
            let Some(path) = source_of(&codec.parity_root, &parity.path) else { continue };
            match raided_file(by_path.get(path).copied(), path, parity, codec, &listing.notes) {
                Ok(found) => valid.entry(path).or_default().push(found),
                Err(why) => unusable.push((parity, why)),
            }
        }
    }
    let files = valid.into_values().filter_map(|found| best(found.into_iter())).collect();
    Raided { files, unusable }
}

fn raided_file<'a>(
    source: Option<&'a File>,
    path: &str,
    parity: &'a File,
    codec: &'a Codec,
    notes: &Notes,
) -> Result<(Evidence, RaidedFile<'a>), UnusableParity> {
    let source = source.ok_or_else(|| UnusableParity::NoSource(path.to_owned()))?;
    check_storing(source).map_err(UnusableParity::Source)?;
    if source.is_open {
        return Err(UnusableParity::Source(Exclusion::Open));
    }
    let layout = Layout::of_file(source, codec)?;
    let pair = Source::of_file(source, layout);
    let evidence = check_parity(codec, &pair, parity, notes.noted(&parity.path))?;
    Ok((evidence, RaidedFile { source, parity, codec, layout: pair.layout }))
}

impl<'a> RaidedFile<'a> {
    /// Returns the stripes in order.
    pub fn stripes(&self) -> impl Iterator<Item = RaidedStripe<'a>> + '_ {
        let block_bytes = self.layout.block_bytes();
        let (source, parity) = (self.source, self.parity);
        let data = source.blocks.chunks(self.codec.data_blocks());
        data.enumerate().map(move |(stripe, data)| {
            let positions = self.layout.parity_positions(stripe);
            RaidedStripe {
                start: (stripe * self.codec.data_blocks()) as u64 * block_bytes,
                parity_start: positions.start as u64 * block_bytes,
                block_bytes,
                data,
                parity: &parity.blocks[positions],
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Fingerprint, Marks, Note, Storing};

    fn file(path: &str, first: i64, lengths: &[u64]) -> File {
        let block = |(number, &bytes)| Block { number, stamp: 1000, bytes, replicas: Vec::new() };
        File {
            inode: first as u64,
            path: path.to_owned(),
            bytes: lengths.iter().sum(),
            block_bytes: 512,
            replication: 1,
            modified_ms: 7,
            storing: Storing::Replicated,
            is_open: false,
            blocks: (first..).zip(lengths).map(block).collect(),
        }
    }

    fn listing(files: Vec<File>) -> Listing {
        Listing { files, ..Listing::default() }
    }

    #[test]
    fn stripes_consist_of_consecutive_blocks_and_their_parity() {
        let mut lengths = [512; 12];
        lengths[11] = 9;
        let (source, parity) = (file("/a/f", 100, &lengths), file("/raidrs/a/f", 200, &[512; 8]));
        let listing = listing(vec![source, parity]);
        let codecs = Codec::hdfs_raid();
        let raided = raided(&listing, &codecs);
        assert_eq!((raided.files.len(), raided.unusable.len()), (1, 0));
        let stripes: Vec<_> = raided.files[0].stripes().collect();
        let numbers = |blocks: &[Block]| blocks.iter().map(|block| block.number).collect::<Vec<_>>();
        assert_eq!(numbers(stripes[0].data), (100..110).collect::<Vec<_>>());
        assert_eq!(
            (numbers(stripes[1].data), numbers(stripes[1].parity)),
            (vec![110, 111], vec![204, 205, 206, 207])
        );
        assert_eq!((stripes[1].start, stripes[1].parity_start, stripes[1].block_bytes), (5120, 2048, 512));
    }

    #[test]
    fn parity_without_a_matching_source_has_a_reason() {
        let source = |path: &str| file(path, 100, &[512; 3]);
        let parity = |path: &str| file(path, 200, &[512; 4]);
        let stale = File { modified_ms: 8, ..parity("/raidrs/stale") };
        let listing = listing(vec![
            source("/stale"),
            stale,
            File { is_open: true, ..source("/open") },
            parity("/raidrs/open"),
            parity("/raidrs/renamed"),
        ]);
        let codecs = Codec::hdfs_raid();
        let raided = raided(&listing, &codecs);
        assert!(raided.files.is_empty());
        let told = |path: &str| {
            let found = raided.unusable.iter().find(|(parity, _)| parity.path == path);
            found.expect("a reason").1.to_string()
        };
        assert!(told("/raidrs/stale").contains("modified 7 ms"), "{}", told("/raidrs/stale"));
        assert!(told("/raidrs/open").contains("being written"));
        assert!(told("/raidrs/renamed").starts_with("there is no file /renamed; if it was renamed"));
    }

    #[test]
    fn a_note_has_to_name_the_blocks_of_both_files() {
        let (source, parity) = (file("/f", 100, &[512; 3]), file("/raidrs/f", 200, &[512; 4]));
        let valid = |notes: Notes| {
            let listing = Listing { notes, ..listing(vec![source.clone(), parity.clone()]) };
            let codecs = Codec::hdfs_raid();
            let raided = raided(&listing, &codecs);
            match &raided.unusable[..] {
                [] => Ok(raided.files.len()),
                [(_, UnusableParity::Stale(why))] => Err(*why),
                other => panic!("{other:?}"),
            }
        };
        let noted = |note: Note| {
            let marks = Marks { note: Some(note), ..Marks::default() };
            Notes { marks: BTreeMap::from([(parity.path.clone(), marks)]), ..Notes::default() }
        };
        let [of_source, of_parity] = [&source, &parity].map(|file| Fingerprint::of(&file.blocks));
        let note = Note { inode: 100, replication: 3, source: of_source, parity: of_parity };
        assert_eq!(valid(noted(note)), Ok(1));
        // Restored files have other blocks, with the same times and lengths.
        let other = Err(StaleParity::OtherBlocks);
        assert_eq!(valid(noted(Note { source: of_parity, ..note })), other);
        assert_eq!(valid(noted(Note { parity: of_source, ..note })), other);
        let of_other = noted(Note { inode: 101, ..note });
        assert_eq!(valid(of_other.clone()), other);
        let living = Notes { living: BTreeSet::from([101]), ..of_other };
        assert_eq!(valid(living), Err(StaleParity::Foreign { inode: 101 }));
        let unknown = Notes { unknown: BTreeSet::from([parity.path.clone()]), ..Notes::default() };
        assert_eq!(valid(unknown), Err(StaleParity::UnknownNote));
    }

    #[test]
    fn a_touched_file_with_a_note_is_raided() {
        let source = File { modified_ms: 8, ..file("/f", 100, &[512; 3]) };
        let parity = file("/raidrs/f", 200, &[512; 4]);
        let [of_source, of_parity] = [&source, &parity].map(|file| Fingerprint::of(&file.blocks));
        let note = Note { inode: 100, replication: 3, source: of_source, parity: of_parity };
        let mut listing = listing(vec![source, parity]);
        let marks = Marks { note: Some(note), ..Marks::default() };
        listing.notes.marks.insert("/raidrs/f".to_owned(), marks);
        let codecs = Codec::hdfs_raid();
        assert_eq!(raided(&listing, &codecs).files.len(), 1);
    }

    #[test]
    fn the_first_codec_with_valid_parity_counts() {
        let files = vec![
            file("/f", 100, &[512; 3]),
            File { modified_ms: 8, ..file("/raidrs/f", 200, &[512; 4]) },
            file("/raid/f", 300, &[512]),
        ];
        let (listing, codecs) = (listing(files), Codec::hdfs_raid());
        let raided = raided(&listing, &codecs);
        assert_eq!(raided.files.iter().map(|file| &file.codec.name[..]).collect::<Vec<_>>(), ["xor"]);
        assert_eq!(raided.unusable.len(), 1);
    }

    /// HDFS-RAID's parity by an earlier codec may have kept its place and time.
    #[test]
    fn parity_with_a_note_precedes_parity_without_one() {
        let (source, parity) = (file("/f", 100, &[512; 3]), file("/raid/f", 300, &[512]));
        let [of_source, of_parity] = [&source, &parity].map(|file| Fingerprint::of(&file.blocks));
        let note = Note { inode: 100, replication: 3, source: of_source, parity: of_parity };
        let mut listing = listing(vec![source, file("/raidrs/f", 200, &[512; 4]), parity]);
        let codecs = Codec::hdfs_raid();
        let chosen = |listing: &Listing| raided(listing, &codecs).files[0].parity.path.clone();
        assert_eq!(chosen(&listing), "/raidrs/f");
        let marks = Marks { note: Some(note), ..Marks::default() };
        listing.notes.marks.insert("/raid/f".to_owned(), marks);
        assert_eq!(chosen(&listing), "/raid/f");
    }
}
