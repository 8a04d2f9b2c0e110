//! Restores an old catalog, and rebuilds a lost one, at the end of a run.

use std::fs;
use std::path::Path;

use fastrand::Rng;

use crate::clients::{self, Fate, Ran};
use crate::cluster::{COORDINATOR, within};
use crate::content::{Content, difference};
use crate::model::{Model, Write};
use crate::report::Section;
use crate::rounds::{SETTLED, Thrash};

/// The number of files to put with each catalog.
const PUTS: usize = 8;

impl Thrash {
    /// Copies the catalog, changes files, then runs the coordinator with the copied catalog for a while, and
    /// finally with the newest one again. Every read must return a version that is correct for its catalog,
    /// or an error.
    pub(crate) fn restore_old_catalog(&mut self, rng: &mut Rng) {
        self.report.log("an old catalog will be restored");
        self.report.count(Section::Faults, "old catalog restored");
        let (old, newest) = (self.cluster.path("old-catalog.redb"), self.cluster.path("newest-catalog.redb"));
        self.cluster.kill(COORDINATOR);
        fs::copy(self.cluster.catalog(), &old).unwrap();
        self.cluster.start(COORDINATOR);
        let then = self.model.clone();
        self.change_files(rng);
        self.exchange_catalog(&old, Some(&newest));
        if self.serves() {
            // Until the operator accepts the old catalog, repairs and puts are refused. Stripes of later puts
            // get names that were never used.
            self.one("repair", &["repair", "--all"]);
            self.put_all("refused", rng);
            self.one("accept", &["catalog", "accept"]);
            let new = self.put_all("new", rng);
            self.read_all(&then);
            for (name, content) in new {
                self.read_new(&name, content, "was put with an old catalog");
            }
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

    /// Removes the catalog and rebuilds it from the blocks, sometimes while helpers are dead. All blocks must
    /// be good when this method is called. After the rebuild, every file must be readable, and puts of new
    /// files must succeed.
    pub(crate) fn rebuild_lost_catalog(&mut self, rng: &mut Rng) {
        self.report.log("the catalog will be lost and rebuilt");
        self.report.count(Section::Faults, "catalog rebuilt");
        self.cluster.kill(COORDINATOR);
        fs::remove_file(self.cluster.catalog()).unwrap();
        let mut dead = self.cluster.helpers();
        rng.shuffle(&mut dead);
        dead.truncate(rng.usize(..=self.helpers.budget));
        dead.iter().for_each(|helper| self.cluster.kill(helper));
        let rebuilt = self.one("rebuild", &["catalog", "rebuild", "--wait", "5"]);
        // Exit code 3 means that some helper did not answer, or that files cannot be recovered. Here these are
        // removed files of which some blocks are left.
        if !matches!(rebuilt.code, Some(0 | 3)) {
            self.fail(&format!("the catalog cannot be rebuilt: {}", rebuilt.words()));
        }
        self.cluster.start(COORDINATOR);
        dead.iter().for_each(|helper| self.cluster.start(helper));
        if !self.serves() {
            self.fail("the coordinator does not serve with a rebuilt catalog");
        }
        for name in self.model.names() {
            let possible = self.model.possible_after_rebuild(&name);
            match possible.first().copied().flatten().filter(|_| possible.len() == 1) {
                Some(content) => {
                    self.read_new(&name, content, "was there before the catalog was rebuilt");
                }
                // Blocks that were left over may bring removed files back, and the contents of puts that failed.
                None => {
                    self.one("rm", &["rm", &name]);
                }
            }
        }
        for (name, content) in self.put_all("rebuilt", rng) {
            self.read_new(&name, content, "was put with a rebuilt catalog");
            self.model.write(&name, Some(content), Write::Done);
        }
    }

    /// Removes some files and puts others. The stripes of the new files get the numbers that the old catalog
    /// would assign next.
    fn change_files(&mut self, rng: &mut Rng) {
        if !self.serves() {
            self.fail("the coordinator does not serve after its catalog was copied");
        }
        for name in self.model.present().into_iter().take(3) {
            let removed = self.one("rm", &["rm", &name]).code == Some(0);
            self.model.write(&name, None, if removed { Write::Done } else { Write::Unknown });
        }
        for (name, content) in self.put_all("late", rng) {
            self.model.write(&name, Some(content), Write::Done);
        }
    }

    fn exchange_catalog(&self, with: &Path, keep: Option<&Path>) {
        self.cluster.kill(COORDINATOR);
        let catalog = self.cluster.catalog();
        if let Some(keep) = keep {
            fs::copy(&catalog, keep).unwrap();
        }
        fs::copy(with, catalog).unwrap();
        self.cluster.start(COORDINATOR);
    }

    /// Whether the coordinator is running and all helpers have registered.
    fn serves(&self) -> bool {
        let whole = || {
            let status = self.one("status", &["status", "--output", "json"]).json();
            status.is_some_and(|status| {
                status["nodes_up"].as_array().map(Vec::len) == Some(self.cluster.helpers().len())
            })
        };
        within(SETTLED / 3, whole)
    }

    fn put_all(&self, kind: &str, rng: &mut Rng) -> Vec<(String, Content)> {
        let source = self.cluster.path("operations/old.src");
        let mut done = Vec::new();
        for number in 0..PUTS {
            let content = Content { number: rng.u64(..), bytes: rng.usize(500_000..3_000_000) };
            let name = format!("{kind} {number}");
            fs::write(&source, content.make()).unwrap();
            let put = self.one("put", &["put", source.to_str().expect("a plain name"), "--name", &name]);
            if put.code == Some(0) {
                done.push((name, content));
            }
        }
        done
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

    /// Reads a file, which must succeed and return this content. `told` says where the file comes from.
    fn read_new(&self, name: &str, content: Content, told: &str) {
        let ran = self.one("get", &["get", name, "-o", "-"]);
        let found = fs::read(&ran.out).unwrap_or_default();
        if ran.code != Some(0) || found != content.make() {
            let differs = difference(&found, &content.make());
            self.fail(&format!("`{name}` {told}, and its get ends so: {}; {differs}", ran.words()));
        }
    }

    fn one(&self, label: &str, arguments: &[&str]) -> Ran {
        let ran = clients::run(&self.cluster, &format!("old-{label}"), arguments, Fate::Spared);
        self.report.log(&format!("  mend {}: {}", arguments.join(" "), ran.words()));
        if ran.hung {
            self.fail(&format!("`mend {label}` hangs with an old or rebuilt catalog"));
        }
        ran
    }
}
