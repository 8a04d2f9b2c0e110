//! A cluster that is restored to its initial state before each measurement.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::Setup;
use crate::error::LabError;
use crate::experiment::wait_while;
use crate::instruction::{Answer, Instruction, Piece};
use crate::lab_cluster::{LabCluster, Programs};
use crate::network::{LabNode, Names, Network};
use crate::run::write_noise;
use crate::topology::{Rate, Topology};

/// The helper that is killed or drained.
pub(super) const LOST: &str = "h1";
/// The interval between queries for the helpers that are up.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The name of block folders. The cluster folder and its saved copy share the files in block folders through
/// hard links, which is safe because published blocks are never modified.
const BLOCKS: &str = "blocks";

/// A cluster on shaped links that is restored to its initial state before each measurement. The fields are
/// dropped in this order, so that the processes end before the network is removed.
pub(super) struct NodesLab {
    pub(super) fleet: LabCluster,
    pub(super) network: Network,
    pub(super) setup: Setup,
    /// The saved cluster folder, with all stripes stored.
    pub(super) kept: PathBuf,
    /// Every data block of every stripe.
    pub(super) pieces: Vec<Piece>,
    mend: PathBuf,
}

impl NodesLab {
    /// Starts the cluster, stores the stripes (one file each), stops the cluster, and saves a copy of the
    /// cluster folder.
    pub(super) fn up(names: &Names, programs: &Programs, setup: Setup, rate: Rate) -> Result<Self, LabError> {
        Self::with_files_of(1, names, programs, setup, rate)
    }

    /// Like [`up`](Self::up), but with up to `stripes` stripes in each file, which are stored faster. The
    /// blocks of files with several stripes are not listed in `pieces`.
    pub(super) fn with_files_of(
        stripes: u64,
        names: &Names,
        programs: &Programs,
        setup: Setup,
        rate: Rate,
    ) -> Result<Self, LabError> {
        let told = Topology { told: true, ..Topology::flat(setup.helpers, rate) };
        let mut network = Network::up(names, &told)?;
        let fleet = LabCluster::start(&mut network, programs)?;
        // Stripes are stored over unshaped links.
        network.reshape(&Topology::flat(setup.helpers, Rate::Unshaped))?;
        let kept = fleet.work().join("kept");
        let mut lab = Self { fleet, network, setup, kept, pieces: Vec::new(), mend: programs.mend.clone() };
        for spare in lab.spares() {
            lab.lose(&spare)?;
        }
        for first in (0..setup.stripes).step_by(stripes as usize) {
            lab.store(first, stripes.min(setup.stripes - first))?;
        }
        lab.fleet.stop();
        copy(lab.fleet.cluster(), &lab.kept, false).map_err(LabError::file("copy", &lab.kept))?;
        lab.network.reshape(&Topology::flat(setup.helpers, rate))?;
        Ok(lab)
    }

    /// Stores a file with this number of stripes; `first` is the number of its first stripe.
    fn store(&mut self, first: u64, stripes: u64) -> Result<(), LabError> {
        let Setup { code, data_blocks, block_bytes, .. } = self.setup;
        let name = format!("f{first}");
        let source = self.fleet.work().join("source");
        write_noise(&source, stripes * data_blocks * block_bytes, first * 2 + 1)
            .map_err(LabError::file("write", &source))?;
        let put = Instruction::Put { path: source, name: name.clone(), code: code.to_owned(), block_bytes };
        self.fleet.ask_loader(&self.network, &put)?;
        if stripes > 1 {
            return Ok(());
        }
        let layout = self.fleet.ask_loader(&self.network, &Instruction::Layout { name })?;
        if let Answer::Layout { stripe, data_blocks, .. } = layout {
            self.pieces.extend((0..data_blocks).map(|block| Piece { stripe: stripe.clone(), block }));
        }
        Ok(())
    }

    /// Restores the cluster to its saved state and starts it.
    pub(super) fn fresh(&mut self) -> Result<(), LabError> {
        self.fresh_from(&self.kept.clone())
    }

    /// Restores the cluster from a saved folder and starts it.
    pub(super) fn fresh_from(&mut self, kept: &Path) -> Result<(), LabError> {
        self.fleet.stop();
        let cluster = self.fleet.cluster().to_owned();
        fs::remove_dir_all(&cluster).map_err(LabError::file("remove", &cluster))?;
        copy(kept, &cluster, false).map_err(LabError::file("copy", &cluster))?;
        self.fleet.start_again(&self.network)?;
        let all = usize::from(self.setup.helpers);
        self.await_up("all helpers as up", |up| up.len() == all)
    }

