//! The schemes: names for the shapes a plan can have.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Pacing;

/// The shape of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// The scheme with the least predicted time.
    #[default]
    Auto,
    /// Raw sub-blocks are sent to the requestor, which decodes; also called SRR.
    Conventional,
    /// One binomial tree of partial sums.
    Ppr,
    /// Partial sums are combined by recursive halving at a root helper, and then sent to the requestor.
    CrrR,
    /// Fragments reduced in parallel, gathered at a root helper, then sent to the requestor.
    CrrS,
    /// Fragments reduced in parallel, each sent straight to the requestor.
    CrrSDirect,
    /// Each slice summed at one helper, helpers taking turns.
    Scatter,
    /// One chain of partial sums, slice by slice: repair pipelining.
    Pipelined,
    /// Rotated chains, so that the requestor reads from many helpers.
    Cyclic,
    /// A chain that passes on whole blocks (baseline).
    PipeB,
    /// A chain whose helpers do one thing at a time (baseline).
    PipeS,
    /// Slices dealt over many routes at once, which keeps all links busy.
    Packed,
    /// The chain whose slowest link is as fast as possible.
    Weighted,
    /// A chain that enters and leaves each rack once.
    RackAware,
    /// A copy of a block that some node still holds.
    Migration,
}

impl Scheme {
    /// Every scheme, in the order in which help texts list them.
    pub const ALL: [Self; 15] = [
        Self::Auto,
        Self::Conventional,
        Self::Ppr,
        Self::CrrR,
        Self::CrrS,
        Self::CrrSDirect,
        Self::Scatter,
        Self::Pipelined,
        Self::Cyclic,
        Self::PipeB,
        Self::PipeS,
        Self::Packed,
        Self::Weighted,
        Self::RackAware,
        Self::Migration,
    ];

    /// The name as typed and stored.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Conventional => "conventional",
            Self::Ppr => "ppr",
            Self::CrrR => "crr-r",
            Self::CrrS => "crr-s",
            Self::CrrSDirect => "crr-s-direct",
            Self::Scatter => "scatter",
            Self::Pipelined => "pipelined",
            Self::Cyclic => "cyclic",
            Self::PipeB => "pipe-b",
            Self::PipeS => "pipe-s",
            Self::Packed => "packed",
            Self::Weighted => "weighted",
            Self::RackAware => "rack-aware",
            Self::Migration => "migration",
        }
    }

    /// A one-line description with its source.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Auto => "the scheme that is predicted to be fastest for this stripe and these nodes",
            Self::Conventional => {
                "k whole blocks to the requestor, which decodes (SRR; the default of every store)"
            }
            Self::Ppr => "a binomial tree of partial sums (Mitra et al., EuroSys 2016)",
            Self::CrrR => {
                "recursive halving to a root helper, then to the requestor (CRR-R, collective reconstruction \
                 read)"
            }
            Self::CrrS => {
                "fragments summed in parallel, gathered at a root helper, then to the requestor (CRR-S)"
            }
            Self::CrrSDirect => "CRR-S with fragments sent directly to the requestor (ours)",
            Self::Scatter => {
                "each slice summed at one helper, the helpers in turn, then to the requestor (ours)"
            }
            Self::Pipelined => {
                "one chain of partial sums, slice by slice (repair pipelining, Li et al., TOS 2021)"
            }
            Self::Cyclic => {
                "repair pipelining over rotated chains, for slow links into the requestor (same paper)"
            }
            Self::PipeB => "a chain that forwards whole blocks (baseline of the repair pipelining paper)",
            Self::PipeS => {
                "a chain whose helpers receive, compute and send one after the other (baseline of the same \
                 paper)"
            }
            Self::Packed => "slices over many routes at once, so that all links are busy (ours)",
            Self::Weighted => "the chain whose slowest link is fastest (Algorithm 2 of the same paper)",
            Self::RackAware => {
                "a chain that enters and leaves each rack once (Algorithm 1 of the same paper)"
            }
            Self::Migration => {
                "a copy from the node that still holds the block (FastPR, Shen et al., DSN 2019)"
            }
        }
    }

    /// The scheme's own pacing, used unless the policy names another.
    pub(super) const fn pacing(self) -> Pacing {
        match self {
            Self::PipeB => Pacing::WholeBlock,
            Self::PipeS => Pacing::Serial,
            _ => Pacing::Pipelined,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a text that names no scheme.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no scheme `{0}`; the schemes are:{catalogue}", catalogue = catalogue())]
pub struct UnknownScheme(
    /// The text as given.
    pub String,
);

fn catalogue() -> String {
    Scheme::ALL.iter().map(|scheme| format!("\n  {scheme:<13} {}", scheme.summary())).collect()
}

impl FromStr for Scheme {
    type Err = UnknownScheme;

    fn from_str(text: &str) -> Result<Self, UnknownScheme> {
        let name = text.trim().to_ascii_lowercase().replace('_', "-");
        match name.as_str() {
            "srr" => Ok(Self::Conventional),
            "rp" => Ok(Self::Pipelined),
            "rp-cyclic" => Ok(Self::Cyclic),
            "crr" => Ok(Self::CrrS),
            _ => Self::ALL
                .into_iter()
                .find(|scheme| scheme.name() == name)
                .ok_or_else(|| UnknownScheme(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_agree_with_serde() {
        for scheme in Scheme::ALL {
            assert_eq!(scheme.name().parse(), Ok(scheme));
            assert_eq!(serde_json::to_value(scheme).expect("a name"), scheme.name());
        }
        assert_eq!("RP".parse(), Ok(Scheme::Pipelined));
        assert_eq!("srr".parse(), Ok(Scheme::Conventional));
    }

    #[test]
    fn an_unknown_scheme_lists_those_there_are() {
        let error = "star".parse::<Scheme>().expect_err("no such scheme").to_string();
        assert!(error.starts_with("there is no scheme `star`; the schemes are:\n  auto "), "{error}");
        assert!(Scheme::ALL.iter().all(|scheme| error.contains(scheme.summary())), "{error}");
    }
}
