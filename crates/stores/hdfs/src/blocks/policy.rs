//! Erasure coding policies and block groups: how HDFS distributes a file over internal blocks, and the
//! resulting stripe.
//!
//! The bytes of a group are distributed over the data blocks in cells, round-robin. Coding ignores cells: it
//! combines the bytes at the same offset of all internal blocks, and pads shorter blocks with zeros. In a
//! small group, some data blocks are empty. HDFS never writes these blocks, and Mend treats them as zeros.
//! The group's code is therefore the policy's code *shortened* by the empty blocks.

use std::fmt;
use std::str::FromStr;

use codes::{BlockIndex, CodeSpec, RsFamily, SpecError};
use hdfs_raid::shortened;
use repair::StripeId;

use super::name::{MAX_BLOCKS_IN_GROUP, ReplicaName};

const KIB: u32 = 1 << 10;

/// The codec of a policy's schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// `rs`.
    Rs,
    /// `rs-legacy`.
    RsLegacy,
    /// `xor`.
    Xor,
}

/// An erasure coding policy, built-in or added by an operator. Its text form is HDFS's name, such as
/// `RS-6-3-1024k`.
///
/// ```
/// use hdfs::Policy;
///
/// let policy: Policy = "RS-6-3-1024k".parse()?;
/// assert_eq!(policy.code().to_string(), "rs-9-6");
/// assert_eq!(policy.lengths(1_500_000)[..3], [1 << 20, 1_500_000 - (1 << 20), 0]);
/// # Ok::<(), hdfs::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    codec: Codec,
    data: u16,
    parity: u16,
    cell_bytes: u32,
}

/// Why Mend cannot repair blocks of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The name is not that of a policy.
    #[error(
        "`{0}` is not an erasure coding policy: names are like RS-6-3-1024k, see `hdfs ec -listPolicies`"
    )]
    Name(String),
    /// The codec is not one of HDFS's own.
    #[error("policy {policy}: Mend supports the codecs rs, rs-legacy and xor, but not `{codec}`")]
    Codec {
        /// The policy.
        policy: String,
        /// The policy's codec.
        codec: String,
    },
    /// The number of blocks exceeds the capacity of a group, or is zero.
    #[error(
        "policy {policy}: a block group needs data and parity blocks, and at most {MAX_BLOCKS_IN_GROUP} in \
         total"
    )]
    Blocks {
        /// The policy.
        policy: String,
    },
    /// The code does not support these parameters.
    #[error("policy {policy}: {source}")]
    Code {
        /// The policy.
        policy: String,
        /// The reason.
        source: SpecError,
    },
}

