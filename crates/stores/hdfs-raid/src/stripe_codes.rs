//! The codes of stripes, and the rule which stripes Mend can repair. The coordinator follows no other stripes, and files with
//! others are not encoded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use codes::{Code, CodeSpec};

use crate::{Block, Codec, Policies, ShortenError};

/// Why Mend cannot repair a stripe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unrepairable {
    /// The numbers of block groups are negative since Hadoop 3.
    #[error("block {0} has a negative number, as only Hadoop before 2.3 gave to blocks: write the file anew")]
    OldBlock(i64),
    /// The code has no form for the stripe.
    #[error(transparent)]
    Code(#[from] ShortenError),
}

/// The codec of a stripe, its number of data blocks, and the positions of those that do not exist any more.
type Shape = (String, usize, Vec<usize>);

/// The codes of stripes by their shapes, to compute each of them once. Codecs are told apart by their names.
#[derive(Debug, Default)]
pub struct StripeCodes(Mutex<BTreeMap<Shape, Result<Arc<CodeSpec>, ShortenError>>>);

/// The code of a codec, the number of losses that it tolerates, and the codes of its stripes.
#[derive(Debug)]
pub(crate) struct BuiltCode {
    codec: Codec,
    pub(crate) code: Arc<dyn Code>,
    pub(crate) tolerated: usize,
    pub(crate) stripes: StripeCodes,
}

impl StripeCodes {
    /// Returns the code of a stripe that had `data` data blocks, of which those at the positions `gone` do not exist any more.
    /// `blocks` are the others, and may include the parity.
    ///
    /// # Errors
    /// [`Unrepairable`].
    pub fn code<'a>(
        &self,
        codec: &Codec,
        blocks: impl IntoIterator<Item = &'a Block>,
        data: usize,
        gone: &[usize],
    ) -> Result<Arc<CodeSpec>, Unrepairable> {
        if let Some(block) = blocks.into_iter().find(|block| block.number < 0) {
            return Err(Unrepairable::OldBlock(block.number));
        }
        let mut codes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let code = codes.entry((codec.name.clone(), data, gone.to_vec()));
        Ok(code.or_insert_with(|| codec.punctured(data, gone).map(Arc::new)).clone()?)
    }
}

impl BuiltCode {
    pub(crate) fn of(codec: &Codec) -> Self {
        const CHECKED: &str = "the code was checked when it was parsed";
        Self {
            codec: codec.clone(),
            code: codec.code.build().expect(CHECKED),
            tolerated: codec.tolerates().expect(CHECKED),
            stripes: StripeCodes::default(),
        }
    }

    /// Checks that Mend can repair a stripe of these blocks, which had `data` data blocks. The blocks at the positions `gone`
    /// do not exist any more.
    ///
    /// # Errors
    /// [`Unrepairable`].
    pub(crate) fn check<'a>(
        &self,
        blocks: impl IntoIterator<Item = &'a Block>,
        data: usize,
        gone: &[usize],
    ) -> Result<(), Unrepairable> {
        self.stripes.code(&self.codec, blocks, data, gone).map(drop)
    }

    /// Builds the codes of all codecs, by the names of the codecs.
    pub(crate) fn all(policies: &Policies) -> BTreeMap<&str, Self> {
        policies.codecs().iter().map(|codec| (codec.name.as_str(), Self::of(codec))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scope;

    #[test]
    fn stripes_that_mend_cannot_repair_have_a_reason() {
        let codes = StripeCodes::default();
        let block = |number| Block { number, stamp: 1001, bytes: 9, replicas: Vec::new() };
        let code = |name: &str, numbers: &[i64], gone: &[usize]| {
            let codec = Codec::new(name, name.parse().expect("a code"), "/p", Scope::File);
            let blocks: Vec<Block> = numbers.iter().map(|&number| block(number)).collect();
            let code = codes.code(&codec, &blocks, 2 + gone.len(), gone);
            code.map(|code| code.to_string()).map_err(|why| why.to_string())
        };
        for _ in 0..2 {
            assert_eq!(code("xor-11-10", &[1, 2, 3], &[]).as_deref(), Ok("xor-3-2"));
            let why = code("xor-11-10", &[1, 2, -4], &[]).expect_err("a number of a block group");
            assert!(why.contains("block -4 has a negative number"), "{why}");
            let why = code("clay-14-10-13", &[1, 2, 3], &[]).expect_err("a short stripe");
            assert!(why.contains("has sub-blocks"), "{why}");
            // A data block was deleted: nothing is left of an XOR parity.
            let why = code("xor-11-10", &[1, 2, 3], &[2]).expect_err("no parity is left");
            assert!(why.contains("protects no other block"), "{why}");
            assert!(code("rs-14-10-hdfs-raid", &[1, 2, 3], &[2]).is_ok());
        }
    }
}
