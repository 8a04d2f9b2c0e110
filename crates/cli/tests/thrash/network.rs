//! A network namespace for each helper, and one for the coordinator and the clients, connected by a bridge.
//! This allows dropping packets between two helpers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

/// The address of the coordinator and the clients.
pub const CENTRE: &str = "10.79.0.1";

/// The namespaces. After this value is dropped, each namespace ends as soon as no process runs in it.
pub struct Network {
    centre: Namespace,
    helpers: BTreeMap<String, Namespace>,
}

/// A process that keeps a namespace alive until its standard input is closed.
struct Namespace(Child);

impl Network {
    /// Creates a namespace for each of these helpers and one for the coordinator and the clients.
    ///
    /// # Errors
    /// A message that says why the namespaces cannot be created.
    pub fn make(helpers: &[String]) -> Result<Self, String> {
        let centre = Namespace::new()?;
        centre.run(&format!(
            "ip link set lo up
            ip link add name bridge type bridge
            ip addr add {CENTRE}/16 dev bridge
            ip link set bridge up"
        ))?;
        let mut network = Self { centre, helpers: BTreeMap::new() };
        for name in helpers {
            let (helper, address) = (Namespace::new()?, address(name));
            network.centre.run(&format!(
                "ip link add name {name} type veth peer name eth0 netns {}
                ip link set {name} master bridge up",
                helper.0.id()
            ))?;
            helper.run(&format!(
                "ip link set lo up
                ip addr add {address}/16 dev eth0
                ip link set eth0 up
                nft add table ip thrash
                nft 'add set ip thrash dropped {{ type ipv4_addr; }}'
                nft 'add chain ip thrash input {{ type filter hook input priority 0; }}'
                nft 'add rule ip thrash input ip saddr @dropped drop'"
            ))?;
            network.helpers.insert(name.clone(), helper);
        }
        Ok(network)
    }

    /// Returns a command that runs a program in a helper's namespace, or in that of the coordinator if `name`
    /// is no helper.
    pub fn command(&self, name: &str, program: &str) -> Command {
        self.helpers.get(name).unwrap_or(&self.centre).command(program)
    }

    /// Drops packets from one helper to another from now on, or stops dropping them.
    ///
    /// # Errors
    /// A message that says why the change failed.
    pub fn drop_packets(&self, from: &str, to: &str, drops: bool) -> Result<(), String> {
        let verb = if drops { "add" } else { "delete" };
        self.helpers[to].run(&format!("nft '{verb} element ip thrash dropped {{ {} }}'", address(from)))
    }
}

impl Namespace {
    fn new() -> Result<Self, String> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "echo; exec cat >/dev/null"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("unshare: {error}"))?;
        let mut namespace = Self(child);
        let mut line = String::new();
        let out = namespace.0.stdout.take().expect("piped");
        match BufReader::new(out).read_line(&mut line) {
            Ok(1) => Ok(namespace),
            _ => Err("network namespaces need root".to_owned()),
        }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.0.id())).arg("--").arg(program);
        command
    }

    fn run(&self, script: &str) -> Result<(), String> {
        let mut shell = self.command("sh");
        shell.args(["-e", "-s"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut shell = shell.spawn().map_err(|error| format!("nsenter: {error}"))?;
        let sent = shell.stdin.take().expect("piped").write_all(script.as_bytes());
        let output = shell.wait_with_output().map_err(|error| error.to_string())?;
        match output.status.success() && sent.is_ok() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait(); // The process ends when its input is closed.
    }
}

/// Returns the address of a helper: `h7` is 10.79.1.7.
pub fn address(helper: &str) -> String {
    format!("10.79.1.{}", helper.trim_start_matches('h'))
}
