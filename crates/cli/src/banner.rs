//! The text that is printed when everything is ready.

use std::fmt;
use std::net::SocketAddr;

use baton_core::PAGE_TOKENS;
use baton_launcher::Endpoint;
use baton_router::EngineStatus;

use crate::api_key;

pub(crate) struct Banner {
    pub(crate) model: String,
    pub(crate) address: SocketAddr,
    /// Engines, with the endpoint of each that was given one.
    pub(crate) engines: Vec<(EngineStatus, Option<Endpoint>)>,
    pub(crate) router: String,
    pub(crate) chats: bool,
    pub(crate) asks_for_key: bool,
}

impl fmt::Display for Banner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url();
        writeln!(f, "\nServing {} at {url}\n", self.model)?;
        for (engine, place) in &self.engines {
            write!(f, "  {}", engine.name)?;
            if let Some(place) = place {
                write!(f, "  http://{place}")?;
            }
            if let Some(info) = &engine.info {
                let threads = if info.threads == 1 { "thread" } else { "threads" };
                let tokens = info.pages_total as usize * PAGE_TOKENS;
                let cache = if info.prefix_cache { ", prefix cache" } else { "" };
                write!(f, "  {} {threads}, KV for {tokens} tokens{cache}", info.threads)?;
            }
            writeln!(f)?;
        }
        if self.engines.len() > 1 {
            writeln!(f, "  routed {}", self.router)?;
        }
        let (route, body) = if self.chats {
            ("chat/completions", r#"{"messages": [{"role": "user", "content": "Tell me a story about a brave cat."}]}"#)
        } else {
            ("completions", r#"{"prompt": "Once upon a time", "max_tokens": 64}"#)
        };
        let key = match self.asks_for_key {
            true => format!(" -H \"authorization: Bearer ${}\"", api_key::ENV),
            false => String::new(),
        };
        writeln!(f, "\nTry it:\n  curl {url}/v1/{route}{key} -H 'content-type: application/json' \\\n    -d '{body}'\n")
    }
}

impl Banner {
    /// A URL that this machine can open, also where the gateway listens on all addresses.
    fn url(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => [127, 0, 0, 1].into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        format!("http://{address}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_can_be_opened() {
        for (listens, url) in [
            ("127.0.0.1:8000", "http://127.0.0.1:8000"),
            ("0.0.0.0:80", "http://127.0.0.1:80"),
            ("[::]:80", "http://[::1]:80"),
        ] {
            let banner = Banner {
                model: "m".into(),
                address: listens.parse().unwrap(),
                engines: vec![],
                router: "r".to_owned(),
                chats: true,
                asks_for_key: false,
            };
            assert_eq!(banner.url(), url);
        }
    }
}
