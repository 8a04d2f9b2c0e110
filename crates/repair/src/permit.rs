//! Permits: what a store tells the helper that stores a block, such as a secret that the store's own process requires.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The maximum length of a permit, in bytes.
pub const MAX_PERMIT_BYTES: usize = 4 << 10;

/// What a store tells the helper that stores a block: for example a secret that lets its bearer give the block to the
/// store's own process, or the format of the block's checksums. Only the store can interpret it. The store issues permits when the coordinator claims a stripe for a repair, and the coordinator passes
/// each permit to the helper that rebuilds the block. Permits are neither logged nor written to disk.
///
/// ```
/// let permit = repair::Permit::new(b"a token".to_vec())?;
/// assert_eq!("YSB0b2tlbg==".parse(), Ok(permit.clone()));
/// assert_eq!(format!("{permit:?}"), "Permit(…)");
/// # Ok::<(), repair::PermitError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Permit(Box<[u8]>);

/// Why bytes or a text are not a valid permit. The error does not quote the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PermitError {
    /// The permit has too few or too many bytes.
    #[error("a permit has 1 to {MAX_PERMIT_BYTES} bytes, not {0}")]
    Length(usize),
    /// The text is not base64.
    #[error("the permit is not valid base64")]
    Text,
}

impl Permit {
    /// Creates a permit from its bytes.
    ///
    /// # Errors
    /// [`PermitError::Length`].
    pub fn new(bytes: Vec<u8>) -> Result<Self, PermitError> {
        match bytes.len() {
            1..=MAX_PERMIT_BYTES => Ok(Self(bytes.into())),
            length => Err(PermitError::Length(length)),
        }
    }

    /// The bytes of the permit. Pass them to the store's own process only.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit(…)") // Permits must not end up in logs.
    }
}

impl FromStr for Permit {
    type Err = PermitError;

    /// Parses base64.
    fn from_str(text: &str) -> Result<Self, PermitError> {
        let most = MAX_PERMIT_BYTES.div_ceil(3) * 4;
        if text.len() > most {
            return Err(PermitError::Length(text.len() / 4 * 3));
        }
        Self::new(STANDARD.decode(text).map_err(|_| PermitError::Text)?)
    }
}

impl Serialize for Permit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Permit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn invalid_permits_are_refused_and_not_quoted() {
        assert_eq!(Permit::new(Vec::new()), Err(PermitError::Length(0)));
        assert_eq!(Permit::new(vec![7; MAX_PERMIT_BYTES + 1]), Err(PermitError::Length(4097)));
        assert_eq!("".parse::<Permit>(), Err(PermitError::Length(0)));
        for text in ["secret!", "c2VjcmV", "c2VjcmV0=", "c2VjcmV1\n"] {
            let error = serde_json::from_value::<Permit>(text.into()).expect_err(text).to_string();
            assert_eq!(error, "the permit is not valid base64");
        }
        assert!(STANDARD.encode(vec![7; MAX_PERMIT_BYTES + 1]).parse::<Permit>().is_err());
        assert!("A".repeat(1 << 20).parse::<Permit>().is_err());
    }

    proptest! {
        #[test]
        fn a_permit_reads_back(bytes in prop::collection::vec(any::<u8>(), 1..=MAX_PERMIT_BYTES)) {
            let permit = Permit::new(bytes.clone()).expect("as long as one may be");
            let text = serde_json::to_string(&permit).expect("text");
            let again: Permit = serde_json::from_str(&text).expect("it is one");
            prop_assert_eq!(again.bytes(), &bytes[..]);
        }
    }
}
