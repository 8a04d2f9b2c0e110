//! File names of SeaweedFS volumes and shards.

use std::fmt;
use std::str::FromStr;

use repair::BlockId;

use super::Encoding;

/// SeaweedFS supports shard numbers from 0 to 31.
pub const MAX_SHARDS: u8 = 32;

/// Longest name of a file that Linux permits.
const MAX_NAME_BYTES: usize = 255;
/// Longest name of a volume, which leaves room for the extension of a shard.
const MAX_VOLUME_BYTES: usize = MAX_NAME_BYTES - ".ec00".len();

/// A volume as it appears in file names: `COLLECTION_ID`, or `ID` in the unnamed collection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeName {
    collection: String,
    id: u32,
}

/// A shard of a volume, `VOLUME.ec07`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardName {
    /// The volume.
    pub volume: VolumeName,
    /// The shard's number, below [`MAX_SHARDS`]; data shards come first.
    pub shard: u8,
}

/// One encoding of a volume, written `VOLUME@ENCODING`, where the encoding is the `encodeTsNs` of the `.vif`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EncodedVolume {
    /// The volume.
    pub volume: VolumeName,
    /// The encoding.
    pub encoding: Encoding,
}

/// The text does not name an encoding of a volume.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` is not an encoding of a volume: write VOLUME@ENCODETSNS as `mend status` prints it, such as \
     `pictures_17@1764400000000000000`"
)]
pub struct NotAnEncoding(pub String);

/// The text is not the name of a volume or a shard.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` is not a SeaweedFS shard: names are like `pictures_17.ec03`, or `17.ec03` without a collection"
)]
pub struct NotAShard(pub String);

impl VolumeName {
    /// Creates a volume name; `None` if no server can have files of this name.
    pub fn new(collection: &str, id: u32) -> Option<Self> {
        let name = Self { collection: collection.to_owned(), id };
        let fits = name.to_string().len() <= MAX_VOLUME_BYTES && !collection.contains(['/', '\0']);
        (fits && id > 0).then_some(name)
    }

    /// Returns the volume's collection; empty for the unnamed one.
    pub fn collection(&self) -> &str {
        &self.collection
    }

    /// Returns the volume's ID, which is unique in the cluster.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the name of one of the volume's files, given its extension, such as `.ecx` or `.vif`.
    pub(super) fn file(&self, extension: &str) -> String {
        format!("{self}{extension}")
    }

    /// Whether the volume can have a file with this extension. The name of an `.ecsum` may be too long although
    /// those of the volume's other files fit.
    pub(crate) fn can_have(&self, extension: &str) -> bool {
        self.file(extension).len() <= MAX_NAME_BYTES
    }

    fn parse(text: &str) -> Option<Self> {
        let (collection, id) = text.rsplit_once('_').unwrap_or(("", text));
        let volume = Self::new(collection, id.parse().ok()?)?;
        // Reject text that does not round-trip, such as `007`, `+7` and `_7`: such files are not SeaweedFS's.
        (volume.to_string() == text).then_some(volume)
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.collection.as_str() {
            "" => write!(f, "{}", self.id),
            collection => write!(f, "{collection}_{}", self.id),
        }
    }
}

impl FromStr for VolumeName {
    type Err = NotAShard;

    fn from_str(text: &str) -> Result<Self, NotAShard> {
        Self::parse(text).ok_or_else(|| NotAShard(text.to_owned()))
    }
}

impl fmt::Display for EncodedVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.volume, self.encoding.0)
    }
}

impl FromStr for EncodedVolume {
    type Err = NotAnEncoding;

    fn from_str(text: &str) -> Result<Self, NotAnEncoding> {
        let parse = || {
            let (volume, encoding) = text.rsplit_once('@')?;
            let encoding = Encoding(encoding.parse().ok()?);
            Some(Self { volume: VolumeName::parse(volume)?, encoding })
        };
        parse().ok_or_else(|| NotAnEncoding(text.to_owned()))
    }
}

impl ShardName {
    /// Returns the shard's block ID, which is its file name.
    pub fn block_id(&self) -> BlockId {
        BlockId(self.to_string())
    }

    fn parse(text: &str) -> Option<Self> {
        let (volume, shard) = text.rsplit_once(".ec")?;
        let digits = shard.len() == 2 && shard.bytes().all(|byte| byte.is_ascii_digit());
        let shard = shard.parse().ok().filter(|&shard| digits && shard < MAX_SHARDS)?;
        Some(Self { volume: VolumeName::parse(volume)?, shard })
    }
}

impl fmt::Display for ShardName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.ec{:02}", self.volume, self.shard)
    }
}

impl FromStr for ShardName {
    type Err = NotAShard;

    fn from_str(text: &str) -> Result<Self, NotAShard> {
        Self::parse(text).ok_or_else(|| NotAShard(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_other_files_are_refused() {
        let long = format!("{}_1.ec00", "x".repeat(249));
        for text in [
            "",
            "1",
            ".ec00",
            "1.ecx",
            "1.ecj",
            "1.ecsum",
            "1.ec0",
            "1.ec000",
            "1.ec32",
            "1.ec+1",
            "01.ec00",
            "_1.ec00",
            "0.ec00",
            "a.ec00",
            "a/b_1.ec00",
            "a_1.ec00.tmp",
            "4294967296.ec00",
            ".mend-1_1.ec00.tmp",
            &long,
        ] {
            assert_eq!(text.parse::<ShardName>(), Err(NotAShard(text.to_owned())), "{text}");
        }
        let longest = &long[1..];
        let volume = longest.parse::<ShardName>().expect("a shard").volume;
        assert_eq!(longest.len(), 255);
        assert!(volume.can_have(".ecx") && volume.can_have(".vif") && !volume.can_have(".ecsum"));
        let shard: ShardName = "a_b_17.ec31".parse().expect("a shard");
        assert_eq!((shard.volume.collection(), shard.volume.id(), shard.shard), ("a_b", 17, 31));
    }

    #[test]
    fn an_encoding_is_named_by_volume_and_time() {
        let named: EncodedVolume = "a_b_17@1764400000000000000".parse().expect("an encoding");
        assert_eq!((named.volume.id(), named.encoding), (17, Encoding(1_764_400_000_000_000_000)));
        assert_eq!(named.to_string(), "a_b_17@1764400000000000000");
        for text in ["", "17", "17@", "@1", "a@1", "017@1", "17@1s", "17@9223372036854775808"] {
            assert_eq!(text.parse::<EncodedVolume>(), Err(NotAnEncoding(text.to_owned())), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_name_reads_back(collection in "[a-z._-]{0,9}", id in 1u32.., shard in 0u8..MAX_SHARDS) {
            let volume = VolumeName::new(&collection, id).expect("it can be");
            let name = ShardName { volume, shard };
            prop_assert_eq!(name.to_string().parse(), Ok(name));
        }

        #[test]
        fn any_text_is_refused_or_reads_back(text in "[0-9a-z_.]{0,6}\\.ec[0-9]{1,3}") {
            if let Ok(name) = text.parse::<ShardName>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
