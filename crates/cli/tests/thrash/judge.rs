//! Judges the outcome of operations.

use std::collections::{BTreeMap, BTreeSet};

use crate::clients::{Fate, Ran};
use crate::cluster::Cluster;
use crate::content::difference;
use crate::faults::Disturbed;
use crate::forging::differ_by_forgeries;
use crate::model::{State, Write};
use crate::operations::{Operation, Verb};

/// The circumstances of a round's operations.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    pub disturbed: Disturbed,
    /// Whether more helpers were bad than the codes tolerate.
    pub exceeded: bool,
    /// Whether at least one helper was bad.
    pub degraded: bool,
    /// Whether a block may have wrong bytes with matching checksums.
    pub forged: bool,
    /// Whether a disk was full.
    pub full: bool,
    /// The number of helpers that could store blocks.
    pub live: usize,
    /// The possible contents of every file, including this round's writes.
    pub possible: BTreeMap<String, BTreeSet<State>>,
    /// Files written in this round.
    pub written: BTreeSet<String>,
    /// The files in `written` that certainly existed before the round, and that the round only replaces.
    pub replaced: BTreeSet<String>,
    /// The possible contents of every file before the round.
    pub before: BTreeMap<String, BTreeSet<State>>,
}

impl Circumstances {
    fn possible(&self, name: &str) -> BTreeSet<State> {
        self.possible.get(name).cloned().unwrap_or_else(|| BTreeSet::from([None]))
    }

    /// Whether the round had no fault that could make a read fail.
    fn is_quiet(&self) -> bool {
        let disturbed = self.disturbed.coordinator || self.disturbed.helpers || self.disturbed.catalog;
        !disturbed && !self.exceeded && !self.degraded && !self.forged
    }

    fn before(&self, name: &str) -> BTreeSet<State> {
        self.before.get(name).cloned().unwrap_or_else(|| BTreeSet::from([None]))
    }
}

/// The judgement of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The outcome is correct.
    Fine,
    /// The operation failed for an acceptable reason.
    Excused(&'static str),
    /// The operation failed without an excuse. Only a fault that Mend has not noticed yet can explain the
    /// failure, so the operation must succeed when it is repeated a little later.
    Again,
    /// The outcome is wrong.
    Wrong(String),
}

use Verdict::{Again, Excused, Fine, Wrong};

/// Judges an operation.
pub fn judge(operation: &Operation, ran: &Ran, cluster: &Cluster, around: &Circumstances) -> Verdict {
    if ran.hung {
        return Wrong(format!("`mend {}` hangs", operation.verb.word()));
    }
    if ran.err.contains("panicked") {
        return Wrong(format!("`mend {}` panicked: {}", operation.verb.word(), ran.err));
    }
    let verdict = match &operation.verb {
        Verb::Get { .. } => judge_get(operation, ran, cluster, around),
        Verb::Put { .. } | Verb::Remove { .. } => judge_write(&operation.verb, ran, around),
        Verb::List => judge_list(ran, around),
        Verb::Status | Verb::Scrub { .. } if matches!(ran.code, Some(0 | 3)) => Fine,
        Verb::Scrub { .. } if around.degraded && ran.out_text().contains("not checked") => {
            Excused("blocks of helpers that are away are not checked")
        }
        Verb::Recover { helper } if ran.code == Some(1) && ran.err.contains(&format!("{helper} is up")) => {
            Fine
        }
        Verb::Repair if ran.code != Some(0) && around.degraded => Excused("helpers bad"),
        _ => judge_code(ran),
    };
    if verdict == Again { excuse(operation, ran, around) } else { verdict }
}

fn judge_code(ran: &Ran) -> Verdict {
    if ran.code == Some(0) || ran.killed { Fine } else { Again }
}

/// Looks for an acceptable reason for a failure.
fn excuse(operation: &Operation, ran: &Ran, around: &Circumstances) -> Verdict {
    let moves = matches!(operation.verb, Verb::Get { .. } | Verb::Put { .. } | Verb::Repair);
    let writes = operation.verb.writes().is_some() || operation.verb == Verb::Repair;
    if around.disturbed.catalog && writes {
        Excused("the catalog refuses writes")
    } else if around.disturbed.coordinator {
        Excused("coordinator away")
    } else if around.exceeded && moves {
        Excused("too many helpers away")
    } else if around.forged && ran.code == Some(3) && moves {
        Excused("a forged block that nobody has found yet")
    } else if matches!(operation.fate, Fate::Stopped { .. }) {
        Excused("client stopped")
    } else if let Verb::Put { code, .. } = &operation.verb
        && (around.full || around.live < blocks(code))
    {
        Excused("too few helpers, or full")
    } else if ran.killed {
        Fine
    } else {
        Again
    }
}

/// Returns n, the number of blocks in a stripe of this code.
fn blocks(code: &str) -> usize {
    let numbers: Vec<usize> = code.split('-').filter_map(|word| word.parse().ok()).collect();
    if code.starts_with("lrc") { numbers.iter().sum() } else { numbers[0] }
}

