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

/// The address of a server as a master lists it. A malformed address costs Mend only this server: the others of the
/// listing can be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedAddress(Result<ServerAddress, BadAddress>);

/// The text is not an address of a server.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not an address of a SeaweedFS server: write HOST:PORT, or HOST:PORT.GRPC_PORT")]
pub struct BadAddress(pub String);

impl ServerAddress {
    /// Parses an address and sets the given gRPC port; 0 means the default port, as in SeaweedFS's messages.
    pub(crate) fn listed(text: &str, grpc_port: u32) -> Result<Self, BadAddress> {
        match u16::try_from(grpc_port) {
            Ok(0) => text.parse(),
            Ok(grpc_port) => Self::parse(text, Some(grpc_port)).ok_or_else(|| BadAddress(text.to_owned())),
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

    /// Parses an address. Its gRPC port is `listed`, or else the one in the text, or else the default port, which HTTP
    /// ports above 55535 do not have.
    fn parse(text: &str, listed: Option<u16>) -> Option<Self> {
        let (host, ports) = text.rsplit_once(':')?;
        let (port, written) = match ports.split_once('.') {
            Some((port, grpc_port)) => (port, Some(grpc_port.parse().ok()?)),
            None => (ports, None),
        };
        let port: u16 = port.parse().ok()?;
        let grpc_port = match listed.or(written) {
            Some(grpc_port) => grpc_port,
            None => port.checked_add(GRPC_OFFSET)?,
        };
        let fits = !host.is_empty() && !host.contains(['/', ' ', '@']) && port > 0 && grpc_port > 0;
        fits.then(|| Self { host: host.to_owned(), port, grpc_port })
    }
}

impl ListedAddress {
    /// Parses an address with the given gRPC port; 0 means the default port, as in SeaweedFS's messages.
    pub(crate) fn of(text: &str, grpc_port: u32) -> Self {
        Self(ServerAddress::listed(text, grpc_port))
    }

    /// Returns the parsed address.
    ///
    /// # Errors
    /// [`BadAddress`] with the listed text.
    pub fn parsed(&self) -> Result<&ServerAddress, &BadAddress> {
        self.0.as_ref()
    }

    /// Returns host and port of HTTP, which operators use to name the server, or the listed text if it is malformed.
    pub fn http(&self) -> String {
        self.parsed().map_or_else(|bad| bad.0.clone(), ServerAddress::http)
    }
}

impl FromStr for ServerAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        Self::parse(text, None).ok_or_else(|| BadAddress(text.to_owned()))
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
        // This HTTP port has no default gRPC port.
        let high = ServerAddress::listed("10.0.0.1:58231", 18099).expect("an address");
        assert_eq!((high.http().as_str(), high.grpc().as_str()), ("10.0.0.1:58231", "10.0.0.1:18099"));
        assert_eq!("10.0.0.1:58231.18099".parse(), Ok(high));
        assert!(ServerAddress::listed("10.0.0.1:58231", 0).is_err());
        for text in
            ["", "host", "host:", "host:x", ":8080", "host:60000", "host:80.x", "host:0", "http://host:80"]
        {
            assert_eq!(text.parse::<ServerAddress>(), Err(BadAddress(text.to_owned())));
        }
    }
}
