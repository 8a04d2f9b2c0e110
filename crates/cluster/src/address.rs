//! Addresses to dial. Unlike a listen address, an address to dial may contain a host name.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A host to dial: an IP address or a host name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Host(String);

/// An address at which to dial a node: `HOST:PORT`, where the host is a name, an IPv4 address, or an IPv6
/// address in brackets.
///
/// ```
/// use cluster::Address;
/// let address: Address = "node7.example:7410".parse().unwrap();
/// assert_eq!((address.host(), address.port()), ("node7.example", 7410));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address {
    host: Host,
    port: u16,
}

/// The text is not a valid [`Host`] or [`Address`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseAddressError {
    /// The text is neither an IP address nor a host name.
    #[error("`{0}` is not a host: write an IP address or a host name, without a port")]
    Host(String),
    /// The text is not `HOST:PORT` with a port of 1 to 65535.
    #[error("`{0}` is not an address to connect to: write HOST:PORT, such as 10.0.0.7:7410")]
    Address(String),
}

impl Host {
    /// Returns the host as text; an IPv6 address has no brackets.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the address of `port` on this host.
    pub fn at(&self, port: u16) -> Address {
        Address { host: self.clone(), port }
    }

    /// Whether this is `0.0.0.0` or `::`, which can be listened on but not dialled.
    pub fn is_unspecified(&self) -> bool {
        self.0.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified())
    }

    /// Whether this is a loopback address or `localhost`. Other names may resolve to any address.
    pub fn is_loopback(&self) -> bool {
        self.0.parse::<IpAddr>().map_or(self.0 == "localhost", |ip| ip.is_loopback())
    }
}

impl From<IpAddr> for Host {
    fn from(ip: IpAddr) -> Self {
        Self(ip.to_string())
    }
}

impl FromStr for Host {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(ip.into());
        }
        let is_label = |label: &str| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        let is_name = text.len() <= 253 && text.split('.').all(is_label);
        // Reject texts such as "10.0.0" and "300.1.1.1": looking them up as host names would fail later with
        // an unhelpful error.
        let looks_numeric = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        if is_name && !looks_numeric {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseAddressError::Host(text.to_owned()))
        }
    }
}

impl Address {
    /// Returns the host as text; an IPv6 address has no brackets.
    pub fn host(&self) -> &str {
        self.host.as_str()
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn into_host(self) -> Host {
        self.host
    }

    /// Whether the host is `0.0.0.0` or `::`, which can be listened on but not dialled.
    pub fn is_unspecified(&self) -> bool {
        self.host.is_unspecified()
    }
}

impl From<SocketAddr> for Address {
    fn from(socket: SocketAddr) -> Self {
        Self { host: socket.ip().into(), port: socket.port() }
    }
}

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseAddressError::Address(text.to_owned());
        let address = match text.parse::<SocketAddr>() {
            Ok(socket) => socket.into(),
            Err(_) => {
                let (host, port) = text.rsplit_once(':').ok_or_else(refuse)?;
                let host: Host = host.parse().map_err(|_| refuse())?;
                // Without brackets, the end of an IPv6 address and the start of the port are ambiguous.
                if host.as_str().contains(':') {
                    return Err(refuse());
                }
                host.at(port.parse().map_err(|_| refuse())?)
            }
        };
        if address.port == 0 { Err(refuse()) } else { Ok(address) }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host().contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl TryFrom<String> for Host {
    type Error = ParseAddressError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl TryFrom<String> for Address {
    type Error = ParseAddressError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Host> for String {
    fn from(host: Host) -> Self {
        host.0
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_their_text() {
        for text in ["127.0.0.1:7410", "[::1]:7410", "node7.example:1", "a-b:65535"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn addresses_that_cannot_be_dialled_are_rejected() {
        for text in
            ["", "h1", ":7410", "h1:", "h1:0", "h1:65536", "::1:7410", "h 1:7", "10.0.0:7410", "127.0.0.1:0"]
        {
            assert_eq!(text.parse::<Address>(), Err(ParseAddressError::Address(text.to_owned())));
        }
        for text in ["", "h1:7410", "[::1]", "10.0.0", "a..b"] {
            assert_eq!(text.parse::<Host>(), Err(ParseAddressError::Host(text.to_owned())));
        }
    }
}
