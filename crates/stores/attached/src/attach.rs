//! The parts common to every `mend attach`: arguments, names of helpers, systemd units.

use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::path::Path;

use clap::Args;
use cluster::{InitOptions, Name, RepairAfter};

use crate::KindError;

/// Settings of a Mend cluster that is attached to a running store.
#[derive(Debug, Args)]
pub struct BesideArgs {
    /// How long a server may be down before its blocks are rebuilt elsewhere
    #[arg(long, default_value = "10m", value_name = "TIME|never")]
    pub repair_after: RepairAfter,
    /// Log automatic repairs instead of running them
    #[arg(long)]
    pub dry_run: bool,
    /// Whether data edges are encrypted [default: true if a helper listens on an address other than loopback]
    #[arg(long, value_name = "true|false")]
    pub data_tls: Option<bool>,
    /// The coordinator's listen address [default: this machine's address on the route to the store]
    #[arg(long, value_name = "IP")]
    pub listen: Option<IpAddr>,
    /// Port of the coordinator's API; the control port is the next one
    #[arg(long, default_value_t = 7400, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..65535))]
    pub coordinator_port: u16,
}

/// Returns the local address of this machine on the route to `to`.
///
/// # Errors
/// [`KindError`] if there is no route.
pub fn own_address(to: &str) -> Result<IpAddr, KindError> {
    let asked = || {
        let address = to.to_socket_addrs()?.next().ok_or(std::io::ErrorKind::NotFound)?;
        let socket = UdpSocket::bind(if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
        socket.connect(address)?; // Connecting a UDP socket sends no packet.
        socket.local_addr()
    };
    let address = asked().map_err(|error| {
        KindError::new(format!("cannot determine the address at which helpers reach this machine: {error}"))
            .help("set it with --listen IP")
    })?;
    Ok(address.ip())
}

/// Returns the options for creating a cluster without helpers; `code` is written to `[defaults]`.
pub fn options(host: IpAddr, code: &str, args: &BesideArgs) -> InitOptions {
    InitOptions {
        helpers: 0,
        listen_host: host,
        advertise: None,
        api_port: args.coordinator_port,
        control_port: args.coordinator_port + 1,
        first_helper_port: 0,
        code: code.to_owned(),
        block_bytes: "64MiB".parse().expect("a size"),
        scheme: "auto".to_owned(),
        data_tls: args.data_tls,
        repair_after: args.repair_after,
    }
}

/// Derives a helper's name from the name that the store uses for the server on the same machine. Returns
/// `None` if no valid name results.
pub fn name(prefix: &str, server: &str) -> Option<Name> {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    let text: String = server.chars().map(plain).collect();
    let text = format!("{prefix}-{}", text.trim_matches('-'));
    text.chars().take(63).collect::<String>().trim_end_matches('-').parse().ok()
}

/// Returns the text of a systemd unit that runs `mend` with the subcommand `what`; `user` is the usual
/// account of the store's daemons.
pub fn unit(what: &str, user: &str, folder: &Path) -> String {
    format!(
        "[Unit]\nDescription=Mend {what}\nAfter=network-online.target\nWants=network-online.target\n\n[Service]\n\
         User={user}\nExecStart=/usr/local/bin/mend --cluster {} {what}\nRestart=on-failure\nRestartSec=5\nLimitNOFILE=65536\n\n\
         [Install]\nWantedBy=multi-user.target\n",
        folder.display()
    )
}
