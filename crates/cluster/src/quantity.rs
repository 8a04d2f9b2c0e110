//! Sizes and rates as people write them on the command line and in `mend.toml`.
//!
//! Parsing is exact: a text that is not a whole number of bytes (or bits per second) is rejected, and the
//! displayed text parses back to the same value. The crate `bytesize` is not used, because it rounds
//! displayed values, and a configuration must not be rounded.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::{Serialize, Serializer};

/// A number of bytes: `64MiB`, `4KiB`, `1.5GiB`, or a plain number of bytes.
///
/// Units are those of GNU tools, in upper or lower case: `K` and `KiB` are 1024, `KB` is 1000, and so on up
/// to `P`.
///
/// ```
/// use cluster::ByteSize;
/// let block: ByteSize = "64MiB".parse().unwrap();
/// assert_eq!(block.bytes(), 64 << 20);
/// assert_eq!(block.to_string(), "64MiB");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

/// A positive rate: `1gbit`, `2.5gbit`, `500mbit` (bits per second), or `100MB/s`, `64MiB/s` (bytes per
/// second).
///
/// `mbps` and `Mb/s` are rejected because many people read them as bytes.
///
/// ```
/// use cluster::Bandwidth;
/// let link: Bandwidth = "100MB/s".parse().unwrap();
/// assert_eq!(link.bits_per_second(), 800_000_000);
/// assert_eq!(link.to_string(), "800mbit");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bandwidth(u64);

/// The text is not a valid [`ByteSize`] or [`Bandwidth`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    /// The text is not a whole number of bytes.
    #[error("`{0}` is not a size: write a number of bytes with a unit, such as 64MiB, 4KiB or 1GiB")]
    Size(String),
    /// The text is not a positive whole number of bits per second.
    #[error(
        "`{0}` is not a bandwidth: write bits per second such as 1gbit or 500mbit, or bytes such as 100MB/s"
    )]
    Bandwidth(String),
}

const BINARY_UNITS: [(&str, u64); 5] =
    [("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
const BIT_UNITS: [(&str, u64); 5] =
    [("tbit", 1_000_000_000_000), ("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)];

impl ByteSize {
    /// Returns a size of `bytes` bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Returns the number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl Bandwidth {
    /// Returns a rate of `bits` bits per second; `None` for zero, because no transfer would end at that rate.
    pub const fn from_bits_per_second(bits: u64) -> Option<Self> {
        if bits == 0 { None } else { Some(Self(bits)) }
    }

    /// Returns the rate in bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Returns the rate in bytes per second.
    pub fn bytes_per_second(self) -> f64 {
        self.0 as f64 / 8.0
    }
}

impl FromStr for ByteSize {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, unit) = split_unit(text);
        byte_unit(unit)
            .and_then(|multiplier| exact_product(number, multiplier))
            .map(Self)
            .ok_or_else(|| ParseQuantityError::Size(text.to_owned()))
    }
}

impl FromStr for Bandwidth {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, unit) = split_unit(text);
        rate_unit(unit)
            .and_then(|multiplier| exact_product(number, multiplier))
            .and_then(Self::from_bits_per_second)
            .ok_or_else(|| ParseQuantityError::Bandwidth(text.to_owned()))
    }
}

/// Splits `1.5 GiB` into `1.5` and `GiB`.
fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// Returns the number of bytes in a unit such as `MiB`, `M` or `MB`.
fn byte_unit(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let (prefix, base) = match unit.strip_suffix("ib") {
        Some(prefix) if !prefix.is_empty() => (prefix, 1024u64),
        _ => match unit.strip_suffix('b') {
            Some(prefix) => (prefix, 1000),
            None => (unit.as_str(), 1024),
        },
    };
    let power = ["", "k", "m", "g", "t", "p"].iter().position(|&known| known == prefix)?;
    Some(base.pow(power as u32))
}

/// Returns the number of bits per second in a unit: `mbit`, `Mbit/s`, or a byte unit that ends in `B/s`.
fn rate_unit(unit: &str) -> Option<u64> {
    if let Some(bytes) = unit.strip_suffix("/s").filter(|bytes| bytes.ends_with('B')) {
        return byte_unit(bytes)?.checked_mul(8);
    }
    let unit = unit.to_ascii_lowercase();
    let bits = unit.strip_suffix("/s").unwrap_or(&unit);
    BIT_UNITS.iter().find(|(known, _)| *known == bits).map(|&(_, multiplier)| multiplier)
}

