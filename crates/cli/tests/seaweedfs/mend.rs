//! Real `mend` processes beside the cluster: a coordinator, and a helper for each volume server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::weed::Weed;
use crate::world::{MASTER, World, eventually};

const MEND: &str = env!("CARGO_BIN_EXE_mend");

/// Mend, attached. It goes when this is dropped.
pub struct Mend {
    folder: PathBuf,
    logs: PathBuf,
    coordinator: Option<Weed>,
    helpers: Vec<Option<Weed>>,
    names: Vec<String>,
}

impl Mend {
    /// Attaches to the cluster, starts everything, and waits until all is well. What a server had that goes is repaired
    /// elsewhere after this time.
    pub fn attach(world: &World, repair_after: &str) -> Self {
        let base = tempfile::tempdir_in(world.root.path()).expect("a folder").keep();
        let folder = base.join("cluster");
        let args = ["attach", "seaweedfs", "--master", MASTER, "--repair-after", repair_after];
        let output = Command::new(MEND).args(args).arg(&folder).output().expect("mend runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("2 EC volumes, 28 shards on 6 volume servers"), "{said}");
        let names: Vec<String> =
            (1..=world.servers.len()).map(|at| format!("vs-10-79-1-{at}-8080")).collect();
        assert!(names.iter().all(|name| said.contains(&format!("mend-helper@{name} "))), "{said}");
        let helpers = names.iter().map(|_| None).collect();
        let mut mend = Self { folder, logs: base, coordinator: None, helpers, names };
        mend.start_coordinator();
        (0..mend.names.len()).for_each(|at| mend.start_helper(at));
        mend.wait_until_safe();
        mend
    }

    fn start(&self, name: &str, arguments: &[&str]) -> Weed {
        let cluster = format!("--cluster={}", self.folder.display());
        let arguments: Vec<String> =
            [cluster.as_str()].iter().chain(arguments).map(|&word| word.to_owned()).collect();
        Weed::start(Path::new(MEND), self.logs.join(format!("{name}.log")), &arguments, &self.logs)
    }

    pub fn start_coordinator(&mut self) {
        self.coordinator = Some(self.start("coordinator", &["coordinator"]));
    }

    pub fn start_helper(&mut self, at: usize) {
        let name = self.names[at].clone();
        self.helpers[at] = Some(self.start(&name, &["helper", &name]));
    }

    /// Kills it at once.
    pub fn kill_coordinator(&mut self) {
        self.coordinator = None;
    }

    /// Kills it at once.
    pub fn kill_helper(&mut self, at: usize) {
        self.helpers[at] = None;
    }

    /// What a verb prints as JSON, whatever its exit code; `None` if it is not JSON.
    pub fn ask(&self, words: &[&str]) -> Option<serde_json::Value> {
        let mut command = Command::new(MEND);
        command.arg(format!("--cluster={}", self.folder.display())).args(["--output", "json"]).args(words);
        serde_json::from_slice(&command.output().expect("mend runs").stdout).ok()
    }

    /// Waits until all helpers are there and all volumes are whole.
    pub fn wait_until_safe(&self) {
        let mut last = None;
        eventually("a status that is healthy", || {
            last = self.ask(&["status"]);
            let status = last.as_ref()?;
            let up = status["nodes_up"].as_array().map_or(0, Vec::len);
            (status["healthy"] == true && up == self.names.len() && status["stripes"]["stripes"] == 2)
                .then_some(())
        });
    }
}

impl Drop for Mend {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for name in ["coordinator"].into_iter().chain(self.names.iter().map(String::as_str)) {
            let said = fs::read_to_string(self.logs.join(format!("{name}.log"))).unwrap_or_default();
            let lines: Vec<&str> = said.lines().collect();
            eprintln!("{name} said:\n{}", lines[lines.len().saturating_sub(60)..].join("\n"));
        }
    }
}
