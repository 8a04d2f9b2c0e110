//! The ways in which lost blocks are rebuilt.

use std::fmt;
use std::str::FromStr;

use super::cluster::Commands;

/// The program that rebuilds lost blocks, with the number of commands that the NameNode sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// HDFS, with its default number of commands.
    Hdfs,
    /// HDFS, with twenty commands per DataNode.
    HdfsMany,
    /// Mend, on an operator's request.
    Asked,
    /// Mend, on the NameNode's commands.
    Commanded,
    /// Mend, on twenty commands per DataNode.
    CommandedMany,
}

pub(super) const WAYS: [Way; 5] = [Way::Hdfs, Way::HdfsMany, Way::Asked, Way::Commanded, Way::CommandedMany];

impl Way {
    /// Returns the name in tables and options.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Hdfs => "HDFS",
            Self::HdfsMany => "HDFS, 20 streams",
            Self::Asked => "Mend, asked",
            Self::Commanded => "Mend, commanded",
            Self::CommandedMany => "Mend, commanded, 20 streams",
        }
    }

    pub(super) fn commands(self) -> Commands {
        match self {
            Self::Asked => Commands::None,
            Self::Hdfs | Self::Commanded => Commands::Default,
            Self::HdfsMany | Self::CommandedMany => Commands::Many,
        }
    }

    /// Whether Mend rebuilds the blocks.
    pub(super) fn is_mend(self) -> bool {
        !matches!(self, Self::Hdfs | Self::HdfsMany)
    }

    /// Whether the number of commands is HDFS's default, or none are sent.
    pub(super) fn is_default(self) -> bool {
        self.commands() != Commands::Many
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = WAYS.into_iter().find(|way| way.name() == text);
        found.ok_or_else(|| format!("the names are \"{}\"", WAYS.map(Way::name).join("\", \"")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_names_select_a_way() {
        for way in WAYS {
            assert_eq!(way.to_string().parse(), Ok(way));
        }
        assert_eq!("HDFS".parse(), Ok(Way::Hdfs));
        assert!("Mend".parse::<Way>().unwrap_err().contains("\"Mend, asked\""));
    }
}
