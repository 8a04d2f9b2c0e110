//! Codecs: a code, and the place of its parity files.

use std::fmt::Write as _;

use codes::{BlockIndex, Code, CodeSpec, DecodeError, RsFamily, SpecError};
use serde::Deserialize;

use crate::policy::TEMPORARY;

/// The most sets of lost blocks that are tried to find out how many losses a code tolerates.
const MOST_TRIALS: u64 = 10_000;

/// A code, the files over which its stripes run, and the folder of its parity files.
///
/// ```
/// use hdfs_raid::Codec;
///
/// let codec = &Codec::hdfs_raid()[0];
/// assert_eq!((codec.name.as_str(), codec.parity_root.as_str()), ("rs", "/raidrs"));
/// assert_eq!(codec.code.to_string(), "rs-14-10-hdfs-raid");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Codec {
    /// The name that policies use.
    pub name: String,
    /// The code. The bytes at one offset of all blocks of a stripe are encoded together.
    pub code: CodeSpec,
    /// The folder below which the parity files are.
    pub parity_root: String,
    /// The files over which a stripe runs.
    #[serde(default)]
    pub scope: Scope,
}

/// The files over which a stripe runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Consecutive blocks of one file.
    #[default]
    File,
    /// Consecutive blocks of all files of a folder.
    Folder,
}

impl Codec {
    /// Returns the codecs of HDFS-RAID: `rs`, `xor`, `dir-rs` and `dir-xor`, with its matrices and folders.
    pub fn hdfs_raid() -> [Self; 4] {
        let rs = CodeSpec::ReedSolomon { family: RsFamily::HdfsRaid, n: 14, k: 10 };
        let xor = CodeSpec::Xor { k: 10 };
        [
            Self::new("rs", rs.clone(), "/raidrs", Scope::File),
            Self::new("xor", xor.clone(), "/raid", Scope::File),
            Self::new("dir-rs", rs, "/dir-raidrs", Scope::Folder),
            Self::new("dir-xor", xor, "/dir-raid", Scope::Folder),
        ]
    }

    /// Creates a codec.
    pub fn new(name: &str, code: CodeSpec, parity_root: &str, scope: Scope) -> Self {
        Self { name: name.to_owned(), code, parity_root: parity_root.to_owned(), scope }
    }

    /// Returns the folder below which parity is made, before it gets its path below the parity root.
    pub fn draft_root(&self) -> String {
        format!("{TEMPORARY}{}", self.parity_root.trim_end_matches('/'))
    }

    /// Returns k, the number of data blocks in a full stripe.
    pub fn data_blocks(&self) -> usize {
        self.code.data_blocks()
    }

    /// Returns m, the number of parity blocks in each stripe.
    pub fn parity_blocks(&self) -> usize {
        self.code.blocks() - self.code.data_blocks()
    }

    /// Returns the number of blocks that a stripe may lose, whichever they are. For codes that are not MDS, the
    /// number is found by trial, and may be lower than the true one if a trial would take long.
    ///
    /// # Errors
    /// [`SpecError`] if there is no such code.
    pub fn tolerates(&self) -> Result<usize, SpecError> {
        Ok(tolerated(&self.code, self.code.build()?.as_ref()))
    }

    /// Returns the code of a stripe with fewer data blocks, as the last one of a file may be; see
    /// [`shortened()`].
    ///
    /// # Errors
    /// [`ShortenError`].
    pub fn shortened(&self, data: usize) -> Result<CodeSpec, ShortenError> {
        shortened(&self.code, data)
    }

    /// Returns the code of a stripe that had `data` data blocks, after the blocks at some positions have ceased to exist;
    /// see [`punctured()`].
    ///
    /// # Errors
    /// [`ShortenError`].
    pub fn punctured(&self, data: usize, gone: &[usize]) -> Result<CodeSpec, ShortenError> {
        punctured(&self.code, data, gone)
    }
}

/// Why a code cannot be shortened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShortenError {
    /// The code divides blocks into sub-blocks.
    #[error("{code} has sub-blocks, so Mend cannot repair a stripe with {data} of its {} data blocks", code.data_blocks())]
    SubBlocks {
        /// The code.
        code: CodeSpec,
        /// Number of data blocks in the stripe.
        data: usize,
    },
    /// The remaining rows form no code: a parity block without data consists of zeros.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// As many data blocks do not exist any more as the stripe has parity blocks.
    #[error("{gone} data blocks of a stripe do not exist any more, so its parity protects no other block")]
    Unprotected {
        /// Number of these blocks.
        gone: usize,
    },
    /// The blocks that exist do not determine the others.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// Returns the code of a stripe in which only the first `data` data blocks exist; the others count as zeros.
