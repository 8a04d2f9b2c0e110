//! The `.vif` file of a volume: JSON with the volume's code, encoding and sizes.

use serde::Deserialize;

use super::name::MAX_SHARDS;

const DEFAULT_DATA: u8 = 10;
const DEFAULT_PARITY: u8 = 4;
const LARGE_ROW_BYTES: u64 = 1 << 30;
const SMALL_ROW_BYTES: u64 = 1 << 20;

/// Identifies an encoding of a volume by the time at which the volume was encoded, in nanoseconds since 1970.
/// Shards of different encodings never belong together.
///
/// SeaweedFS calls this value `encode_ts_ns`. It is 0 for volumes encoded by versions that did not record it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Encoding(pub i64);

impl Encoding {
    /// Whether the time of the encoding was recorded.
    pub fn is_known(self) -> bool {
        self.0 != 0
    }
}

/// A volume's numbers of data and parity shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ratio {
    data: u8,
    parity: u8,
}

impl Ratio {
    /// Creates a ratio of these numbers; `None` if SeaweedFS does not support them.
    pub fn new(data: u32, parity: u32) -> Option<Self> {
        let total = data.checked_add(parity)?;
        let possible = data > 0 && parity > 0 && total <= u32::from(MAX_SHARDS);
        possible.then_some(Self { data: data as u8, parity: parity as u8 })
    }

    /// Returns the number of data shards.
    pub fn data(self) -> u8 {
        self.data
    }

    /// Returns the number of parity shards.
    pub fn parity(self) -> u8 {
        self.parity
    }

    /// Returns the number of all shards.
    pub fn total(self) -> u8 {
        self.data + self.parity
    }
}

impl Default for Ratio {
    /// Returns the default ratio, which SeaweedFS also assumes for a `.vif` without a ratio.
    fn default() -> Self {
        Self { data: DEFAULT_DATA, parity: DEFAULT_PARITY }
    }
}

/// Content of a `.vif` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// The numbers of data and parity shards.
    pub ratio: Ratio,
    /// The encoding of the shards.
    pub encoding: Encoding,
    /// Bytes per shard, if the file contains it or it can be derived.
    pub shard_bytes: Option<u64>,
}

/// Why a `.vif` file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum VifError {
    /// The file is not the JSON that SeaweedFS writes.
    #[error("it is not valid JSON of SeaweedFS: {0}")]
    Json(#[from] serde_json::Error),
    /// SeaweedFS does not support these numbers of shards.
    #[error(
        "it describes {data} data and {parity} parity shards, but SeaweedFS supports {MAX_SHARDS} in total"
    )]
    Ratio {
        /// Data shards.
        data: u32,
        /// Parity shards.
        parity: u32,
    },
    /// A size is negative.
    #[error("it contains the invalid size of {0} bytes")]
    Size(i64),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(default, deserialize_with = "number")]
    dat_file_size: i64,
    #[serde(default)]
    ec_shard_config: Option<Config>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    #[serde(default)]
    data_shards: u32,
    #[serde(default)]
    parity_shards: u32,
    #[serde(default, deserialize_with = "number")]
    encode_ts_ns: i64,
    #[serde(default, deserialize_with = "number")]
    block_size: i64,
}

/// Parses a 64-bit number. Protobuf's JSON writes such numbers as strings and accepts both forms.
fn number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(i64),
        Text(String),
    }
    match Written::deserialize(from)? {
        Written::Number(number) => Ok(number),
        Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

impl VolumeInfo {
    /// Decodes the bytes of a `.vif` file.
    ///
    /// # Errors
    /// [`VifError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, VifError> {
        let file: File = serde_json::from_slice(bytes)?;
        let Some(config) = file.ec_shard_config.filter(|config| config.data_shards > 0) else {
            let ratio = Ratio::default();
            let shard_bytes = shard_bytes_of_rows(size(file.dat_file_size)?, ratio);
            return Ok(Self { ratio, encoding: Encoding::default(), shard_bytes });
        };
        let (data, parity) = (config.data_shards, config.parity_shards);
        let ratio = Ratio::new(data, parity).ok_or(VifError::Ratio { data, parity })?;
        let shard_bytes = match size(config.block_size)? {
            0 => shard_bytes_of_rows(size(file.dat_file_size)?, ratio),
            bytes => Some(bytes),
        };
        Ok(Self { ratio, encoding: Encoding(config.encode_ts_ns), shard_bytes })
    }
}

fn size(bytes: i64) -> Result<u64, VifError> {
    u64::try_from(bytes).map_err(|_| VifError::Size(bytes))
}

/// Derives the shard size of a volume whose `.vif` does not contain it: data is laid out in rows of 1 GiB per
/// data shard, followed by rows of 1 MiB per data shard.
fn shard_bytes_of_rows(dat_bytes: u64, ratio: Ratio) -> Option<u64> {
    if dat_bytes == 0 {
        return None; // The size was not recorded.
    }
    let data = u64::from(ratio.data);
    let large = dat_bytes / (LARGE_ROW_BYTES * data);
    let rest = dat_bytes % (LARGE_ROW_BYTES * data);
    Some(large * LARGE_ROW_BYTES + rest.div_ceil(SMALL_ROW_BYTES * data) * SMALL_ROW_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file written by SeaweedFS 4.48.
    const REAL: &str = include_str!("../../testdata/4.48.vif");

    fn decode(text: &str) -> Result<VolumeInfo, VifError> {
        VolumeInfo::decode(text.as_bytes())
    }

    #[test]
    fn a_real_file_is_decoded() {
        let info = decode(REAL).expect("as SeaweedFS wrote it");
        assert_eq!(info.ratio, Ratio::default());
        assert_eq!(info.encoding, Encoding(1_795_322_287_727_440_871));
        assert_eq!(info.shard_bytes, Some(1 << 20));
    }

    #[test]
    fn older_files_have_rows_and_the_default_ratio() {
        let info = decode(r#"{"version": 3, "ecShardConfig": null, "datFileSize": 10485761}"#).expect("fine");
        assert_eq!(
            info,
            VolumeInfo { ratio: Ratio::default(), encoding: Encoding(0), shard_bytes: Some(2 << 20) }
        );
        assert_eq!(decode("{}").expect("fine").shard_bytes, None);
        let rows = r#"{"datFileSize": "10737418241", "ecShardConfig": {"dataShards": 5, "parityShards": 2}}"#;
        assert_eq!(decode(rows).expect("fine").shard_bytes, Some((2 << 30) + (1 << 20)));
    }

    #[test]
    fn impossible_values_are_rejected() {
        for text in [
            "",
            "7",
            "{",
            r#"{"datFileSize": "x"}"#,
            r#"{"datFileSize": -1}"#,
            r#"{"ecShardConfig": {"dataShards": 30, "parityShards": 3}}"#,
            r#"{"ecShardConfig": {"dataShards": 4294967295, "parityShards": 4294967295}}"#,
            r#"{"ecShardConfig": {"dataShards": 3}}"#,
            r#"{"ecShardConfig": {"dataShards": 3, "parityShards": 2, "blockSize": "-5"}}"#,
        ] {
            assert!(decode(text).is_err(), "{text}");
        }
    }
}
