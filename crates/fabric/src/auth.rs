//! Who may use a KV port: both ends prove that they hold the deployment's secret, and neither sends it.

use std::fs::File;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};

/// Derived from the deployment's secret. Never printed, never sent.
#[derive(Clone)]
pub struct PortKey([u8; 32]);

#[derive(Clone, Copy)]
pub(crate) enum End {
    Sender,
    Receiver,
}

/// Makes every proof a fresh one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Nonce([u8; 32]);

impl Nonce {
    pub(crate) fn random() -> io::Result<Self> {
        random().map(Self)
    }
}

/// What only a holder of the key can answer to both nonces. The ends' proofs differ, so one cannot be sent back as the other.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Proof([u8; 32]);

impl PortKey {
    pub fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    pub(crate) fn prove(&self, end: End, receiver: &Nonce, sender: &Nonce) -> Proof {
        Proof(self.hash(end, receiver, sender).into())
    }

    pub(crate) fn accepts(&self, proof: &Proof, end: End, receiver: &Nonce, sender: &Nonce) -> bool {
        // Hashes compare in constant time.
        self.hash(end, receiver, sender) == blake3::Hash::from(proof.0)
    }

    fn hash(&self, end: End, receiver: &Nonce, sender: &Nonce) -> blake3::Hash {
        let end: &[u8] = match end {
            End::Sender => b"sender",
            End::Receiver => b"receiver",
        };
        blake3::Hasher::new_keyed(&self.0).update(end).update(&receiver.0).update(&sender.0).finalize()
    }
}

pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_depends_on_everything_it_is_about() {
        let (key, [a, b]) = (PortKey::new([7; 32]), [Nonce([1; 32]), Nonce([2; 32])]);
        let proof = key.prove(End::Sender, &a, &b);
        assert!(key.accepts(&proof, End::Sender, &a, &b));
        assert!(!key.accepts(&proof, End::Receiver, &a, &b));
        assert!(!key.accepts(&proof, End::Sender, &b, &a));
        assert!(!PortKey::new([8; 32]).accepts(&proof, End::Sender, &a, &b));
    }
}
