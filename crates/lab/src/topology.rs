//! The topology of the lab's network: number of nodes, link rates, racks, and rates between places.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use cluster::Bandwidth;
use serde::{Deserialize, Serialize};

/// The maximum number of nodes. With more nodes, no machine could give each node enough processor time.
pub const MOST_NODES: u16 = 200;

/// A network to create.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// The number of helpers, named `h1`, `h2`, …
    pub nodes: u16,
    /// The rate of every node's link, in both directions.
    pub rate: Rate,
    /// Racks with an equal share of the helpers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub racks: Option<Racks>,
    /// Rates between places, which determine the rate of every pair of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrix: Option<Matrix>,
    /// The rate from each helper to the client, for a client at the edge of the network. The client's own
    /// link keeps the common rate, so reading from many helpers is faster than from one helper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<Bandwidth>,
    /// With a matrix: whether a helper's link is limited, in each direction, to the rate within the helper's
    /// place. Otherwise all links have the common rate.
    #[serde(default)]
    pub ports: bool,
    /// With a matrix: whether all pairs of nodes in two places share the rate between these places. Otherwise
    /// each pair has that rate to itself.
    #[serde(default)]
    pub shared: bool,
    /// Whether mend.toml describes the topology to the planner. Otherwise the planner assumes 1 Gb/s for
    /// every link.
    #[serde(default)]
    pub told: bool,
}

/// The rate of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Rate {
    /// The link is shaped to this rate.
    Shaped(Bandwidth),
    /// The link is not shaped, so only the machine's processors limit it.
    Unshaped,
}

/// Racks: one bridge each, connected to a core bridge by a link shaped in both directions. Helpers are distributed
/// over the racks evenly and in order; the client is in the first rack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Racks {
    /// The number of racks.
    pub count: u16,
    /// The rate of the link between a rack and the core.
    pub rate: Bandwidth,
}

/// Rates between places in Mb/s: each entry is the rate from the place of its row to the place of its column.
/// Helpers are distributed over the places evenly and in order; the client is at the first place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Matrix {
    name: String,
    places: Vec<String>,
    mbit: Vec<Vec<f64>>,
}

/// The reason why a topology is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TopologyError {
    /// Too few or too many nodes.
    #[error("a lab can have 2 to {MOST_NODES} nodes, not {nodes}")]
    Nodes {
        /// The requested number of nodes.
        nodes: u16,
    },
    /// The text is not a rate.
    #[error("`{0}` is not a rate: write a rate such as 1gbit or 500mbit, or unshaped")]
    Rate(String),
    /// The text is not of the form `COUNT:RATE`.
    #[error("`{0}` does not describe racks: write COUNT:RATE, such as 3:400mbit")]
    Racks(String),
    /// More racks than nodes, or only one rack.
    #[error(
        "{nodes} nodes cannot be divided into {racks} racks: use at least 2 racks, and at least one node for \
         each rack"
    )]
    RackCount {
        /// The requested number of racks.
        racks: u16,
        /// The number of nodes.
        nodes: u16,
    },
    /// The name is neither that of a known matrix nor of a readable file.
    #[error("`{name}` is neither a known matrix (north-america, asia) nor a readable file: {reason}")]
    NoMatrix {
        /// The requested name.
        name: String,
        /// The system's error.
        reason: String,
    },
    /// The file is not a valid matrix.
    #[error("matrix `{name}`, line {line}: {reason}")]
    BadMatrix {
        /// The matrix.
        name: String,
        /// The line number, from 1.
        line: usize,
        /// The error.
        reason: String,
    },
    /// Two options exclude each other.
    #[error("{0} and {1} cannot be combined")]
    Both(&'static str, &'static str),
    /// An option requires a matrix, and none is given.
    #[error("{0}: needs a matrix")]
    NoMatrixOf(&'static str),
}

