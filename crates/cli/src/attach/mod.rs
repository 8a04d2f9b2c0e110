//! Implements `mend attach`: creates a cluster folder for a running storage system and prints what to start
//! next to it.

mod hdfs;
mod seaweedfs;

use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};

use cluster::{InitOptions, Name};

use crate::answer::Answer;
use crate::args::{AttachTo, BesideArgs};
use crate::failure::Failure;

/// Implements `mend attach …`.
pub async fn attach(folder: Option<PathBuf>, to: &AttachTo) -> Result<Answer, Failure> {
    match to {
        AttachTo::Seaweedfs(args) => seaweedfs::attach(folder, args).await,
        AttachTo::Hdfs(args) => hdfs::attach(folder, args).await,
    }
}

/// This machine's address on the route to `to`.
fn own_address(to: &str) -> Result<IpAddr, Failure> {
    let asked = || {
        let address = to.to_socket_addrs()?.next().ok_or(std::io::ErrorKind::NotFound)?;
        let socket = UdpSocket::bind(if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
        socket.connect(address)?; // Connecting a UDP socket sends nothing.
        socket.local_addr()
    };
    let address = asked().map_err(|error| {
        Failure::new(format!("cannot determine the address at which helpers reach this machine: {error}"))
            .help("set it with --listen IP")
    })?;
    Ok(address.ip())
}

/// Options for a cluster without helpers. `code` goes into `[defaults]`.
fn options(host: IpAddr, code: &str, args: &BesideArgs) -> InitOptions {
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

/// Derives a helper's name from the name of its server in the store.
fn name(prefix: &str, server: &str) -> Option<Name> {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    let text: String = server.chars().map(plain).collect();
    let text = format!("{prefix}-{}", text.trim_matches('-'));
    text.chars().take(63).collect::<String>().trim_end_matches('-').parse().ok()
}

/// A systemd unit. `user` is the usual user of the store's daemons.
fn unit(what: &str, user: &str, folder: &Path) -> String {
    format!(
        "[Unit]\nDescription=Mend {what}\nAfter=network-online.target\nWants=network-online.target\n\n[Service]\n\
         User={user}\nExecStart=/usr/local/bin/mend --cluster {} {what}\nRestart=on-failure\nRestartSec=5\nLimitNOFILE=65536\n\n\
         [Install]\nWantedBy=multi-user.target\n",
        folder.display()
    )
}
