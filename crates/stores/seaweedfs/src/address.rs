//! Addresses in the format of SeaweedFS.

use std::fmt;
use std::str::FromStr;

/// The default gRPC port is the HTTP port plus this offset.
const GRPC_OFFSET: u16 = 10_000;

/// Address of a master or volume server: `HOST:PORT`, or `HOST:PORT.GRPC_PORT` if the gRPC port is not PORT +
/// 10000.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerAddress {
    host: String,
    port: u16,
    grpc_port: u16,
}

/// The text is not an address of a server.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not an address of a SeaweedFS server: write HOST:PORT, or HOST:PORT.GRPC_PORT")]
pub struct BadAddress(pub String);

impl ServerAddress {
    /// Parses an address and sets the given gRPC port; 0 means the default port, as in SeaweedFS's messages.
    pub(crate) fn listed(text: &str, grpc_port: u32) -> Result<Self, BadAddress> {
        let address: Self = text.parse()?;
        match u16::try_from(grpc_port) {
            Ok(0) => Ok(address),
            Ok(grpc_port) => Ok(Self { grpc_port, ..address }),
            Err(_) => Err(BadAddress(format!("{text}.{grpc_port}"))),
        }
    }

    /// Returns host and port of HTTP, which operators use to name the server.
    pub fn http(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns host and port of gRPC.
    pub fn grpc(&self) -> String {
        format!("{}:{}", self.host, self.grpc_port)
    }

    /// Returns the host, as written.
    pub fn host(&self) -> &str {
        &self.host
    }

    fn parse(text: &str) -> Option<Self> {
        let (host, ports) = text.rsplit_once(':')?;
        let (port, grpc_port) = match ports.split_once('.') {
            Some((port, grpc_port)) => (port.parse().ok()?, grpc_port.parse().ok()?),
            None => {
                let port: u16 = ports.parse().ok()?;
                (port, port.checked_add(GRPC_OFFSET)?)
            }
        };
        let fits = !host.is_empty() && !host.contains(['/', ' ', '@']) && port > 0 && grpc_port > 0;
        fits.then(|| Self { host: host.to_owned(), port, grpc_port })
    }
}

impl FromStr for ServerAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        Self::parse(text).ok_or_else(|| BadAddress(text.to_owned()))
    }
}

impl fmt::Display for ServerAddress {
    /// Writes the address with the gRPC port, in the form that SeaweedFS parses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}.{}", self.host, self.port, self.grpc_port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let usual: ServerAddress = "10.0.0.1:8080".parse().expect("an address");
        assert_eq!((usual.http().as_str(), usual.grpc().as_str()), ("10.0.0.1:8080", "10.0.0.1:18080"));
        assert_eq!("10.0.0.1:8080.18080".parse(), Ok(usual.clone()));
        assert_eq!(usual.to_string(), "10.0.0.1:8080.18080");
        assert_eq!(ServerAddress::listed("10.0.0.1:8080", 0), Ok(usual));
        let other = ServerAddress::listed("[::1]:8080", 7).expect("an address");
        assert_eq!(other.grpc(), "[::1]:7");
        for text in
            ["", "host", "host:", "host:x", ":8080", "host:60000", "host:80.x", "host:0", "http://host:80"]
        {
            assert_eq!(text.parse::<ServerAddress>(), Err(BadAddress(text.to_owned())));
        }
    }
}