/// Table 1 of the repair pipelining paper, measured on EC2 with iperf.
const NORTH_AMERICA: &str = "California Canada Ohio Oregon\n501.3 57.2 44.1 299.9\n55.3 732.0 63.3 48.0\n46.3 65.7 332.5 95.6\n297.8 50.2 93.6 250.1\n";
const ASIA: &str = "Mumbai Seoul Singapore Tokyo\n624.8 62.3 39.5 37.7\n63.8 265.7 86.1 183.2\n41.5 88.1 493.0 49.1\n39.7 181.0 46.9 489.1\n";

impl Topology {
    /// Returns a topology of `nodes` helpers on one switch.
    pub fn flat(nodes: u16, rate: Rate) -> Self {
        Self { nodes, rate, racks: None, matrix: None, edge: None, ports: false, shared: false, told: false }
    }

    /// Rejects topologies that cannot be built.
    ///
    /// # Errors
    /// Returns the first error.
    pub fn check(&self) -> Result<(), TopologyError> {
        if !(2..=MOST_NODES).contains(&self.nodes) {
            return Err(TopologyError::Nodes { nodes: self.nodes });
        }
        if let Some(Racks { count, .. }) = self.racks
            && !(2..=self.nodes).contains(&count)
        {
            return Err(TopologyError::RackCount { racks: count, nodes: self.nodes });
        }
        match (&self.racks, &self.matrix, self.edge) {
            (Some(_), Some(_), _) => Err(TopologyError::Both("racks", "a matrix")),
            (_, Some(_), Some(_)) => Err(TopologyError::Both("a matrix", "an edge rate")),
            (_, None, _) if self.ports => Err(TopologyError::NoMatrixOf("ports")),
            (_, None, _) if self.shared => Err(TopologyError::NoMatrixOf("shared")),
            _ => Ok(()),
        }
    }

    /// Returns the number of groups of helpers that share links to other groups: the racks or, if the rates
    /// are a matrix between places, the places.
    pub fn groups(&self) -> Option<u16> {
        let places = self.matrix.as_ref().filter(|_| self.shared).map(Matrix::places);
        self.racks.map(|racks| racks.count).or(places)
    }

    /// Returns the rack of helper `index`, or its place if places share links. Helpers, racks and places are
    /// numbered from 0.
    pub fn rack_of(&self, index: u16) -> Option<u16> {
        self.groups().map(|groups| deal(index, self.nodes, groups))
    }

    /// Returns the rack or the place of helper `index`, also if places do not share links.
    pub(crate) fn place_of(&self, index: u16) -> Option<u16> {
        let places = self.matrix.as_ref().map(Matrix::places);
        self.groups().or(places).map(|groups| deal(index, self.nodes, groups))
    }

    /// Whether every pair of nodes has the same rate.
    pub fn is_uniform(&self) -> bool {
        self.racks.is_none() && self.matrix.is_none() && self.edge.is_none()
    }

    /// Returns the rate of a helper's link in each direction; `None` if the link is unshaped.
    pub fn link_rate(&self, index: u16) -> Option<Bandwidth> {
        let place = |matrix: &Matrix| deal(index, self.nodes, matrix.places());
        let own = self
            .matrix
            .as_ref()
            .filter(|_| self.ports)
            .map(|matrix| matrix.between(place(matrix), place(matrix)));
        [self.rate.bandwidth(), own].into_iter().flatten().min()
    }

    /// Returns the shaped rate between two helpers, or from a helper to the client if `to` is `None`. Returns
    /// `None` if nothing on the path is shaped.
    pub fn pair_rate(&self, from: u16, to: Option<u16>) -> Option<Bandwidth> {
        let link = self.rate.bandwidth();
        let pair = match (&self.matrix, to) {
            (Some(matrix), _) => Some(matrix.between(
                deal(from, self.nodes, matrix.places()),
                to.map_or(0, |to| deal(to, self.nodes, matrix.places())),
            )),
            (None, None) => self.edge,
            (None, Some(to)) => match self.racks {
                Some(racks) if self.rack_of(from) != self.rack_of(to) => Some(racks.rate),
                _ => None,
            },
        };
        [link, pair].into_iter().flatten().min()
    }
}

