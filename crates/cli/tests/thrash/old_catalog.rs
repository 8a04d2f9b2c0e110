//! At the end, the coordinator gets a catalog of an earlier moment back.

use std::fs;
use std::path::PathBuf;

use fastrand::Rng;

use crate::clients::{self, Fate, Ran};
use crate::cluster::{COORDINATOR, within};
use crate::content::Content;
use crate::model::Model;
use crate::report::Section;
use crate::rounds::{SETTLED, Thrash};

/// A catalog of an earlier moment, and what files could hold then.
pub struct OldCatalog {
    file: PathBuf,
    model: Model,
}

impl Thrash {
    /// Copies the catalog while the coordinator is down, as `docs/dir-store.md` says.
    pub(crate) fn keep_catalog(&mut self) {
        let file = self.cluster.path("old-catalog.redb");
        self.cluster.kill(COORDINATOR);
        fs::copy(self.cluster.catalog(), &file).unwrap();
        self.cluster.start(COORDINATOR);
        self.report.log("  the catalog is kept");
        self.old_catalog = Some(OldCatalog { file, model: self.model.clone() });
    }

    /// Goes on with the old catalog for a while, then with the newest again. Whatever is read is right, or is an
    /// error: of files that were changed since then nothing else can be promised.
    pub(crate) fn restore_old_catalog(&mut self, rng: &mut Rng) {
        let Some(old) = self.old_catalog.take() else { return };
        self.report.log("the old catalog is restored");
        self.report.count(Section::Faults, "old catalog restored");
        let newest = self.cluster.path("newest-catalog.redb");
        self.exchange_catalog(&old.file, Some(&newest));
        if self.serves() {
            self.one("repair", &["repair", "--all"]);
            let new: Vec<(String, Content)> =
                (0..12).filter_map(|number| self.put_new(number, rng)).collect();
            self.read_all(&old.model);
            new.iter().for_each(|(name, content)| self.read_new(name, *content));
        } else {
            let words = self.cluster.last_words(COORDINATOR);
            self.report.log(&format!("  the coordinator does not serve: {words}"));
        }
        self.exchange_catalog(&newest, None);
        if !self.serves() {
            self.fail("the coordinator does not serve with the catalog that it had before");
        }
        self.read_all(&self.model);
    }

    fn exchange_catalog(&self, with: &PathBuf, keep: Option<&PathBuf>) {
        self.cluster.kill(COORDINATOR);
        let catalog = self.cluster.catalog();
        if let Some(keep) = keep {
            fs::rename(&catalog, keep).unwrap();
        }
        fs::copy(with, catalog).unwrap();
        self.cluster.start(COORDINATOR);
    }

    /// Whether the coordinator runs, and all helpers come to it.
    fn serves(&self) -> bool {
        let whole = || {
            let status = self.one("status", &["status", "--output", "json"]).json();
            status.is_some_and(|status| {
                status["nodes_up"].as_array().map(Vec::len) == Some(self.cluster.helpers().len())
            })
        };
        within(SETTLED / 3, whole)
    }

    fn put_new(&self, number: u64, rng: &mut Rng) -> Option<(String, Content)> {
        let content = Content { number: rng.u64(..), bytes: rng.usize(1..2_000_000) };
        let (name, source) = (format!("new {number}"), self.cluster.path("operations/new.src"));
        fs::write(&source, content.make()).unwrap();
        let put = self.one("put", &["put", source.to_str()?, "--as", &name]);
        (put.code == Some(0)).then_some((name, content))
    }

    fn read_all(&self, model: &Model) {
        for name in model.names() {
            let ran = self.one("get", &["get", &name, "-o", "-"]);
            let found = fs::read(&ran.out).unwrap_or_default();
            let right = model.possible(&name).iter().flatten().any(|content| content.make() == found);
            if ran.code == Some(0) && !right {
                self.fail(&format!("WRONG BYTES: `{name}` with an old catalog restored"));
            }
        }
    }

    fn read_new(&self, name: &str, content: Content) {
        let ran = self.one("get", &["get", name, "-o", "-"]);
        if ran.code != Some(0) || fs::read(&ran.out).unwrap_or_default() != content.make() {
            self.fail(&format!("`{name}` was put with an old catalog, and its get ends so: {}", ran.words()));
        }
    }

    fn one(&self, label: &str, arguments: &[&str]) -> Ran {
        let ran = clients::run(&self.cluster, &format!("old-{label}"), arguments, Fate::Spared);
        self.report.log(&format!("  mend {}: {}", arguments.join(" "), ran.words()));
        if ran.hung {
            self.fail(&format!("`mend {label}` hangs with an old catalog restored"));
        }
        ran
    }
}