///
/// The code's parity rows are those of `code` without the columns of the other blocks. The code tolerates at
/// least as many losses as `code`, because blocks that do not exist cannot be lost.
///
/// # Errors
/// [`ShortenError`].
pub fn shortened(code: &CodeSpec, data: usize) -> Result<CodeSpec, ShortenError> {
    if code.data_blocks() == data {
        return Ok(code.clone());
    }
    if let CodeSpec::Xor { .. } = code {
        return Ok(CodeSpec::Xor { k: data });
    }
    if code.sub_blocks() > 1 {
        return Err(ShortenError::SubBlocks { code: code.clone(), data });
    }
    let built = code.build()?;
    let (parities, tolerated) = (code.blocks() - code.data_blocks(), tolerated(code, built.as_ref()));
    let hex = parity_rows(built.as_ref(), parities, data);
    let name = format!("explicit-{}-{data}-{tolerated}-x{hex}", data + parities);
    Ok(name.parse()?)
}

/// Returns the code of a stripe whose data blocks at the positions `gone` do not exist any more. There were `data` data
/// blocks.
///
/// The bytes of such a block are not known, unlike those of a block that a short stripe never had. The first parity blocks take
/// the places of these blocks: they follow the remaining data blocks as if they were data, and the other parity blocks are
/// combinations of both. So each such block takes away one loss that the stripe tolerates.
///
/// # Errors
/// [`ShortenError`].
pub fn punctured(code: &CodeSpec, data: usize, gone: &[usize]) -> Result<CodeSpec, ShortenError> {
    let short = shortened(code, data)?;
    if gone.is_empty() {
        return Ok(short);
    }
    if short.sub_blocks() > 1 {
        return Err(ShortenError::SubBlocks { code: code.clone(), data: data - gone.len() });
    }
    let (built, blocks) = (short.build()?, short.blocks());
    let substitutes = data + gone.len();
    if substitutes >= blocks {
        return Err(ShortenError::Unprotected { gone: gone.len() });
    }
    let sources: Vec<BlockIndex> =
        (0..substitutes).filter(|at| !gone.contains(at)).map(|at| BlockIndex(at as u16)).collect();
    let mut hex = String::new();
    for parity in substitutes..blocks {
        let recipe = built.repair(&[BlockIndex(parity as u16)], &sources)?;
        let coefficient = |source: &BlockIndex| {
            let mut terms = recipe.row(0).iter();
            let term = terms.find(|&&(at, _)| recipe.sources()[at as usize].block == *source);
            term.map_or(0, |&(_, coefficient)| coefficient)
        };
        for source in &sources {
            let _ = write!(hex, "{:02x}", coefficient(source));
        }
    }
    let tolerated = tolerated(&short, built.as_ref()).saturating_sub(gone.len());
    let name = format!("explicit-{}-{data}-{tolerated}-x{hex}", data + blocks - substitutes);
    Ok(name.parse()?)
}

/// Returns the first `columns` coefficients of each parity row as hexadecimal digits.
fn parity_rows(code: &dyn Code, rows: usize, columns: usize) -> String {
    let recipe = code.encoding();
    let mut hex = String::with_capacity(2 * rows * columns);
    for row in 0..rows {
        let mut elements = vec![0; columns];
        for &(source, coefficient) in recipe.row(row) {
            let column = usize::from(recipe.sources()[source as usize].block.0);
            if let Some(element) = elements.get_mut(column) {
                *element = coefficient;
            }
        }
        for element in elements {
            let _ = write!(hex, "{element:02x}");
        }
    }
    hex
}

fn tolerated(spec: &CodeSpec, code: &dyn Code) -> usize {
    match spec {
        CodeSpec::ReedSolomon { .. }
        | CodeSpec::Xor { .. }
        | CodeSpec::Hitchhiker { .. }
        | CodeSpec::Clay { .. } => spec.blocks() - spec.data_blocks(),
        _ => most_tolerated(code),
    }
}

/// Returns the largest number of losses of which every set can be repaired.
fn most_tolerated(code: &dyn Code) -> usize {
    let (blocks, parities) = (code.blocks(), code.blocks() - code.data_blocks());
    let is_tolerated = |losses: &usize| {
        let is_repaired = |lost: &[usize]| {
            let is_lost = |block: &BlockIndex| lost.contains(&usize::from(block.0));
            let (lost, others): (Vec<_>, Vec<_>) = (0..blocks as u16).map(BlockIndex).partition(is_lost);
            code.repair(&lost, &others).is_ok()
        };
        subsets(blocks, *losses) <= MOST_TRIALS && each_subset(blocks, *losses, is_repaired)
    };
    (1..=parities).take_while(is_tolerated).last().unwrap_or(0)
}

