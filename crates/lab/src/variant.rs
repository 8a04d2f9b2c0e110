//! [`Variant`]: a scheme with its pacing, encryption and cache, as measured in one row of a report.

use std::fmt;

use repair::{Pacing, Scheme};

/// A scheme, how nodes forward its slices, whether data edges are encrypted, and whether blocks are cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// The scheme.
    pub scheme: Scheme,
    /// The pacing; `None` for the scheme's default.
    pub pacing: Option<Pacing>,
    /// Whether data edges are encrypted.
    pub encrypted: bool,
    /// Whether as many surviving blocks as a repair reads are in memory when a measurement begins.
    pub cached: bool,
}

impl Variant {
    /// Returns a scheme with Mend's defaults.
    pub fn own(scheme: Scheme) -> Self {
        Self { scheme, pacing: None, encrypted: false, cached: false }
    }

    /// Returns the variants of a scheme for the requested pacings. Only a scheme that was published in rounds
    /// can have more than one.
    pub(crate) fn of(scheme: Scheme, pacings: impl Iterator<Item = Pacing>) -> Vec<Self> {
        match was_published_in_rounds(scheme) {
            true => pacings.map(|pacing| Self { pacing: asked(pacing), ..Self::own(scheme) }).collect(),
            false => vec![Self::own(scheme)],
        }
    }

    /// Whether nodes send whole blocks in rounds, rather than single slices.
    pub fn is_in_rounds(self) -> bool {
        self.pacing == Some(Pacing::WholeBlock)
    }
}

/// Whether a scheme was published in rounds and the lab can run it in rounds. CRR-S cannot be run in rounds:
/// its fragments take turns slice by slice and form no whole streams.
fn was_published_in_rounds(scheme: Scheme) -> bool {
    matches!(scheme, Scheme::Ppr | Scheme::CrrR)
}

/// Returns the pacing to set for a requested one; `None` for slices, which are the default pacing of every
/// scheme.
fn asked(pacing: Pacing) -> Option<Pacing> {
    (pacing != Pacing::Pipelined).then_some(pacing)
}

/// Displays as `ppr`, `ppr in rounds`, `ppr encrypted`, or `ppr cached`.
impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.scheme.name())?;
        f.write_str(if self.is_in_rounds() { " in rounds" } else { "" })?;
        f.write_str(if self.encrypted { " encrypted" } else { "" })?;
        f.write_str(if self.cached { " cached" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_published_in_rounds_is_measured_in_rounds() {
        let names = |scheme, pacings: &[Pacing]| -> Vec<String> {
            Variant::of(scheme, pacings.iter().copied()).iter().map(ToString::to_string).collect()
        };
        let both = [Pacing::Pipelined, Pacing::WholeBlock];
        assert_eq!(names(Scheme::Ppr, &both), ["ppr", "ppr in rounds"]);
        assert_eq!(names(Scheme::CrrR, &both[1..]), ["crr-r in rounds"]);
        assert_eq!(names(Scheme::Cyclic, &both), ["cyclic"]);
        assert_eq!(names(Scheme::Conventional, &both[1..]), ["conventional"]);
    }
}
