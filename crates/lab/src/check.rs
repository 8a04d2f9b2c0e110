//! The self-check: does a plain connection reach its link's nominal rate?

use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::instruction::{Answer, Instruction};
use crate::lab_cluster::LabCluster;
use crate::meter::Meter;
use crate::network::{LabNode, Network};

/// The number of bytes to send, enough to make the initial burst negligible.
pub const CHECK_BYTES: u64 = 64 << 20;
/// The tolerated relative deviation from the nominal time.
pub const TOLERANCE: f64 = 0.01;
/// The maximum number of attempts; more than one, because other programs may disturb an attempt.
const TRIES: u32 = 4;

/// The result of a direct send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The two ends of the link.
    pub link: String,
    /// The number of bytes sent.
    pub bytes: u64,
    /// The nominal time in seconds; `None` for an unshaped link.
    pub nominal_s: Option<f64>,
    /// The measured time in seconds of the attempt closest to the nominal time.
    pub measured_s: f64,
    /// Whether other programs ran during the send.
    pub disturbed: bool,
    /// Whether the processors may have been the bottleneck.
    pub cpu_bound: bool,
}

impl Check {
    /// Measured time divided by nominal time.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.measured_s / self.nominal_s?)
    }

    /// Whether the measured time is so close to the nominal time that the lab's figures can be trusted.
    pub fn holds(&self) -> bool {
        self.ratio().is_none_or(|ratio| (ratio - 1.0).abs() <= TOLERANCE)
    }

    /// The result in one line.
    pub fn summary(&self) -> String {
        let (link, measured) = (&self.link, self.measured_s);
        let (Some(nominal), Some(ratio)) = (self.nominal_s, self.ratio()) else {
            return format!("{link}: {measured:.4} s, not shaped");
        };
        let verdict = match (self.holds(), self.disturbed, self.cpu_bound) {
            (true, ..) => "within 1%",
            (false, _, true) => {
                "NOT within 1%, because the processors are too slow: figures of this lab are not reliable; \
                 choose a lower rate"
            }
            (false, true, _) => {
                "NOT within 1%, disturbed by other programs: figures of this lab are not reliable; stop \
                 these programs"
            }
            (false, false, false) => "NOT within 1%: figures of this lab are not reliable",
        };
        format!("{link}: {measured:.4} s, nominal {nominal:.4} s, ratio {ratio:.4}: {verdict}")
    }
}

/// Sends 64 MiB from the first helper to the client, and repeats this up to three times until the measured
/// time is close to the nominal time.
pub(crate) fn check(network: &Network, fleet: &mut LabCluster) -> Result<Check, LabError> {
    let nominal =
        network.topology().pair_rate(0, None).map(|rate| CHECK_BYTES as f64 / rate.bytes_per_second());
    let address = fleet.sender(network, LabNode::Helper(0))?;
    let order = Instruction::Direct { address, bytes: CHECK_BYTES };
    let mut best: Option<Check> = None;
    for _ in 0..TRIES {
        let meter = Meter::start(network)?;
        let answer = fleet.ask(network, &order)?;
        let metered = meter.stop()?;
        let Answer::Took(took) = answer else { continue };
        let found = Check {
            link: format!("h1 to client, {}", network.topology()),
            bytes: CHECK_BYTES,
            nominal_s: nominal,
            measured_s: took.ns as f64 / 1e9,
            disturbed: metered.disturbed,
            cpu_bound: metered.cpu_bound,
        };
        let distance = |check: &Check| check.ratio().map_or(check.measured_s, |ratio| (ratio - 1.0).abs());
        if best.as_ref().is_none_or(|best| distance(&found) < distance(best)) {
            best = Some(found);
        }
        if best.as_ref().is_some_and(Check::holds) {
            break;
        }
    }
    Ok(best.expect("at least one try"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_percent_is_the_line() {
        let check = |measured_s, nominal_s| Check {
            link: "h1 to client".to_owned(),
            bytes: CHECK_BYTES,
            nominal_s,
            measured_s,
            disturbed: false,
            cpu_bound: false,
        };
        assert!(
            check(1.009, Some(1.0)).holds()
                && !check(1.011, Some(1.0)).holds()
                && !check(0.98, Some(1.0)).holds()
        );
        assert!(check(1.0, None).holds());
        assert!(check(1.1, Some(1.0)).summary().contains("not reliable"));
    }
}
