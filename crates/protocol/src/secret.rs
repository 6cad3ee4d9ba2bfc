//! The deployment's shared secret. It never crosses the wire: each side proves that it knows it.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};

/// What all processes of one deployment share. Handed to children by the environment, to other hosts by a file.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Where children find it.
    pub const ENV: &'static str = "BATON_SECRET";

    /// 32 bytes of the kernel's randomness, as hex.
    pub fn random() -> io::Result<Self> {
        Ok(Self(random_bytes()?.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Of a deployment that trusts everybody who can reach it: sessions prove that they know there is none.
    pub fn none() -> Self {
        Self(String::new())
    }

    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a caller without a session may come in. Takes the same time whatever is different.
    pub fn admits(&self, offered: Option<&[u8]>) -> bool {
        let hash = |text: &[u8]| blake3::Hash::from(blake3::derive_key("baton http 1 deployment secret", text));
        // Hashes compare in constant time.
        self.is_none() || offered.is_some_and(|offered| hash(offered) == hash(self.0.as_bytes()))
    }

    /// For the one place that hands it to a child.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// A key for another use of the secret, which reveals nothing about the secret itself or about keys of other purposes.
    pub fn key_for(&self, purpose: &str) -> [u8; 32] {
        blake3::derive_key(purpose, self.0.as_bytes())
    }

    /// What only a holder of the secret can answer to both nonces. Each side has its own word, so that an answer
    /// cannot be sent back as the other side's.
    pub(crate) fn proof(&self, side: Side, router: &Nonce, engine: &Nonce) -> blake3::Hash {
        let key = blake3::derive_key("baton session 1 deployment secret", self.0.as_bytes());
        blake3::Hasher::new_keyed(&key)
            .update(match side {
                Side::Router => b"router",
                Side::Engine => b"engine",
            })
            .update(&router.0)
            .update(&engine.0)
            .finalize()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Router,
    Engine,
}

/// Makes every proof a fresh one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Nonce([u8; 32]);

impl Nonce {
    pub(crate) fn random() -> io::Result<Self> {
        Ok(Self(random_bytes()?))
    }
}

fn random_bytes() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_fresh_and_never_printed() {
        let [one, other] = [Secret::random().unwrap(), Secret::random().unwrap()];
        assert_eq!(one.reveal().len(), 64);
        assert_ne!(one.reveal(), other.reveal());
        assert_eq!(format!("{one:?}"), "Secret(…)");
    }

    #[test]
    fn callers_say_it_whole() {
        let secret = Secret::new("s3cret");
        let cases: [(Option<&[u8]>, bool); 5] = [
            (Some(b"s3cret"), true),
            (Some(b"s3cre"), false),
            (Some(b"s3crets"), false),
            (Some(b""), false),
            (None, false),
        ];
        for (offered, admitted) in cases {
            assert_eq!(secret.admits(offered), admitted, "{offered:?}");
            assert!(Secret::none().admits(offered));
        }
    }

    #[test]
    fn a_proof_depends_on_everything_it_is_about() {
        let secret = Secret::new("s");
        let [a, b] = [Nonce([1; 32]), Nonce([2; 32])];
        let proof = secret.proof(Side::Router, &a, &b);
        assert_eq!(proof, secret.proof(Side::Router, &a, &b));
        for other in [
            secret.proof(Side::Engine, &a, &b),
            secret.proof(Side::Router, &b, &a),
            Secret::new("t").proof(Side::Router, &a, &b),
        ] {
            assert_ne!(proof, other);
        }
    }
}
