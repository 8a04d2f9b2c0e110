//! [`Kernel`]: safe access to the vector instructions of this CPU.
//!
//! Lengths are checked here, so backends need not check them. CPU features are detected once, when the list
//! of kernels is first requested.
//!
//! # Adding a kernel
//!
//! Add one file with a type that implements [`Backend`] (for a new vector width or architecture: `Vector`,
//! whose loops are shared), and one line in [`Kernel::available`]. `tests/kernels.rs` iterates over that list
//! and thereby covers the new kernel on every machine that can run it. There are no kernels for
//! architectures other than x86-64 yet, because we only ship code that we have run.

use std::fmt;
use std::panic::RefUnwindSafe;
use std::sync::LazyLock;

use crate::scalar::Scalar;
#[cfg(target_arch = "x86_64")]
use crate::x86::{avx2::Avx2, avx2_gfni::Avx2Gfni, avx512_gfni::Avx512Gfni, ssse3::Ssse3};

/// An implementation of slice arithmetic that is known to run on this CPU.
///
/// All kernels compute identical results. Methods take slices of any length and alignment. Lengths that are a
/// multiple of 512 and buffers aligned to 64 bytes are fastest; many sources at the same offset within a 4
/// KiB page are slower.
#[derive(Clone, Copy)]
pub struct Kernel(&'static dyn Backend);

/// A source computed as a sum of two slices: first + c·second.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// The summand with coefficient 1.
    pub first: &'a [u8],
    /// The coefficient of `second`.
    pub c: u8,
    /// The summand multiplied by `c`.
    pub second: &'a [u8],
}

/// A term that is added to a single target.
#[derive(Clone, Copy, Debug)]
pub struct Single<'a> {
    /// The index of the target.
    pub target: usize,
    /// The coefficient of `source`.
    pub c: u8,
    /// The slice multiplied by `c`.
    pub source: &'a [u8],
}

/// The terms of several targets' sums.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms<'a> {
    /// The coefficients: one row per target, with a column for each source and then one for each pair.
    pub coefficients: &'a [u8],
    /// Sources of all targets.
    pub sources: &'a [&'a [u8]],
    /// Pairs, which are further sources of all targets.
    pub pairs: &'a [Pair<'a>],
    /// Terms of single targets, ascending by target.
    pub singles: &'a [Single<'a>],
}

/// An implementation for one set of CPU features. A value exists only if these features were detected.
pub(crate) trait Backend: Sync + RefUnwindSafe {
    fn name(&self) -> &'static str;
    fn run(&self, work: Work<'_, '_>);
}

/// One operation with its operands, represented as a value, so that a backend has a single entry point. That
/// function enables the CPU features, once per call.
///
/// All byte slices of one value have the same length.
pub(crate) enum Work<'a, 'b> {
    /// target += source
    Xor { source: &'a [u8], target: &'a mut [u8] },
    /// buffer = c·buffer
    Scale { c: u8, buffer: &'a mut [u8] },
    /// (first, second) = (first + second, ratios\[0]·first + ratios\[1]·second)
    Mix { ratios: [u8; 2], first: &'a mut [u8], second: &'a mut [u8] },
    /// targets = terms, or targets += terms if `accumulate`
    Combine { terms: Terms<'a>, targets: &'a mut [&'b mut [u8]], accumulate: bool },
}

impl Kernel {
    /// Returns the fastest kernel on this CPU, or the one that the environment variable `MEND_KERNEL` names.
    ///
    /// The variable is read once. A name that is unknown or not available here is ignored.
    pub fn best() -> Self {
        static BEST: LazyLock<Kernel> =
            LazyLock::new(|| Kernel::choose(std::env::var("MEND_KERNEL").ok().as_deref()));
        *BEST
    }

    fn choose(forced: Option<&str>) -> Self {
        forced.and_then(Self::named).unwrap_or(Self::available()[0])
    }

    /// Returns all kernels that run on this CPU, best first; the last is always `scalar`.
    pub fn available() -> &'static [Self] {
        static AVAILABLE: LazyLock<Vec<Kernel>> = LazyLock::new(|| {
            let candidates: &[Option<&'static dyn Backend>] = &[
                #[cfg(target_arch = "x86_64")]
                Avx512Gfni::detect(),
                #[cfg(target_arch = "x86_64")]
                Avx2Gfni::detect(),
                #[cfg(target_arch = "x86_64")]
                Avx2::detect(),
                #[cfg(target_arch = "x86_64")]
                Ssse3::detect(),
                Some(&Scalar),
            ];
            candidates.iter().flatten().map(|&backend| Kernel(backend)).collect()
        });
        &AVAILABLE
    }

    /// Returns the kernel with this name, if it is available: `gfni-avx512`, `gfni-avx2`, `avx2`, `ssse3` or
    /// `scalar`.
    pub fn named(name: &str) -> Option<Self> {
        Self::available().iter().copied().find(|kernel| kernel.name() == name)
    }

    /// Returns the kernel's name, which [`Kernel::named`] accepts.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// Adds `source` to `target`: target ^= source.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn xor(self, source: &[u8], target: &mut [u8]) {
        assert_eq!(source.len(), target.len(), "source and target differ in length");
        self.0.run(Work::Xor { source, target });
    }

    /// Multiplies `buffer` by `c`, in place: buffer = c·buffer.
    pub fn mul(self, c: u8, buffer: &mut [u8]) {
        match c {
            0 => buffer.fill(0),
            1 => {}
            _ => self.0.run(Work::Scale { c, buffer }),
        }
    }

    /// Overwrites `target` with a product: target = c·source.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn mul_into(self, c: u8, source: &[u8], target: &mut [u8]) {
        assert_eq!(source.len(), target.len(), "source and target differ in length");
        match c {
            0 => target.fill(0),
            1 => target.copy_from_slice(source),
            _ => self.product(c, source, target, false),
        }
    }

