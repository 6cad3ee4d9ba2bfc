//! The bytes of a file of weights: mapped, or inside this binary.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::{Mmap, UncheckedAdvice};

pub(crate) enum FileBytes {
    Static(&'static [u8]),
    Mapped(Mmap),
}

impl FileBytes {
    pub(crate) fn map(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        #[allow(unsafe_code, reason = "weights are mapped, not read: a model may be larger than memory")]
        // SAFETY: the map is read-only and private to this process; model files are not written while they are served, and
        // no value in them decides an address (offsets are checked against the mapped length).
        let mapped = unsafe { Mmap::map(&file) }?;
        Ok(Self::Mapped(mapped))
    }

    /// Takes pages that were read out of this process's memory; the next read gets them from the file again.
    pub(crate) fn release(&self) {
        let Self::Mapped(mapped) = self else { return };
        #[allow(unsafe_code, reason = "one system call")]
        // SAFETY: nobody can have written to a read-only map of a file, so no change is lost.
        let advised = unsafe { mapped.unchecked_advise(UncheckedAdvice::DontNeed) };
        // Advice that is not taken costs memory and nothing else.
        let _ = advised;
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Static(bytes) => bytes,
            Self::Mapped(bytes) => bytes,
        }
    }
}

impl fmt::Debug for FileBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}
