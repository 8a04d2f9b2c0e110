//! [`BlockTerms`]: the coordinator's instructions to a helper for a block that is about to be rebuilt. They travel
//! as a [`Permit`], which only this store interprets.
//!
//! Encoding: seven bytes as at the start of a checksum file, or zeros if the format is unknown; then the block
//! token, if any.

use repair::{Permit, PermitError};

use super::meta::{ChecksumFormat, HEADER_BYTES};

/// The checksum format and the token of a block to be rebuilt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockTerms {
    /// The checksum format of the other blocks of the group, if it is known.
    pub checksums: Option<ChecksumFormat>,
    /// The token with which the DataNode accepts the block, if HDFS uses block tokens.
    pub token: Option<Permit>,
}

const HEADER: usize = HEADER_BYTES as usize;

impl BlockTerms {
    /// Encodes the terms; `None` if they say nothing.
    ///
    /// # Errors
    /// [`PermitError::Length`] if the token is too long.
    pub fn to_permit(&self) -> Result<Option<Permit>, PermitError> {
        if *self == Self::default() {
            return Ok(None);
        }
        let mut bytes = self.checksums.map_or([0; HEADER], |format| format.encode()).to_vec();
        bytes.extend(self.token.iter().flat_map(Permit::bytes));
        Permit::new(bytes).map(Some)
    }

    /// Decodes a permit that [`to_permit`](Self::to_permit) has returned. Other bytes say nothing.
    pub fn of(permit: Option<&Permit>) -> Self {
        let Some((header, token)) = permit.and_then(|permit| permit.bytes().split_first_chunk::<HEADER>())
        else {
            return Self::default();
        };
        let checksums = ChecksumFormat::decode(header, u64::MAX).ok();
        Self { checksums, token: Permit::new(token.to_vec()).ok() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ChecksumKind;

    #[test]
    fn terms_are_read_as_they_are_written() {
        let format = ChecksumFormat::new(ChecksumKind::Crc32, 4096).expect("a format");
        let token = Permit::new(b"secret".to_vec()).expect("short");
        for checksums in [None, Some(format)] {
            for token in [None, Some(token.clone())] {
                let terms = BlockTerms { checksums, token };
                let permit = terms.to_permit().expect("short");
                assert_eq!(permit.is_some(), terms != BlockTerms::default());
                assert_eq!(BlockTerms::of(permit.as_ref()), terms);
            }
        }
        let short = Permit::new(vec![1; 6]).expect("short");
        assert_eq!(
            (BlockTerms::of(Some(&short)), BlockTerms::of(None)),
            (BlockTerms::default(), BlockTerms::default())
        );
    }
}
