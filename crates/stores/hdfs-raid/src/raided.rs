//! The stripes of files and folders that are encoded, as the NameNode lists them.

use std::collections::{BTreeMap, BTreeSet};

use crate::folder::{FolderParity, best_of_folders, folder_parities};
use crate::members::block_at;
use crate::parity::{Evidence, best, check_parity};
use crate::policy::check_storing;
use crate::survey::Source;
use crate::{
    Block, Codec, Exclusion, File, Layout, LayoutError, Listing, Member, Notes, Scope, StaleParity, source_of,
};

/// The encoded files and folders of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raided<'a> {
    /// The files and folders with valid parity, each once.
    pub sources: Vec<RaidedSource<'a>>,
    /// The parity files that do not protect all blocks of their sources, each with the reason. Parity of a folder that has
    /// changed still protects some blocks, so the folder may be among the sources, too.
    pub unusable: Vec<(&'a File, UnusableParity)>,
}

/// A file with valid parity, or a folder with parity that is valid for some blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaidedSource<'a> {
    /// The path of the file or folder.
    pub path: &'a str,
    /// Its inode number.
    pub inode: u64,
    /// The file, or the files of the folder.
    pub files: Vec<&'a File>,
    /// Its parity file.
    pub parity: &'a File,
    /// The code and the place of the parity.
    pub codec: &'a Codec,
    block_bytes: u64,
    /// The data blocks of all stripes in order; `None` for one that does not exist any more.
    places: Vec<Option<Member>>,
}

/// A stripe of an encoded file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaidedStripe<'a> {
    /// The offset in the parity file at which the stripe's parity starts.
    pub parity_start: u64,
    /// Length of a block for the code; a shorter block is padded with zeros.
    pub block_bytes: u64,
    /// The data blocks that exist.
    pub data: Vec<DataBlock<'a>>,
    /// The positions in the stripe of the data blocks that do not exist any more: their files were deleted or changed. Other
    /// than the blocks that the last stripe lacks, they are not zeros.
    pub gone: Vec<usize>,
    /// The parity blocks.
    pub parity: &'a [Block],
}

/// A data block of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataBlock<'a> {
    /// The file.
    pub file: &'a File,
    /// The offset in the file at which the block starts.
    pub start: u64,
    /// The block.
    pub block: &'a Block,
}

/// Why a parity file does not protect its source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableParity {
    /// The source does not exist, or is of the other kind: a folder instead of a file, or a file instead of a folder.
    #[error(
        "there is no file or folder {0}; if it was renamed, `mend raid encode` of the folder above its new path renames the \
         parity too"
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

/// Returns the files and folders of a listing that have valid parity by one of these codecs. If a source has valid parity by
/// several codecs, one with a note counts, or else the first one. If the parity of a folder protects a file, parity of the
/// file itself does not count, because a block must not be in two stripes.
pub fn raided<'a>(listing: &'a Listing, codecs: &'a [Codec]) -> Raided<'a> {
    let (folders, mut unusable) = raided_folders(listing, codecs);
    let covered: BTreeSet<&str> = folders.values().flat_map(FolderParity::covered).collect();
    let is_covered = |file: &File| covered.contains(file.path.as_str());
    let by_path: BTreeMap<&str, &File> =
        listing.files.iter().map(|file| (file.path.as_str(), file)).collect();
    let mut valid: BTreeMap<&str, Vec<(Evidence, RaidedSource<'a>)>> = BTreeMap::new();
    for codec in codecs.iter().filter(|codec| codec.scope == Scope::File) {
        for &parity in by_path.values() {
            let Some(path) = source_of(&codec.parity_root, &parity.path) else { continue };
            match raided_file(by_path.get(path).copied(), path, parity, codec, &listing.notes) {
                Ok((_, found)) if is_covered(found.files[0]) => {}
                Ok(found) => valid.entry(path).or_default().push(found),
                Err(why) => unusable.push((parity, why)),
            }
        }
    }
    let files: Vec<RaidedSource<'_>> =
        valid.into_values().filter_map(|found| best(found.into_iter())).collect();
    let alone: BTreeSet<&str> = files.iter().map(|source| source.path).collect();
    let folders = folders.into_values().map(|parity| RaidedSource::of_folder(parity, &alone));
    Raided { sources: folders.chain(files).collect(), unusable }
}

/// Returns the parity of folders that counts, by the paths of the folders; and the parity files that do not protect all blocks.
fn raided_folders<'a>(
    listing: &'a Listing,
    codecs: &'a [Codec],
) -> (BTreeMap<&'a str, FolderParity<'a>>, Vec<(&'a File, UnusableParity)>) {
    let (mut found, mut unusable) = (Vec::new(), Vec::new());
    for (parity, judged) in folder_parities(listing, codecs) {
        match judged {
            Ok(judged) => {
                unusable.extend(judged.changes().map(|why| (parity, UnusableParity::Stale(why))));
                found.push(judged);
            }
            Err(why) => unusable.push((parity, why)),
        }
    }
    (best_of_folders(found), unusable)
}

fn raided_file<'a>(
    source: Option<&'a File>,
    path: &str,
    parity: &'a File,
    codec: &'a Codec,
    notes: &Notes,
) -> Result<(Evidence, RaidedSource<'a>), UnusableParity> {
    let source = source.ok_or_else(|| UnusableParity::NoSource(path.to_owned()))?;
    check_storing(source).map_err(UnusableParity::Source)?;
    if source.is_open {
        return Err(UnusableParity::Source(Exclusion::Open));
    }
    let layout = Layout::of_file(source, codec)?;
    let pair = Source::of_file(source, layout);
    let evidence = check_parity(codec, &pair, parity, notes.noted(&parity.path))?;
    let Source { path, inode, files, layout, .. } = pair;
    let places = layout.members().iter().copied().map(Some).collect();
    let block_bytes = layout.block_bytes();
    Ok((evidence, RaidedSource { path, inode, files, parity, codec, block_bytes, places }))
}

