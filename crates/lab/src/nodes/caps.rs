//! Measures the rate of recoveries under caps.

use std::thread;
use std::time::{Duration, Instant};

use super::cluster::LOST;
use super::measure::Measuring;
use super::report::{CapRow, Part, helpers};
use super::{Setup, TOTAL_CAPS};
use crate::error::LabError;
use crate::meter::{Meter, Metered};

/// A helper, and the cap on its sending and on its receiving, as text and in bits per second.
const CAPPED: (&str, &str, f64) = ("h2", "20Mbit", 20e6);
/// How long a cap has been in force before the traffic is measured, and how long the traffic is measured.
const SETTLES: Duration = Duration::from_secs(2);
const WINDOW: Duration = Duration::from_secs(5);
/// The arguments of a recovery by chains of whole blocks.
const CHAINS: [&str; 4] = ["--policy", "lowest-index", "--scheme", "pipelined"];

impl Measuring<'_> {
    /// Measures the cap on all repairs together, which is changed while a repair runs, and then one helper's
    /// cap. The traffic on links includes headers. The share of block data in the traffic is taken from a
    /// complete repair, which sends k blocks for each rebuilt block.
    pub(super) fn caps(&mut self) -> Result<Part, LabError> {
        let mut caps = self.caps_on_all()?;
        caps.extend(self.caps_on_one()?);
        self.lab.compare("repairs within caps")?;
        Ok(Part { caps, ..Part::default() })
    }

    fn caps_on_all(&mut self) -> Result<Vec<CapRow>, LabError> {
        self.lab.fresh()?;
        self.lab.lose(LOST)?;
        self.lab.mend(&["caps", "--total", TOTAL_CAPS[0].0])?;
        let whole = Meter::start(&self.lab.network)?;
        let repair = self.begin(&CHAINS)?;
        let mut windows = Vec::new();
        for (at, &(cap, rate)) in TOTAL_CAPS.iter().enumerate() {
            if at > 0 {
                self.lab.mend(&["caps", "--total", cap])?;
            }
            windows.push((format!("all together {cap}"), rate, self.window()?));
        }
        self.lab.mend(&["caps", "--none"])?;
        self.end(&repair)?;
        let share = self.payload(&whole.stop()?)?;
        let row = |(what, cap, (metered, time)): (String, f64, (Metered, f64))| {
            let sent = helpers(&metered).map(|traffic| traffic.sent_bytes).sum::<u64>();
            CapRow { what, cap, measured: sent as f64 * share * 8.0 / time }
        };
        Ok(windows.into_iter().map(row).collect())
    }

    fn caps_on_one(&mut self) -> Result<[CapRow; 2], LabError> {
        self.lab.fresh()?;
        self.lab.lose(LOST)?;
        let (helper, text, cap) = CAPPED;
        self.lab.mend(&["caps", "--node", &format!("{helper}={text}")])?;
        let whole = Meter::start(&self.lab.network)?;
        let repair = self.begin(&CHAINS)?;
        let (metered, time) = self.window()?;
        self.lab.mend(&["caps", "--none"])?;
        self.end(&repair)?;
        let share = self.payload(&whole.stop()?)?;
        let traffic = metered.traffic.get(helper).copied().unwrap_or_default();
        Ok([("sends", traffic.sent_bytes), ("receives", traffic.received_bytes)].map(|(what, bytes)| {
            let measured = bytes as f64 * share * 8.0 / time;
            CapRow { what: format!("{helper} {text}, {what}"), cap, measured }
        }))
    }

    /// Measures the link traffic in a window, after a settling time.
    fn window(&self) -> Result<(Metered, f64), LabError> {
        thread::sleep(SETTLES);
        let (meter, begun) = (Meter::start(&self.lab.network)?, Instant::now());
        thread::sleep(WINDOW);
        let time = begun.elapsed().as_secs_f64();
        Ok((meter.stop()?, time))
    }

    /// Returns the share of block data in the traffic that helpers sent during a complete recovery.
    fn payload(&self, whole: &Metered) -> Result<f64, LabError> {
        let Setup { data_blocks, block_bytes, .. } = self.lab.setup;
        let sent: u64 = helpers(whole).map(|traffic| traffic.sent_bytes).sum();
        Ok((self.lab.lost_blocks()?.len() as u64 * data_blocks * block_bytes) as f64 / sent as f64)
    }
}