impl Policy {
    /// Creates a policy with these parameters; `cell_bytes` must be a multiple of 1 KiB.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn new(codec: Codec, data: u16, parity: u16, cell_bytes: u32) -> Result<Self, PolicyError> {
        let policy = Self { codec, data, parity, cell_bytes };
        if cell_bytes == 0 || !cell_bytes.is_multiple_of(KIB) {
            return Err(PolicyError::Name(policy.to_string()));
        }
        if data == 0 || parity == 0 || data.saturating_add(parity) > MAX_BLOCKS_IN_GROUP {
            return Err(PolicyError::Blocks { policy: policy.to_string() });
        }
        if codec == Codec::Xor && parity != 1 {
            let source = SpecError::XorParities { n: usize::from(data + parity), k: data.into() };
            return Err(PolicyError::Code { policy: policy.to_string(), source });
        }
        let checked = policy.code().check();
        checked.map_err(|source| PolicyError::Code { policy: policy.to_string(), source }).map(|()| policy)
    }

    /// Returns the policy as a number, for compact records in memory.
    pub(crate) fn to_bits(self) -> u64 {
        let codec = match self.codec {
            Codec::Rs => 0,
            Codec::RsLegacy => 1,
            Codec::Xor => 2,
        };
        codec
            | u64::from(self.data) << 2
            | u64::from(self.parity) << 10
            | u64::from(self.cell_bytes / KIB) << 18
    }

    /// Returns the policy of a number that [`to_bits`](Self::to_bits) has returned.
    pub(crate) fn from_bits(bits: u64) -> Self {
        let codec = match bits & 3 {
            0 => Codec::Rs,
            1 => Codec::RsLegacy,
            _ => Codec::Xor,
        };
        let (data, parity) = ((bits >> 2 & 0xff) as u16, (bits >> 10 & 0xff) as u16);
        Self { codec, data, parity, cell_bytes: (bits >> 18) as u32 * KIB }
    }

    /// Returns the number of data blocks in a group.
    pub fn data_blocks(&self) -> u16 {
        self.data
    }

    /// Returns the number of blocks in a group.
    pub fn blocks(&self) -> u16 {
        self.data + self.parity
    }

    /// Returns the length of a cell in bytes.
    pub fn cell_bytes(&self) -> u64 {
        self.cell_bytes.into()
    }

    /// Returns the code of a group without empty blocks.
    pub fn code(&self) -> CodeSpec {
        let (n, k) = (usize::from(self.blocks()), usize::from(self.data));
        match self.codec {
            Codec::Rs => CodeSpec::reed_solomon(n, k),
            Codec::RsLegacy => CodeSpec::ReedSolomon { family: RsFamily::HdfsRaid, n, k },
            Codec::Xor => CodeSpec::Xor { k },
        }
    }

    /// Returns the length of each internal block of a group that stores `group_bytes` bytes of a file.
    pub fn lengths(&self, group_bytes: u64) -> Vec<u64> {
        let round = self.cell_bytes() * u64::from(self.data);
        let (rounds, rest) = (group_bytes / round, group_bytes % round);
        let data = (0..u64::from(self.data)).map(|index| {
            rounds * self.cell_bytes() + rest.saturating_sub(index * self.cell_bytes()).min(self.cell_bytes())
        });
        let data: Vec<u64> = data.collect();
        let parity = std::iter::repeat_n(data[0], self.parity.into());
        data.iter().copied().chain(parity).collect()
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let codec = match self.codec {
            Codec::Rs => "RS",
            Codec::RsLegacy => "RS-LEGACY",
            Codec::Xor => "XOR",
        };
        write!(f, "{codec}-{}-{}-{}k", self.data, self.parity, self.cell_bytes / KIB)
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let name = || PolicyError::Name(text.to_owned());
        let mut parts = text.rsplitn(4, '-');
        let mut next = || parts.next().ok_or_else(name);
        let (cell, parity, data, codec) = (next()?, next()?, next()?, next()?);
        let number = |part: &str| part.parse().map_err(|_| name());
        let codec = match codec.to_ascii_lowercase().as_str() {
            "rs" => Codec::Rs,
            "rs-legacy" => Codec::RsLegacy,
            "xor" => Codec::Xor,
            codec => return Err(PolicyError::Codec { policy: text.to_owned(), codec: codec.to_owned() }),
        };
        let kib: u32 = cell.strip_suffix('k').and_then(|kib| kib.parse().ok()).ok_or_else(name)?;
        let cell_bytes = kib.checked_mul(KIB).ok_or_else(name)?;
        Self::new(codec, number(data)?, number(parity)?, cell_bytes)
    }
}

/// A block group, as the NameNode describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockGroup {
    /// The group's number, which is also the number of its block 0.
    pub number: i64,
    /// The generation stamp of all blocks of the group.
    pub stamp: u64,
    /// Number of bytes of the file that the group stores.
    pub bytes: u64,
    /// The group's erasure coding policy.
    pub policy: Policy,
}

/// A block group as a stripe: its non-empty blocks, and their code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStripe {
    /// The policy's code, shortened if the group has empty data blocks.
    pub code: CodeSpec,
    /// Length of a block for the code; shorter blocks are padded with zeros.
    pub block_bytes: u64,
    /// The non-empty blocks, data first. The position in this list is the block's index in the stripe.
    pub blocks: Vec<GroupBlock>,
}

/// A block of a [`GroupStripe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupBlock {
    /// The name of the block's replica.
    pub name: ReplicaName,
    /// The block's index in the group, as in HDFS.
    pub index: BlockIndex,
    /// The block's length; a shorter block is padded with zeros for the code.
    pub bytes: u64,
}

impl BlockGroup {
    /// Returns the group's name in Mend, such as `group_-9223372036854775792_1001`: number and generation
    /// stamp. HDFS itself uses the name of block 0 for the group.
    pub fn stripe_id(&self) -> StripeId {
        StripeId(format!("group_{}_{}", self.number, self.stamp))
    }

