//! How a code is named in metadata and on the command line.
//!
//! A name is the code, its parameters and what varies beyond them, joined by hyphens: `rs-14-10`,
//! `rs-9-6-jerasure`. A spec that was parsed is within the code's limits; one that was written as a
//! value is checked when it is built.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Code, ReedSolomon, RsFamily};

/// GF(2^8) has 255 elements other than zero, and the constructions give one to each block.
pub(crate) const MAX_BLOCKS: usize = 255;

/// A code and its parameters; the text form is what is stored and typed.
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
    /// Reed-Solomon, `rs-N-K` with a suffix for families other than Cauchy.
    ReedSolomon {
        /// The matrix that makes the parity blocks.
        family: RsFamily,
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
    },
}

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
        /// What was given.
        text: String,
        /// The form of that code's names, with an example.
        expected: &'static str,
    },
    /// No Reed-Solomon family has this name.
    #[error(
        "there is no Reed-Solomon family `{name}`; there are cauchy, vandermonde, jerasure, qfs and hdfs-raid"
    )]
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
}

/// The form of each code's names: the name, the form with an example, and what reads the parameters.
const CODES: &[(&str, &str, Parser)] = &[("rs", "rs-N-K[-FAMILY], for example rs-14-10", parse_reed_solomon)];

/// Reads the numbers and the suffix of a name; `None` if there are not as many as the code needs.
type Parser = fn(&[usize], &str) -> Result<Option<CodeSpec>, SpecError>;

fn forms() -> String {
    let forms: Vec<&str> = CODES.iter().map(|(_, form, _)| *form).collect();
    forms.join("; ")
}

fn parse_reed_solomon(numbers: &[usize], suffix: &str) -> Result<Option<CodeSpec>, SpecError> {
    let &[n, k] = numbers else { return Ok(None) };
    let family = if suffix.is_empty() { RsFamily::Cauchy } else { suffix.parse()? };
    Ok(Some(CodeSpec::ReedSolomon { family, n, k }))
}

impl CodeSpec {
    /// Reed-Solomon with the Cauchy matrix of ISA-L and Hadoop.
    pub fn reed_solomon(n: usize, k: usize) -> Self {
        Self::ReedSolomon { family: RsFamily::Cauchy, n, k }
    }

    /// n: blocks in a stripe.
    pub fn blocks(&self) -> usize {
        match *self {
            Self::ReedSolomon { n, .. } => n,
        }
    }

    /// k: data blocks in a stripe.
    pub fn data_blocks(&self) -> usize {
        match *self {
            Self::ReedSolomon { k, .. } => k,
        }
    }

    /// Whether there is such a code, without making it.
    ///
    /// # Errors
    /// The rule that the parameters break.
    pub fn check(&self) -> Result<(), SpecError> {
        let (n, k) = (self.blocks(), self.data_blocks());
        if k == 0 {
            return Err(SpecError::NoData { n });
        }
        if k >= n {
            return Err(SpecError::NoParity { n, k });
        }
        if n > MAX_BLOCKS {
            return Err(SpecError::TooManyBlocks { n });
        }
        match *self {
            Self::ReedSolomon { family, n, k } => family.check(n, k),
        }
    }

    /// The code itself, to be shared.
    ///
    /// # Errors
    /// The rule that the parameters break.
    pub fn build(&self) -> Result<Arc<dyn Code>, SpecError> {
        match *self {
            Self::ReedSolomon { family, n, k } => Ok(Arc::new(ReedSolomon::new(family, n, k)?)),
        }
    }
}

impl fmt::Display for CodeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReedSolomon { family: RsFamily::Cauchy, n, k } => write!(f, "rs-{n}-{k}"),
            Self::ReedSolomon { family, n, k } => write!(f, "rs-{n}-{k}-{family}"),
        }
    }
}

impl FromStr for CodeSpec {
    type Err = SpecError;

    /// Reads `rs-14-10`, and also `rs(14,10)`; capitals do not matter.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let parts = NameParts::of(text);
        let Some(&(_, expected, parse)) = CODES.iter().find(|(name, ..)| *name == parts.name) else {
            return Err(SpecError::UnknownCode { name: parts.name });
        };
        let form = || SpecError::Form { text: text.to_owned(), expected };
        let numbers = parts.numbers.ok_or_else(form)?;
        let spec = parse(&numbers, &parts.suffix)?.ok_or_else(form)?;
        spec.check()?;
        Ok(spec)
    }
}

/// `hitchhiker-xor-14-10` is the name `hitchhiker-xor` and the numbers 14 and 10; what follows the
/// numbers is the suffix.
struct NameParts {
    name: String,
    /// `None` if a number is too large for any code.
    numbers: Option<Vec<usize>>,
    suffix: String,
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
            suffix: parts[named + numbered..].join("-"),
        }
    }
}

/// `rs(14,10)-qfs` as `rs-14-10-qfs`.
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
    fn names_read_back_as_they_print() {
        for name in
            ["rs-14-10", "rs-14-10-vandermonde", "rs-9-6-jerasure", "rs-9-6-qfs", "rs-14-10-hdfs-raid"]
        {
            let spec: CodeSpec = name.parse().expect("a code");
            assert_eq!(spec.to_string(), name);
            assert_eq!(spec.build().expect("within limits").spec(), &spec);
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
        ] {
            assert_eq!(spelling.parse::<CodeSpec>().expect(spelling).to_string(), name);
        }
    }

    #[test]
    fn errors_say_the_rule_and_the_numbers() {
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
                "rs-14-10-isal",
                "there is no Reed-Solomon family `isal`; there are cauchy, vandermonde, jerasure, qfs and hdfs-raid",
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
