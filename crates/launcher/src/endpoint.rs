//! Addresses as users write them: a host by name or IP address, and a port.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::str::FromStr;

use serde::Deserialize;

/// A host name or an IP address, without scheme or port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Host(String);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    pub host: Host,
    pub port: u16,
}

impl Host {
    pub fn localhost() -> Self {
        Self("127.0.0.1".to_owned())
    }

    pub fn name(&self) -> &str {
        &self.0
    }

    /// Resolves the name, which may block for seconds.
    pub fn addresses(&self) -> io::Result<Vec<IpAddr>> {
        Ok((self.name(), 0).to_socket_addrs()?.map(|address| address.ip()).collect())
    }
}

impl Endpoint {
    /// Resolves the name without blocking the caller's thread.
    pub(crate) async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((self.host.name(), self.port)).await?.collect())
    }
}

/// Tries to bind the address, which works only for addresses of this machine.
pub fn is_on_this_machine(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if bare.parse::<Ipv6Addr>().is_ok() {
            return Ok(Self(bare.to_owned()));
        }
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        match !text.is_empty() && text.len() < 256 && text.bytes().all(is_name) {
            true => Ok(Self(text.to_owned())),
            false => Err(format!("{text:?} is not a host; write a name or an address, without scheme and port")),
        }
    }
}

impl TryFrom<String> for Host {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// `host:port`, or the same as a URL.
impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not an endpoint; write it like http://10.0.0.2:9001 or 10.0.0.2:9001");
        let place = text.strip_prefix("http://").unwrap_or(text);
        let (host, port) = place.strip_suffix('/').unwrap_or(place).rsplit_once(':').ok_or_else(wrong)?;
        // Without brackets the port looks like the last group of an IPv6 address.
        if host.contains(':') && !host.starts_with('[') {
            return Err(wrong());
        }
        match (host.parse(), port.parse()) {
            (Ok(host), Ok(port @ 1..)) => Ok(Self { host, port }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.0.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_as_people_write_them() {
        for (text, shown) in [
            ("http://10.0.0.2:9001", "10.0.0.2:9001"),
            ("http://gpu-7.example/", ""),
            ("http://gpu-7.example:80/", "gpu-7.example:80"),
            ("localhost:1", "localhost:1"),
            ("[::1]:9", "[::1]:9"),
            ("::1:9", ""),
            ("https://host:1", ""),
            ("host", ""),
            ("host:0", ""),
            ("host:70000", ""),
            (":9001", ""),
            ("a b:1", ""),
            ("http://host:1/v1", ""),
        ] {
            match text.parse::<Endpoint>() {
                Ok(endpoint) => assert_eq!(endpoint.to_string(), shown, "{text}"),
                Err(message) => assert!(shown.is_empty() && message.contains("http://10.0.0.2:9001"), "{text}"),
            }
        }
    }

    #[test]
    fn hosts_have_no_port() {
        for (text, good) in [
            ("10.0.0.2", true),
            ("gpu-7.example", true),
            ("::1", true),
            ("[::1]", true),
            ("10.0.0.2:80", false),
            ("http://x", false),
            ("", false),
        ] {
            assert_eq!(text.parse::<Host>().is_ok(), good, "{text}");
        }
    }

    #[test]
    fn this_machine_knows_its_own_addresses() {
        for (address, here) in
            [("127.0.0.1", true), ("127.0.0.2", true), ("::1", true), ("0.0.0.0", true), ("203.0.113.7", false)]
        {
            assert_eq!(is_on_this_machine(address.parse().unwrap()), here, "{address}");
        }
    }
}
