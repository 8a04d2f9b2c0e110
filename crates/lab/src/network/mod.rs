//! [`Network`]: namespaces, bridges and shaped links, created and removed as a unit.
//!
//! Invariants: every object has the lab's prefix, and the state file is written first, which lets
//! [`Network::down`] find everything after a crash. The lab creates no address, link or rule outside its own
//! namespaces.

mod layout;
mod names;
mod state;

pub use names::{LabNode, Names};
pub use state::Status;

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use cluster::Bandwidth;

use crate::shell::{Script, ScriptError, run_all};
use crate::topology::{Topology, TopologyError};
use state::State;

/// A running network. Dropping it removes everything in it, unless it is [kept](Network::keep).
#[derive(Debug)]
pub struct Network {
    names: Names,
    topology: Topology,
    state: State,
    kept: bool,
}

/// The reason why a network operation failed.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The topology is invalid.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The user is not root.
    #[error("the lab needs root to create network namespaces; try again with sudo")]
    NotRoot,
    /// A program is missing.
    #[error("`{program}` is missing; on Debian: apt-get install iproute2")]
    NoProgram {
        /// The program.
        program: &'static str,
    },
    /// The kernel lacks a feature.
    #[error("this kernel lacks a part of the lab (needed: veth, bridge, sch_tbf, sch_htb, cls_u32): {0}")]
    Kernel(#[source] ScriptError),
    /// A lab is up already.
    #[error("a lab is up already ({what}); use it, or remove it with `mend lab down`")]
    AlreadyUp {
        /// The description of the running lab.
        what: String,
    },
    /// Another process is measuring.
    #[error("process {pid} is using the lab right now; wait for it to end")]
    Busy {
        /// The id of the process.
        pid: u32,
    },
    /// No lab is up.
    #[error("no lab is up; start one with `mend lab up`")]
    NotUp,
    /// A command failed.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// A file, such as the state file, could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// The action that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Some namespaces of the lab could not be removed.
    #[error("cannot remove the lab: {left} are still there; {reason}")]
    Stuck {
        /// The remaining namespaces.
        left: String,
        /// The cause.
        reason: String,
    },
}

impl Network {
    /// Creates a network, after removing what a killed process left of another one. When the returned value is dropped, the network is removed, unless
    /// [`keep`](Self::keep) was called.
    ///
    /// # Errors
    /// [`NetworkError`]; the partial network is removed.
    pub fn up(names: &Names, topology: &Topology) -> Result<Self, NetworkError> {
        topology.check()?;
        check_rights()?;
        make_room(names)?;
        check_kernel(names)?;
        let state = State::begin(names, topology)?;
        let network = Self { names: names.clone(), topology: topology.clone(), state, kept: false };
        run_all(&layout::build(names, topology))?;
        run_all(&layout::shape(names, topology))?;
        Ok(network)
    }

    /// Changes the rates of the links; nodes and racks stay.
    ///
    /// # Errors
    /// [`NetworkError::Script`]; the shaping of the links is then undefined.
    ///
    /// # Panics
    /// If the number of nodes or racks differs.
    pub fn reshape(&mut self, topology: &Topology) -> Result<(), NetworkError> {
        topology.check()?;
        let built = |topology: &Topology| (topology.nodes, topology.groups());
        assert_eq!(built(topology), built(&self.topology));
        if *topology != self.topology {
            run_all(&layout::unshape(&self.names, &self.topology))?;
            run_all(&layout::shape(&self.names, topology))?;
            self.topology = topology.clone();
        }
        Ok(())
    }

    /// Prepares a change of one helper's link rate, which can be applied while the network is in use. Only
    /// for networks of uniform links.
    pub fn change(&self, place: LabNode, rate: Bandwidth) -> Change {
        Change(layout::change(&self.names, place, rate))
    }

    /// The network's names.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The current topology.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Records a folder to remove with the lab.
    ///
    /// # Errors
    /// [`NetworkError::File`].
    pub fn owns_folder(&mut self, folder: &Path) -> Result<(), NetworkError> {
        self.state.folder = Some(folder.to_owned());
        self.state.write(&self.names)
    }

    /// Keeps the network up after this process ends.
    ///
    /// # Errors
    /// [`NetworkError::File`].
    pub fn keep(mut self) -> Result<(), NetworkError> {
        self.state.kept = true;
        self.state.write(&self.names)?;
        self.kept = true;
        Ok(())
    }

    /// Returns the state of a lab.
    ///
    /// # Errors
    /// [`NetworkError`].
    pub fn status(names: &Names) -> Result<Status, NetworkError> {
        state::status(names)
    }

    /// Removes a lab, whichever process created it: the lab's processes, namespaces, folder and state file.
    /// Succeeds if no lab exists.
    ///
    /// # Errors
    /// [`NetworkError`].
    pub fn down(names: &Names) -> Result<(), NetworkError> {
        check_rights()?;
        let namespaces = state::namespaces(names)?;
        stop_processes(&namespaces)?;
        let mut reason = String::new();
        for namespace in &namespaces {
            if let Err(error) = Script::new(format!("ip netns del {namespace}")).run() {
                reason = error.to_string();
            }
        }
        let left = state::namespaces(names)?;
        if !left.is_empty() {
            return Err(NetworkError::Stuck { left: left.join(", "), reason });
        }
        remove_control_groups(names);
        state::remove(names)
    }

