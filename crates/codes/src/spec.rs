//! The names of codes in metadata and on the command line.
//!
//! A name consists of the code, its parameters and any variant, joined by hyphens: `rs-14-10`,
//! `rs-9-6-jerasure`. A parsed spec is within the code's limits. A spec that is constructed directly, as a
//! Rust value, is checked when its code is built.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    Clay, ClayVariant, Code, Generator, Hitchhiker, HitchhikerVariant, Less, Linear, LinearCode, LrcGlobals,
    ReedSolomon, Rotated, RsFamily, SpecError, clay, hitchhiker, less, lrc, rotated,
};

/// The maximum n: GF(2^8) has 255 non-zero elements, and the constructions assign one to each block.
pub(crate) const MAX_BLOCKS: usize = 255;

/// A code and its parameters. The text form is used for storage and input.
///
/// ```
/// use codes::CodeSpec;
///
/// let spec: CodeSpec = "rs-14-10".parse()?;
/// assert_eq!(spec, CodeSpec::reed_solomon(14, 10));
/// assert_eq!("RS(9,6)-jerasure".parse::<CodeSpec>()?.to_string(), "rs-9-6-jerasure");
/// assert_eq!(spec.build()?.data_blocks(), 10);
/// # Ok::<(), codes::SpecError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CodeSpec {
    /// Reed-Solomon, `rs-N-K`, with a suffix for families other than Cauchy.
    ReedSolomon {
        /// The matrix family of the parity blocks.
        family: RsFamily,
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
    },
    /// One parity block, which is the XOR of the data blocks: `xor-N-K` with n = k + 1.
    Xor {
        /// Data blocks in a stripe.
        k: usize,
    },
    /// Azure's local reconstruction code, `lrc-K-L-G`.
    Lrc {
        /// Data blocks in a stripe.
        k: usize,
        /// Local groups, and local parity blocks.
        l: usize,
        /// Global parity blocks.
        g: usize,
    },
    /// Like `Lrc`, plus one more block with the XOR of the global parity blocks, `lrc1-K-L-G`.
    LrcPlusOne {
        /// Data blocks in a stripe.
        k: usize,
        /// Local groups, and local parity blocks.
        l: usize,
        /// Global parity blocks, not counting the additional block.
        g: usize,
    },
    /// A code without sub-blocks, defined by its parity rows; [`LinearCode`] lists the names.
    Linear(LinearCode),
    /// LESS, `less-N-K-A`.
    Less {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
        /// Sub-blocks in a block.
        alpha: usize,
    },
    /// Rotated Reed-Solomon, `rotated-N-K-R`.
    Rotated {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
        /// Rows (that is, sub-blocks) in a block.
        r: usize,
    },
    /// Hitchhiker, `hitchhiker-VARIANT-N-K`.
    Hitchhiker {
        /// The variant.
        variant: HitchhikerVariant,
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
    },
    /// Clay, `clay-N-K-D`, with a suffix for variants other than Mend's own.
    Clay {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
        /// The number of helpers in a repair.
        d: usize,
        /// The Reed-Solomon code of the planes, and the coupling.
        variant: ClayVariant,
    },
}

