//! [`LabCluster`]: a Mend cluster whose members run in the namespaces of a lab, and the agents that use it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use cluster::{Cluster, HelperConfig, InitOptions, Name, RepairAfter};

use crate::agent;
use crate::direct;
use crate::error::LabError;
use crate::instruction::{Answer, Instruction};
use crate::medium::{forget_cached, load_cached};
use crate::network::{LabNode, Network};
use crate::network_config;

const API_PORT: u16 = 7400;
const CONTROL_PORT: u16 = 7401;
const HELPER_PORT: u16 = 7410;
/// The number that is added to all ports of a cluster with encrypted data edges, so that this cluster can run
/// next to one with plain data edges.
const ENCRYPTED_PORTS: u16 = 100;
/// The time limit for starting a process on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The time limit for an instruction. It is long, because conventional repair of a large block over a slow
/// link takes minutes.
const ORDER_LIMIT: Duration = Duration::from_secs(900);

/// The programs to start inside the namespaces.
#[derive(Debug, Clone)]
pub struct Programs {
    /// `mend`, for the coordinator and the helpers.
    pub mend: PathBuf,
    /// `mend-lab`, which has the hidden verbs that run inside namespaces.
    pub lab: PathBuf,
}

/// The processes of a cluster. Dropping this value ends the processes.
pub struct LabCluster {
    programs: Programs,
    work: PathBuf,
    cluster: PathBuf,
    members: BTreeMap<String, Child>,
    servers: Vec<Child>,
    /// The nodes that run a plain sender.
    senders: BTreeSet<LabNode>,
    /// The address of the last relay of each bare chain, by number of relays and slice size.
    chains: BTreeMap<(u16, u32), SocketAddr>,
    /// The agents, by the node in whose namespace each runs.
    agents: BTreeMap<LabNode, Agent>,
}

/// A process that executes instructions.
struct Agent {
    name: String,
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
    log: PathBuf,
}

impl Programs {
    /// Finds this program and `mend`. The environment variable `MEND_BINARY` may contain the path of `mend`;
    /// without it, `mend` is searched in this program's folder and then on PATH.
    ///
    /// # Errors
    /// [`LabError::File`] if this program's path is unknown; [`LabError::NoMend`].
    pub fn find() -> Result<Self, LabError> {
        let lab = std::env::current_exe().map_err(LabError::file("find", "this program"))?;
        let named = std::env::var_os("MEND_BINARY").map(PathBuf::from);
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let mend = named.or_else(|| {
            let beside = lab.parent().map(Path::to_owned);
            let mut places = beside.into_iter().chain(std::env::split_paths(&folders));
            places.find_map(|folder| Some(folder.join("mend")).filter(|mend| mend.is_file()))
        });
        Ok(Self { mend: mend.ok_or(LabError::NoMend)?, lab })
    }
}

impl LabCluster {
    /// Creates a cluster folder below the temporary folder and starts the members. The folder is removed with
    /// the network.
    ///
    /// # Errors
    /// [`LabError`] for a process that failed to start, with the end of its log.
    pub fn start(network: &mut Network, programs: &Programs) -> Result<Self, LabError> {
        Self::start_with(network, programs, false)
    }

