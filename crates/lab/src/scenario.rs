//! The description of a measurement: a TOML file, parsed strictly.
//!
//! ```
//! let text = r#"
//!     name = "slices"
//!     schemes = ["conventional", "pipelined"]
//!     code = "rs-14-10"
//!     block_bytes = "64MiB"
//!     slice_bytes = ["auto", "32KiB"]
//!     repetitions = 5
//!     [topology]
//!     nodes = 15
//!     rate = ["1gbit", "500mbit"]
//! "#;
//! let scenario = lab::Scenario::parse(text, "slices.toml".as_ref()).unwrap();
//! assert_eq!(scenario.loss.losses, [[0]]);
//! ```

use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use cluster::{Bandwidth, ByteSize};
use codes::CodeSpec;
use recovery::HelperPolicy;
use repair::{Pacing, Scheme};
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::topology::{Matrix, Racks, Rate, Topology};
use crate::variant::Variant;

/// The description of a measurement. The measurement covers every combination of the listed values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// The scenario's name, which is also the name of the report file.
    pub name: String,
    /// A description in words.
    #[serde(default)]
    pub description: String,
    /// The network.
    pub topology: Networks,
    /// The codes.
    pub code: Many<CodeSpec>,
    /// The block sizes.
    pub block_bytes: Many<ByteSize>,
    /// The slice sizes; `auto` leaves the choice to the planner.
    #[serde(default = "automatic")]
    pub slice_bytes: Many<Slice>,
    /// The schemes.
    pub schemes: Many<SchemeName>,
    /// How nodes forward slices. `whole-block` applies only to `ppr` and `crr-r`, the schemes whose papers
    /// describe them in rounds. All other schemes are measured once, in their default way.
    #[serde(default = "pipelined")]
    pub pacing: Many<PacingName>,
    /// Whether data edges are encrypted; if both values are listed, plain and encrypted measurements take
    /// turns.
    #[serde(default = "plain")]
    pub data_tls: Many<bool>,
    /// The lost blocks.
    #[serde(flatten)]
    pub loss: Losses,
    /// The destination of rebuilt blocks.
    #[serde(default)]
    pub to: Destination,
    /// The slice sizes of bare chains to measure as well. A bare chain has as many relays as the code has
    /// data blocks; the relays only receive, XOR and send. The processor time of repairs is compared with
    /// that of the cheapest chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bare_chain: Option<Many<ByteSize>>,
    /// How repairs onto nodes are requested.
    #[serde(flatten)]
    pub repairs: Repairs,
    /// How each combination is measured.
    #[serde(flatten)]
    pub effort: Effort,
    /// Rejects unknown keys, because `deny_unknown_fields` does not work with flattened fields.
    #[serde(flatten, skip_serializing)]
    unknown: NoOtherKeys,
}

/// The lost blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Losses {
    /// Sets of blocks, by index in the stripe; each set is lost together.
    #[serde(default = "first_block")]
    pub losses: Vec<Vec<u16>>,
    /// The helper whose block is lost, instead of `losses`. Its index depends on the placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_on: Option<String>,
    /// How blocks are lost.
    #[serde(default)]
    pub how: Loss,
}

/// How repairs onto nodes are requested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Repairs {
    /// The policy that chooses helpers; the coordinator's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<HelperPolicy>,
    /// Whether rebuilt blocks are checked against parity equations.
    #[serde(default = "yes")]
    pub verify_parity: bool,
}

/// How each combination is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Effort {
    /// Whether to evict all blocks from the page cache before each measurement, so that disks are read.
    #[serde(default)]
    pub cold: bool,
    /// The rate at which each helper with a surviving block reads from its disk during a measurement; unlimited
    /// if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Bandwidth>,
    /// Whether as many surviving blocks as a repair reads, those with the highest indices, are in memory when
    /// a measurement begins, and reported by their helpers. If both values are listed, both take turns.
    #[serde(default = "plain")]
    pub cached: Many<bool>,
    /// A helper that becomes slow; allowed only in networks of uniform links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub straggler: Option<Straggler>,
    /// The number of placements: how often each stripe is stored. The coordinator places the blocks at random.
    #[serde(default = "one")]
    pub placements: u32,
    /// The number of repetitions with each placement.
    #[serde(default = "five")]
    pub repetitions: u32,
    /// The maximum number of retries of a disturbed measurement.
    #[serde(default = "retries")]
    pub retries: u32,
}

