//! A store's digest of a block, in the store's own format.
//!
//! This crate neither computes digests nor interprets them; it only tests whether two are equal. The
//! algorithm and the bytes that it covers are the store's business. Digests of different kinds are never
//! equal. A store may have no digests.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The maximum length of a digest, in bytes: that of SHA-256.
pub const MAX_DIGEST_BYTES: usize = 32;
/// The maximum length of a kind's name, in bytes.
pub const MAX_KIND_BYTES: usize = 16;

/// A digest of a block: the name of its kind and the digest bytes. Its text form is `kind:hex`.
///
/// ```
/// let digest = repair::Digest::new("crc32c-list", &[0, 0xd1, 0x6e, 0x57])?;
/// assert_eq!(digest.to_string(), "crc32c-list:00d16e57");
/// assert_eq!("crc32c-list:00d16e57".parse(), Ok(digest));
/// # Ok::<(), repair::DigestError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest {
    /// Padded with zeros, like `bytes`, so that the derived `Eq` compares correctly.
    kind: [u8; MAX_KIND_BYTES],
    length: u8,
    bytes: [u8; MAX_DIGEST_BYTES],
}

/// How strongly a matching check proves that a block is correct. A weaker check never overrules a stronger
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// A checksum such as a CRC. It detects accidental corruption. But it is linear: other bytes with the
    /// same sum are easy to construct, and some errors that it misses are still missed after a repair has
    /// multiplied them by any coefficient.
    Checksum,
    /// Parity equations that the repair did not use.
    Parity,
    /// A cryptographic digest of the whole block: finding other bytes with the same digest is infeasible.
    Digest,
}

/// Why a text or byte string is not a valid digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// The kind's name is too long or contains characters that are not allowed.
    #[error(
        "`{}` is not a kind of digest: a kind has 1 to {MAX_KIND_BYTES} letters a-z, digits and hyphens",
        .0.escape_debug()
    )]
    Kind(String),
    /// The digest has too few or too many bytes.
    #[error("a digest has 1 to {MAX_DIGEST_BYTES} bytes, not {0}")]
    Length(usize),
    /// The text is not of the form `kind:hex`.
    #[error("`{}` is not a digest: write KIND:HEX in lower case, such as crc32c:0a1b2c3d", .0.escape_debug())]
    Text(String),
}

impl Digest {
    /// Creates a digest of the given kind.
    ///
    /// # Errors
    /// [`DigestError`] if the kind's name or the number of bytes is invalid.
    pub fn new(kind: &str, bytes: &[u8]) -> Result<Self, DigestError> {
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if kind.is_empty() || kind.len() > MAX_KIND_BYTES || !kind.bytes().all(letter) {
            return Err(DigestError::Kind(kind.to_owned()));
        }
        if bytes.is_empty() || bytes.len() > MAX_DIGEST_BYTES {
            return Err(DigestError::Length(bytes.len()));
        }
        let mut digest =
            Self { kind: [0; MAX_KIND_BYTES], length: bytes.len() as u8, bytes: [0; MAX_DIGEST_BYTES] };
        digest.kind[..kind.len()].copy_from_slice(kind.as_bytes());
        digest.bytes[..bytes.len()].copy_from_slice(bytes);
        Ok(digest)
    }

    /// Creates a digest of four bytes, such as a CRC.
    ///
    /// # Panics
    /// If `kind` is not a valid name.
    pub fn of_u32(kind: &str, sum: u32) -> Self {
        Self::new(kind, &sum.to_be_bytes()).expect("kinds are named in the source")
    }

    /// The name of the digest's kind.
    pub fn kind(&self) -> &str {
        let end = self.kind.iter().position(|&byte| byte == 0).unwrap_or(MAX_KIND_BYTES);
        str::from_utf8(&self.kind[..end]).expect("kinds are ASCII")
    }

    /// How much the digest proves, according to its kind. Unknown kinds are treated as checksums.
    pub fn strength(&self) -> Strength {
        match self.kind() {
            "blake3" | "md5" | "sha1" | "sha256" => Strength::Digest,
            _ => Strength::Checksum,
        }
    }

    /// The bytes of the digest.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.kind())?;
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let malformed = || DigestError::Text(text.to_owned());
        let (kind, hex) = text.split_once(':').ok_or_else(malformed)?;
        if !hex.len().is_multiple_of(2) || !hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(malformed());
        }
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("two hexadecimal digits");
        Self::new(kind, &(0..hex.len()).step_by(2).map(byte).collect::<Vec<u8>>())
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for text in ["md5:d41d8cd98f00b204e9800998ecf8427e", "crc32c:00000000", "a:00", "sixteen-letters0:ff"]
        {
            let digest: Digest = text.parse().unwrap();
            assert_eq!(digest.to_string(), text);
            let json = serde_json::to_string(&digest).unwrap();
            assert_eq!(serde_json::from_str::<Digest>(&json).unwrap(), digest);
        }
        let longest = Digest::new("sha256", &[7; MAX_DIGEST_BYTES]).unwrap();
        assert_eq!(longest.to_string().parse(), Ok(longest));
    }

    #[test]
    fn malformed_text_is_refused() {
        let long = format!("sha512:{}", "00".repeat(64));
        for text in [
            "",
            "md5",
            "md5:",
            ":00",
            "md5:0",
            "md5:0G",
            "md5:AB",
            "MD5:00",
            "seventeen-letters:00",
            "é:00",
            "a:é",
            &long,
        ] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_kind_decides_the_strength() {
        let strength = |text: &str| text.parse::<Digest>().unwrap().strength();
        assert_eq!(strength("blake3:00"), Strength::Digest);
        assert_eq!(strength("crc32c-list:00"), Strength::Checksum);
        assert_eq!(strength("blake3-like:00"), Strength::Checksum);
        assert!(Strength::Checksum < Strength::Parity && Strength::Parity < Strength::Digest);
    }

    #[test]
    fn digests_of_different_kinds_or_lengths_differ() {
        let digest = |text: &str| text.parse::<Digest>().unwrap();
        assert_ne!(digest("a:00"), digest("b:00"));
        assert_ne!(digest("a:00"), digest("a:0000"));
    }
}
