//! Memory that another process on this host may read: an anonymous file, mapped. It has no name, so nothing is left behind
//! when a process is killed.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use serde::{Deserialize, Serialize};

pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A mapping; unmapped on drop.
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is plain memory; who may read or write which part of it is decided by the types around it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn of(file: &File, bytes: usize, protection: libc::c_int) -> io::Result<Self> {
        // SAFETY: a fresh shared mapping of a file we hold open; the kernel chooses the address.
        unsafe { Self::map(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd()) }
    }

    /// At a multiple of a huge page.
    fn aligned(file: &File, bytes: usize, protection: libc::c_int) -> io::Result<Self> {
        // SAFETY: fresh addresses without memory behind them, of which the file gets those that it needs: a mapping that
        // replaces another belongs to this call. The rest is given back.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let room = Self::map(std::ptr::null_mut(), bytes + HUGE_PAGE_BYTES, libc::PROT_NONE, flags, -1)?;
            let before = room.base.as_ptr().align_offset(HUGE_PAGE_BYTES);
            let base = room.base.as_ptr().add(before);
            let mapping = Self::map(base, bytes, protection, libc::MAP_SHARED | libc::MAP_FIXED, file.as_raw_fd())?;
            let room = std::mem::ManuallyDrop::new(room);
            if before > 0 {
                libc::munmap(room.base.as_ptr().cast(), before);
            }
            libc::munmap(base.add(bytes).cast(), HUGE_PAGE_BYTES - before);
            Ok(mapping)
        }
    }

    /// # Safety
    /// With a fixed address, nothing uses what was mapped there.
    unsafe fn map(
        at: *mut u8,
        bytes: usize,
        protection: libc::c_int,
        flags: libc::c_int,
        file: libc::c_int,
    ) -> io::Result<Self> {
        // SAFETY: the caller's promise.
        let base = unsafe { libc::mmap(at.cast(), bytes, protection, flags, file, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { base, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is a mapping of ours, and it is unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Memory of this process that other processes on this host can map.
pub struct Region {
    file: File,
    mapping: Mapping,
}

impl Region {
    /// Zeroed, and backed by huge pages where the system grants them. Large ones are whole huge pages.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let large = bytes >= HUGE_PAGE_BYTES;
        let bytes = if large { bytes.next_multiple_of(HUGE_PAGE_BYTES) } else { bytes.max(1) };
        // SAFETY: the name is a C string constant; a returned descriptor is ours alone.
        let file = unsafe {
            let fd = libc::memfd_create(c"baton-kv".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from(OwnedFd::from_raw_fd(fd))
        };
        file.set_len(bytes as u64)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let mapping =
            if large { Mapping::aligned(&file, bytes, protection)? } else { Mapping::of(&file, bytes, protection)? };
        // SAFETY: advice on our own mapping; refusing it is harmless.
        unsafe { libc::madvise(mapping.base.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        Ok(Self { file, mapping })
    }

    pub fn base(&self) -> NonNull<u8> {
        self.mapping.base
    }

    pub fn bytes(&self) -> usize {
        self.mapping.bytes
    }

    /// What another process needs to map this memory.
    pub fn address(&self) -> MemfdAddress {
        MemfdAddress {
            process: std::process::id(),
            descriptor: self.file.as_raw_fd(),
            bytes: self.mapping.bytes as u64,
        }
    }
}

/// Names a [`Region`] of a process on the same host: an anonymous file, by its descriptor there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemfdAddress {
    pub process: u32,
    pub descriptor: i32,
    pub bytes: u64,
}

/// Another process's region, mapped for reading. It may change under our eyes: only copies that were checked count.
pub(crate) struct RemoteRegion {
    mapping: Mapping,
}

impl RemoteRegion {
    /// Fails when the process is gone, on another host, or of another user.
    pub(crate) fn open(address: &MemfdAddress) -> io::Result<Self> {
        let file = File::open(format!("/proc/{}/fd/{}", address.process, address.descriptor))?;
        let bytes = file.metadata()?.len();
        if bytes != address.bytes {
            return Err(io::Error::other(format!("region has {bytes} bytes, {} were announced", address.bytes)));
        }
        Ok(Self { mapping: Mapping::of(&file, bytes as usize, libc::PROT_READ)? })
    }

    /// `None` when the range does not lie inside.
    pub(crate) fn at(&self, offset: usize, bytes: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(bytes)?;
        if end > self.mapping.bytes {
            return None;
        }
        // SAFETY: offset lies inside the mapping.
        Some(unsafe { self.mapping.base.add(offset) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_mapping_sees_the_same_bytes() {
        let region = Region::new(8192).unwrap();
        let remote = RemoteRegion::open(&region.address()).unwrap();
        // SAFETY: both point into live mappings of 8192 bytes.
        unsafe {
            *region.base().as_ptr().add(5000) = 7;
            assert_eq!(*remote.at(5000, 1).unwrap().as_ptr(), 7);
        }
        assert!(remote.at(8000, 193).is_none() && remote.at(usize::MAX, 2).is_none());
    }

    #[test]
    fn a_wrong_address_is_an_error() {
        let region = Region::new(4096).unwrap();
        let mut address = region.address();
        address.bytes = 8192;
        assert!(RemoteRegion::open(&address).is_err());
        address.descriptor = 9999;
        assert!(RemoteRegion::open(&address).is_err());
    }
}
