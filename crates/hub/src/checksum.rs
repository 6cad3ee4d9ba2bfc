//! Checks downloaded bytes against the hub's etag, which is a hash: SHA-256 of large files, git's SHA-1 of others.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

pub(crate) struct EtagHash {
    context: Context,
    expected: String,
}

impl EtagHash {
    /// `None` for an etag that is not a hash; then only the length can be checked.
    pub(crate) fn new(etag: &str, len: u64) -> Option<Self> {
        if !etag.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut context = match etag.len() {
            64 => Context::new(&SHA256),
            40 => Context::new(&SHA1_FOR_LEGACY_USE_ONLY),
            _ => return None,
        };
        if etag.len() == 40 {
            context.update(format!("blob {len}\0").as_bytes());
        }
        Some(Self { context, expected: etag.to_ascii_lowercase() })
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
    }

    /// The hash of the bytes, if it is not the expected one.
    pub(crate) fn mismatch(self) -> Option<String> {
        let found = self.context.finish();
        let found: String = found.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        (found != self.expected).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_etag() {
        let matches = |etag: &str, bytes: &[u8]| {
            let mut checksum = EtagHash::new(etag, bytes.len() as u64).unwrap();
            checksum.update(bytes);
            checksum.mismatch().is_none()
        };
        let sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        assert!(matches(sha256, b"hello") && !matches(sha256, b"hullo"));
        // The output of `printf hello | git hash-object --stdin`.
        let git = "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0";
        assert!(matches(git, b"hello") && !matches(git, b"hello\n"));
        assert!(EtagHash::new("5f2e-17", 1).is_none());
    }
}
