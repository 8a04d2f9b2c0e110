//! Why a text or a set of parameters names no code.

use crate::spec::{MAX_BLOCKS, families, forms};

/// Why a text or a set of parameters names no code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// No code has this name.
    #[error("there is no code `{name}`; the codes are {}", forms())]
    UnknownCode {
        /// The name that was given.
        name: String,
    },
    /// The code exists, but its parameters are not written as it needs them.
    #[error("`{text}` is not of the form {expected}")]
    Form {
        /// The text as given.
        text: String,
        /// The form of that code's names, with an example.
        expected: &'static str,
    },
    /// No Reed-Solomon family has this name.
    #[error("there is no Reed-Solomon family `{name}`; there are {}", families())]
    UnknownFamily {
        /// The name that was given.
        name: String,
    },
    /// k = 0.
    #[error("a stripe of n = {n} blocks needs at least one data block, not k = 0")]
    NoData {
        /// Blocks in a stripe.
        n: usize,
    },
    /// k ≥ n.
    #[error("n = {n} blocks must be more than the k = {k} data blocks among them (n comes first)")]
    NoParity {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
    },
    /// More blocks than the field has elements for.
    #[error("a stripe has at most {MAX_BLOCKS} blocks, not n = {n}")]
    TooManyBlocks {
        /// Blocks in a stripe.
        n: usize,
    },
    /// QFS has P, Q and R and nothing else.
    #[error("qfs has exactly 3 parity blocks, so n = k + 3; n = {n} and k = {k} make {}", n - k)]
    QfsParities {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
    },
    /// More data blocks than QFS has.
    #[error("qfs has at most {max} data blocks, not k = {k}")]
    QfsData {
        /// Data blocks in a stripe.
        k: usize,
        /// The most there can be.
        max: usize,
    },
    /// ISA-L's powers of the generator with more parity blocks than they serve for.
    #[error(
        "isal has at most {max} parity blocks, not the {} of n = {n} and k = {k}: with more, its matrix does not \
         decode every loss it should (rs-{n}-{k} does)", n - k
    )]
    IsalParities {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
        /// The most parity blocks there can be.
        max: usize,
    },
    /// ISA-L's powers of the generator with more data blocks than they serve for.
    #[error(
        "isal with 4 parity blocks has at most {max} data blocks, not k = {k}: with more, its matrix does not \
         decode every loss of 4 (rs-{}-{k} does)", k + 4
    )]
    IsalData {
        /// Data blocks in a stripe.
        k: usize,
        /// The most there can be.
        max: usize,
    },
    /// A plain XOR has one parity block.
    #[error("xor has exactly 1 parity block, so n = k + 1; n = {n} and k = {k} make {}", n - k)]
    XorParities {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
    },
    /// The data blocks of an LRC cannot be split evenly.
    #[error("k = {k} data blocks do not split into l = {l} local groups of one size")]
    LrcGroups {
        /// Data blocks in a stripe.
        k: usize,
        /// Local groups.
        l: usize,
    },
    /// An LRC without global parity blocks.
    #[error("an LRC of k = {k} and l = {l} needs at least one global parity block, not g = 0")]
    LrcGlobals {
        /// Data blocks in a stripe.
        k: usize,
        /// Local groups.
        l: usize,
    },
    /// Blocks that Ceph's plug-in lrc cannot cut into groups alike.
    #[error(
        "ceph-lrc cuts k = {k} and m = {m} blocks into groups of l = {l}: their number must divide k and m, and m > 0"
    )]
    CephLrcGroups {
        /// Data blocks.
        k: usize,
        /// Global parity blocks.
        m: usize,
        /// Blocks of a group.
        l: usize,
    },
    /// Numbers that Ceph's plug-in shec has no code for.
    #[error("ceph-shec needs 0 < c <= m <= k, not k = {k}, m = {m} and c = {c}")]
    CephShec {
        /// Data blocks.
        k: usize,
        /// Parity blocks.
        m: usize,
        /// Losses that are always repaired.
        c: usize,
    },
    /// A generator matrix that is none, or claims too much.
    #[error(transparent)]
    Generator(crate::GeneratorError),
    /// A number of sub-blocks that LESS has no code for.
    #[error("less has from 2 to n - k = {} sub-blocks in a block, not {alpha}", n - k)]
    LessSubBlocks {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
        /// Sub-blocks in a block.
        alpha: usize,
    },
    /// LESS with coefficients that do not decode every loss that they should, or that cannot be tried.
    #[error(
        "less-{n}-{k}-{alpha} is not known to decode every loss of {} blocks with this field's coefficients; try \
         another number of sub-blocks", n - k
    )]
    LessCoefficients {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
        /// Sub-blocks in a block.
        alpha: usize,
    },
    /// A number of rows for which a rotated code would not be MDS, or that is too large to be of use.
    #[error("r = {r} rows in a block must be a power of two from 2 to {max}, so that any k blocks decode")]
    RotatedRows {
        /// Rows in a block.
        r: usize,
        /// The most there can be.
        max: usize,
    },
    /// A Hitchhiker code without a parity block to carry sums.
    #[error("hitchhiker needs at least 2 parity blocks; n = {n} and k = {k} make 1")]
    HitchhikerParities {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
    },
    /// Numbers of blocks for which Hadoop's own coder fails.
    #[error(
        "hadoop's hitchhiker coder fails for k = {k} and {m} parity blocks: it needs k >= {m} and, with groups of {size}, \
         at most {size} blocks left over, not {left} (hitchhiker-xor-{}-{k} exists)", k + m
    )]
    HitchhikerHadoop {
        /// Data blocks in a stripe.
        k: usize,
        /// Parity blocks in a stripe.
        m: usize,
        /// ⌊k / (m − 1)⌋.
        size: usize,
        /// k − (m − 1)·size.
        left: usize,
    },
    /// A number of helpers that saves nothing, or that there are not.
    #[error("d = {d} helpers must be more than k = {k} and less than n = {n}")]
    ClayHelpers {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
        /// Helpers of a repair.
        d: usize,
    },
    /// A Clay code that would cut blocks too finely.
    #[error("clay-{n}-{k}-{d} would cut a block into {q}^{t} sub-blocks; at most {max} are allowed")]
    ClaySubBlocks {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
        /// Helpers of a repair.
        d: usize,
        /// q = d − k + 1.
        q: usize,
        /// t = ⌈n / q⌉.
        t: usize,
        /// The most there can be.
        max: usize,
    },
    /// A coupling that loses what it couples.
    #[error(
        "a coupling of {numbers:?} does not give any two values of a pair from the other two: none of the four may \
         be 0, nor the first times the third be the second times the fourth"
    )]
    ClayCoupling {
        /// o, p, o′ and p′.
        numbers: [u8; 4],
    },
}