impl<'a> RaidedSource<'a> {
    /// Returns a folder, without the blocks of files that have parity of their own.
    fn of_folder(found: FolderParity<'a>, alone: &BTreeSet<&str>) -> Self {
        let FolderParity { folder, files, parity, codec, block_bytes, mut places, .. } = found;
        for place in &mut places {
            if place.is_some_and(|place| alone.contains(files[place.file].path.as_str())) {
                *place = None;
            }
        }
        Self { path: &folder.path, inode: folder.inode, files, parity, codec, block_bytes, places }
    }

    /// Returns the stripes in order, without those that have no data block.
    pub fn stripes(&self) -> impl Iterator<Item = RaidedStripe<'a>> + '_ {
        let parities = self.codec.parity_blocks();
        let stripes = self.places.chunks(self.codec.data_blocks()).enumerate();
        let stripe = move |(stripe, places): (usize, &[Option<Member>])| RaidedStripe {
            parity_start: (stripe * parities) as u64 * self.block_bytes,
            block_bytes: self.block_bytes,
            data: places.iter().flatten().map(|&place| self.data_block(place)).collect(),
            gone: (0..places.len()).filter(|&at| places[at].is_none()).collect(),
            parity: &self.parity.blocks[stripe * parities..(stripe + 1) * parities],
        };
        stripes.map(stripe).filter(|stripe| !stripe.data.is_empty())
    }

    fn data_block(&self, place: Member) -> DataBlock<'a> {
        let file = self.files[place.file];
        let start = match self.codec.scope {
            Scope::File => place.block as u64 * self.block_bytes,
            Scope::Folder => file.blocks[..place.block].iter().map(|block| block.bytes).sum(),
        };
        DataBlock { file, start, block: block_at(&self.files, place) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fingerprint, Marks, Note, Owner, Storing};

    fn file(path: &str, first: i64, lengths: &[u64]) -> File {
        let block = |(number, &bytes)| Block { number, stamp: 1000, bytes, replicas: Vec::new() };
        File {
            inode: first as u64,
            path: path.to_owned(),
            bytes: lengths.iter().sum(),
            block_bytes: 512,
            replication: 1,
            modified_ms: 7,
            owner: Owner::Superuser,
            storing: Storing::Replicated,
            is_open: false,
            blocks: (first..).zip(lengths).map(block).collect(),
        }
    }

    fn listing(files: Vec<File>) -> Listing {
        Listing { files, ..Listing::default() }
    }

    /// Returns the numbers of the data blocks.
    fn data(stripe: &RaidedStripe<'_>) -> Vec<i64> {
        stripe.data.iter().map(|data| data.block.number).collect()
    }

