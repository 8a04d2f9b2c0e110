//! The error for a text or parameters that specify no code.

use crate::spec::{MAX_BLOCKS, families, forms};

/// Why a text or a set of parameters specifies no code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The name of the code is unknown.
    #[error("there is no code `{name}`; the codes are {}", forms())]
    UnknownCode {
        /// The given name.
        name: String,
    },
    /// The code exists, but its parameters are malformed.
    #[error("`{text}` is not of the form {expected}")]
    Form {
        /// The given text.
        text: String,
        /// The form of that code's names, with an example.
        expected: &'static str,
    },
    /// The name of the Reed-Solomon family is unknown.
    #[error("there is no Reed-Solomon family `{name}`; the families are {}", families())]
    UnknownFamily {
        /// The given name.
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
    /// There are more blocks than the field has non-zero elements.
    #[error("a stripe has at most {MAX_BLOCKS} blocks, not n = {n}")]
    TooManyBlocks {
        /// Blocks in a stripe.
        n: usize,
    },
    /// The number of parity blocks is not three. QFS has exactly three: P, Q and R.
    #[error("qfs has exactly 3 parity blocks, so n = k + 3; n = {n} and k = {k} make {}", n - k)]
    QfsParities {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
    },
    /// There are more data blocks than QFS supports.
    #[error("qfs has at most {max} data blocks, not k = {k}")]
    QfsData {
        /// Data blocks in a stripe.
        k: usize,
        /// The maximum number of data blocks.
        max: usize,
    },
    /// ISA-L's powers of the generator are not MDS for this many parity blocks.
    #[error(
        "isal has at most {max} parity blocks, not the {} of n = {n} and k = {k}: with more, its matrix does not \
         decode every loss it should (rs-{n}-{k} does)", n - k
    )]
    IsalParities {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
        /// The maximum number of parity blocks.
        max: usize,
    },
    /// ISA-L's powers of the generator are not MDS for this many data blocks.
    #[error(
        "isal with 4 parity blocks has at most {max} data blocks, not k = {k}: with more, its matrix does not \
         decode every loss of 4 (rs-{}-{k} does)", k + 4
    )]
    IsalData {
        /// Data blocks in a stripe.
        k: usize,
        /// The maximum number of data blocks.
        max: usize,
    },
    /// The number of parity blocks is not one. A plain XOR has exactly one.
    #[error("xor has exactly 1 parity block, so n = k + 1; n = {n} and k = {k} make {}", n - k)]
    XorParities {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
    },
    /// The data blocks of an LRC cannot be divided evenly into groups.
    #[error("k = {k} data blocks do not split into l = {l} local groups of one size")]
    LrcGroups {
        /// Data blocks in a stripe.
        k: usize,
        /// Local groups.
        l: usize,
    },
    /// The LRC has no global parity blocks.
    #[error("an LRC of k = {k} and l = {l} needs at least one global parity block, not g = 0")]
    LrcGlobals {
        /// Data blocks in a stripe.
        k: usize,
        /// Local groups.
        l: usize,
    },
    /// Ceph's lrc plug-in cannot divide the blocks into equal groups.
    #[error(
        "ceph-lrc cuts k = {k} and m = {m} blocks into groups of l = {l}: their number must divide k and m, and m > 0"
    )]
    CephLrcGroups {
        /// Data blocks.
        k: usize,
        /// Global parity blocks.
        m: usize,
        /// Blocks in a group.
        l: usize,
    },
    /// Ceph's shec plug-in has no code with these parameters.
    #[error("ceph-shec needs 0 < c <= m <= k, not k = {k}, m = {m} and c = {c}")]
    CephShec {
        /// Data blocks.
        k: usize,
        /// Parity blocks.
        m: usize,
        /// The number of losses that are always repairable.
        c: usize,
    },
    /// The generator matrix is invalid, or tolerates fewer losses than claimed.
    #[error(transparent)]
    Generator(crate::GeneratorError),
    /// LESS has no code with this number of sub-blocks.
    #[error("less has from 2 to n - k = {} sub-blocks in a block, not {alpha}", n - k)]
    LessSubBlocks {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
        /// Sub-blocks in a block.
        alpha: usize,
    },
    /// With these parameters, LESS is not MDS, or proving it would take too many trials.
    #[error(
        "less-{n}-{k}-{alpha} may fail to decode some losses of {} blocks, because no suitable coefficients \
         are known; try another number of sub-blocks", n - k
    )]
    LessCoefficients {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
        /// Sub-blocks in a block.
        alpha: usize,
    },
    /// With this number of rows, a rotated code is not MDS, or its rows are too short to be useful.
    #[error("r = {r} rows in a block must be a power of two from 2 to {max}, so that any k blocks decode")]
    RotatedRows {
        /// Rows in a block.
        r: usize,
        /// The maximum number of rows.
        max: usize,
    },
    /// The Hitchhiker code has no parity block to carry sums.
    #[error("hitchhiker needs at least 2 parity blocks; n = {n} and k = {k} make 1")]
    HitchhikerParities {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
    },
    /// Hadoop's own coder fails for these numbers of blocks.
    #[error(
        "hadoop's hitchhiker coder fails for k = {k} and {m} parity blocks: it needs k >= {m} and, with groups of {size}, \
         at most {size} blocks left over, not {left} (hitchhiker-xor-{}-{k} exists)", k + m
    )]
    HitchhikerHadoop {
        /// Data blocks in a stripe.
        k: usize,
        /// Parity blocks in a stripe.
        m: usize,
        /// Data blocks in a group: ⌊k / (m − 1)⌋.
        size: usize,
        /// Data blocks left over: k − (m − 1)·size.
        left: usize,
    },
    /// With this number of helpers a repair saves nothing (d ≤ k), or there are fewer than d other blocks.
    #[error("d = {d} helpers must be more than k = {k} and less than n = {n}")]
    ClayHelpers {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
        /// The number of helpers in a repair.
        d: usize,
    },
    /// The Clay code would have too many sub-blocks.
    #[error("clay-{n}-{k}-{d} would cut a block into {q}^{t} sub-blocks; at most {max} are allowed")]
    ClaySubBlocks {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
        /// The number of helpers in a repair.
        d: usize,
        /// The width of the grid, q = d − k + 1.
        q: usize,
        /// The height of the grid, t = ⌈n / q⌉.
        t: usize,
        /// The maximum number of sub-blocks.
        max: usize,
    },
    /// The coupling is not invertible.
    #[error(
        "the coupling {numbers:?} is not invertible: none of the four numbers may be 0, and the first times \
         the third must differ from the second times the fourth"
    )]
    ClayCoupling {
        /// o, p, o′ and p′.
        numbers: [u8; 4],
    },
}
