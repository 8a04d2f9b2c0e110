//! The network between helpers, as `mend.toml` describes it: racks, regions, and links slower than the ports
//! at their ends.
//!
//! The bandwidth of a helper's own network ports is part of its `[[helper]]` entry. Only the coordinator uses
//! the racks, regions and links. Parsing checks each entry individually. [`Config::network`] checks the
//! entries against each other and against the helpers. Only the coordinator runs this second check, so other
//! commands still work while an operator edits the file step by step.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer};

use crate::{Bandwidth, Config};

/// The name that represents any client in a link.
pub const CLIENT: &str = "client";

/// A rack with a region or a bandwidth limit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RackConfig {
    /// The rack's name; helpers refer to their rack by this name.
    pub name: String,
    /// The region that contains the rack.
    #[serde(default)]
    pub region: Option<String>,
    /// The total bandwidth from the nodes inside to all other nodes.
    #[serde(default)]
    pub up: Option<Bandwidth>,
    /// The total bandwidth from all other nodes to the nodes inside.
    #[serde(default)]
    pub down: Option<Bandwidth>,
}

/// A region with a bandwidth limit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionConfig {
    /// The region's name; racks refer to their region by this name.
    pub name: String,
    /// The total bandwidth from the nodes inside to all other nodes.
    #[serde(default)]
    pub up: Option<Bandwidth>,
    /// The total bandwidth from all other nodes to the nodes inside.
    #[serde(default)]
    pub down: Option<Bandwidth>,
}

/// A link in one direction.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkConfig {
    /// The sender: a helper, [`CLIENT`], or a rack or region whose nodes share the link.
    pub from: String,
    /// The receiver: a helper or [`CLIENT`] if the sender is a helper or [`CLIENT`], otherwise a rack or
    /// region.
    pub to: String,
    /// The link's bandwidth.
    pub rate: Bandwidth,
}

/// Links between all pairs of some helpers, or of some racks or regions.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixConfig {
    /// The names of the helpers, racks or regions.
    pub names: Vec<String>,
    /// One row for each sender, with one rate for each receiver; `-` means that the rate is not specified.
    pub rates: Vec<Vec<Entry>>,
}

/// The rate of one link in a matrix; `None` for `-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry(pub Option<Bandwidth>);

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "-" {
            return Ok(Self(None));
        }
        text.parse().map(|rate| Self(Some(rate))).map_err(serde::de::Error::custom)
    }
}

/// The validated network between nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Network {
    /// The region of each rack.
    pub regions: BTreeMap<String, String>,
    /// The bandwidth out of and into each rack or region, in bytes per second; `None` means unlimited.
    pub trunks: BTreeMap<String, [Option<f64>; 2]>,
    /// The bandwidth from one helper or client to another, in bytes per second.
    pub pairs: BTreeMap<(String, String), f64>,
    /// The total bandwidth from the nodes of one rack or region to those of another, in bytes per second.
    pub between: BTreeMap<(String, String), f64>,
}