/// For each code: its name, the form of its specs with an example, and the parser of the parameters.
const CODES: &[(&str, &str, Parser)] = &[
    ("rs", "rs-N-K[-FAMILY], for example rs-14-10", reed_solomon),
    ("xor", "xor-N-K, for example xor-3-2", xor),
    ("lrc", "lrc-K-L-G[-powers|-cauchy], for example lrc-12-2-2", |numbers, suffix| {
        match suffix.and_then(LrcGlobals::of) {
            Some(globals) => exactly(numbers, None, |[k, l, g]| {
                CodeSpec::Linear(LinearCode::PublishedLrc { globals, k, l, g })
            }),
            None => exactly(numbers, suffix, |[k, l, g]| CodeSpec::Lrc { k, l, g }),
        }
    }),
    ("lrc1", "lrc1-K-L-G, for example lrc1-12-2-2", |numbers, suffix| {
        exactly(numbers, suffix, |[k, l, g]| CodeSpec::LrcPlusOne { k, l, g })
    }),
    ("uniform-lrc", "uniform-lrc-K-L-G, for example uniform-lrc-48-4-3", |numbers, suffix| {
        exactly(numbers, suffix, |[k, l, g]| CodeSpec::Linear(LinearCode::UniformLrc { k, l, g }))
    }),
    ("ceph-lrc", "ceph-lrc-K-M-L, for example ceph-lrc-4-2-3", |numbers, suffix| {
        exactly(numbers, suffix, |[k, m, l]| CodeSpec::Linear(LinearCode::CephLrc { k, m, l }))
    }),
    ("ceph-shec", "ceph-shec-K-M-C, for example ceph-shec-4-3-2", |numbers, suffix| {
        exactly(numbers, suffix, |[k, m, c]| CodeSpec::Linear(LinearCode::CephShec { k, m, c }))
    }),
    ("par1", "par1-N-K, for example par1-7-4", |numbers, suffix| {
        exactly(numbers, suffix, |[n, k]| CodeSpec::Linear(LinearCode::Par1 { n, k }))
    }),
    ("explicit", "explicit-N-K-T-xHEX, for example explicit-3-2-1-x0101", explicit),
    ("less", "less-N-K-A, for example less-14-10-4", |numbers, suffix| {
        exactly(numbers, suffix, |[n, k, alpha]| CodeSpec::Less { n, k, alpha })
    }),
    ("rotated", "rotated-N-K-R, for example rotated-16-12-4", |numbers, suffix| {
        exactly(numbers, suffix, |[n, k, r]| CodeSpec::Rotated { n, k, r })
    }),
    ("hitchhiker-xor", "hitchhiker-xor-N-K[-hadoop], for example hitchhiker-xor-14-10", |numbers, suffix| {
        match suffix {
            Some("hadoop") => exactly(numbers, None, |[n, k]| hitchhiker_of(HitchhikerVariant::Hadoop, n, k)),
            _ => exactly(numbers, suffix, |[n, k]| hitchhiker_of(HitchhikerVariant::Xor, n, k)),
        }
    }),
    (
        "hitchhiker-xorplus",
        "hitchhiker-xorplus-N-K, for example hitchhiker-xorplus-14-10",
        |numbers, suffix| exactly(numbers, suffix, |[n, k]| hitchhiker_of(HitchhikerVariant::XorPlus, n, k)),
    ),
    ("hitchhiker-nonxor", "hitchhiker-nonxor-N-K, for example hitchhiker-nonxor-14-10", |numbers, suffix| {
        exactly(numbers, suffix, |[n, k]| hitchhiker_of(HitchhikerVariant::NonXor, n, k))
    }),
    (
        "clay",
        "clay-N-K-D[-ceph-jerasure|-ceph-isa|-ceph-cauchy|-FAMILY-O-P-O-P], for example clay-14-10-13",
        clay_of,
    ),
];

/// Alternative names of codes.
const ALIASES: &[(&str, &str)] = &[
    ("azure-lrc", "lrc"),
    ("lrc+1", "lrc1"),
    ("rotated-rs", "rotated"),
    ("hitchhiker-xor+", "hitchhiker-xorplus"),
];

/// Parses the numbers and the suffix of a name; returns `None` if they do not have the expected form.
type Parser = fn(&[usize], Option<&str>) -> Result<Option<CodeSpec>, SpecError>;

pub(crate) fn families() -> String {
    let names: Vec<String> = RsFamily::ALL.iter().map(RsFamily::to_string).collect();
    let (last, others) = names.split_last().expect("there are families");
    format!("{} and {last}", others.join(", "))
}

pub(crate) fn forms() -> String {
    let forms: Vec<&str> = CODES.iter().map(|(_, form, _)| *form).collect();
    forms.join("; ")
}

fn reed_solomon(numbers: &[usize], suffix: Option<&str>) -> Result<Option<CodeSpec>, SpecError> {
    let &[n, k] = numbers else { return Ok(None) };
    let family = suffix.map_or(Ok(RsFamily::Cauchy), str::parse)?;
    Ok(Some(CodeSpec::ReedSolomon { family, n, k }))
}

fn xor(numbers: &[usize], suffix: Option<&str>) -> Result<Option<CodeSpec>, SpecError> {
    let (&[n, k], None) = (numbers, suffix) else { return Ok(None) };
    check_stripe(n, k)?;
    if n - k != 1 {
        return Err(SpecError::XorParities { n, k });
    }
    Ok(Some(CodeSpec::Xor { k }))
}

fn explicit(numbers: &[usize], suffix: Option<&str>) -> Result<Option<CodeSpec>, SpecError> {
    let (&[n, k, tolerates], Some(hex)) = (numbers, suffix.and_then(|suffix| suffix.strip_prefix('x')))
    else {
        return Ok(None);
    };
    let generator = Generator::from_hex(n, k, tolerates, hex).map_err(SpecError::Generator)?;
    Ok(Some(CodeSpec::Linear(LinearCode::Explicit(Arc::new(generator)))))
}

