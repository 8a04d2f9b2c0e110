//! Measures one part after another, keeps the results, and writes the page.

use std::path::Path;
use std::process::ExitCode;

use client::RepairView;
use serde_json::Value;

use super::cluster::{LOST, NodesLab};
use super::page;
use super::report::{
    CAPS, DISTURBED, DRAINS, MANY, POLICIES, Part, READS, REQUESTORS, SIXTEEN, SMALL, is_disturbed,
};
use super::verdicts::findings;
use super::{NodesArgs, SIXTEEN_LOST, SPARED, Setup, TINY, WIDE, many};
use crate::command::write_page;
use crate::error::LabError;
use crate::finding;
use crate::kept;
use crate::lab_cluster::Programs;
use crate::machine::Machine;
use crate::network::Names;
use crate::parts::{Parts, unwritten};
use crate::run::Say;

/// A part of the measurement.
struct Section {
    name: &'static str,
    setup: fn(&NodesArgs) -> Setup,
    measure: fn(&mut Measuring<'_>) -> Result<Part, LabError>,
}

/// All parts. Parts with the same stripes follow each other, because storing the stripes takes a while.
static SECTIONS: [Section; 8] = [
    Section { name: SIXTEEN, setup: |_| SIXTEEN_LOST, measure: |measuring| measuring.sixteen_lost() },
    Section { name: POLICIES, setup: |_| WIDE, measure: |measuring| measuring.policies() },
    Section { name: DRAINS, setup: |_| WIDE, measure: |measuring| measuring.drains() },
    Section { name: CAPS, setup: |_| WIDE, measure: |measuring| measuring.caps() },
    Section { name: READS, setup: |_| WIDE, measure: |measuring| measuring.reads() },
    Section { name: REQUESTORS, setup: |_| SPARED, measure: |measuring| measuring.requestors() },
    Section { name: SMALL, setup: |_| TINY, measure: |measuring| measuring.small() },
    Section { name: MANY, setup: |args| many(args.small_blocks), measure: |measuring| measuring.small() },
];

/// The names of all parts.
pub(super) fn names() -> [&'static str; 8] {
    std::array::from_fn(|index| SECTIONS[index].name)
}

pub(super) struct Measuring<'a> {
    pub(super) lab: NodesLab,
    pub(super) args: &'a NodesArgs,
    pub(super) say: Say<'a>,
}

/// Runs the requested parts, or those that the kept report lacks, or all. Writes the page once no part is
/// lacking. Fails if a target is missed, or if other programs disturbed all repetitions of a row.
pub(super) fn run(
    names: &Names,
    programs: &Programs,
    args: &NodesArgs,
    say: Say<'_>,
) -> Result<ExitCode, LabError> {
    let all = self::names();
    let file = args.folders.report(&format!("nodes-{}", args.rate));
    let mut parts: Parts<Part> = kept::resume(&file, Machine::this())?;
    let due = if args.only.is_empty() { parts.due(&all) } else { asked(args) };
    let sections: Vec<&Section> = SECTIONS.iter().filter(|section| due.contains(&section.name)).collect();
    for alike in sections.chunk_by(|one, next| (one.setup)(args) == (next.setup)(args)) {
        let lab = lab_for((alike[0].setup)(args), names, programs, args, say)?;
        let mut measuring = Measuring { lab, args, say };
        for section in alike {
            (measuring.say)(&format!("== {}", section.name));
            parts.replace(section.name, (section.measure)(&mut measuring)?);
            kept::save(&parts, &file)?;
        }
    }
    conclude(&parts, args, &args.folders.page("nodes", "md"))
}

/// Returns the parts that `--only` names; all without it.
fn asked(args: &NodesArgs) -> Vec<&'static str> {
    let is_asked = |name: &&str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    names().into_iter().filter(is_asked).collect()
}

fn lab_for(
    setup: Setup,
    names: &Names,
    programs: &Programs,
    args: &NodesArgs,
    say: Say<'_>,
) -> Result<NodesLab, LabError> {
    say(&format!("storing {} stripes on {} helpers", setup.stripes, setup.helpers));
    NodesLab::with_files_of(setup.stripes_per_file(), names, programs, setup, args.rate)
}