/// A contradiction in the network's description, with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// A rack or region is described twice, or a rack and a region share a name.
    #[error("{entry}: `{name}` is described by {first} already; racks and regions need unique names")]
    Twice {
        /// The position of the second, contradicting entry.
        entry: String,
        /// The name.
        name: String,
        /// The position of the first entry.
        first: String,
    },
    /// No helper is in a rack that the file describes.
    #[error(
        "{entry}: no helper is in rack `{name}` ({}); give a helper `rack = \"{name}\"`, or remove the rack",
        known_text("racks with helpers", known)
    )]
    EmptyRack {
        /// The position of the description.
        entry: String,
        /// The rack.
        name: String,
        /// The racks that have helpers.
        known: Vec<String>,
    },
    /// No rack is in a region that the file describes.
    #[error(
        "{entry}: no rack is in region `{name}`; give a [[rack]] `region = \"{name}\"`, or remove the region"
    )]
    EmptyRegion {
        /// The position of the description.
        entry: String,
        /// The region.
        name: String,
    },
    /// A link or matrix refers to an unknown name.
    #[error(
        "{entry}: `{name}` is not a helper, rack or region of this file ({})",
        known_text("it has", known)
    )]
    Unknown {
        /// The link or matrix.
        entry: String,
        /// The name.
        name: String,
        /// The known names.
        known: Vec<String>,
    },
    /// A link or matrix refers to a name that belongs both to a helper and to a rack or region.
    #[error("{entry}: `{name}` is a helper as well as a rack or a region; rename one of them")]
    Ambiguous {
        /// The link or matrix.
        entry: String,
        /// The name.
        name: String,
    },
    /// A link joins a helper with a rack or region.
    #[error(
        "{entry}: `{from}` and `{to}` are of different kinds; a link joins two helpers, or two racks or \
         regions"
    )]
    Mixed {
        /// The link or matrix.
        entry: String,
        /// The link's sender.
        from: String,
        /// The link's receiver.
        to: String,
    },
    /// A link leads from a name to itself.
    #[error("{entry}: a link from `{name}` to itself carries nothing; remove it, or write `-` in a matrix")]
    Itself {
        /// The link or matrix.
        entry: String,
        /// The name.
        name: String,
    },
    /// A matrix does not have one row and one column for each name.
    #[error(
        "{entry}: {names} names need {names} rows of {names} rates, but there are {rows} rows, one of them \
         with {rates} rates"
    )]
    Shape {
        /// The matrix.
        entry: String,
        /// The number of names.
        names: usize,
        /// The number of rows.
        rows: usize,
        /// The length of the first row that does not fit.
        rates: usize,
    },
    /// A link has two different rates.
    #[error(
        "{entry}: the link from `{from}` to `{to}` has {given} here, but {was} elsewhere in this file; keep \
         one of them"
    )]
    TwoRates {
        /// The position of the second, contradicting entry.
        entry: String,
        /// The link's sender.
        from: String,
        /// The link's receiver.
        to: String,
        /// The first rate.
        was: Bandwidth,
        /// The second rate.
        given: Bandwidth,
    },
}

fn known_text(what: &str, known: &[String]) -> String {
    let names = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    format!("{what}: {names}")
}

impl Config {
    /// Returns the validated network between the helpers.
    ///
    /// # Errors
    /// Returns the first contradiction in the file.
    pub fn network(&self) -> Result<Network, NetworkError> {
        let mut survey = Survey { config: self, network: Network::default(), said: BTreeMap::new() };
        survey.take_places()?;
        for (link, number) in self.links.iter().zip(1..) {
            survey.take_link(&format!("[[link]] number {number}"), &link.from, &link.to, link.rate)?;
        }
        for (matrix, number) in self.matrices.iter().zip(1..) {
            survey.take_matrix(&format!("[[matrix]] number {number}"), matrix)?;
        }
        Ok(survey.network)
    }
}

/// The kind of a link's end: a helper or client, or a rack or region.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Node,
    Place,
}

struct Survey<'a> {
    config: &'a Config,
    network: Network,
    /// The rates as written in the file.
    said: BTreeMap<(String, String), Bandwidth>,
}