/// Rejects unknown keys. It must be the last, flattened field of a struct, because serde does not combine
/// `flatten` with `deny_unknown_fields`.
#[derive(Debug, Clone, PartialEq)]
struct NoOtherKeys;

/// The networks of a scenario: the same nodes with different rates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Networks {
    /// The number of helpers.
    pub nodes: u16,
    /// The rate of every node's link.
    pub rate: Many<Rate>,
    /// See [`Topology::racks`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub racks: Option<Racks>,
    /// See [`Topology::matrix`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrix: Option<Matrix>,
    /// See [`Topology::edge`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<Many<Bandwidth>>,
    /// See [`Topology::ports`].
    #[serde(default)]
    pub ports: bool,
    /// See [`Topology::shared`].
    #[serde(default)]
    pub shared: bool,
    /// See [`Topology::told`]. Works with a single network only, because helpers state their rates once.
    #[serde(default)]
    pub told: bool,
}

/// A helper that becomes slow during each measurement and recovers afterwards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Straggler {
    /// The block whose holder becomes slow in the first measurement, as an index (from 0) among the blocks
    /// that are not lost. Each further measurement slows the holder of the next block, because plans avoid a
    /// straggler for some minutes.
    pub block: u16,
    /// The rate of the helper's link, in each direction, while the helper is slow.
    pub rate: Bandwidth,
    /// The time at which the helper becomes slow, counted from the start of a measurement. The unit is the
    /// time of a direct send.
    pub after: f64,
}

/// One value or a non-empty list of values.
#[derive(Debug, Clone, PartialEq)]
pub struct Many<T>(Vec<T>);

/// The size of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slice {
    /// The planner chooses the size.
    Auto,
    /// A number of bytes.
    Bytes(u32),
}

/// A [`Scheme`], written as its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemeName(pub Scheme);

/// A [`Pacing`] that a scenario can request, written as its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacingName(pub Pacing);

/// How blocks are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// The client requests that the blocks are treated as lost.
    #[default]
    Pretend,
    /// The helpers that hold the blocks are killed, and restarted afterwards.
    Kill,
}

/// The destination of rebuilt blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Destination {
    /// The memory of a client that reads the blocks.
    #[default]
    Client,
    /// A node that stores the blocks: they are sealed, checked, committed, published and read back.
    Node,
}

/// The reason why a scenario is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A syntax error, or an unknown key or value.
    #[error("{}:{line}: {message}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// The line number, from 1.
        line: usize,
        /// The parser's message.
        message: String,
    },
    /// Two values conflict.
    #[error("{}: {message}", path.display())]
    Contradiction {
        /// The file.
        path: PathBuf,
        /// The conflict.
        message: String,
    },
}