/// Returns `number * multiplier`, if the product is an integer of at most 64 bits.
fn exact_product(number: &str, multiplier: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() {
        return None;
    }
    let scale = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let whole: u64 = whole.parse().ok()?;
    let fraction: u64 = fraction.parse().ok()?;
    let scaled = u128::from(whole).checked_mul(scale)?.checked_add(fraction.into())?;
    let product = scaled.checked_mul(multiplier.into())?;
    if product % scale == 0 { u64::try_from(product / scale).ok() } else { None }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |&&(_, bytes): &&(&str, u64)| self.0 != 0 && self.0.is_multiple_of(bytes);
        match BINARY_UNITS.iter().find(exact) {
            Some((unit, bytes)) => f.pad(&format!("{}{unit}", self.0 / bytes)),
            None => f.pad(&format!("{}B", self.0)),
        }
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |&&(_, bits): &&(&str, u64)| self.0.is_multiple_of(bits);
        let (unit, bits) = BIT_UNITS.iter().find(exact).expect("every rate is a multiple of one bit");
        f.pad(&format!("{}{unit}", self.0 / bits))
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Bandwidth {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ByteSizeVisitor)
    }
}

impl<'de> Deserialize<'de> for Bandwidth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Accepts a text or a plain number.
struct ByteSizeVisitor;

impl Visitor<'_> for ByteSizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as \"64MiB\", or a number of bytes")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ByteSize, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
        Ok(ByteSize(bytes))
    }

    fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
        u64::try_from(bytes).map(ByteSize).map_err(|_| E::custom(ParseQuantityError::Size(bytes.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_sizes(cases: &[(&str, u64, &str)]) {
        for &(text, bytes, shown) in cases {
            let size: ByteSize = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((size.bytes(), size.to_string().as_str()), (bytes, shown), "{text}");
            assert_eq!(shown.parse(), Ok(size));
        }
    }

    fn check_rates(cases: &[(&str, u64, &str)]) {
        for &(text, bits, shown) in cases {
            let rate: Bandwidth = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((rate.bits_per_second(), rate.to_string().as_str()), (bits, shown), "{text}");
            assert_eq!(shown.parse(), Ok(rate));
        }
    }

    #[test]
    fn sizes() {
        check_sizes(&[
            ("64MiB", 64 << 20, "64MiB"),
            ("4KiB", 4096, "4KiB"),
            ("1GiB", 1 << 30, "1GiB"),
            ("1024MiB", 1 << 30, "1GiB"),
            ("1.5GiB", 3 << 29, "1536MiB"),
            ("64 mib", 64 << 20, "64MiB"),
            ("64M", 64 << 20, "64MiB"),
            ("64MB", 64_000_000, "62500KiB"),
            ("0", 0, "0B"),
            ("1001", 1001, "1001B"),
            ("1B", 1, "1B"),
            ("18446744073709551615", u64::MAX, "18446744073709551615B"),
        ]);
    }

    #[test]
    fn rates() {
        check_rates(&[
            ("1gbit", 1_000_000_000, "1gbit"),
            ("500mbit", 500_000_000, "500mbit"),
            ("2.5gbit", 2_500_000_000, "2500mbit"),
            ("1 Gbit/s", 1_000_000_000, "1gbit"),
            ("100MB/s", 800_000_000, "800mbit"),
            ("64MiB/s", 64 << 23, "536870912bit"),
            ("1B/s", 8, "8bit"),
        ]);
    }

    #[test]
    fn invalid_sizes_are_rejected() {
        let too_large = ["18446744073709551616", "16384PiB", "99999999999999999999999999999999999999999999"];
        let others = [
            "", "MiB", "-1", "1.", ".5", "1.5", "0.1KiB", "1.2.3", "64QiB", "64iB", "64 M iB", "1e3",
            "64MiB/s",
        ];
        for text in too_large.into_iter().chain(others) {
            assert_eq!(text.parse::<ByteSize>(), Err(ParseQuantityError::Size(text.to_owned())));
        }
    }

    #[test]
    fn invalid_bandwidths_are_rejected() {
        for text in
            ["", "0gbit", "100", "1mbps", "1Mb/s", "1MB", "1gbit/h", "0.5bit", "20000000tbit", "4096PiB/s"]
        {
            assert_eq!(text.parse::<Bandwidth>(), Err(ParseQuantityError::Bandwidth(text.to_owned())));
        }
    }
}