    /// Returns a command that runs `program` inside a node's namespace. The program's processor time is
    /// accounted to the lab.
    pub fn command(&self, place: LabNode, program: &Path) -> Command {
        self.doors().command(place, program)
    }

    /// Returns access to the namespaces, for starting processes in them.
    pub fn doors(&self) -> Doors {
        Doors { names: self.names.clone(), group: self.control_group() }
    }

    /// Returns the control group of the lab's processes, and creates it if necessary. Returns `None` if the
    /// system does not support control groups.
    pub fn control_group(&self) -> Option<PathBuf> {
        let group = self.names.control_group()?;
        (group.is_dir() || std::fs::create_dir(&group).is_ok()).then_some(group)
    }
}

/// A prepared change of a link's rate.
#[derive(Clone, Debug)]
pub struct Change(Vec<Script>);

impl Change {
    /// Applies the change.
    ///
    /// # Errors
    /// [`NetworkError::Script`].
    pub fn make(&self) -> Result<(), NetworkError> {
        Ok(run_all(&self.0)?)
    }
}

/// Access to the namespaces of a running network.
#[derive(Clone, Debug)]
pub struct Doors {
    names: Names,
    group: Option<PathBuf>,
}

impl Doors {
    /// Like [`Network::command`].
    pub fn command(&self, place: LabNode, program: &Path) -> Command {
        let mut command = Command::new("sh");
        // The shell joins the control group and then executes the program, so that all of the program's
        // processor time is accounted to the group.
        let enter = match &self.group {
            Some(group) => format!("echo $$ > {}/cgroup.procs; exec \"$@\"", group.display()),
            None => "exec \"$@\"".to_owned(),
        };
        command.args(["-c", &enter, "sh", "ip", "netns", "exec", &self.names.of(place)]).arg(program);
        // Ctrl-C must not reach the process, because the lab ends its processes itself.
        command.process_group(0);
        command
    }

    /// Moves this thread, and the threads it starts later, into a node's namespace permanently. Must not be
    /// called on the process's first thread: a process whose first thread is in a namespace of the lab is
    /// ended with the lab.
    ///
    /// # Errors
    /// [`NetworkError::File`].
    pub fn enter(&self, place: LabNode) -> Result<(), NetworkError> {
        let path = Path::new("/run/netns").join(self.names.of(place));
        let file = |action| {
            let path = path.clone();
            move |source| NetworkError::File { action, path, source }
        };
        let namespace = std::fs::File::open(&path).map_err(file("open"))?;
        let kind = Some(rustix::thread::LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(namespace.as_fd(), kind)
            .map_err(|error| file("enter")(error.into()))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if !self.kept
            && let Err(error) = Self::down(&self.names)
        {
            eprintln!("mend lab: {error}");
        }
    }
}

fn check_rights() -> Result<(), NetworkError> {
    for program in ["ip", "tc"] {
        if Command::new(program).arg("-V").output().is_err() {
            return Err(NetworkError::NoProgram { program });
        }
    }
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(NetworkError::NotRoot) }
}

fn make_room(names: &Names) -> Result<(), NetworkError> {
    match state::status(names)? {
        Status::Down => Ok(()),
        Status::Up { topology, .. } => Err(NetworkError::AlreadyUp { what: topology.to_string() }),
        Status::Busy { pid } => Err(NetworkError::Busy { pid }),
        Status::Leftovers { .. } => Network::down(names),
    }
}

fn check_kernel(names: &Names) -> Result<(), NetworkError> {
    let tried = run_all(&layout::probe(names));
    // The result is ignored, because there is no namespace to delete if the probe could not create it.
    let _ = Script::new(format!("ip netns del {}", names.namespace("probe"))).run();
    tried.map_err(NetworkError::Kernel)
}

/// Ends all processes in these namespaces, where only the lab's own processes run.
fn stop_processes(namespaces: &[String]) -> Result<(), NetworkError> {
    use rustix::process::{Pid, Signal, kill_process};
    for signal in [Signal::TERM, Signal::KILL] {
        for _ in 0..20 {
            let mut running = 0;
            for namespace in namespaces {
                let listed = Script::new(format!("ip netns pids {namespace}")).run().unwrap_or_default();
                for pid in
                    listed.split_whitespace().filter_map(|pid| pid.parse().ok()).filter_map(Pid::from_raw)
                {
                    running += 1;
                    let _ = kill_process(pid, signal); // The process may have ended already.
                }
            }
            if running == 0 {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

/// Removes the control groups of the lab: those of the disks of helpers first, then those that contain them.
fn remove_control_groups(names: &Names) {
    let disks = names.disk_group().filter(|group| group.is_dir());
    let entries = disks.iter().filter_map(|group| std::fs::read_dir(group).ok()).flatten().flatten();
    let of_helpers = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
    let of_lab = names.control_group().filter(|group| group.is_dir());
    of_helpers.chain(disks.clone()).chain(of_lab).for_each(|group| remove_control_group(&group));
}

fn remove_control_group(group: &Path) {
    // After the last process has ended, the kernel takes a moment until it allows the removal.
    for _ in 0..40 {
        if std::fs::remove_dir(group).is_ok() {
            return;
        }
        thread::sleep(Duration::from_millis(25));
    }
}