impl Survey<'_> {
    fn take_places(&mut self) -> Result<(), NetworkError> {
        let in_use: BTreeSet<&String> =
            self.config.helpers.iter().filter_map(|helper| helper.rack.as_ref()).collect();
        let mut described: BTreeMap<&str, String> = BTreeMap::new();
        let mut once = |name, entry: &str| match described.insert(name, entry.to_owned()) {
            None => Ok(()),
            Some(first) => Err(NetworkError::Twice { entry: entry.to_owned(), name: name.to_owned(), first }),
        };
        for (rack, number) in self.config.racks.iter().zip(1..) {
            let entry = format!("[[rack]] number {number}");
            once(&rack.name, &entry)?;
            if !in_use.contains(&rack.name) {
                let known = in_use.into_iter().cloned().collect();
                return Err(NetworkError::EmptyRack { entry, name: rack.name.clone(), known });
            }
            if let Some(region) = &rack.region {
                self.network.regions.insert(rack.name.clone(), region.clone());
            }
            self.network.take_trunk(&rack.name, rack.up, rack.down);
        }
        for (region, number) in self.config.regions.iter().zip(1..) {
            let entry = format!("[[region]] number {number}");
            once(&region.name, &entry)?;
            if !self.network.regions.values().any(|name| *name == region.name) {
                return Err(NetworkError::EmptyRegion { entry, name: region.name.clone() });
            }
            self.network.take_trunk(&region.name, region.up, region.down);
        }
        Ok(())
    }

    fn take_matrix(&mut self, entry: &str, matrix: &MatrixConfig) -> Result<(), NetworkError> {
        let (names, rows) = (matrix.names.len(), matrix.rates.len());
        let odd = matrix.rates.iter().map(Vec::len).find(|&rates| rates != names);
        if rows != names || odd.is_some() {
            let (entry, rates) = (entry.to_owned(), odd.unwrap_or(names));
            return Err(NetworkError::Shape { entry, names, rows, rates });
        }
        for (from, row) in matrix.names.iter().zip(&matrix.rates) {
            for (to, Entry(rate)) in matrix.names.iter().zip(row) {
                match rate {
                    Some(rate) => self.take_link(entry, from, to, *rate)?,
                    None => drop(self.end(entry, to)?),
                }
            }
        }
        Ok(())
    }

    fn take_link(&mut self, entry: &str, from: &str, to: &str, given: Bandwidth) -> Result<(), NetworkError> {
        let ends = [self.end(entry, from)?, self.end(entry, to)?];
        let (entry, pair) = (entry.to_owned(), (from.to_owned(), to.to_owned()));
        if from == to {
            return Err(NetworkError::Itself { entry, name: pair.0 });
        }
        let was = *self.said.entry(pair.clone()).or_insert(given);
        if was != given {
            return Err(NetworkError::TwoRates { entry, from: pair.0, to: pair.1, was, given });
        }
        match ends {
            [End::Node, End::Node] => self.network.pairs.insert(pair, given.bytes_per_second()),
            [End::Place, End::Place] => self.network.between.insert(pair, given.bytes_per_second()),
            _ => return Err(NetworkError::Mixed { entry, from: pair.0, to: pair.1 }),
        };
        Ok(())
    }

    fn end(&self, entry: &str, name: &str) -> Result<End, NetworkError> {
        let helpers = || self.config.helpers.iter();
        let racks = || helpers().filter_map(|helper| helper.rack.as_deref());
        let regions = || self.network.regions.values().map(String::as_str);
        let is_node = name == CLIENT || helpers().any(|helper| helper.name.as_str() == name);
        let is_place = racks().chain(regions()).any(|place| place == name);
        match (is_node, is_place) {
            (true, false) => Ok(End::Node),
            (false, true) => Ok(End::Place),
            (true, true) => Err(NetworkError::Ambiguous { entry: entry.to_owned(), name: name.to_owned() }),
            (false, false) => {
                let names = helpers().map(|helper| helper.name.as_str()).chain(racks()).chain(regions());
                let known: BTreeSet<String> = names.map(str::to_owned).collect();
                let known = known.into_iter().collect();
                Err(NetworkError::Unknown { entry: entry.to_owned(), name: name.to_owned(), known })
            }
        }
    }
}