/// The usual maximum number of retries of a disturbed measurement.
pub(crate) const RETRIES: u32 = 3;
/// The largest slice of a bare chain; a relay holds one slice in memory.
const LARGEST_RELAYED: u64 = 4 << 20;

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// [`ScenarioError`].
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScenarioError::File { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Parses and validates a scenario. `path` is only used in errors.
    ///
    /// # Errors
    /// [`ScenarioError`], with the line if known.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ScenarioError> {
        // An error in a flattened group has no line, so read these groups by themselves first.
        parse_toml::<Losses>(text, path)?;
        parse_toml::<Repairs>(text, path)?;
        parse_toml::<Effort>(text, path)?;
        let scenario: Self = parse_toml(text, path)?;
        scenario.check(path)?;
        Ok(scenario)
    }

    /// Rejects conflicting values.
    ///
    /// # Errors
    /// [`ScenarioError::Contradiction`].
    pub fn check(&self, path: &Path) -> Result<(), ScenarioError> {
        match self.contradiction() {
            None => Ok(()),
            Some(message) => Err(ScenarioError::Contradiction { path: path.to_owned(), message }),
        }
    }

    fn contradiction(&self) -> Option<String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.name.is_empty() || !self.name.chars().all(is_plain) {
            return Some(format!(
                "name `{}`: use only letters, digits, `-`, `_` and `.`, because the report's file has this \
                 name",
                self.name
            ));
        }
        if self.to == Destination::Node && self.ways().iter().any(|way| way.is_in_rounds()) {
            return Some(
                "pacing = \"whole-block\" is only possible for reads: add to = \"client\"".to_owned(),
            );
        }
        if self.effort.repetitions == 0 || self.effort.placements == 0 {
            return Some("repetitions and placements must be at least 1".to_owned());
        }
        if let Some(error) = self.topologies().iter().find_map(|topology| topology.check().err()) {
            return Some(error.to_string());
        }
        if self.topology.told && self.topologies().len() > 1 {
            return Some(
                "told: a scenario with several rates cannot state them in mend.toml; use one rate".to_owned(),
            );
        }
        if let Some(Straggler { after, .. }) = &self.effort.straggler
            && !(self.topology.is_even() && (0.0..1e3).contains(after))
        {
            return Some(
                "straggler: needs shaped links of equal rate, and `after` from 0 to 1000 times the duration \
                 of a direct send"
                    .to_owned(),
            );
        }
        self.unfit_placements()
            .or_else(|| self.unfit_memory())
            .or_else(|| self.code.iter().find_map(|code| self.misfit(code)))
    }

    /// Returns the reason why the keys about placements do not fit the others; `None` if they do.
    fn unfit_placements(&self) -> Option<String> {
        let several = self.loss.lost_on.is_some() || self.effort.placements > 1;
        if several && self.data_tls.iter().count() > 1 {
            return Some(
                "placements and lost_on need one value of data_tls, because each cluster places blocks by itself"
                    .to_owned(),
            );
        }
        let helper = self.loss.lost_on.as_ref()?;
        if self.loss.losses != first_block() {
            return Some("lost_on and losses cannot be combined".to_owned());
        }
        let is_one = (1..=self.topology.nodes).any(|number| *helper == format!("h{number}"));
        (!is_one).then(|| format!("lost_on {helper}: the helpers are h1 to h{}", self.topology.nodes))
    }

    /// Returns the reason why the keys about memory, disks and repairs do not fit the others; `None` if they
    /// do.
    fn unfit_memory(&self) -> Option<String> {
        let (is_cached, is_limited) =
            (self.effort.cached.iter().any(|&cached| cached), self.effort.disk.is_some());
        if (is_cached || is_limited) && !self.effort.cold {
            return Some(
                "cached and disk need cold = true; otherwise no block is read from a disk".to_owned(),
            );
        }
        if (is_cached || is_limited) && self.loss.how == Loss::Kill {
            return Some(
                "cached and disk need how = \"pretend\"; a killed helper starts without limit".to_owned(),
            );
        }
        if self.to == Destination::Client && self.repairs != Repairs::default() {
            return Some(
                "policy and verify_parity are only possible for repairs: add to = \"node\"".to_owned(),
            );
        }
        None
    }

    /// Returns the reason why the scenario does not fit a code; `None` if it does.
    fn misfit(&self, spec: &CodeSpec) -> Option<String> {
        let code = match spec.build() {
            Ok(code) => code,
            Err(error) => return Some(format!("code {spec}: {error}")),
        };
        let blocks = code.blocks();
        // A rebuilt block goes to its old node or, if that node is dead, to a node without a block of the
        // stripe.
        let dead = self.loss.losses.iter().map(Vec::len).max().unwrap_or_default();
        let moves = self.to == Destination::Node && self.loss.how == Loss::Kill;
        let nodes = blocks + if moves { dead } else { 0 };
        if usize::from(self.topology.nodes) < nodes {
            return Some(format!("{spec} needs {nodes} nodes, but the topology has {}", self.topology.nodes));
        }
        if self.loss.lost_on.is_some() && usize::from(self.topology.nodes) > blocks {
            return Some(format!("lost_on needs a block of {spec} on every node: set nodes = {blocks}"));
        }
        for loss in &self.loss.losses {
            if loss.is_empty() || loss.len() > blocks - code.data_blocks() {
                return Some(format!("{spec} cannot rebuild {} blocks at once", loss.len()));
            }
            if let Some(index) = loss.iter().find(|&&index| usize::from(index) >= blocks) {
                return Some(format!("{spec} has blocks 0 to {}, but no block {index}", blocks - 1));
            }
            let again = |(at, index): (usize, &u16)| loss[..at].contains(index);
            if loss.iter().enumerate().any(again) {
                return Some(format!("losses: {loss:?} names a block twice"));
            }
        }
        let unit = 4096 * code.sub_blocks() as u64;
        let chains = self.bare_chain.iter().flat_map(Many::iter);
        if let Some(slice) = chains.clone().find(|slice| !(1..=LARGEST_RELAYED).contains(&slice.bytes())) {
            return Some(format!("bare_chain {slice}: a slice must have 1 byte to 4 MiB"));
        }
        let odd =
            self.block_bytes.iter().find(|bytes| bytes.bytes() == 0 || !bytes.bytes().is_multiple_of(unit));
        odd.map(|bytes| format!("block_bytes {bytes}: must be a multiple of {unit} bytes for {spec}"))
    }

    /// Returns the schemes with their pacings and encryption, in the order of measurement.
    pub fn ways(&self) -> Vec<Variant> {
        let pacings = || self.pacing.iter().map(|pacing| pacing.0);
        let ways = self.schemes.iter().flat_map(|scheme| Variant::of(scheme.0, pacings()));
        let ways =
            ways.flat_map(|way| self.data_tls.iter().map(move |&encrypted| Variant { encrypted, ..way }));
        let ways =
            ways.flat_map(|way| self.effort.cached.iter().map(move |&cached| Variant { cached, ..way }));
        ways.collect()
    }

    /// Returns the networks, in the order of measurement.
    pub fn topologies(&self) -> Vec<Topology> {
        let Networks { nodes, rate, racks, matrix, edge, ports, shared, told } = &self.topology;
        let edges: Vec<_> = edge.iter().flat_map(|edge| edge.iter().copied().map(Some)).collect();
        let edges = if edges.is_empty() { vec![None] } else { edges };
        rate.iter()
            .flat_map(|&rate| {
                edges.iter().map(move |&edge| Topology {
                    nodes: *nodes,
                    rate,
                    racks: *racks,
                    matrix: matrix.clone(),
                    edge,
                    ports: *ports,
                    shared: *shared,
                    told: *told,
                })
            })
            .collect()
    }
}