    /// Like [`start`](Self::start); `data_tls` says whether data edges are encrypted. One plain and one
    /// encrypted cluster may share a network.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(network: &mut Network, programs: &Programs, data_tls: bool) -> Result<Self, LabError> {
        let prefix = format!("{}-", network.names().of(LabNode::Coordinator).trim_end_matches("-coord"));
        let work = tempfile::Builder::new().prefix(&prefix).tempdir();
        let work = work.map_err(LabError::file("create a folder in", std::env::temp_dir()))?.keep();
        network.owns_folder(&work)?;
        let cluster = work.join("cluster");
        make_cluster(&cluster, network, data_tls)?;
        let mut fleet = Self {
            programs: programs.clone(),
            work,
            cluster,
            members: BTreeMap::new(),
            servers: Vec::new(),
            senders: BTreeSet::new(),
            chains: BTreeMap::new(),
            agents: BTreeMap::new(),
        };
        fleet.start_members(network)?;
        Ok(fleet)
    }

    fn start_members(&mut self, network: &Network) -> Result<(), LabError> {
        self.spawn_member(network, "coordinator", LabNode::Coordinator, &["coordinator"])?;
        self.await_ready("coordinator")?;
        let helpers: Vec<_> = (0..network.topology().nodes).map(LabNode::Helper).collect();
        for &helper in &helpers {
            self.spawn_member(network, &helper.to_string(), helper, &["helper", &helper.to_string()])?;
        }
        for helper in &helpers {
            self.await_ready(&helper.to_string())?;
        }
        Ok(())
    }

    /// A folder for the lab's files.
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// The cluster's folder.
    pub fn cluster(&self) -> &Path {
        &self.cluster
    }

    /// The block folder of a helper.
    pub fn blocks(&self, helper: &str) -> PathBuf {
        self.cluster.join("helpers").join(helper).join("blocks")
    }

    /// Evicts the blocks from the page cache.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub(crate) fn forget_cached(&self) -> Result<(), LabError> {
        let folder = self.cluster.join("helpers");
        forget_cached(&folder).map_err(LabError::file("read", &folder))
    }

    /// Reads a helper's block into the page cache.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub(crate) fn load_cached(&self, helper: &str, block: &str) -> Result<(), LabError> {
        let folder = self.blocks(helper);
        load_cached(&folder, block).map_err(LabError::file("read", &folder))
    }

    /// Returns the helpers that run, with their process ids.
    pub(crate) fn helpers(&self) -> impl Iterator<Item = (&str, u32)> {
        let helpers = self.members.iter().filter(|(name, _)| *name != "coordinator");
        helpers.map(|(name, child)| (name.as_str(), child.id()))
    }

    /// Leaves the members running, and ends the agents and senders.
    pub fn keep(mut self) {
        self.members.clear();
    }

    /// Ends the members and the agents; keeps the cluster folder.
    pub(crate) fn stop(&mut self) {
        let agents = std::mem::take(&mut self.agents).into_values().map(|agent| agent.child);
        end(agents.chain(std::mem::take(&mut self.members).into_values()));
    }

    /// Restarts the members with the current content of the cluster folder.
    ///
    /// # Errors
    /// [`LabError`] for a process that failed to start, with the end of its log.
    pub(crate) fn start_again(&mut self, network: &Network) -> Result<(), LabError> {
        self.start_members(network)
    }

    /// Kills a helper without a clean shutdown.
    ///
    /// # Errors
    /// [`LabError::File`] if the process cannot be killed.
    pub fn kill(&mut self, helper: &str) -> Result<(), LabError> {
        if let Some(mut child) = self.members.remove(helper) {
            child.kill().and_then(|()| child.wait()).map_err(LabError::file("kill", helper))?;
        }
        Ok(())
    }

    /// Restarts a killed helper.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn revive(&mut self, network: &Network, helper: &str) -> Result<(), LabError> {
        let index = helper.trim_start_matches('h').parse::<u16>().unwrap_or(1) - 1;
        self.spawn_member(network, helper, LabNode::Helper(index), &["helper", helper])?;
        self.await_ready(helper)
    }

    /// Peak resident memory of a member since its start, in bytes.
    pub fn peak_memory(&self, member: &str) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.members.get(member)?.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
    }

    /// Sends an instruction to the agent in the client's namespace, and returns the answer.
    pub(crate) fn ask(&mut self, network: &Network, order: &Instruction) -> Result<Answer, LabError> {
        self.agent(network, LabNode::Client)?.ask(order)
    }

    /// Sends an instruction to the client's agent; [`finish`](Self::finish) waits for the answer.
    pub(crate) fn begin(&mut self, network: &Network, order: &Instruction) -> Result<(), LabError> {
        self.agent(network, LabNode::Client)?.send(order)
    }

    /// Waits for the answer to an instruction that was [begun](Self::begin).
    pub(crate) fn finish(&mut self, network: &Network) -> Result<Answer, LabError> {
        self.agent(network, LabNode::Client)?.receive()
    }

    /// Sends an instruction to the agent in the coordinator's namespace, whose link is unshaped, and returns
    /// the answer.
    pub(crate) fn ask_loader(&mut self, network: &Network, order: &Instruction) -> Result<Answer, LabError> {
        self.agent(network, LabNode::Coordinator)?.ask(order)
    }

    /// Sends an instruction to the agent in the namespace of each of these nodes, without waiting for the other
    /// agents' answers. Returns the answers in the same order.
    pub(crate) fn ask_each(
        &mut self,
        network: &Network,
        orders: &[(LabNode, Instruction)],
    ) -> Result<Vec<Answer>, LabError> {
        // All agents are started first, so that they begin to work at the same time.
        for &(at, _) in orders {
            self.agent(network, at)?;
        }
        for (at, order) in orders {
            self.agent(network, *at)?.send(order)?;
        }
        orders.iter().map(|&(at, _)| self.agent(network, at)?.receive()).collect()
    }

    /// Returns the agent in a node's namespace. Starts it if necessary.
    fn agent(&mut self, network: &Network, at: LabNode) -> Result<&mut Agent, LabError> {
        let agent = match self.agents.remove(&at) {
            Some(agent) => agent,
            None => self.spawn_agent(network, at)?,
        };
        Ok(self.agents.entry(at).or_insert(agent))
    }

    /// Returns the address of a node's plain sender, a process that sends bytes over plain TCP. Starts this
    /// process if necessary.
    pub(crate) fn sender(&mut self, network: &Network, at: LabNode) -> Result<SocketAddr, LabError> {
        let address = SocketAddr::from((at.address(), direct::PORT));
        if self.senders.insert(at) {
            self.serve(network, at, &["direct-serve", "--listen", &address.to_string()])?;
        }
        Ok(address)
    }

    /// Returns the address of the last relay of a bare chain with one relay on each of `hops` helpers. Starts
    /// the relays if necessary.
    pub(crate) fn chain(
        &mut self,
        network: &Network,
        hops: u16,
        slice_bytes: u32,
    ) -> Result<SocketAddr, LabError> {
        if let Some(&end) = self.chains.get(&(hops, slice_bytes)) {
            return Ok(end);
        }
        let port = direct::PORT + 1 + self.chains.len() as u16;
        let mut upstream: Option<SocketAddr> = None;
        for place in (0..hops).map(LabNode::Helper) {
            let address = SocketAddr::from((place.address(), port));
            let (listen, slice) = (address.to_string(), slice_bytes.to_string());
            let mut words = vec!["direct-relay", "--listen", &listen, "--slice-bytes", &slice];
            let from = upstream.map(|upstream| upstream.to_string());
            if let Some(from) = &from {
                words.extend(["--from", from]);
            }
            self.serve(network, place, &words)?;
            upstream = Some(address);
        }
        let end = upstream.expect("a chain has a hop");
        self.chains.insert((hops, slice_bytes), end);
        Ok(end)
    }

    fn serve(&mut self, network: &Network, at: LabNode, words: &[&str]) -> Result<(), LabError> {
        let mut command = network.command(at, &self.programs.lab);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(LabError::file("start", &self.programs.lab))?;
        self.servers.push(child);
        Ok(())
    }

    fn spawn_member(
        &mut self,
        network: &Network,
        name: &str,
        at: LabNode,
        words: &[&str],
    ) -> Result<(), LabError> {
        let create = |extension: &str| {
            let path = self.work.join(name).with_extension(extension);
            File::create(&path).map_err(LabError::file("create", &path))
        };
        let (output, log) = (create("out")?, create("log")?);
        let mut command = network.command(at, &self.programs.mend);
        command
            .args(words)
            .env("MEND_CLUSTER", &self.cluster)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(log);
        let child = command.spawn().map_err(LabError::file("start", &self.programs.mend))?;
        self.members.insert(name.to_owned(), child);
        Ok(())
    }

    /// Waits until a member has printed a line that starts with `ready`.
    fn await_ready(&mut self, name: &str) -> Result<(), LabError> {
        let give_up = Instant::now() + START_LIMIT;
        let output = self.work.join(name).with_extension("out");
        let child = self.members.get_mut(name).expect("spawned before");
        loop {
            let said = fs::read_to_string(&output).unwrap_or_default();
            if said.lines().any(|line| line.starts_with("ready")) {
                return Ok(());
            }
            let ended = child.try_wait().is_ok_and(|status| status.is_some());
            if ended || Instant::now() > give_up {
                let program = self.programs.mend.display().to_string();
                return Err(LabError::NotReady {
                    name: name.to_owned(),
                    program,
                    said: last_words(&output.with_extension("log")),
                });
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn spawn_agent(&self, network: &Network, at: LabNode) -> Result<Agent, LabError> {
        let name = match at {
            LabNode::Coordinator => "loader".to_owned(),
            LabNode::Client => "client".to_owned(),
            LabNode::Helper(_) => format!("client-at-{at}"),
        };
        let log = self.work.join(&name).with_extension("log");
        let log_file = File::create(&log).map_err(LabError::file("create", &log))?;
        let mut command = network.command(at, &self.programs.lab);
        command.args(["agent", "--cluster"]).arg(&self.cluster);
        if let (LabNode::Client, Some(_)) = (at, network.topology().groups()) {
            command.env(agent::RACK, network_config::rack_name(0));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log_file);
        let mut child = command.spawn().map_err(LabError::file("start", &self.programs.lab))?;
        let input = child.stdin.take().expect("piped above");
        let output = BufReader::new(child.stdout.take().expect("piped above"));
        let (sender, answers) = channel();
        // The output is read on a thread, because receiving from a channel allows a time limit.
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Ok(Agent { name, child, input, answers, log })
    }
}

impl Drop for LabCluster {
    fn drop(&mut self) {
        self.stop();
        end(self.servers.drain(..));
    }
}

impl Agent {
    fn ask(&mut self, order: &Instruction) -> Result<Answer, LabError> {
        self.send(order)?;
        self.receive()
    }

    fn send(&mut self, order: &Instruction) -> Result<(), LabError> {
        let line = serde_json::to_string(order).expect("plain data") + "\n";
        let sent = self.input.write_all(line.as_bytes()).and_then(|()| self.input.flush());
        sent.map_err(|_| self.failed(format!("ended: {}", last_words(&self.log))))
    }

    fn receive(&self) -> Result<Answer, LabError> {
        match self.answers.recv_timeout(ORDER_LIMIT) {
            Ok(line) => match serde_json::from_str(&line).map_err(|error| self.failed(error.to_string()))? {
                Answer::Failed { reason } => Err(self.failed(reason)),
                answer => Ok(answer),
            },
            Err(RecvTimeoutError::Timeout) => Err(self.failed(format!("no answer after {ORDER_LIMIT:?}"))),
            Err(RecvTimeoutError::Disconnected) => {
                Err(self.failed(format!("ended: {}", last_words(&self.log))))
            }
        }
    }

    fn failed(&self, reason: String) -> LabError {
        LabError::Agent { who: self.name.clone(), reason }
    }
}

fn make_cluster(folder: &Path, network: &Network, data_tls: bool) -> Result<(), LabError> {
    let failed = |error: &dyn std::fmt::Display| LabError::Cluster(error.to_string());
    let above = if data_tls { ENCRYPTED_PORTS } else { 0 };
    let options = InitOptions {
        repair_after: RepairAfter::Never,
        helpers: 0,
        listen_host: LabNode::Coordinator.address().into(),
        api_port: API_PORT + above,
        control_port: CONTROL_PORT + above,
        // Set explicitly, because by default edges between addresses beyond loopback are encrypted.
        data_tls: Some(data_tls),
        ..InitOptions::default()
    };
    let mut cluster = Cluster::init(folder, &options).map_err(|error| failed(&error))?;
    let topology = network.topology();
    stores::create(&cluster).map_err(|error| failed(&error))?;
    for index in 0..topology.nodes {
        let place = LabNode::Helper(index);
        let name = Name::try_from(place.to_string()).expect("h and a number is a name");
        let mut helper = HelperConfig::new(name, SocketAddr::from((place.address(), HELPER_PORT + above)));
        helper.rack = topology.rack_of(index).map(network_config::rack_name);
        helper.bandwidth = topology.link_rate(index).filter(|_| topology.told);
        cluster.add_helper(helper).map_err(|error| failed(&error))?;
    }
    if topology.told {
        let path = cluster.config_path();
        let text = fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
        fs::write(&path, text + &network_config::links(topology)).map_err(LabError::file("write", &path))?;
    }
    Ok(())
}

fn end(children: impl Iterator<Item = Child>) {
    for mut child in children {
        let _ = child.kill(); // The process may have ended already.
        let _ = child.wait();
    }
}

/// Returns the last lines of a log, for an error message.
fn last_words(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().rev().take(5).collect();
    if lines.is_empty() {
        "no output".to_owned()
    } else {
        lines.into_iter().rev().collect::<Vec<_>>().join("; ")
    }
}