    #[test]
    fn stripes_consist_of_consecutive_blocks_and_their_parity() {
        let mut lengths = [512; 12];
        lengths[11] = 9;
        let (source, parity) = (file("/a/f", 100, &lengths), file("/raidrs/a/f", 200, &[512; 8]));
        let listing = listing(vec![source, parity]);
        let codecs = Codec::hdfs_raid();
        let raided = raided(&listing, &codecs);
        assert_eq!((raided.sources.len(), raided.unusable.len()), (1, 0));
        let stripes: Vec<_> = raided.sources[0].stripes().collect();
        assert_eq!(data(&stripes[0]), (100..110).collect::<Vec<_>>());
        let parity: Vec<i64> = stripes[1].parity.iter().map(|block| block.number).collect();
        assert_eq!((data(&stripes[1]), parity), (vec![110, 111], vec![204, 205, 206, 207]));
        let start = stripes[1].data[0].start;
        assert_eq!((start, stripes[1].parity_start, stripes[1].block_bytes), (5120, 2048, 512));
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
        assert!(raided.sources.is_empty());
        let told = |path: &str| {
            let found = raided.unusable.iter().find(|(parity, _)| parity.path == path);
            found.expect("a reason").1.to_string()
        };
        assert!(told("/raidrs/stale").contains("modified 7 ms"), "{}", told("/raidrs/stale"));
        assert!(told("/raidrs/open").contains("being written"));
        assert!(
            told("/raidrs/renamed").starts_with("there is no file or folder /renamed; if it was renamed")
        );
    }

    #[test]
    fn a_note_has_to_name_the_blocks_of_both_files() {
        let (source, parity) = (file("/f", 100, &[512; 3]), file("/raidrs/f", 200, &[512; 4]));
        let valid = |notes: Notes| {
            let listing = Listing { notes, ..listing(vec![source.clone(), parity.clone()]) };
            let codecs = Codec::hdfs_raid();
            let raided = raided(&listing, &codecs);
            match &raided.unusable[..] {
                [] => Ok(raided.sources.len()),
                [(_, UnusableParity::Stale(why))] => Err(*why),
                other => panic!("{other:?}"),
            }
        };
        let noted = |note: Note| {
            let marks = Marks { note: Some(note), ..Marks::default() };
            Notes { marks: BTreeMap::from([(parity.path.clone(), marks)]), ..Notes::default() }
        };
        let [of_source, of_parity] = [&source, &parity].map(|file| Fingerprint::of(&file.blocks));
        let code = Some(Fingerprint::of_code(&Codec::hdfs_raid()[0].code));
        let note = Note { inode: 100, replication: 3, source: of_source, parity: of_parity, code };
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
        let code = Some(Fingerprint::of_code(&Codec::hdfs_raid()[0].code));
        let note = Note { inode: 100, replication: 3, source: of_source, parity: of_parity, code };
        let mut listing = listing(vec![source, parity]);
        let marks = Marks { note: Some(note), ..Marks::default() };
        listing.notes.marks.insert("/raidrs/f".to_owned(), marks);
        let codecs = Codec::hdfs_raid();
        assert_eq!(raided(&listing, &codecs).sources.len(), 1);
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
        assert_eq!(raided.sources.iter().map(|source| &source.codec.name[..]).collect::<Vec<_>>(), ["xor"]);
        assert_eq!(raided.unusable.len(), 1);
    }

    /// HDFS-RAID's parity by an earlier codec may have kept its place and time.
    #[test]
    fn parity_with_a_note_precedes_parity_without_one() {
        let (source, parity) = (file("/f", 100, &[512; 3]), file("/raid/f", 300, &[512]));
        let [of_source, of_parity] = [&source, &parity].map(|file| Fingerprint::of(&file.blocks));
        let code = Some(Fingerprint::of_code(&Codec::hdfs_raid()[1].code));
        let note = Note { inode: 100, replication: 3, source: of_source, parity: of_parity, code };
        let mut listing = listing(vec![source, file("/raidrs/f", 200, &[512; 4]), parity]);
        let codecs = Codec::hdfs_raid();
        let chosen = |listing: &Listing| raided(listing, &codecs).sources[0].parity.path.clone();
        assert_eq!(chosen(&listing), "/raidrs/f");
        let marks = Marks { note: Some(note), ..Marks::default() };
        listing.notes.marks.insert("/raid/f".to_owned(), marks);
        assert_eq!(chosen(&listing), "/raid/f");
    }
}