fn clay_of(numbers: &[usize], suffix: Option<&str>) -> Result<Option<CodeSpec>, SpecError> {
    let (&[n, k, d], Some(variant)) = (numbers, ClayVariant::parse(suffix)?) else { return Ok(None) };
    Ok(Some(CodeSpec::Clay { n, k, d, variant }))
}

fn exactly<const N: usize>(
    numbers: &[usize],
    suffix: Option<&str>,
    spec: impl Fn([usize; N]) -> CodeSpec,
) -> Result<Option<CodeSpec>, SpecError> {
    let numbers: Option<[usize; N]> = numbers.try_into().ok().filter(|_| suffix.is_none());
    Ok(numbers.map(spec))
}

fn hitchhiker_of(variant: HitchhikerVariant, n: usize, k: usize) -> CodeSpec {
    CodeSpec::Hitchhiker { variant, n, k }
}

impl CodeSpec {
    /// Returns the spec of Reed-Solomon with the Cauchy matrix of ISA-L and Hadoop.
    pub fn reed_solomon(n: usize, k: usize) -> Self {
        Self::ReedSolomon { family: RsFamily::Cauchy, n, k }
    }

    /// Returns n, the number of blocks in a stripe.
    pub fn blocks(&self) -> usize {
        match *self {
            Self::ReedSolomon { n, .. }
            | Self::Rotated { n, .. }
            | Self::Hitchhiker { n, .. }
            | Self::Less { n, .. }
            | Self::Clay { n, .. } => n,
            Self::Linear(ref code) => code.blocks(),
            Self::Xor { k } => k.saturating_add(1),
            // Sums saturate instead of overflowing. A saturated sum exceeds the limits in any case.
            Self::Lrc { k, l, g } => k.saturating_add(l).saturating_add(g),
            Self::LrcPlusOne { k, l, g } => k.saturating_add(l).saturating_add(g).saturating_add(1),
        }
    }

    /// Returns k, the number of data blocks in a stripe.
    pub fn data_blocks(&self) -> usize {
        match *self {
            Self::ReedSolomon { k, .. }
            | Self::Xor { k }
            | Self::Lrc { k, .. }
            | Self::LrcPlusOne { k, .. }
            | Self::Rotated { k, .. }
            | Self::Hitchhiker { k, .. }
            | Self::Less { k, .. }
            | Self::Clay { k, .. } => k,
            Self::Linear(ref code) => code.data_blocks(),
        }
    }

    /// Returns α, the number of sub-blocks in a block, for a spec that passes [`check`](Self::check).
    pub fn sub_blocks(&self) -> usize {
        match *self {
            Self::ReedSolomon { .. }
            | Self::Xor { .. }
            | Self::Lrc { .. }
            | Self::LrcPlusOne { .. }
            | Self::Linear(_) => 1,
            Self::Less { alpha, .. } => alpha,
            Self::Rotated { r, .. } => r,
            Self::Hitchhiker { .. } => hitchhiker::HALVES,
            Self::Clay { n, k, d, .. } => clay::sub_blocks(n, k, d),
        }
    }

    /// Whether any k blocks decode, so that any n − k losses can be repaired.
    pub fn is_mds(&self) -> bool {
        match self {
            Self::ReedSolomon { .. }
            | Self::Xor { .. }
            | Self::Rotated { .. }
            | Self::Hitchhiker { .. }
            | Self::Less { .. }
            | Self::Clay { .. } => true,
            Self::Lrc { .. } | Self::LrcPlusOne { .. } => false,
            Self::Linear(code) => code.is_mds(),
        }
    }

    /// Checks the parameters without building the code.
    ///
    /// # Errors
    /// The rule that the parameters violate.
    pub fn check(&self) -> Result<(), SpecError> {
        if let Self::Lrc { k, l, g } | Self::LrcPlusOne { k, l, g } = *self {
            lrc::check(k, l, g)?;
        }
        check_stripe(self.blocks(), self.data_blocks())?;
        match *self {
            Self::ReedSolomon { family, n, k } => family.check(n, k),
            Self::Xor { .. } | Self::Lrc { .. } | Self::LrcPlusOne { .. } => Ok(()),
            Self::Linear(ref code) => code.check(),
            Self::Less { n, k, alpha } => less::check(n, k, alpha),
            Self::Rotated { r, .. } => rotated::check(r),
            Self::Hitchhiker { variant, n, k } => hitchhiker::check(variant, n, k),
            Self::Clay { n, k, d, variant } => clay::check(n, k, d, variant),
        }
    }