/// Returns the number of subsets of this size.
fn subsets(of: usize, size: usize) -> u64 {
    (0..size).fold(1_u64, |number, at| number.saturating_mul((of - at) as u64) / (at as u64 + 1))
}

/// Whether a predicate holds for every subset of this size.
fn each_subset(of: usize, size: usize, holds: impl Fn(&[usize]) -> bool) -> bool {
    let mut chosen: Vec<usize> = (0..size).collect();
    loop {
        if !holds(&chosen) {
            return false;
        }
        // Advance the last position that has room, and place the following ones right behind it.
        let Some(at) = (0..size).rev().find(|&at| chosen[at] < of - size + at) else { return true };
        let first = chosen[at] + 1;
        chosen.iter_mut().skip(at).zip(first..).for_each(|(position, next)| *position = next);
    }
}

#[cfg(test)]
mod tests {
    use gf::{mul, pow};

    use super::*;

    fn parity_rows(code: &CodeSpec) -> Vec<Vec<u8>> {
        let code = code.build().expect("a code");
        let recipe = code.encoding();
        (0..recipe.outputs().len())
            .map(|row| recipe.row(row).iter().map(|&(_, coefficient)| coefficient).collect())
            .collect()
    }

    /// The rows were computed by another program: x^(4+j) modulo (x − 1)(x − 2)(x − 4)(x − 8), coefficient i.
    #[test]
    fn parity_rows_are_those_of_hdfs_raid() {
        let [rs, xor, dir_rs, dir_xor] = Codec::hdfs_raid();
        let rows: [[u8; 10]; 4] = [
            [64, 231, 229, 158, 164, 178, 132, 140, 113, 34],
            [120, 210, 191, 71, 219, 188, 203, 242, 179, 135],
            [54, 87, 7, 140, 217, 213, 57, 129, 33, 82],
            [15, 99, 92, 84, 167, 218, 119, 254, 226, 246],
        ];
        assert_eq!(parity_rows(&rs.code), rows.map(Vec::from));
        assert_eq!(parity_rows(&xor.code), [vec![1_u8; 10]]);
        assert_eq!((dir_rs.code, dir_xor.code), (rs.code, xor.code));
        assert_eq!((dir_rs.scope, dir_rs.parity_root.as_str()), (Scope::Folder, "/dir-raidrs"));
    }

    #[test]
    fn a_known_stripe_is_encoded() {
        let code = Codec::hdfs_raid()[0].code.build().expect("a code");
        let data: Vec<[u8; 1]> = (0..10).map(|block| [17 * block + 3]).collect();
        let sources: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
        let parity = code.encoding().apply(&sources).concat();
        assert_eq!(parity, [109, 186, 156, 84]);
        // The blocks are the coefficients of a polynomial, parity first, with the roots 1, 2, 4 and 8.
        let word: Vec<u8> = parity.into_iter().chain(data.concat()).collect();
        for root in [1, 2, 4, 8] {
            let terms = word.iter().zip(0..).map(|(&coefficient, power)| mul(coefficient, pow(root, power)));
            assert_eq!(terms.fold(0, |sum, term| sum ^ term), 0, "at {root}");
        }
    }

    #[test]
    fn tolerated_losses_of_codes() {
        for (code, expected) in [
            ("rs-14-10-hdfs-raid", 4),
            ("xor-11-10", 1),
            ("clay-14-10-13", 4),
            ("lrc-12-2-2", 3),
            ("lrc-4-2-1", 2),
        ] {
            let codec = Codec::new("c", code.parse().expect("a code"), "/p", Scope::File);
            assert_eq!(codec.tolerates(), Ok(expected), "{code}");
        }
    }

    #[test]
    fn a_shortened_code_makes_the_same_parity() {
        for (name, data) in [("rs-14-10-hdfs-raid", 3), ("xor-11-10", 1), ("lrc-4-2-1", 3), ("rs-9-6", 6)] {
            let codec = Codec::new("c", name.parse().expect("a code"), "/p", Scope::File);
            let short = codec.shortened(data).expect("a code");
            assert_eq!((short.data_blocks(), short.blocks() - data), (data, codec.parity_blocks()), "{name}");
            let blocks: Vec<[u8; 1]> = (0..10_u8).map(|block| [17 * block + 3]).collect();
            let zeros = [0; 1];
            let present = |at: usize| if at < data { &blocks[at][..] } else { &zeros[..] };
            let padded: Vec<&[u8]> = (0..codec.data_blocks()).map(present).collect();
            let parity = codec.code.build().expect("a code").encoding().apply(&padded);
            assert_eq!(short.build().expect("a code").encoding().apply(&padded[..data]), parity, "{name}");
        }
    }

