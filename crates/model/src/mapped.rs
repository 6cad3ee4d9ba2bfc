//! The bytes of a file of weights, memory-mapped or inside this binary.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

pub(crate) enum FileBytes {
    Static(&'static [u8]),
    Mapped { map: Mmap, file: Arc<File> },
}

/// The position of a tensor in its file, for reading a little of it at a time: a map would also keep the neighbouring pages in memory.
#[derive(Clone, Debug)]
pub struct TensorFile {
    file: Arc<File>,
    begin: u64,
}

impl TensorFile {
    pub fn new(file: Arc<File>, begin: u64) -> Self {
        Self { file, begin }
    }

    /// Fills `bytes` from an offset in the tensor.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, self.begin + offset as u64)
    }
}

impl FileBytes {
    pub(crate) fn map(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        #[allow(unsafe_code, reason = "weights are mapped, not read: a model may be larger than memory")]
        // SAFETY: the map is read-only and private to this process; model files are not written while they are loaded, and
        // no value in them decides an address (offsets are checked against the mapped length).
        let map = unsafe { Mmap::map(&file) }?;
        Ok(Self::Mapped { map, file: Arc::new(file) })
    }

    /// The position in the file of `bytes`, which are a part of it. `None` if the file is inside this binary.
    pub(crate) fn place_of(&self, bytes: &[u8]) -> Option<TensorFile> {
        let Self::Mapped { map, file } = self else { return None };
        let begin = bytes.as_ptr().addr().checked_sub(map.as_ptr().addr())? as u64;
        Some(TensorFile::new(Arc::clone(file), begin))
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Static(bytes) => bytes,
            Self::Mapped { map, .. } => map,
        }
    }
}

impl fmt::Debug for FileBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_of_a_map_is_found_in_its_file() {
        let path = std::env::temp_dir().join(format!("baton-mapped-{}", std::process::id()));
        let bytes: Vec<u8> = (0..10_000_u32).map(|i| ((i * 31) >> 3) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = FileBytes::map(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let tensor = file.place_of(&file[5000..6000]).unwrap();
        let mut read = [0; 900];
        tensor.read(100, &mut read).unwrap();
        assert_eq!(read[..], bytes[5100..6000]);
        assert_eq!(tensor.read(4500, &mut read).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(FileBytes::Static(b"in the binary").place_of(b"").is_none());
    }
}