/// Determines whether a write took effect.
pub fn write_of(ran: &Ran, around: &Circumstances) -> Write {
    match ran.code {
        Some(0) => Write::Done,
        // The coordinator was up all the time and has refused the write.
        Some(1..=3) if !around.disturbed.coordinator && !around.disturbed.catalog => Write::Refused,
        _ => Write::Unknown,
    }
}

fn judge_get(operation: &Operation, ran: &Ran, cluster: &Cluster, around: &Circumstances) -> Verdict {
    let Verb::Get { name, range, to_file, .. } = &operation.verb else { unreachable!("it is a get") };
    let possible = around.possible(name);
    let wanted: Vec<Vec<u8>> = possible
        .iter()
        .flatten()
        .filter_map(|content| {
            let bytes = content.make();
            let (first, length) = range.unwrap_or((0, bytes.len()));
            bytes.get(first..first + length).map(<[u8]>::to_vec)
        })
        .collect();
    let place = if *to_file { operation.target(cluster) } else { ran.out.clone() };
    let found = std::fs::read(place).ok();
    if ran.code == Some(0) {
        let found = found.unwrap_or_default();
        if wanted.contains(&found) {
            return Fine;
        }
        // A digest covers a whole block, so a read of a part cannot detect forged bytes; see
        // docs/explanation/checks.md.
        if around.forged && range.is_some() && wanted.iter().any(|wanted| differ_by_forgeries(&found, wanted))
        {
            return Excused("a part of a forged block");
        }
        return Wrong(format!(
            "WRONG BYTES: `{name}` {range:?} was read, and {}",
            differences(&found, &wanted)
        ));
    }
    let has_begun = !*to_file && found.as_ref().is_some_and(|found| !found.is_empty());
    if let Some(found) = found {
        let whole = wanted.contains(&found);
        let part = !*to_file && (found.is_empty() || wanted.iter().any(|wanted| wanted.starts_with(&found)));
        if !whole && !part {
            let text = differences(&found, &wanted);
            return Wrong(format!("WRONG BYTES: a get of `{name}` {range:?} failed and left {text}"));
        }
    }
    let says = |text| ran.code == Some(1) && ran.err.contains(text);
    // A get is undisturbed only if its client was neither killed nor stopped. The coordinator may drop a
    // stopped client.
    let is_undisturbed = around.is_quiet() && !ran.killed && !matches!(operation.fate, Fate::Stopped { .. });
    let may_be_shorter = wanted.len() < possible.iter().flatten().count();
    if says("there is no file") && !possible.contains(&None) {
        Wrong(format!("`{name}` is lost: {}", ran.err))
    } else if says("there is no file") || (says("past the end of") && may_be_shorter) {
        Excused("it is not there, or shorter")
    } else if says("was replaced during the read") && around.disturbed.coordinator && has_begun {
        Excused("replaced, and forgotten by the coordinator")
    } else if around.replaced.contains(name) && (is_undisturbed || says("was replaced during the read")) {
        Wrong(format!("`{name}` was there all the time, was replaced, and a get of it failed: {}", ran.err))
    } else if around.written.contains(name) {
        Excused("written meanwhile")
    } else {
        judge_code(ran)
    }
}

fn differences(found: &[u8], wanted: &[Vec<u8>]) -> String {
    if wanted.is_empty() {
        return format!("{} bytes in place of no file", found.len());
    }
    wanted.iter().map(|wanted| difference(found, wanted)).collect::<Vec<_>>().join("; or ")
}

fn judge_write(verb: &Verb, ran: &Ran, around: &Circumstances) -> Verdict {
    let name = verb.writes().expect("it is a write").0;
    let before = around.before(name);
    let (maybe_there, maybe_not) = (before.iter().any(Option::is_some), before.contains(&None));
    let refused = |text| ran.code == Some(1) && ran.err.contains(text);
    if refused("there is a file") {
        return if maybe_there { Fine } else { Wrong(format!("`{name}` is not there, and {}", ran.err)) };
    }
    if refused("there is no file") {
        return if maybe_not { Fine } else { Wrong(format!("`{name}` is lost: {}", ran.err)) };
    }
    if matches!(verb, Verb::Put { replace: false, .. }) && ran.code == Some(0) && !maybe_not {
        return Wrong(format!("`{name}` was put over a file that was there"));
    }
    judge_code(ran)
}

fn judge_list(ran: &Ran, around: &Circumstances) -> Verdict {
    if ran.code != Some(0) {
        return judge_code(ran);
    }
    let text = ran.out_text();
    let listed: BTreeSet<&str> = text.lines().collect();
    for (name, possible) in &around.possible {
        let is_listed = listed.contains(name.as_str());
        if !is_listed && !possible.contains(&None) {
            return Wrong(format!("`{name}` is there, and ls does not show it"));
        }
        if is_listed && possible.iter().all(Option::is_none) {
            return Wrong(format!("`{name}` is not there, and ls shows it"));
        }
    }
    match listed.iter().find(|name| !around.possible.contains_key(**name)) {
        Some(name) => Wrong(format!("ls shows `{name}`, which nobody ever put")),
        None => Fine,
    }
}