    #[test]
    fn some_codes_cannot_be_shortened() {
        let shortened = |name: &str, data| shortened(&name.parse().expect("a code"), data);
        let error = shortened("clay-14-10-13", 4).expect_err("it has sub-blocks").to_string();
        assert!(error.contains("4 of its 10 data blocks"), "{error}");
        assert!(shortened("clay-14-10-13", 10).is_ok());
        // The second local parity block would have no data.
        assert!(matches!(shortened("lrc-4-2-1", 1), Err(ShortenError::Spec(_))));
    }

    /// Loses blocks of a stripe beyond those that do not exist any more, and compares the rebuilt bytes.
    #[test]
    fn a_punctured_code_rebuilds_the_blocks_that_exist() {
        for (name, data, gone) in [
            ("rs-14-10-hdfs-raid", 10, &[0, 4, 9][..]),
            ("rs-14-10-hdfs-raid", 3, &[1]),
            ("rs-9-6", 6, &[5]),
            ("lrc-4-2-2", 4, &[0]),
        ] {
            let codec = Codec::new("c", name.parse().expect("a code"), "/p", Scope::Folder);
            let blocks: Vec<[u8; 1]> = (0..data as u8).map(|block| [17 * block + 3]).collect();
            let sources: Vec<&[u8]> = blocks.iter().map(|block| &block[..]).collect();
            let short = codec.shortened(data).expect("a code").build().expect("a code");
            let parity = short.encoding().apply(&sources);
            let left = (0..data).filter(|at| !gone.contains(at)).map(|at| blocks[at].to_vec());
            let left: Vec<Vec<u8>> = left.chain(parity).collect();
            let spec = codec.punctured(data, gone).expect("a code");
            assert_eq!((spec.blocks(), spec.data_blocks()), (left.len(), data), "{name}");
            let sources: Vec<&[u8]> = left[..data].iter().map(Vec::as_slice).collect();
            let rest = spec.build().expect("a code").encoding().apply(&sources);
            assert_eq!(rest, left[data..], "{name}: the first blocks determine the others");
            let tolerated = most_tolerated(spec.build().expect("a code").as_ref());
            assert!(tolerated + gone.len() >= codec.tolerates().expect("a code"), "{name}: {tolerated}");
        }
    }

    /// `StripeCodeTest` in `java/hdfs` expects the same names.
    #[test]
    fn readers_give_the_same_names_to_punctured_codes() {
        for (name, data, gone, expected) in [
            ("rs-5-3-hdfs-raid", 3, &[1][..], "explicit-4-3-1-xf5f77b"),
            ("rs-14-10-hdfs-raid", 10, &[0, 4, 9], "explicit-11-10-1-x139c3aa394efe45398ee"),
        ] {
            let codec = Codec::new("c", name.parse().expect("a code"), "/p", Scope::Folder);
            assert_eq!(codec.punctured(data, gone), Ok(expected.parse().expect("a code")), "{name}");
        }
    }

    #[test]
    fn parity_cannot_stand_for_more_blocks_than_it_has() {
        let [rs, xor, ..] = Codec::hdfs_raid();
        assert_eq!(xor.punctured(10, &[3]), Err(ShortenError::Unprotected { gone: 1 }));
        assert_eq!(rs.punctured(10, &[0, 1, 2, 3]), Err(ShortenError::Unprotected { gone: 4 }));
        assert_eq!(rs.punctured(3, &[]), rs.shortened(3));
        let clay = "clay-6-4-5".parse().expect("a code");
        assert!(matches!(punctured(&clay, 4, &[0]), Err(ShortenError::SubBlocks { .. })));
    }

    #[test]
    fn all_subsets_are_visited() {
        let seen = std::cell::RefCell::new(Vec::new());
        assert!(each_subset(4, 2, |subset| {
            seen.borrow_mut().push(subset.to_vec());
            true
        }));
        assert_eq!(seen.into_inner(), [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
        assert_eq!([subsets(14, 4), subsets(4, 4), subsets(4, 0)], [1001, 1, 1]);
    }
}