impl Default for Repairs {
    fn default() -> Self {
        Self { policy: None, verify_parity: true }
    }
}

impl Networks {
    /// Whether all links are shaped to the same rate.
    fn is_even(&self) -> bool {
        let shaped = self.rate.iter().all(|rate| rate.bandwidth().is_some());
        shaped && self.racks.is_none() && self.matrix.is_none() && self.edge.is_none()
    }
}

/// Parses TOML strictly; errors include the line.
pub(crate) fn parse_toml<T: for<'de> Deserialize<'de>>(text: &str, path: &Path) -> Result<T, ScenarioError> {
    toml_edit::de::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start).min(text.len());
        let before = text.as_bytes()[..start].iter().filter(|&&byte| byte == b'\n').count();
        let unplaced = (before == 0).then(|| unknown_key_line(error.message(), text)).flatten();
        let line = unplaced.unwrap_or(before) + 1;
        ScenarioError::Text { path: path.to_owned(), line, message: error.message().trim().to_owned() }
    })
}

/// Returns the index of the line with the key that [`NoOtherKeys`] rejected; the error itself has no
/// position.
fn unknown_key_line(message: &str, text: &str) -> Option<usize> {
    let key = message.strip_prefix(UNKNOWN_KEY)?.split('`').next()?;
    text.lines().position(|line| line.split('=').next().is_some_and(|left| left.trim() == key))
}

/// The start of the error message of [`NoOtherKeys`], which is the same as in serde's own errors.
const UNKNOWN_KEY: &str = "unknown field `";

impl<'de> Deserialize<'de> for NoOtherKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = NoOtherKeys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("no other keys")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut keys: M) -> Result<NoOtherKeys, M::Error> {
                match keys.next_key::<String>()? {
                    None => Ok(NoOtherKeys),
                    Some(key) => Err(M::Error::custom(format!("{UNKNOWN_KEY}{key}`"))),
                }
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

fn automatic() -> Many<Slice> {
    Many(vec![Slice::Auto])
}

fn pipelined() -> Many<PacingName> {
    Many(vec![PacingName(Pacing::Pipelined)])
}

fn plain() -> Many<bool> {
    Many::one(false)
}

fn first_block() -> Vec<Vec<u16>> {
    vec![vec![0]]
}

fn yes() -> bool {
    true
}

fn five() -> u32 {
    5
}

fn one() -> u32 {
    1
}

fn retries() -> u32 {
    RETRIES
}

impl<T> Many<T> {
    /// A single value.
    pub fn one(value: T) -> Self {
        Self(vec![value])
    }

    /// The values.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }
}

impl<T: fmt::Display> Serialize for Many<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(T::to_string))
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Many<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ManyVisitor(PhantomData))
    }
}

struct ManyVisitor<T>(PhantomData<T>);

