//! A private network of hosts on a switch, in which packets can be dropped in one direction only.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::{Ground, Process, Seat, eventually};

/// A private network. The head and every server have a network namespace of their own, with the address that
/// [`Ground::host`] returns, and a switch at the head joins them. Dropping this value removes the network.
#[derive(Debug)]
pub struct Network {
    head: Namespace,
    servers: Vec<Namespace>,
    is_root: bool,
}

/// A network namespace. It exists as long as this child process, which only sleeps in the namespace.
#[derive(Debug)]
struct Namespace(Child);

impl Network {
    /// Creates a network with a head and this many servers. Every server has a packet filter that initially
    /// drops nothing.
    ///
    /// # Panics
    /// If namespaces are not permitted, or a tool is missing: util-linux, iproute2, nftables.
    pub fn make(servers: usize) -> Self {
        let id = Command::new("id").arg("-u").output();
        let is_root = id.is_ok_and(|output| output.stdout == b"0\n");
        let mut unshare = Command::new("unshare");
        if !is_root {
            unshare.args(["--user", "--map-root-user"]);
        }
        let mut network = Self { head: Namespace::make(unshare), servers: Vec::new(), is_root };
        network.run(Seat::Head, "ip link set lo up");
        network.run(Seat::Head, "ip link add switch up type bridge");
        network.run(Seat::Head, &format!("ip addr add {}/16 dev switch", network.host(Seat::Head)));
        for at in 0..servers {
            let server = Namespace::make(network.command(Seat::Head, Path::new("unshare")));
            let pid = server.0.id();
            network.run(
                Seat::Head,
                &format!("ip link add server{at} up master switch type veth peer name uplink netns {pid}"),
            );
            network.servers.push(server);
            let seat = Seat::Server(at);
            network.run(seat, "ip link set lo up");
            network.run(seat, "ip link set uplink up");
            network.run(seat, &format!("ip addr add {}/16 dev uplink", network.host(seat)));
            network.filter(
                seat,
                "add table ip apart; add set ip apart unheard { type ipv4_addr; }; \
                 add chain ip apart arriving { type filter hook input priority 0; }; \
                 add rule ip apart arriving ip saddr @unheard drop",
            );
        }
        network
    }

    /// Drops all packets from one host to a server from now on. Packets in the other direction still arrive.
    ///
    /// # Panics
    /// If the packet filter cannot be changed.
    pub fn drop_one_way(&self, from: Seat, to: Seat) {
        self.filter(to, &format!("add element ip apart unheard {{ {} }}", self.host(from)));
    }

    /// Ends the packet loss that [`Network::drop_one_way`] has started between these hosts.
    ///
    /// # Panics
    /// If no packets were dropped in this direction.
    pub fn restore(&self, from: Seat, to: Seat) {
        self.filter(to, &format!("delete element ip apart unheard {{ {} }}", self.host(from)));
    }

    fn filter(&self, at: Seat, rules: &str) {
        succeed(self.command(at, Path::new("nft")).arg(rules));
    }

    fn run(&self, at: Seat, command: &str) {
        let mut words = command.split(' ');
        let program = words.next().expect("a program");
        succeed(self.command(at, Path::new(program)).args(words));
    }
}

impl Ground for Network {
    fn host(&self, seat: Seat) -> String {
        match seat {
            Seat::Head => "10.79.0.1".to_owned(),
            Seat::Server(at) => format!("10.79.1.{}", at + 1),
        }
    }

    fn command(&self, seat: Seat, program: &Path) -> Command {
        let namespace = match seat {
            Seat::Head => &self.head,
            Seat::Server(at) => &self.servers[at],
        };
        let mut command = Process::command("nsenter");
        command.args(["--target", &namespace.0.id().to_string(), "--net"]);
        if !self.is_root {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.arg("--").arg(program);
        command
    }
}

impl Namespace {
    /// Creates a namespace by running `unshare`.
    fn make(mut unshare: Command) -> Self {
        // The process may be in its parent's namespace until it executes `sleep`, so wait for that.
        let sleeps = ["--net", "setpriv", "--pdeathsig", "KILL", "sleep", "infinity"];
        let child = unshare.args(sleeps).stdin(Stdio::null()).spawn();
        let namespace = Self(child.unwrap_or_else(|error| panic!("{unshare:?}: {error}")));
        let name = format!("/proc/{}/comm", namespace.0.id());
        eventually("a network namespace", || {
            (std::fs::read_to_string(&name).ok()? == "sleep\n").then_some(())
        });
        namespace
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill(); // The process may have ended already.
        let _ = self.0.wait();
    }
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// Whether a datagram sent from one seat to another arrives within this many seconds.
    fn arrives(network: &Network, from: Seat, to: Seat, seconds: u32) -> bool {
        let receive = "import socket,sys; s=socket.socket(2,2); s.bind((sys.argv[1],7)); print('up',flush=True); \
                       s.settimeout(float(sys.argv[2])); print(s.recv(9))";
        let send = "import socket,sys; socket.socket(2,2).sendto(b'x',(sys.argv[1],7))";
        let python = |seat, script| {
            let mut command = network.command(seat, Path::new("python3"));
            command.args(["-c", script]).arg(network.host(to)).stdout(Stdio::piped()).stderr(Stdio::null());
            command
        };
        let mut receiver = python(to, receive).arg(seconds.to_string()).spawn().unwrap();
        let mut said = receiver.stdout.take().unwrap();
        said.read_exact(&mut [0; 3]).unwrap();
        succeed(&mut python(from, send));
        receiver.wait().unwrap().success()
    }

    #[test]
    fn packets_are_lost_in_one_direction_only() {
        let network = Network::make(3);
        let (a, b, c) = (Seat::Server(0), Seat::Server(1), Seat::Server(2));
        network.drop_one_way(a, b);
        assert!(!arrives(&network, a, b, 3));
        for (from, to) in [(b, a), (a, c), (c, b), (a, Seat::Head), (Seat::Head, b)] {
            assert!(arrives(&network, from, to, 60), "{from:?} to {to:?}");
        }
        network.restore(a, b);
        assert!(arrives(&network, a, b, 60));
    }
}
