//! Memory for many matrices whose size is known one by one.

use std::sync::Arc;

use crate::memory::region::Region;
use baton_backend::BackendError;

/// Filled front to back.
#[derive(Default)]
pub(crate) struct Chunks {
    chunk: Option<Arc<Region>>,
    used: usize,
}

impl Chunks {
    /// Only what is written takes memory.
    const BYTES: usize = 256 << 20;
    const LINE: usize = 64;

    /// Zeroed bytes, and where they begin.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(Arc<Region>, usize), BackendError> {
        let chunk = match &self.chunk {
            Some(chunk) if self.used + bytes <= chunk.bytes() => Arc::clone(chunk),
            _ => {
                self.used = 0;
                Arc::new(Region::new(bytes.max(Self::BYTES))?)
            }
        };
        self.chunk = Some(Arc::clone(&chunk));
        let offset = self.used;
        self.used += bytes.next_multiple_of(Self::LINE);
        Ok((chunk, offset))
    }
}
