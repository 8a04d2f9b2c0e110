//! [`Parts`]: the results of a bench that is measured part by part, kept as a JSON file.
//!
//! Parts that are measured by several runs add up as far as the report is [kept](crate::kept). The page of a
//! bench is written only if no part is lacking, so that a run of a single part never removes the others from
//! it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::kept::Kept;
use crate::machine::Machine;

/// The parts that were measured on one commit and one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Parts<T> {
    pub(crate) machine: Machine,
    parts: BTreeMap<String, T>,
}

impl<T> Parts<T> {
    /// Creates a report without parts.
    pub(crate) fn new(machine: Machine) -> Self {
        Self { machine, parts: BTreeMap::new() }
    }

    /// Returns a part; `None` if it was not measured.
    pub(crate) fn of(&self, name: &str) -> Option<&T> {
        self.parts.get(name)
    }

    /// Sets the results of a part.
    pub(crate) fn replace(&mut self, name: &str, part: T) {
        self.parts.insert(name.to_owned(), part);
    }

    /// Returns the names of parts that were not measured.
    pub(crate) fn lacking<'a>(&self, names: &[&'a str]) -> Vec<&'a str> {
        names.iter().copied().filter(|name| self.of(name).is_none()).collect()
    }

    /// Returns the parts that a run without a selection measures: the lacking ones, to continue an
    /// interrupted run; all if none is lacking.
    pub(crate) fn due<'a>(&self, names: &[&'a str]) -> Vec<&'a str> {
        let lacking = self.lacking(names);
        if lacking.is_empty() { names.to_vec() } else { lacking }
    }
}

impl<T: Serialize + DeserializeOwned> Kept for Parts<T> {
    fn begin(machine: Machine) -> Self {
        Self::new(machine)
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }
}

/// Explains why a page is not written.
pub(crate) fn unwritten(page: &Path, lacking: &[&str]) -> String {
    format!(
        "{} was not written, because this commit lacks measurements of these parts: {}. A run without --only measures \
         them",
        page.display(),
        lacking.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::{resume, save};

    const NAMES: [&str; 3] = ["a", "b", "c"];

    fn machine(commit: &str) -> Machine {
        Machine { commit: commit.to_owned(), ..Machine::this() }
    }

    #[test]
    fn an_interrupted_run_continues_and_a_complete_one_begins_again() {
        let mut parts = Parts::new(machine("0123456789ab"));
        assert_eq!(parts.due(&NAMES), NAMES);
        parts.replace("b", 1);
        assert_eq!(parts.due(&NAMES), ["a", "c"]);
        assert_eq!(parts.lacking(&NAMES), ["a", "c"]);
        NAMES.iter().for_each(|name| parts.replace(name, 2));
        assert!(parts.lacking(&NAMES).is_empty());
        assert_eq!(parts.due(&NAMES), NAMES);
    }

    #[test]
    fn parts_add_up_on_the_same_commit_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("reports/bench.json");
        let mut parts = resume::<Parts<u32>>(&file, machine("0123456789ab")).unwrap();
        parts.replace("a", 7);
        save(&parts, &file).unwrap();
        assert_eq!(resume::<Parts<u32>>(&file, machine("0123456789ab")).unwrap(), parts);
        let lacks_all =
            |commit: &str| resume::<Parts<u32>>(&file, machine(commit)).unwrap().of("a").is_none();
        save(&Parts { machine: machine("0123456789ab+"), ..parts.clone() }, &file).unwrap();
        assert!(lacks_all("0123456789ab+"), "local changes");
        let again = resume::<Parts<u32>>(&file, machine("0123456789ab")).unwrap();
        assert_eq!(again, parts, "local changes replace no report");
        assert!(lacks_all("ba9876543210"), "another commit");
    }

    #[test]
    fn a_page_that_is_not_written_names_the_lacking_parts() {
        let text = unwritten(Path::new("docs/results/nodes.md"), &["caps", "reads"]);
        assert!(text.contains("docs/results/nodes.md") && text.contains("caps, reads"), "{text}");
    }
}
