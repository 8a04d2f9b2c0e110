//! [`Network`]: namespaces, bridges and shaped links, made and removed as a whole.
//!
//! Always true: everything made carries the lab's prefix, and what is written to the state file comes first, so
//! that [`Network::down`] finds all of it, also after a crash. Deliberately absent: any address, link or rule
//! outside the lab's own namespaces.

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

/// A network that is up; removed with everything in it when dropped, unless [kept](Network::keep).
#[derive(Debug)]
pub struct Network {
    names: Names,
    topology: Topology,
    state: State,
    kept: bool,
}

/// Why there is no network.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The topology makes no sense.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// Not root.
    #[error("the lab makes network namespaces, for which it has to be root; try again with sudo")]
    NotRoot,
    /// A program is missing.
    #[error("`{program}` is missing; on Debian: apt-get install iproute2")]
    NoProgram {
        /// Which.
        program: &'static str,
    },
    /// The kernel lacks something.
    #[error("this kernel lacks a part of the lab (needed: veth, bridge, sch_tbf, sch_htb, cls_u32): {0}")]
    Kernel(#[source] ScriptError),
    /// One is up.
    #[error("a lab is up already ({what}); use it, or remove it with `mend lab down`")]
    AlreadyUp {
        /// What it is.
        what: String,
    },
    /// Another process measures.
    #[error("process {pid} is using the lab right now; wait for it to end")]
    Busy {
        /// Whose lab it is.
        pid: u32,
    },
    /// One was not removed.
    #[error("a lab that was killed left {count} namespaces behind; remove them with `mend lab down`")]
    Leftovers {
        /// How many.
        count: usize,
    },
    /// There is none.
    #[error("no lab is up; start one with `mend lab up`")]
    NotUp,
    /// A command failed.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The state file, or another file of the lab.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was attempted.
        action: &'static str,
        /// Of which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Something would not go away.
    #[error("cannot remove the lab: {left} are still there; {reason}")]
    Stuck {
        /// What.
        left: String,
        /// Why.
        reason: String,
    },
}

impl Network {
    /// Makes a network. It belongs to this process until it is [kept](Self::keep).
    ///
    /// # Errors
    /// [`NetworkError`]; what was made is removed again.
    pub fn up(names: &Names, topology: &Topology) -> Result<Self, NetworkError> {
        topology.check()?;
        check_rights()?;
        refuse_second(names)?;
        check_kernel(names)?;
        let state = State::begin(names, topology)?;
        let network = Self { names: names.clone(), topology: topology.clone(), state, kept: false };
        run_all(&layout::build(names, topology))?;
        run_all(&layout::shape(names, topology))?;
        Ok(network)
    }

    /// Gives the links other rates; the nodes and their racks stay.
    ///
    /// # Errors
    /// [`NetworkError::Script`]; then nobody knows how the links are shaped.
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

    /// What gives the link of one helper another rate while it is in use; for networks whose links are all alike.
    pub fn change(&self, place: LabNode, rate: Bandwidth) -> Change {
        Change(layout::change(&self.names, place, rate))
    }

    /// Its names.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// How it is shaped now.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Notes a folder that shall be removed with the lab.
    ///
    /// # Errors
    /// [`NetworkError::File`].
    pub fn owns_folder(&mut self, folder: &Path) -> Result<(), NetworkError> {
        self.state.folder = Some(folder.to_owned());
        self.state.write(&self.names)
    }

    /// Leaves it up when this process ends.
    ///
    /// # Errors
    /// [`NetworkError::File`].
    pub fn keep(mut self) -> Result<(), NetworkError> {
        self.state.kept = true;
        self.state.write(&self.names)?;
        self.kept = true;
        Ok(())
    }

    /// What is there of a lab.
    ///
    /// # Errors
    /// [`NetworkError`].
    pub fn status(names: &Names) -> Result<Status, NetworkError> {
        state::status(names)
    }

    /// Removes a lab, whoever made it: processes, namespaces, folders, the state file. Nothing to remove is fine.
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
        remove_control_group(names);
        state::remove(names)
    }

    /// A command that runs inside someone's namespace, counted to the lab's CPU time.
    pub fn command(&self, place: LabNode, program: &Path) -> Command {
        self.doors().command(place, program)
    }

    /// The way into its namespaces, for whoever starts processes in them.
    pub fn doors(&self) -> Doors {
        Doors { names: self.names.clone(), group: self.control_group() }
    }

    /// The control group that the lab's processes are in, if there can be one.
    pub fn control_group(&self) -> Option<PathBuf> {
        let group = self.names.control_group()?;
        (group.is_dir() || std::fs::create_dir(&group).is_ok()).then_some(group)
    }
}

/// A link's new rate, to be set by whoever has the time.
#[derive(Clone, Debug)]
pub struct Change(Vec<Script>);

impl Change {
    /// Sets it.
    ///
    /// # Errors
    /// [`NetworkError::Script`].
    pub fn make(&self) -> Result<(), NetworkError> {
        Ok(run_all(&self.0)?)
    }
}

/// The way into the namespaces of a network that is up.
#[derive(Clone, Debug)]
pub struct Doors {
    names: Names,
    group: Option<PathBuf>,
}

impl Doors {
    /// As [`Network::command`].
    pub fn command(&self, place: LabNode, program: &Path) -> Command {
        let mut command = Command::new("sh");
        // The shell puts itself into the control group and becomes the program, so that no time is missed.
        let enter = match &self.group {
            Some(group) => format!("echo $$ > {}/cgroup.procs; exec \"$@\"", group.display()),
            None => "exec \"$@\"".to_owned(),
        };
        command.args(["-c", &enter, "sh", "ip", "netns", "exec", &self.names.of(place)]).arg(program);
        // A Ctrl-C is for the lab, which then ends its processes itself.
        command.process_group(0);
        command
    }

    /// Moves this thread, and the threads that it starts, into someone's namespace for good. It must not be the process's
    /// first thread: by that one's namespace a lab that is removed tells whom to end.
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

fn refuse_second(names: &Names) -> Result<(), NetworkError> {
    match state::status(names)? {
        Status::Down => Ok(()),
        Status::Up { topology, .. } => Err(NetworkError::AlreadyUp { what: topology.to_string() }),
        Status::Busy { pid } => Err(NetworkError::Busy { pid }),
        Status::Leftovers { namespaces } => Err(NetworkError::Leftovers { count: namespaces.len() }),
    }
}

fn check_kernel(names: &Names) -> Result<(), NetworkError> {
    let tried = run_all(&layout::probe(names));
    // Gone already if the very first line failed.
    let _ = Script::new(format!("ip netns del {}", names.namespace("probe"))).run();
    tried.map_err(NetworkError::Kernel)
}

/// Ends everything that runs in these namespaces, which only the lab's own processes do.
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
                    let _ = kill_process(pid, signal); // It may have ended by itself.
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

fn remove_control_group(names: &Names) {
    let Some(group) = names.control_group().filter(|group| group.is_dir()) else { return };
    // The kernel takes a moment to notice that the last process is gone.
    for _ in 0..40 {
        if std::fs::remove_dir(&group).is_ok() {
            return;
        }
        thread::sleep(Duration::from_millis(25));
    }
}
