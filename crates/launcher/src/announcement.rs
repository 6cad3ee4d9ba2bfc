//! Announcements that an engine process writes to its standard output, one JSON object per line.

use std::io::{self, Write};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Announcement {
    /// `{"progress": 0.4, "phase": "packing weights"}`
    Progress { progress: f32, phase: String },
    /// `{"listening": "127.0.0.1:41234"}`: sessions are accepted from now on.
    Listening { listening: SocketAddr },
}

impl Announcement {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }

    pub fn write_to(&self, mut out: impl Write) -> io::Result<()> {
        let mut line = serde_json::to_string(self)?;
        line.push('\n');
        out.write_all(line.as_bytes())?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_are_lines_of_json() {
        let cases = [
            (
                r#"{"progress":0.5,"phase":"packing weights"}"#,
                Announcement::Progress { progress: 0.5, phase: "packing weights".into() },
            ),
            (
                r#"{"listening":"127.0.0.1:41234"}"#,
                Announcement::Listening { listening: SocketAddr::from(([127, 0, 0, 1], 41234)) },
            ),
        ];
        for (line, announcement) in cases {
            assert_eq!(Announcement::parse(line), Some(announcement.clone()));
            let mut out = Vec::new();
            announcement.write_to(&mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), format!("{line}\n"));
        }
        for line in ["", "hello", "{}", r#"{"listening":"nowhere"}"#] {
            assert_eq!(Announcement::parse(line), None, "{line}");
        }
    }
}