    /// Builds the code, as a value that callers can share.
    ///
    /// # Errors
    /// The rule that the parameters violate.
    pub fn build(&self) -> Result<Arc<dyn Code>, SpecError> {
        Ok(match *self {
            Self::ReedSolomon { family, n, k } => Arc::new(ReedSolomon::new(family, n, k)?),
            Self::Xor { k } => Arc::new(ReedSolomon::xor(k)?),
            Self::Lrc { k, l, g } => Arc::new(lrc::azure(k, l, g)?),
            Self::LrcPlusOne { k, l, g } => Arc::new(lrc::azure_plus_one(k, l, g)?),
            Self::Linear(ref code) => Arc::new(Linear::new(code)?),
            Self::Less { n, k, alpha } => Arc::new(Less::new(n, k, alpha)?),
            Self::Rotated { n, k, r } => Arc::new(Rotated::new(n, k, r)?),
            Self::Hitchhiker { variant, n, k } => Arc::new(Hitchhiker::new(variant, n, k)?),
            Self::Clay { n, k, d, variant } => Arc::new(Clay::new(n, k, d, variant)?),
        })
    }
}

/// Checks the limits on n and k common to all codes.
fn check_stripe(n: usize, k: usize) -> Result<(), SpecError> {
    if k == 0 {
        return Err(SpecError::NoData { n });
    }
    if k >= n {
        return Err(SpecError::NoParity { n, k });
    }
    if n > MAX_BLOCKS {
        return Err(SpecError::TooManyBlocks { n });
    }
    Ok(())
}

impl fmt::Display for CodeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReedSolomon { family: RsFamily::Cauchy, n, k } => write!(f, "rs-{n}-{k}"),
            Self::ReedSolomon { family, n, k } => write!(f, "rs-{n}-{k}-{family}"),
            Self::Xor { k } => write!(f, "xor-{}-{k}", k + 1),
            Self::Lrc { k, l, g } => write!(f, "lrc-{k}-{l}-{g}"),
            Self::LrcPlusOne { k, l, g } => write!(f, "lrc1-{k}-{l}-{g}"),
            Self::Linear(code) => write!(f, "{code}"),
            Self::Less { n, k, alpha } => write!(f, "less-{n}-{k}-{alpha}"),
            Self::Rotated { n, k, r } => write!(f, "rotated-{n}-{k}-{r}"),
            Self::Hitchhiker { variant: HitchhikerVariant::Hadoop, n, k } => {
                write!(f, "hitchhiker-xor-{n}-{k}-hadoop")
            }
            Self::Hitchhiker { variant, n, k } => write!(f, "hitchhiker-{variant}-{n}-{k}"),
            Self::Clay { n, k, d, variant } => write!(f, "clay-{n}-{k}-{d}{variant}"),
        }
    }
}

impl FromStr for CodeSpec {
    type Err = SpecError;

    /// Parses a name such as `rs-14-10` or `rs(14,10)`. Case does not matter.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let parts = NameParts::of(text);
        let name =
            ALIASES.iter().find(|(alias, _)| *alias == parts.name).map_or(&*parts.name, |(_, name)| name);
        let Some(&(_, expected, parse)) = CODES.iter().find(|(code, ..)| *code == name) else {
            return Err(SpecError::UnknownCode { name: parts.name });
        };
        let form = || SpecError::Form { text: text.to_owned(), expected };
        let numbers = parts.numbers.ok_or_else(form)?;
        let spec = parse(&numbers, parts.suffix.as_deref())?.ok_or_else(form)?;
        spec.check()?;
        Ok(spec)
    }
}

/// The parts of a name: `hitchhiker-xor-14-10` has the name `hitchhiker-xor` and the numbers 14 and 10. Text
/// after the numbers is the suffix.
struct NameParts {
    name: String,
    /// `None` if a number is too large for any code.
    numbers: Option<Vec<usize>>,
    suffix: Option<String>,
}

impl NameParts {
    fn of(text: &str) -> Self {
        let text = text.trim().to_ascii_lowercase();
        let hyphenated = hyphenated(&text).unwrap_or(text);
        let parts: Vec<&str> = hyphenated.split('-').map(str::trim).collect();
        let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let named = parts.iter().take_while(|part| !is_number(part)).count();
        let numbered = parts[named..].iter().take_while(|part| is_number(part)).count();
        Self {
            name: parts[..named].join("-"),
            numbers: parts[named..named + numbered].iter().map(|part| part.parse().ok()).collect(),
            suffix: (named + numbered < parts.len()).then(|| parts[named + numbered..].join("-")),
        }
    }
}