    /// Converts the group into a stripe; `None` if the group is empty or has an invalid number.
    pub fn stripe(&self) -> Option<GroupStripe> {
        let lengths = self.policy.lengths(self.bytes);
        let present = (0..).zip(&lengths).filter(|&(_, &bytes)| bytes > 0);
        let blocks = present.map(|(index, &bytes)| {
            let index = BlockIndex(index);
            let name = ReplicaName::internal(self.number, self.stamp, index)?;
            Some(GroupBlock { name, index, bytes })
        });
        let blocks = blocks.collect::<Option<Vec<_>>>().filter(|blocks| !blocks.is_empty())?;
        let data = blocks.len() - usize::from(self.policy.parity);
        let code = shortened(&self.policy.code(), data).expect("a shortened MDS code is an MDS code");
        Some(GroupStripe { code, block_bytes: lengths[0], blocks })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn policies() -> impl Strategy<Value = Policy> {
        let codecs = prop_oneof![Just(Codec::Rs), Just(Codec::RsLegacy), Just(Codec::Xor)];
        (codecs, 1u16..=10, 1u16..=4, 1u32..=3).prop_map(|(codec, data, parity, kib)| {
            let parity = if codec == Codec::Xor { 1 } else { parity };
            Policy::new(codec, data, parity, kib * KIB).expect("possible")
        })
    }

    #[test]
    fn built_in_policies_are_parsed() {
        for (name, code) in [
            ("RS-6-3-1024k", "rs-9-6"),
            ("RS-3-2-1024k", "rs-5-3"),
            ("RS-10-4-1024k", "rs-14-10"),
            ("RS-LEGACY-6-3-1024k", "rs-9-6-hdfs-raid"),
            ("XOR-2-1-1024k", "xor-3-2"),
        ] {
            let policy: Policy = name.parse().expect(name);
            assert_eq!((policy.code().to_string(), policy.to_string()), (code.to_owned(), name.to_owned()));
        }
    }

    #[test]
    fn invalid_policies_are_reported() {
        for (name, says) in [
            ("", "not an erasure coding policy"),
            ("RS-6-3", "not an erasure coding policy"),
            ("RS-6-3-1024", "not an erasure coding policy"),
            ("RS-6-3-0k", "not an erasure coding policy"),
            ("RS-6-3-4194304k", "not an erasure coding policy"),
            ("RS-6--3-1024k", "the codecs rs, rs-legacy and xor"),
            ("HHXOR-6-3-1024k", "the codecs rs, rs-legacy and xor, but not `hhxor`"),
            ("RS-14-4-1024k", "at most 16 in total"),
            ("RS-0-4-1024k", "data and parity"),
            ("RS-65535-65535-1k", "at most 16 in total"),
            ("XOR-2-2-1024k", "xor"),
        ] {
            let error = name.parse::<Policy>().expect_err(name).to_string();
            assert!(error.contains(says), "{name}: {error}");
        }
    }

    #[test]
    fn a_small_group_has_a_shortened_code() {
        let policy: Policy = "RS-6-3-1k".parse().expect("a policy");
        let group = |bytes| BlockGroup { number: -160, stamp: 7, bytes, policy };
        assert_eq!(group(0).stripe(), None);
        assert_eq!(BlockGroup { number: -161, ..group(9) }.stripe(), None);
        let small = group(1500).stripe().expect("a stripe");
        let blocks: Vec<_> = small.blocks.iter().map(|block| (block.index.0, block.bytes)).collect();
        assert_eq!(blocks, [(0, 1024), (1, 476), (6, 1024), (7, 1024), (8, 1024)]);
        assert_eq!((small.code.blocks(), small.code.data_blocks()), (5, 2));
        assert_eq!(group(6 * 1024 - 1).stripe().expect("a stripe").code, policy.code());
    }

    /// Returns the bytes of each data block, after distributing the file cell by cell.
    fn dealt(policy: &Policy, file: &[u8]) -> Vec<Vec<u8>> {
        let mut blocks = vec![Vec::new(); policy.data.into()];
        for (cell, bytes) in file.chunks(policy.cell_bytes as usize).enumerate() {
            blocks[cell % usize::from(policy.data)].extend_from_slice(bytes);
        }
        blocks
    }

    fn encode(code: &CodeSpec, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let (code, bytes) = (code.build().expect("a code"), data[0].len());
        let padded = |block: &Vec<u8>| [&block[..], &vec![0; bytes - block.len()]].concat();
        let data: Vec<_> = data.iter().map(padded).collect();
        code.encoding().apply(&data.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    proptest! {
        #[test]
        fn a_policy_reads_back(policy in policies()) {
            prop_assert_eq!(policy.to_string().parse(), Ok(policy));
            prop_assert_eq!(policy.to_string().to_lowercase().parse(), Ok(policy));
        }

        #[test]
        fn lengths_match_distributed_cells(policy in policies(), bytes in 0usize..40_000) {
            let dealt = dealt(&policy, &vec![7; bytes]);
            let lengths: Vec<_> = dealt.iter().map(|block| block.len() as u64).collect();
            prop_assert_eq!(&policy.lengths(bytes as u64)[..lengths.len()], &lengths[..]);
            let parity = &policy.lengths(bytes as u64)[lengths.len()..];
            prop_assert!(parity.iter().all(|&parity| parity == lengths[0]));
        }

        #[test]
        fn a_shortened_code_makes_the_same_parity(policy in policies(), file in prop::collection::vec(any::<u8>(), 1..9_000)) {
            let group = BlockGroup { number: -16, stamp: 1, bytes: file.len() as u64, policy };
            let stripe = group.stripe().expect("it has bytes");
            let data = dealt(&policy, &file);
            let present: Vec<_> = data.iter().filter(|block| !block.is_empty()).cloned().collect();
            prop_assert_eq!(stripe.blocks.len(), present.len() + usize::from(policy.parity));
            prop_assert_eq!(encode(&stripe.code, &present), encode(&policy.code(), &data));
        }
    }
}