impl Network {
    fn take_trunk(&mut self, name: &str, up: Option<Bandwidth>, down: Option<Bandwidth>) {
        let rate = |rate: Option<Bandwidth>| rate.map(Bandwidth::bytes_per_second);
        if up.is_some() || down.is_some() {
            self.trunks.insert(name.to_owned(), [rate(up), rate(down)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"cluster_id = "000102030405060708090a0b0c0d0e0f"
[coordinator]
api = "127.0.0.1:7400"
control = "127.0.0.1:7401"
[defaults]
code = "rs-4-2"
block_bytes = "1MiB"
scheme = "auto"
[[helper]]
name = "h1"
listen = "127.0.0.1:7411"
rack = "r1"
[[helper]]
name = "h2"
listen = "127.0.0.1:7412"
rack = "r1"
[[helper]]
name = "h3"
listen = "127.0.0.1:7413"
rack = "r2"
"#;

    fn network(text: &str) -> Result<Network, NetworkError> {
        Config::parse(&format!("{HEAD}{text}"), "mend.toml".as_ref()).expect("it parses").network()
    }

    #[test]
    fn racks_regions_links_and_matrices_come_together() {
        let network = network(
            r#"
[[rack]]
name = "r1"
region = "west"
up = "400mbit"
[[rack]]
name = "r2"
region = "east"
[[region]]
name = "west"
down = "80mbit"
[[link]]
from = "h1"
to = "client"
rate = "8mbit"
[[matrix]]
names = ["west", "east"]
rates = [["-", "16mbit"], ["24mbit", "-"]]
[[matrix]]
names = ["h1", "h2"]
rates = [["-", "32mbit"], ["-", "-"]]
"#,
        )
        .expect("nothing contradicts");
        let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        assert_eq!(network.regions.len(), 2);
        assert_eq!(network.trunks["r1"], [Some(50e6), None]);
        assert_eq!(network.trunks["west"], [None, Some(10e6)]);
        assert_eq!(network.pairs, BTreeMap::from([(pair("h1", "client"), 1e6), (pair("h1", "h2"), 4e6)]));
        assert_eq!(
            network.between,
            BTreeMap::from([(pair("west", "east"), 2e6), (pair("east", "west"), 3e6)])
        );
    }

    #[test]
    fn contradictions_name_the_entry_and_the_next_step() {
        let said = |text: &str| network(text).expect_err("it contradicts itself").to_string();
        let cases = [
            (
                "[[rack]]\nname = \"r9\"\n",
                "[[rack]] number 1: no helper is in rack `r9` (racks with helpers: r1, r2)",
            ),
            (
                "[[rack]]\nname = \"r1\"\n[[rack]]\nname = \"r1\"\n",
                "number 2: `r1` is described by [[rack]] number 1",
            ),
            ("[[region]]\nname = \"west\"\n", "no rack is in region `west`"),
            (
                "[[link]]\nfrom = \"h1\"\nto = \"h7\"\nrate = \"1mbit\"\n",
                "`h7` is not a helper, rack or region",
            ),
            (
                "[[link]]\nfrom = \"h1\"\nto = \"r2\"\nrate = \"1mbit\"\n",
                "`h1` and `r2` are of different kinds",
            ),
            ("[[link]]\nfrom = \"h1\"\nto = \"h1\"\nrate = \"1mbit\"\n", "from `h1` to itself"),
            (
                "[[matrix]]\nnames = [\"h1\", \"h2\"]\nrates = [[\"-\", \"1mbit\"]]\n",
                "2 names need 2 rows of 2 rates, but there are 1 rows, one of them with 2 rates",
            ),
            (
                "[[matrix]]\nnames = [\"h1\", \"hx\"]\nrates = [[\"-\", \"-\"], [\"-\", \"-\"]]\n",
                "`hx` is not a helper",
            ),
            (
                "[[link]]\nfrom = \"h1\"\nto = \"h2\"\nrate = \"1mbit\"\n[[matrix]]\nnames = [\"h1\", \"h2\"]\nrates = [[\"-\", \"2mbit\"], [\"-\", \"-\"]]\n",
                "has 2mbit here, but 1mbit elsewhere",
            ),
        ];
        for (text, expected) in cases {
            let said = said(text);
            assert!(said.contains(expected), "{said}\nlacks: {expected}");
        }
        let zero = format!("{HEAD}[[link]]\nfrom = \"h1\"\nto = \"h2\"\nrate = \"0mbit\"\n");
        let zero = Config::parse(&zero, "mend.toml".as_ref()).expect_err("no rate").to_string();
        assert!(zero.contains("`0mbit` is not a bandwidth"), "{zero}");
    }
}
