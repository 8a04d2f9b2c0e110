//! The `.vif` file of a volume: JSON with its code, its encoding and its sizes.

use serde::Deserialize;

use super::name::MAX_SHARDS;

const DEFAULT_DATA: u8 = 10;
const DEFAULT_PARITY: u8 = 4;
const LARGE_ROW_BYTES: u64 = 1 << 30;
const SMALL_ROW_BYTES: u64 = 1 << 20;

/// When a volume was encoded, in nanoseconds since 1970: what tells one encoding of it from another. Shards of two
/// encodings never belong together.
///
/// SeaweedFS calls it `encode_ts_ns`. It is 0 for volumes that were encoded before it kept one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Encoding(pub i64);

impl Encoding {
    /// Whether the volume says when it was encoded.
    pub fn is_known(self) -> bool {
        self.0 != 0
    }
}

/// How many shards a volume has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ratio {
    data: u8,
    parity: u8,
}

impl Ratio {
    /// So many data and parity shards; `None` where SeaweedFS could not have made them.
    pub fn new(data: u32, parity: u32) -> Option<Self> {
        let total = data.checked_add(parity)?;
        let possible = data > 0 && parity > 0 && total <= u32::from(MAX_SHARDS);
        possible.then_some(Self { data: data as u8, parity: parity as u8 })
    }

    /// Data shards.
    pub fn data(self) -> u8 {
        self.data
    }

    /// Parity shards.
    pub fn parity(self) -> u8 {
        self.parity
    }

    /// All shards.
    pub fn total(self) -> u8 {
        self.data + self.parity
    }
}

impl Default for Ratio {
    /// What SeaweedFS encodes unless told otherwise, and what it takes a `.vif` without a ratio for.
    fn default() -> Self {
        Self { data: DEFAULT_DATA, parity: DEFAULT_PARITY }
    }
}

/// What a `.vif` file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// The shards.
    pub ratio: Ratio,
    /// Which encoding they are of.
    pub encoding: Encoding,
    /// Bytes of a shard, if the file tells or they follow from what it tells.
    pub shard_bytes: Option<u64>,
}

/// Why a `.vif` file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum VifError {
    /// It is not the JSON that SeaweedFS writes.
    #[error("it is not what SeaweedFS writes: {0}")]
    Json(#[from] serde_json::Error),
    /// No volume has such shards.
    #[error("it says {data} data and {parity} parity shards, and SeaweedFS has room for {MAX_SHARDS} in all")]
    Ratio {
        /// Data shards.
        data: u32,
        /// Parity shards.
        parity: u32,
    },
    /// A size below zero.
    #[error("it says a size of {0} bytes")]
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

/// Protobuf's JSON writes 64-bit numbers as strings and reads both.
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
    /// Reads the bytes of a `.vif` file.
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

/// Volumes that do not say their shards' size are laid out in rows of 1 GiB for each data shard, then of 1 MiB.
fn shard_bytes_of_rows(dat_bytes: u64, ratio: Ratio) -> Option<u64> {
    if dat_bytes == 0 {
        return None; // Nobody wrote it down.
    }
    let data = u64::from(ratio.data);
    let large = dat_bytes / (LARGE_ROW_BYTES * data);
    let rest = dat_bytes % (LARGE_ROW_BYTES * data);
    Some(large * LARGE_ROW_BYTES + rest.div_ceil(SMALL_ROW_BYTES * data) * SMALL_ROW_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As 4.48 wrote it.
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