    /// Returns the names of the helpers that hold no blocks.
    pub(super) fn spares(&self) -> Vec<String> {
        let Setup { helpers, spare, .. } = self.setup;
        (helpers - spare + 1..=helpers).map(|number| format!("h{number}")).collect()
    }

    /// Kills a helper and waits until the coordinator has noticed.
    pub(super) fn lose(&mut self, helper: &str) -> Result<(), LabError> {
        self.fleet.kill(helper)?;
        self.await_up("one helper as lost", |up| !up.iter().any(|name| name == helper))
    }

    fn await_up(&mut self, what: &str, is_so: impl Fn(&[String]) -> bool) -> Result<(), LabError> {
        wait_while("coordinator", LOOK_EVERY, || {
            let answer = self.fleet.ask_loader(&self.network, &Instruction::Nodes)?;
            let sees = matches!(&answer, Answer::Nodes { up } if is_so(up));
            Ok((!sees).then(|| format!("the coordinator does not report {what}")))
        })
    }

    /// Returns the blocks that the lost helper held: the path of each, by name.
    pub(super) fn lost_blocks(&self) -> Result<BTreeMap<String, PathBuf>, LabError> {
        let folder = self.blocks_kept(LOST);
        named(&folder).map_err(LabError::file("read", folder))
    }

    /// The saved block folder of a helper.
    pub(super) fn blocks_kept(&self, helper: &str) -> PathBuf {
        self.kept.join("helpers").join(helper).join(BLOCKS)
    }

    /// Runs a verb of `mend` in the coordinator's namespace and returns its JSON output.
    pub(super) fn mend(&self, words: &[&str]) -> Result<Value, LabError> {
        let child = self.start(words)?;
        let output = child.wait_with_output().map_err(LabError::file("wait for", &self.mend))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match serde_json::from_str(&said) {
            Ok(value) if output.status.success() => Ok(value),
            _ => {
                let reason = format!("{}: {said}{}", output.status, String::from_utf8_lossy(&output.stderr));
                Err(LabError::Agent { who: format!("mend {}", words.join(" ")), reason })
            }
        }
    }

    fn start(&self, words: &[&str]) -> Result<Child, LabError> {
        let mut command = self.network.command(LabNode::Coordinator, &self.mend);
        command.args(["--output", "json"]).args(words).env("MEND_CLUSTER", self.fleet.cluster());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(LabError::file("start", &self.mend))
    }

    /// Checks that every block of the lost helper is now on another helper, unchanged.
    pub(super) fn compare(&self, what: &str) -> Result<(), LabError> {
        self.compare_blocks(what, &self.lost_blocks()?)
    }

    /// Checks that these blocks of the lost helper are now on other helpers, unchanged.
    pub(super) fn compare_blocks(
        &self,
        what: &str,
        lost: &BTreeMap<String, PathBuf>,
    ) -> Result<(), LabError> {
        let wrong = |reason: String| LabError::WrongBytes { what: what.to_owned(), reason };
        let mut now = BTreeMap::new();
        for helper in (1..=self.setup.helpers).map(|number| format!("h{number}")) {
            if helper != LOST {
                let folder = self.fleet.blocks(&helper);
                now.extend(named(&folder).map_err(LabError::file("read", folder))?);
            }
        }
        for (name, path) in lost {
            let found = now.get(name).ok_or_else(|| wrong(format!("block {name} is on no helper")))?;
            let read = |path: &Path| fs::read(path).map_err(LabError::file("read", path));
            if read(path)? != read(found)? {
                return Err(wrong(format!("block {name} was rebuilt with wrong bytes: {}", found.display())));
            }
        }
        Ok(())
    }
}

/// Returns the paths of the blocks below a folder, by name.
pub(super) fn named(folder: &Path) -> io::Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if name.starts_with('.') || name.ends_with(".crc") {
            continue;
        }
        if path.is_dir() {
            found.extend(named(&path)?);
        } else {
            found.insert(name, path);
        }
    }
    Ok(found)
}

/// Copies a folder. Published files in block folders are hard-linked instead. `is_shared` is true if `from`
/// is a block folder or inside one.
pub(super) fn copy(from: &Path, to: &Path, is_shared: bool) -> io::Result<()> {
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy(&entry.path(), &target, is_shared || entry.file_name() == BLOCKS)?;
        } else if kind.is_file() && is_shared && !entry.file_name().as_encoded_bytes().starts_with(b".") {
            fs::hard_link(entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