/// Distributes `count` items over `groups` evenly and in order, and returns the group of item `index`.
fn deal(index: u16, count: u16, groups: u16) -> u16 {
    (u32::from(index) * u32::from(groups) / u32::from(count)) as u16
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} nodes, {}", self.nodes, self.rate)?;
        if let Some(racks) = self.racks {
            write!(f, ", {} racks at {}", racks.count, racks.rate)?;
        }
        if let Some(matrix) = &self.matrix {
            write!(f, ", rates between pairs of {}", matrix.name)?;
        }
        if let Some(edge) = self.edge {
            write!(f, ", {edge} from each helper to the client")?;
        }
        let said = [
            (self.shared, ", shared"),
            (self.ports, ", ports limited as in the matrix"),
            (self.told, ", rates in mend.toml"),
        ];
        said.iter().filter(|(is_so, _)| *is_so).try_for_each(|(_, text)| f.write_str(text))
    }
}

impl Rate {
    /// The shaped rate, if any.
    pub fn bandwidth(self) -> Option<Bandwidth> {
        match self {
            Self::Shaped(bandwidth) => Some(bandwidth),
            Self::Unshaped => None,
        }
    }
}

impl FromStr for Rate {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "unshaped" {
            return Ok(Self::Unshaped);
        }
        text.parse().map(Self::Shaped).map_err(|_| TopologyError::Rate(text.to_owned()))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shaped(bandwidth) => bandwidth.fmt(f),
            Self::Unshaped => f.pad("unshaped"),
        }
    }
}

impl TryFrom<String> for Rate {
    type Error = TopologyError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> Self {
        rate.to_string()
    }
}

impl FromStr for Racks {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (count, rate) = text.split_once(':')?;
            Some(Self { count: count.parse().ok()?, rate: rate.parse().ok()? })
        };
        parse().ok_or_else(|| TopologyError::Racks(text.to_owned()))
    }
}

impl Matrix {
    /// Parses a line of place names, followed by a line of rates in Mb/s for each place.
    ///
    /// # Errors
    /// [`TopologyError::BadMatrix`].
    pub fn parse(name: &str, text: &str) -> Result<Self, TopologyError> {
        let bad =
            |line: usize, reason: String| TopologyError::BadMatrix { name: name.to_owned(), line, reason };
        let mut lines =
            text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty() && !line.starts_with('#'));
        let (first, _) = lines.next().ok_or_else(|| bad(1, "the first line names no places".to_owned()))?;
        let places: Vec<String> = first.split_whitespace().map(str::to_owned).collect();
        let mut mbit = Vec::new();
        let mut last = 1;
        for (line, number) in lines {
            last = number;
            let row: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
            let row = row.map_err(|_| bad(number, format!("`{line}` is not a row of numbers")))?;
            if row.len() != places.len() || row.iter().any(|&rate| !(0.1..1e6).contains(&rate)) {
                let wanted = places.len();
                return Err(bad(number, format!("`{line}` is not {wanted} rates of 0.1 to 1000000 Mb/s")));
            }
            mbit.push(row);
        }
        if mbit.len() != places.len() {
            return Err(bad(last, format!("{} rows for {} places", mbit.len(), places.len())));
        }
        Ok(Self { name: name.to_owned(), places, mbit })
    }

    /// The number of places.
    pub fn places(&self) -> u16 {
        self.places.len() as u16
    }

    /// The name of a place.
    pub(crate) fn place(&self, place: u16) -> &str {
        &self.places[usize::from(place)]
    }

    /// The rate from one place to another.
    pub fn between(&self, from: u16, to: u16) -> Bandwidth {
        let mbit = self.mbit[usize::from(from)][usize::from(to)];
        Bandwidth::from_bits_per_second((mbit * 1e6).round() as u64).expect("rates are at least 0.1 Mb/s")
    }
}