    /// Adds a product to `target`: target ^= c·source.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn mul_add(self, c: u8, source: &[u8], target: &mut [u8]) {
        assert_eq!(source.len(), target.len(), "source and target differ in length");
        match c {
            0 => {}
            1 => self.xor(source, target),
            _ => self.product(c, source, target, true),
        }
    }

    fn product(self, c: u8, source: &[u8], target: &mut [u8], accumulate: bool) {
        let terms = Terms { coefficients: &[c], sources: &[source], ..Terms::default() };
        self.0.run(Work::Combine { terms, targets: &mut [target], accumulate });
    }

    /// Overwrites each target with a linear combination of the sources: targets\[r] = Σ
    /// coefficients\[r·sources.len() + j]·sources\[j].
    ///
    /// This is encoding (with the parity rows of a generator matrix as coefficients) and decoding (with rows
    /// of the inverse). Without sources, the targets become zero. The sources are read once for every four
    /// targets.
    ///
    /// # Panics
    /// If the number of coefficients is not targets times sources, or any two lengths differ.
    pub fn combine(self, coefficients: &[u8], sources: &[&[u8]], targets: &mut [&mut [u8]]) {
        self.combine_terms(Terms { coefficients, sources, ..Terms::default() }, targets, false);
    }

    /// Adds linear combinations of the sources to the targets; otherwise like [`Kernel::combine`].
    ///
    /// # Panics
    /// If the number of coefficients is not targets times sources, or any two lengths differ.
    pub fn combine_add(self, coefficients: &[u8], sources: &[&[u8]], targets: &mut [&mut [u8]]) {
        self.combine_terms(Terms { coefficients, sources, ..Terms::default() }, targets, true);
    }

    /// Like [`Kernel::combine`], or like [`Kernel::combine_add`] if `accumulate`, with all kinds of terms.
    /// The sum of a pair is computed in registers, once for every four targets, and never stored. Single
    /// terms are added while their target's sum is in registers.
    ///
    /// # Panics
    /// If the number of coefficients is not targets times (sources plus pairs), any two lengths differ, or
    /// single terms refer to a target that does not exist or are not sorted by target.
    pub fn combine_terms(self, terms: Terms<'_>, targets: &mut [&mut [u8]], accumulate: bool) {
        let Terms { coefficients, sources, pairs, singles } = terms;
        let (r, k) = (targets.len(), sources.len() + pairs.len());
        assert_eq!(coefficients.len(), r * k, "{r} targets of {k} sources need a coefficient for each pair");
        assert!(
            singles.is_sorted_by_key(|single| single.target),
            "single terms that do not ascend by target"
        );
        assert!(singles.last().is_none_or(|last| last.target < r), "a single term of no target");
        let of_pairs = pairs.iter().flat_map(|pair| [pair.first.len(), pair.second.len()]);
        let of_singles = singles.iter().map(|single| single.source.len());
        let lengths = targets.iter().map(|t| t.len()).chain(sources.iter().map(|s| s.len()));
        assert_equal(lengths.chain(of_pairs).chain(of_singles));
        self.0.run(Work::Combine { terms, targets, accumulate });
    }

    /// Overwrites `first` with first + second, and `second` with ratios\[0]·first + ratios\[1]·second.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn mix(self, ratios: [u8; 2], first: &mut [u8], second: &mut [u8]) {
        assert_equal([first.len(), second.len()].into_iter());
        self.0.run(Work::Mix { ratios, first, second });
    }
}

fn assert_equal(mut lengths: impl Iterator<Item = usize>) {
    let first = lengths.next().unwrap_or(0);
    assert!(lengths.all(|length| length == first), "sources and targets differ in length");
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalar_is_always_the_last_resort() {
        assert_eq!(Kernel::available().last().unwrap().name(), "scalar");
    }

    #[test]
    fn every_available_kernel_is_found_by_its_name() {
        for kernel in Kernel::available() {
            assert_eq!(Kernel::named(kernel.name()).unwrap().name(), kernel.name());
        }
        assert!(Kernel::named("abacus").is_none());
    }

    #[test]
    fn a_forced_kernel_is_chosen_if_it_is_available() {
        let best = Kernel::available()[0].name();
        assert_eq!(Kernel::choose(Some("scalar")).name(), "scalar");
        assert_eq!(Kernel::choose(Some("abacus")).name(), best);
        assert_eq!(Kernel::choose(None).name(), best);
    }
}
