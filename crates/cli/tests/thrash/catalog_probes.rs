//! Probes: puts that are tried while the catalog refuses writes.

use std::thread;
use std::time::Duration;

use crate::clients::{self, Fate, Ran};
use crate::cluster::within;
use crate::content::Content;
use crate::operations::{Operation, Verb};
use crate::report::Section;
use crate::rounds::{SETTLED, Thrash};

/// The maximum number of puts per fault. If the catalog refuses all of them and the status never reports a
/// write fault, the run reports an error. Fewer refusals would not prove that the status is wrong: on a
/// full disk, the catalog may accept a put between two refusals.
const PROBES: u64 = 6;
const PAUSE: Duration = Duration::from_millis(300);

/// Returns puts of small files with unique names. The run tries them until the status reports that nothing
/// can be stored.
pub fn probes(round: u64, code: &str, number: u64) -> Vec<Operation> {
    let probe = |probe| Operation {
        label: format!("{round:05}-probe-{probe}"),
        at: Duration::ZERO,
        verb: Verb::Put {
            name: format!("probe {round}.{probe}"),
            content: Content { number: number ^ probe, bytes: 20_000 },
            code: code.to_owned(),
            block_bytes: 16 << 10,
            chunks: 1,
            replace: false,
        },
        fate: Fate::Spared,
    };
    (0..PROBES).map(probe).collect()
}

/// The results of probes.
#[derive(Default)]
pub struct Probed {
    /// The results of the attempted probes.
    pub ran: Vec<Ran>,
    /// If the catalog refused all probes and the status never reported a write fault: the last probe and the
    /// status.
    pub lie: Option<String>,
}

impl Thrash {
    /// Runs probes until one ends without an error of the catalog, or until the status reports that writes
    /// are refused.
    pub(crate) fn probe_writes(&self, probes: &[Operation]) -> Probed {
        let (mut probed, mut lie) = (Probed::default(), None);
        for probe in probes {
            self.write_source(probe);
            let ran = self.run_one(probe);
            let is_refused = ran.code.is_some_and(|code| code != 0) && ran.err.contains("catalog")
                || ran.err.contains("nothing can be stored");
            let words = ran.words();
            probed.ran.push(ran);
            let status = is_refused.then(|| self.look("probe")).flatten();
            let Some(status) = status else { return probed };
            self.report.count(Section::Operations, "status held against a catalog that refuses writes");
            if !status["write_fault"].is_null() {
                return probed;
            }
            self.report
                .log(&format!("  perhaps better than the truth: {words}, and the status has no write fault"));
            lie = Some(format!("a put ends with {words}; the status: {}", status["summary"]));
            thread::sleep(PAUSE);
        }
        Probed { lie, ..probed }
    }

    /// Waits until the catalog accepts writes again.
    pub(crate) fn await_writes(&self) {
        let is_well = || self.look("writes").is_some_and(|status| status["write_fault"].is_null());
        if !within(SETTLED, is_well) {
            let status = self.look("writes").unwrap_or_default();
            self.fail(&format!("the catalog takes no writes, and its disk does: {}", status["summary"]));
        }
    }

    fn look(&self, label: &str) -> Option<serde_json::Value> {
        clients::run(&self.cluster, label, &["status", "--output", "json"], Fate::Spared).json()
    }
}