impl<'de, T: FromStr<Err: fmt::Display>> Visitor<'de> for ManyVisitor<T> {
    type Value = Many<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of texts")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Many<T>, E> {
        text.parse().map(Many::one).map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Many<T>, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Many<T>, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Many<T>, A::Error> {
        let mut values = Vec::new();
        while let Some(Text(text)) = list.next_element()? {
            values.push(text.parse().map_err(A::Error::custom)?);
        }
        if values.is_empty() { Err(A::Error::custom("the list is empty")) } else { Ok(Many(values)) }
    }
}

/// A string, or another value written without quotes.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a text, a number, or true or false")]
        enum Either {
            Text(String),
            Number(i64),
            Bool(bool),
        }
        Ok(match Either::deserialize(deserializer)? {
            Either::Text(text) => Self(text),
            Either::Number(number) => Self(number.to_string()),
            Either::Bool(value) => Self(value.to_string()),
        })
    }
}

impl FromStr for Slice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let bytes: ByteSize = text.parse().map_err(|error| format!("{error}, or `auto`"))?;
        u32::try_from(bytes.bytes()).map(Self::Bytes).map_err(|_| format!("a slice of {bytes} is too large"))
    }
}

impl Slice {
    /// The number of bytes, if specified.
    pub fn bytes(self) -> Option<u32> {
        match self {
            Self::Auto => None,
            Self::Bytes(bytes) => Some(bytes),
        }
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Bytes(bytes) => ByteSize::from_bytes(u64::from(*bytes)).fmt(f),
        }
    }
}

impl FromStr for SchemeName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Scheme::ALL.into_iter().find(|scheme| scheme.name() == text);
        found.map(Self).ok_or_else(|| {
            let names: Vec<_> = Scheme::ALL.iter().map(|scheme| scheme.name()).collect();
            format!("`{text}` is not a scheme; the schemes are {}", names.join(", "))
        })
    }
}

impl fmt::Display for SchemeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.name())
    }
}

impl PacingName {
    const ALL: [(&str, Pacing); 2] = [("pipelined", Pacing::Pipelined), ("whole-block", Pacing::WholeBlock)];
}

impl FromStr for PacingName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|&(name, _)| name == text);
        let [(one, _), (other, _)] = Self::ALL;
        found
            .map(|(_, pacing)| Self(pacing))
            .ok_or(format!("`{text}` is not a pacing; the pacings are {one}, {other}"))
    }
}