/// Rewrites `rs(14,10)-qfs` as `rs-14-10-qfs`.
fn hyphenated(text: &str) -> Option<String> {
    let (name, rest) = text.split_once('(')?;
    let (parameters, suffix) = rest.split_once(')')?;
    Some(format!("{name}-{}{suffix}", parameters.replace(',', "-")))
}

impl TryFrom<String> for CodeSpec {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<CodeSpec> for String {
    fn from(spec: CodeSpec) -> Self {
        spec.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<CodeSpec>().expect_err("not a code").to_string()
    }

    #[test]
    fn names_round_trip() {
        for name in
            ["rs-14-10", "rs-14-10-vandermonde", "rs-9-6-jerasure", "rs-9-6-qfs", "rs-14-10-hdfs-raid"]
        {
            let spec: CodeSpec = name.parse().expect("a code");
            assert_eq!(spec.to_string(), name);
            let code = spec.build().expect("within limits");
            assert_eq!(code.spec(), &spec);
            assert_eq!(code.blocks(), spec.blocks());
            assert_eq!(code.data_blocks(), spec.data_blocks());
            assert_eq!(code.sub_blocks(), spec.sub_blocks());
        }
    }

    #[test]
    fn other_spellings_are_understood() {
        for (spelling, name) in [
            ("rs(14,10)", "rs-14-10"),
            ("RS(14, 10)", "rs-14-10"),
            (" RS-14-10 ", "rs-14-10"),
            ("rs-14-10-cauchy", "rs-14-10"),
            ("rs-14-10-legacy", "rs-14-10-hdfs-raid"),
            ("RS(9,6)-QFS", "rs-9-6-qfs"),
            ("LRC(12,2,2)", "lrc-12-2-2"),
            ("Azure-LRC(12,2,2)", "lrc-12-2-2"),
            ("LRC+1(12,2,2)", "lrc1-12-2-2"),
            ("rotated-rs(16,12,4)", "rotated-16-12-4"),
            ("Hitchhiker-XOR+(14,10)", "hitchhiker-xorplus-14-10"),
            ("Clay(14,10,13)", "clay-14-10-13"),
        ] {
            assert_eq!(spelling.parse::<CodeSpec>().expect(spelling).to_string(), name);
        }
    }

    #[test]
    fn metadata_holds_the_name_and_is_checked_when_read() {
        use serde::de::value::{Error, StrDeserializer};
        let read = |name: &'static str| CodeSpec::deserialize(StrDeserializer::<Error>::new(name));
        assert_eq!(read("rs-9-6"), Ok(CodeSpec::reed_solomon(9, 6)));
        assert_eq!(String::from(CodeSpec::reed_solomon(9, 6)), "rs-9-6");
        let error = read("rs-6-9").expect_err("more data than blocks").to_string();
        assert!(error.starts_with("n = 6 blocks must be more than the k = 9 data blocks"));
    }

    #[test]
    fn errors_state_the_rule_and_the_numbers() {
        for (text, message) in [
            ("rs-14", "`rs-14` is not of the form rs-N-K[-FAMILY], for example rs-14-10"),
            ("rs-14-10-3", "`rs-14-10-3` is not of the form rs-N-K[-FAMILY], for example rs-14-10"),
            ("rs-10-14", "n = 10 blocks must be more than the k = 14 data blocks among them (n comes first)"),
            ("rs-10-10", "n = 10 blocks must be more than the k = 10 data blocks among them (n comes first)"),
            ("rs-3-0", "a stripe of n = 3 blocks needs at least one data block, not k = 0"),
            ("rs-256-200", "a stripe has at most 255 blocks, not n = 256"),
            ("rs-14-10-qfs", "qfs has exactly 3 parity blocks, so n = k + 3; n = 14 and k = 10 make 4"),
            ("rs-68-65-qfs", "qfs has at most 64 data blocks, not k = 65"),
            (
                "rs-14-10-leopard",
                "there is no Reed-Solomon family `leopard`; the families are cauchy, vandermonde, jerasure, qfs, hdfs-raid, isal, isal-inverse and zfec",
            ),
        ] {
            assert_eq!(error(text), message);
        }
        assert!(
            error("raid6-6-4").starts_with("there is no code `raid6`; the codes are rs-N-K[-FAMILY], for")
        );
        assert!(error("").starts_with("there is no code ``; the codes are "));
        assert!(error("rs-99999999999999999999-3").contains("is not of the form"));
        assert!(error("rs(14,10").contains("no code `rs(14,10`"));
    }
}