impl FromStr for Matrix {
    type Err = TopologyError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "north-america" => Self::parse(name, NORTH_AMERICA),
            "asia" => Self::parse(name, ASIA),
            path => {
                let text = std::fs::read_to_string(Path::new(path)).map_err(|error| {
                    TopologyError::NoMatrix { name: name.to_owned(), reason: error.to_string() }
                })?;
                Self::parse(name, &text)
            }
        }
    }
}

impl TryFrom<String> for Matrix {
    type Error = TopologyError;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        name.parse()
    }
}

impl From<Matrix> for String {
    fn from(matrix: Matrix) -> Self {
        matrix.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gbit() -> Rate {
        "1gbit".parse().unwrap()
    }

    #[test]
    fn impossible_topologies_are_rejected() {
        assert_eq!(Topology::flat(1, gbit()).check(), Err(TopologyError::Nodes { nodes: 1 }));
        let racks = |text: &str| Topology { racks: Some(text.parse().unwrap()), ..Topology::flat(4, gbit()) };
        assert_eq!(racks("5:1gbit").check(), Err(TopologyError::RackCount { racks: 5, nodes: 4 }));
        assert_eq!(racks("2:1gbit").check(), Ok(()));
        let both = Topology { matrix: Some("asia".parse().unwrap()), ..racks("2:1gbit") };
        assert!(both.check().is_err());
        for text in ["3", "x:1gbit", "3:", "3:1mbps"] {
            assert_eq!(text.parse::<Racks>(), Err(TopologyError::Racks(text.to_owned())));
        }
        assert_eq!("1mbps".parse::<Rate>(), Err(TopologyError::Rate("1mbps".to_owned())));
    }

    #[test]
    fn nodes_are_dealt_evenly_to_racks_and_places() {
        let topology = Topology { racks: Some("3:400mbit".parse().unwrap()), ..Topology::flat(9, gbit()) };
        let racks: Vec<_> = (0..9).map(|index| topology.rack_of(index).unwrap()).collect();
        assert_eq!(racks, [0, 0, 0, 1, 1, 1, 2, 2, 2]);
        assert_eq!(topology.pair_rate(0, Some(8)).unwrap().to_string(), "400mbit");
        assert_eq!(topology.pair_rate(0, Some(1)).unwrap().to_string(), "1gbit");
        let asia = Topology { matrix: Some("asia".parse().unwrap()), ..Topology::flat(16, gbit()) };
        assert_eq!(asia.pair_rate(0, Some(4)).unwrap().to_string(), "62300kbit");
        assert_eq!(asia.pair_rate(15, None).unwrap().to_string(), "39700kbit");
        assert_eq!(asia.link_rate(15).unwrap().to_string(), "1gbit");
        let ports = Topology { ports: true, ..asia };
        assert_eq!(ports.link_rate(15).unwrap().to_string(), "489100kbit");
        assert_eq!((ports.rack_of(15), ports.place_of(15)), (None, Some(3)));
        let shared = Topology { shared: true, ..ports.clone() };
        assert_eq!(shared.rack_of(15), Some(3));
        assert_eq!(
            shared.to_string(),
            "16 nodes, 1gbit, rates between pairs of asia, shared, ports limited as in the matrix"
        );
        assert_eq!(Topology { matrix: None, ..ports }.check(), Err(TopologyError::NoMatrixOf("ports")));
        assert_eq!(
            Topology { matrix: None, ports: false, ..shared }.check(),
            Err(TopologyError::NoMatrixOf("shared"))
        );
    }

    #[test]
    fn a_bad_matrix_names_the_line() {
        let error = Matrix::parse("m", "a b\n1 2\n3 x\n").unwrap_err();
        assert_eq!(error.to_string(), "matrix `m`, line 3: `3 x` is not a row of numbers");
        assert!(Matrix::parse("m", "a b\n1 2\n").unwrap_err().to_string().contains("1 rows for 2 places"));
        assert!(Matrix::parse("m", "a b\n1 2 3\n1 2\n").is_err());
        assert!(Matrix::parse("m", "a\n0\n").is_err());
        assert!("no/such/file".parse::<Matrix>().unwrap_err().to_string().contains("north-america, asia"));
    }
}
