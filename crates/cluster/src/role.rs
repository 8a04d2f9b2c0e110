//! The roles of cluster members, which their certificates state.

use std::fmt;

use rustls::pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;

use crate::Name;

const COORDINATOR_DNS_NAME: &str = "coordinator.mend";
const HELPER_SUFFIX: &str = ".helper.mend";
const CLIENT_SUFFIX: &str = ".client.mend";
const PLUGIN_SUFFIX: &str = ".plugin.mend";
const MONITOR_SUFFIX: &str = ".monitor.mend";
const OPERATOR_SUFFIX: &str = ".operator.mend";
const ADMIN_SUFFIX: &str = ".admin.mend";

/// The role of a cluster member; a certificate states exactly one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The coordinator, which plans repairs and dispatches tasks.
    Coordinator,
    /// The helper of this name, which holds blocks and executes its coordinator's tasks.
    Helper(Name),
    /// The client of this name, which stores and reads files. The client `admin` has the rights of an administrator.
    Client(Name),
    /// The operator of this name, who repairs and maintains the cluster, and stores and reads no files.
    Operator(Name),
    /// The administrator of this name, who may do everything.
    Admin(Name),
    /// The plug-in of this name, which runs inside another storage system. It may only describe, read and
    /// repair the stripes of that system.
    Plugin(Name),
    /// The monitor of this name, which may only read metrics. It sees no names of files.
    Monitor(Name),
}

impl Role {
    /// Returns the client that `mend init` creates: `admin`, which may do everything.
    pub fn default_client() -> Self {
        Role::Client(Name::try_from("admin".to_owned()).expect("`admin` is a name"))
    }

    /// Returns the DNS name in this role's certificate, such as `h1.helper.mend`. The name is never resolved.
    pub fn dns_name(&self) -> String {
        match self {
            Role::Coordinator => COORDINATOR_DNS_NAME.to_owned(),
            Role::Helper(name) => format!("{name}{HELPER_SUFFIX}"),
            Role::Client(name) => format!("{name}{CLIENT_SUFFIX}"),
            Role::Plugin(name) => format!("{name}{PLUGIN_SUFFIX}"),
            Role::Monitor(name) => format!("{name}{MONITOR_SUFFIX}"),
            Role::Operator(name) => format!("{name}{OPERATOR_SUFFIX}"),
            Role::Admin(name) => format!("{name}{ADMIN_SUFFIX}"),
        }
    }

    /// Returns the server name that a dialler must verify in this role's certificate, whatever the address.
    pub fn server_name(&self) -> ServerName<'static> {
        ServerName::try_from(self.dns_name()).expect("a role's name is a DNS name, since a Name is one label")
    }

    /// Returns the role whose certificates contain this DNS name. Distinct names map to distinct roles.
    pub fn from_dns_name(dns_name: &str) -> Option<Self> {
        if dns_name == COORDINATOR_DNS_NAME {
            return Some(Role::Coordinator);
        }
        type OfName = fn(Name) -> Role;
        let roles: [(&str, OfName); 6] = [
            (HELPER_SUFFIX, Role::Helper),
            (CLIENT_SUFFIX, Role::Client),
            (OPERATOR_SUFFIX, Role::Operator),
            (ADMIN_SUFFIX, Role::Admin),
            (PLUGIN_SUFFIX, Role::Plugin),
            (MONITOR_SUFFIX, Role::Monitor),
        ];
        let (name, role) =
            roles.iter().find_map(|(suffix, role)| Some((dns_name.strip_suffix(suffix)?, role)))?;
        name.parse().ok().map(role)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Coordinator => f.write_str("coordinator"),
            Role::Helper(name) => write!(f, "helper {name}"),
            Role::Client(name) => write!(f, "client {name}"),
            Role::Plugin(name) => write!(f, "plugin {name}"),
            Role::Monitor(name) => write!(f, "monitor {name}"),
            Role::Operator(name) => write!(f, "operator {name}"),
            Role::Admin(name) => write!(f, "admin {name}"),
        }
    }
}

/// Returns the role of a peer, read from the certificates of a **finished** handshake
/// (`connection.peer_certificates()`).
///
/// This function does not verify the certificates, because a handshake with the configuration of an
/// [`Identity`](crate::Identity) has already done so. `None` means that the certificate does not state
/// exactly one role; the caller must then reject the peer.
pub fn peer_role(certificates: &[CertificateDer<'_>]) -> Option<Role> {
    let end_entity = EndEntityCert::try_from(certificates.first()?).ok()?;
    let mut dns_names = end_entity.valid_dns_names();
    // A certificate with two names could pose as two peers; the authority never issues one.
    match (dns_names.next(), dns_names.next()) {
        (Some(only), None) => Role::from_dns_name(only),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn a_role_survives_its_dns_name() {
        for role in [
            Role::Coordinator,
            Role::Helper(name("h1")),
            Role::Helper(name("coordinator")),
            Role::Client(name("admin")),
            Role::Plugin(name("admin")),
            Role::Monitor(name("admin")),
            Role::Operator(name("admin")),
            Role::Admin(name("admin")),
        ] {
            assert_eq!(Role::from_dns_name(&role.dns_name()), Some(role.clone()));
            assert_eq!(role.server_name().to_str(), role.dns_name());
        }
    }

    #[test]
    fn other_dns_names_are_no_role() {
        for other in [
            "mend",
            "x.coordinator.mend",
            ".helper.mend",
            "a.b.helper.mend",
            "H1.helper.mend",
            "h1.helper.mend.",
        ] {
            assert_eq!(Role::from_dns_name(other), None, "{other}");
        }
    }

    #[test]
    fn a_certificate_must_carry_exactly_one_role() {
        let certificate = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            rcgen::generate_simple_self_signed(names).unwrap().cert.der().clone()
        };
        assert_eq!(peer_role(&[certificate(&["h1.helper.mend"])]), Some(Role::Helper(name("h1"))));
        assert_eq!(peer_role(&[certificate(&["h1.helper.mend", "coordinator.mend"])]), None);
        assert_eq!(peer_role(&[certificate(&["example.org"])]), None);
        assert_eq!(peer_role(&[CertificateDer::from(vec![0x30, 0x82, 0xff])]), None);
        assert_eq!(peer_role(&[]), None);
    }
}