impl fmt::Display for PacingName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = Self::ALL.into_iter().find(|&(_, pacing)| pacing == self.0);
        f.pad(found.map_or("serial", |(name, _)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"name = "all"
schemes = ["conventional", "pipelined"]
code = ["rs-14-10", "rs-9-6"]
block_bytes = "64MiB"
slice_bytes = ["auto", "32KiB", 65536]
losses = [[0], [1, 2]]
to = "client"
repetitions = 3
pacing = ["pipelined", "whole-block"]
[topology]
nodes = 15
rate = ["1gbit", "unshaped"]
edge = ["100mbit", "200mbit"]
"#;

    fn parse(text: &str) -> Result<Scenario, ScenarioError> {
        Scenario::parse(text, "s.toml".as_ref())
    }

    #[track_caller]
    fn check_refused(from: &str, to: &str, expected: &str) {
        assert!(GOOD.contains(from));
        let error = parse(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.starts_with("s.toml:"), "{error}");
    }

    #[test]
    fn every_message_is_parsed() {
        let scenario = parse(GOOD).unwrap();
        assert_eq!(scenario.topologies().len(), 4);
        assert_eq!(
            scenario.slice_bytes,
            Many(vec![Slice::Auto, Slice::Bytes(32 << 10), Slice::Bytes(65536)])
        );
        assert_eq!(scenario.schemes.iter().count(), 2);
        assert_eq!(scenario.ways().len(), 2);
        assert_eq!((scenario.effort.retries, scenario.loss.how), (3, Loss::Pretend));
        let again = toml_edit::ser::to_string(&scenario).unwrap();
        assert_eq!(parse(&again).unwrap(), scenario);
    }

    #[test]
    fn blocks_on_disk_and_in_memory_take_turns() {
        let text =
            GOOD.replacen("repetitions = 3", "cold = true\ncached = [false, true]\ndisk = \"40MB/s\"", 1);
        let scenario = parse(&text).unwrap();
        let ways: Vec<String> = scenario.ways().iter().map(ToString::to_string).collect();
        assert_eq!(ways, ["conventional", "conventional cached", "pipelined", "pipelined cached"]);
        assert_eq!(scenario.effort.disk.map(Bandwidth::bytes_per_second), Some(40e6));
        let again = toml_edit::ser::to_string(&scenario).unwrap();
        assert_eq!(parse(&again).unwrap(), scenario);
    }

    #[test]
    fn the_block_of_a_helper_is_lost_in_each_placement() {
        let lost_on = |helper: &str| {
            let text = GOOD.replacen("losses = [[0], [1, 2]]", &format!("lost_on = \"{helper}\""), 1);
            let text = text.replacen("[\"rs-14-10\", \"rs-9-6\"]", "\"rs-14-10\"", 1);
            text.replacen("repetitions = 3", "repetitions = 1\nplacements = 4", 1)
        };
        let scenario = parse(&lost_on("h14").replacen("nodes = 15", "nodes = 14", 1)).unwrap();
        assert_eq!((scenario.loss.lost_on.as_deref(), scenario.effort.placements), (Some("h14"), 4));
        let again = toml_edit::ser::to_string(&scenario).unwrap();
        assert_eq!(parse(&again).unwrap(), scenario);
        for (helper, expected) in [("h16", "the helpers are h1 to h15"), ("h1", "set nodes = 14")] {
            let error = parse(&lost_on(helper)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    /// Checks that errors are reported. A line of `cases` has a part of [`GOOD`], what replaces it (with `;` for
    /// the end of a line), and what the error contains.
    #[track_caller]
    fn check_all_refused(cases: &str) {
        for case in cases.lines().filter(|case| !case.trim().is_empty()) {
            let parts: Vec<&str> = case.split('|').map(str::trim).collect();
            let [from, to, expected] = parts[..] else { panic!("three parts: {case}") };
            check_refused(from, &to.replace(';', "\n"), expected);
        }
    }

    #[test]
    fn unknown_keys_are_named_with_their_line() {
        check_all_refused(
            r#"
            repetitions     | repetition        | s.toml:8: unknown field `repetition`
            edge            | egde              | s.toml:13: unknown field `egde`
            repetitions = 3 | repetitions = "3" | s.toml:8: invalid type
            "#,
        );
        check_refused("schemes = [\"conventional\", \"pipelined\"]\n", "", "missing field `schemes`");
    }

    #[test]
    fn invalid_values_are_reported() {
        check_all_refused(
            r#"
            "pipelined"   | "pipe"        | s.toml:2: `pipe` is not a scheme; the schemes are auto, conventional
            "rs-9-6"      | "rs-6-9"      | s.toml:3
            "64MiB"       | "64 potatoes" | s.toml:4: `64 potatoes` is not a size
            "64MiB"       | []            | the list is empty
            "1gbit"       | "1mbps"       | s.toml:12: `1mbps` is not a rate
            "whole-block" | "rounds"      | s.toml:9: `rounds` is not a pacing; the pacings are pipelined
            "client"      | "moon"        | s.toml:7: unknown variant `moon`
            "#,
        );
    }

    #[test]
    fn values_that_contradict_each_other_are_named() {
        check_all_refused(
            r#"
            nodes = 15      | nodes = 13                      | rs-14-10 needs 14 nodes, but the topology has 13
            [1, 2]          | [1, 14]                         | has blocks 0 to 13, but no block 14
            [1, 2]          | [1, 2, 3, 4, 5]                 | cannot rebuild 5 blocks
            [1, 2]          | []                              | cannot rebuild 0 blocks
            [1, 2]          | [1, 1]                          | names a block twice
            "client"        | "node";how = "kill"             | rs-14-10 needs 16 nodes, but the topology has 15
            to = "client"   | bare_chain = ["32KiB", "8MiB"]  | bare_chain 8MiB: a slice must have
            repetitions = 3 | repetitions = 0                 | must be at least 1
            repetitions = 3 | placements = 0                  | must be at least 1
            to = "client"   | lost_on = "h1"                  | lost_on and losses cannot be combined
            repetitions = 3 | placements = 2;data_tls = [false, true] | need one value of data_tls
            "64MiB"         | "1001B"                         | a multiple of 4096 bytes
            "all"           | "../all"                        | file has this name
            repetitions = 3 | cached = [false, true]          | need cold = true
            repetitions = 3 | disk = "40MB/s"                 | need cold = true
            repetitions = 3 | policy = "m-ppr"                | add to = "node"
            to = "client"   | how = "kill";cold = true;cached = true | need how = "pretend"
            "#,
        );
        let ppr = GOOD.replacen("\"pipelined\"]", "\"ppr\"]", 1).replace("\"client\"", "\"node\"");
        assert!(parse(&ppr).unwrap_err().to_string().contains("only possible for reads"));
    }
}
