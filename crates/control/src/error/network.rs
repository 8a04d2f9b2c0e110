//! Refusals of cap changes and of link measurements.

use crate::error::{ErrorKind, list};

/// The reason that links are not measured or caps not changed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the error messages document the variants")]
pub enum NetworkError {
    #[error("there is no rack `{rack}`; {}", known_racks(.known))]
    NoSuchRack { rack: String, known: Vec<String> },
    #[error("links are being measured already")]
    ProbesRun,
    #[error("no links have been measured since the coordinator started")]
    NoProbes,
    #[error("measuring links needs at least two helpers, but only {0} can be measured")]
    TooFewToProbe(usize),
    #[error("{links} links are too many for one measurement: the limit is {most}")]
    TooManyLinks { links: usize, most: usize },
    #[error("helper {0} is down")]
    NodeDown(String),
}

fn known_racks(known: &[String]) -> String {
    match known {
        [] => "no helper has a rack".to_owned(),
        known => format!("the racks are {}", list(known)),
    }
}

impl NetworkError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSuchRack { .. } | Self::NoProbes => ErrorKind::NotFound,
            Self::ProbesRun | Self::NodeDown(_) => ErrorKind::Conflict,
            Self::TooFewToProbe(_) | Self::TooManyLinks { .. } => ErrorKind::Invalid,
        }
    }

    pub(crate) fn next_step(&self) -> String {
        match self {
            Self::NoSuchRack { .. } => {
                "see `mend node list` for the racks; a helper's rack is set in mend.toml".into()
            }
            Self::ProbesRun => {
                "wait until the measurement ends (`mend bench links --show`), or stop it with `mend bench \
                 links --stop`"
                    .into()
            }
            Self::NoProbes => "measure the links with `mend bench links`".into(),
            Self::TooFewToProbe(_) => "name at least two helpers, or start more of them".into(),
            Self::TooManyLinks { .. } => "name fewer helpers, or leave --pairs out".into(),
            Self::NodeDown(_) => "start the helper, or leave it out of the measurement".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_rack_is_reported_with_the_known_ones() {
        let text = |known: &[&str]| {
            let known = known.iter().map(|&rack| rack.to_owned()).collect();
            NetworkError::NoSuchRack { rack: "nope".to_owned(), known }.to_string()
        };
        assert_eq!(text(&[]), "there is no rack `nope`; no helper has a rack");
        assert_eq!(text(&["a", "b"]), "there is no rack `nope`; the racks are a, b");
    }
}
