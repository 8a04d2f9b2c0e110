//! Names of helpers and clients. A name must be a single DNS label, because it is part of the DNS name in the
//! member's certificate.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The maximum length of a name in bytes, which is the maximum length of a DNS label.
const MAX_NAME_BYTES: usize = 63;

/// The name of a helper, client or plug-in: 1 to 63 of the characters `a-z`, `0-9` and `-`, without `-` at
/// either end.
///
/// ```
/// use cluster::Name;
/// assert_eq!("h1".parse::<Name>().unwrap().as_str(), "h1");
/// assert!("Rack/7".parse::<Name>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The text is not a [`Name`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a name: use 1 to {MAX_NAME_BYTES} of a-z, 0-9 and -, with no - at either end")]
pub struct ParseNameError {
    /// The rejected text.
    pub text: String,
}

impl FromStr for Name {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::try_from(text.to_owned())
    }
}

impl TryFrom<String> for Name {
    type Error = ParseNameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if is_name(&text) { Ok(Self(text)) } else { Err(ParseNameError { text }) }
    }
}

fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_NAME_BYTES).contains(&text.len())
        && text.bytes().all(allowed)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_single_dns_labels() {
        let longest = "a".repeat(63);
        for good in ["h1", "a", "0", "rack-7-node-3", longest.as_str()] {
            assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
        }
        let too_long = "a".repeat(64);
        for bad in ["", "H1", "a.b", "a_b", "-a", "a-", "../x", "a/b", "é", "a b", too_long.as_str()] {
            assert_eq!(bad.parse::<Name>(), Err(ParseNameError { text: bad.to_owned() }));
        }
    }
}