/// Prints the page, and writes it with its drawings if no part is lacking.
fn conclude(parts: &Parts<Part>, args: &NodesArgs, file: &Path) -> Result<ExitCode, LabError> {
    let drawings = page::drawings(parts);
    let text = page::text(parts, args.rate);
    print!("{text}");
    match parts.lacking(&names()) {
        lacking if lacking.is_empty() => {
            write_page(file, &text)?;
            for drawing in drawings {
                drawing.chart.draw(&file.with_file_name(format!("{}.svg", drawing.name)))?;
            }
        }
        lacking => eprintln!("{}", unwritten(file, &lacking)),
    }
    Ok(exit_code(parts, args))
}

/// Returns the exit code, which depends on the parts that were asked for.
fn exit_code(parts: &Parts<Part>, args: &NodesArgs) -> ExitCode {
    let asked = asked(args);
    let is_disturbed = is_disturbed(parts, &asked);
    if is_disturbed {
        eprintln!("not reliable: {DISTURBED}");
    }
    let is_bad = is_disturbed || finding::any_fails(&findings(parts, &asked, args.rate));
    if is_bad { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

impl Measuring<'_> {
    /// Begins a recovery, and returns its number.
    pub(super) fn begin(&mut self, words: &[&str]) -> Result<String, LabError> {
        let mut verb = vec!["node", "recover", LOST, "--no-wait"];
        verb.extend(words);
        Ok(view_of(self.lab.mend(&verb)?)?.repair.to_string())
    }

    /// Waits for the end of a recovery.
    pub(super) fn end(&mut self, repair: &str) -> Result<RepairView, LabError> {
        view_of(self.lab.mend(&["watch", repair])?)
    }
}

/// Returns the links' bound of a repair in seconds, if Mend printed one.
pub(super) fn bound_s(view: &RepairView) -> Option<f64> {
    Some(view.progress.as_ref()?.bound_ms? as f64 / 1e3)
}

/// Reads a repair in the output of `mend`.
pub(super) fn view_of(value: Value) -> Result<RepairView, LabError> {
    let failed = |error: serde_json::Error| LabError::Agent {
        who: "mend".to_owned(),
        reason: format!("its output is not a repair: {error}"),
    };
    serde_json::from_value(value).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::whole;
    use super::*;

    #[test]
    fn parts_with_the_same_stripes_follow_each_other() {
        let args = NodesArgs::of(&[]).unwrap();
        let chunks = SECTIONS.chunk_by(|one, next| (one.setup)(&args) == (next.setup)(&args));
        let sizes: Vec<usize> = chunks.map(<[Section]>::len).collect();
        assert_eq!(sizes, [1, 4, 1, 1, 1]);
    }

    #[test]
    fn the_page_is_written_once_no_part_is_lacking() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nodes.md");
        std::fs::write(&file, "the page").unwrap();
        let written = || std::fs::read_to_string(&file).unwrap();
        let mut parts = Parts::new(Machine::this());
        let judged = |what, took_s| Part { whole: vec![whole(what, true, &[took_s])], ..Part::default() };
        parts.replace(SIXTEEN, judged("even", 2.05));
        let args = |words: &[&str]| NodesArgs::of(words).unwrap();
        let code = |parts: &Parts<Part>, words: &[&str]| {
            format!("{:?}", conclude(parts, &args(words), &file).unwrap())
        };
        let (good, bad) = (format!("{:?}", ExitCode::SUCCESS), format!("{:?}", ExitCode::FAILURE));
        assert_eq!((code(&parts, &[]), written()), (good.clone(), "the page".to_owned()));
        names().iter().skip(1).for_each(|name| parts.replace(name, Part::default()));
        parts.replace(REQUESTORS, judged("even, 1 requestor", 3.0));
        assert_eq!(code(&parts, &["--only", "sixteen"]), good, "only `sixteen` was asked for");
        assert_eq!(code(&parts, &[]), bad);
        assert!(written().contains("0.976 (spread 0.0%)"), "{}", written());
        assert!(folder.path().join("nodes-requestors.svg").is_file());
    }

    #[test]
    fn the_output_of_mend_has_to_be_a_repair() {
        let error = view_of(serde_json::json!({ "repair": "x" })).unwrap_err().to_string();
        assert!(error.contains("not a repair"), "{error}");
    }
}
