//! The secret that a deployment shares, from a file or the environment. Without either, the caller makes a fresh one.

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use baton_launcher::Endpoint;
use baton_protocol::Secret;
use clap::Args;
use serde::Deserialize;

use crate::failure::Failure;
use crate::header_value::{check_header_value, header_value_from_env};

/// Longer files are no secrets.
const MAX_FILE_BYTES: u64 = 4 << 10;

/// What engines and routers share.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[command(next_help_heading = "Secret of the engines")]
pub(crate) struct SecretOptions {
    /// Read the secret that engines and routers share from this file [default: BATON_SECRET, else a fresh one]
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,

    /// Let everybody on this machine use the engines without a secret; only for engines on a loopback address
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) no_engine_auth: Option<bool>,
}

impl SecretOptions {
    /// Takes options that are not set here from `other`. Either option replaces both of the other source.
    pub(crate) fn or(self, other: Self) -> Self {
        if self.secret_file.is_some() || self.no_engine_auth.is_some() { self } else { other }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.no_engine_auth == Some(true)
    }

    /// `engines` are the addresses where they listen. `None` when no secret was given.
    pub(crate) fn given(&self, engines: impl IntoIterator<Item = IpAddr>) -> Result<Option<Secret>, Failure> {
        if self.is_off() {
            return self.none(engines).map(Some);
        }
        if let Some(path) = &self.secret_file {
            return read(path).map(Some).map_err(|failure| failure.within(path));
        }
        Ok(header_value_from_env("secret", Secret::ENV)?.map(Secret::new))
    }

    fn none(&self, engines: impl IntoIterator<Item = IpAddr>) -> Result<Secret, Failure> {
        if self.secret_file.is_some() {
            return Err(Failure::user("--secret-file and --no-engine-auth cannot both be set"));
        }
        match engines.into_iter().find(|host| !host.is_loopback()) {
            Some(host) => {
                let message = format!("--no-engine-auth is only for engines on a loopback address, not on {host}");
                Err(Failure::user(message).hint("give engines and routers the same --secret-file"))
            }
            None => Ok(Secret::none()),
        }
    }
}

/// The error for engines that run already, when no secret was given.
pub(crate) fn needs_secret(engines: impl IntoIterator<Item = Endpoint>) -> Failure {
    let engines: Vec<_> = engines.into_iter().map(|engine| engine.to_string()).collect();
    let failure = Failure::user(format!("no secret for the engines at {}, which run already", engines.join(", ")));
    failure.hint("give the one they were started with: --secret-file or BATON_SECRET")
}

fn read(path: &Path) -> Result<Secret, Failure> {
    let mut text = String::new();
    let file = File::open(path).map_err(Failure::user)?;
    let bytes = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(Failure::user)?;
    if bytes as u64 > MAX_FILE_BYTES {
        return Err(Failure::user(format!("longer than {MAX_FILE_BYTES} bytes: not a secret")));
    }
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let secret = line.strip_suffix('\r').unwrap_or(line);
    check_header_value("secret", secret)?;
    Ok(Secret::new(secret.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(secret_file: Option<&str>, no_engine_auth: Option<bool>) -> SecretOptions {
        SecretOptions { secret_file: secret_file.map(PathBuf::from), no_engine_auth }
    }

    #[test]
    fn a_file_holds_one_line() {
        let directory = std::env::temp_dir().join(format!("baton-secret-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("secret");
        let cases = [
            ("s3cret", Ok("s3cret")),
            ("s3cret\n", Ok("s3cret")),
            ("s3cret\r\n", Ok("s3cret")),
            ("", Err("the secret is empty")),
            ("\n", Err("the secret is empty")),
            ("two\nlines", Err("one line of visible ASCII")),
            ("a space", Err("one line of visible ASCII")),
            ("gehütet", Err("one line of visible ASCII")),
        ];
        for (content, expected) in cases {
            std::fs::write(&path, content).unwrap();
            let found = options(path.to_str(), None).given([]);
            match expected {
                Ok(secret) => assert_eq!(found.unwrap().unwrap().reveal(), secret, "{content:?}"),
                Err(part) => {
                    let message = found.unwrap_err().to_string();
                    assert!(message.contains(part) && message.contains("secret:"), "{content:?}: {message}");
                }
            }
        }
        std::fs::write(&path, "x".repeat(5000)).unwrap();
        assert!(options(path.to_str(), None).given([]).unwrap_err().to_string().contains("4096"));
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(options(path.to_str(), None).given([]).unwrap_err().to_string().contains("No such file"));
    }

    #[test]
    fn no_secret_is_for_loopback_only() {
        let (near, far) = (IpAddr::from([127, 0, 0, 2]), IpAddr::from([10, 0, 0, 1]));
        assert!(options(None, Some(true)).given([near]).unwrap().unwrap().is_none());
        let refused = options(None, Some(true)).given([near, far]).unwrap_err().to_string();
        assert!(refused.contains("not on 10.0.0.1"), "{refused}");
        let both = options(Some("f"), Some(true)).given([near]).unwrap_err().to_string();
        assert!(both.contains("cannot both"), "{both}");
    }

    #[test]
    fn either_option_replaces_both_of_the_file() {
        let file = || options(Some("f"), None);
        assert!(options(None, Some(true)).or(file()).secret_file.is_none());
        assert!(!options(Some("g"), None).or(options(None, Some(true))).is_off());
        assert_eq!(options(None, None).or(file()).secret_file, file().secret_file);
    }
}
