//! Mapped memory for weights and step buffers, zeroed by the system when first touched.

use std::marker::PhantomData;
use std::ptr::NonNull;

use half::bf16;

use baton_backend::BackendError;

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Smaller regions would waste most of a huge page.
const LEAST_HUGE_BYTES: usize = HUGE_PAGE_BYTES / 8;

/// Private anonymous memory, 64-byte aligned at least; on huge pages where it is big enough for them.
pub(crate) struct Region {
    mapping: NonNull<u8>,
    mapping_bytes: usize,
    first: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain memory without an owner among threads, as with any allocation.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    pub(crate) fn new(bytes: usize) -> Result<Self, BackendError> {
        let huge = bytes >= LEAST_HUGE_BYTES;
        let used_bytes = if huge { bytes.next_multiple_of(HUGE_PAGE_BYTES) } else { bytes.max(1) };
        let mapping_bytes = used_bytes + if huge { HUGE_PAGE_BYTES } else { 0 };
        // SAFETY: a fresh anonymous mapping touches no other memory.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapping_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let mapping = match NonNull::new(mapping.cast::<u8>()) {
            Some(mapping) if mapping.as_ptr().cast() != libc::MAP_FAILED => mapping,
            _ => {
                let error = std::io::Error::last_os_error();
                return Err(BackendError::Device(format!("cannot map {bytes} bytes of memory: {error}")));
            }
        };
        let mut first = mapping;
        if huge {
            let skip = mapping.as_ptr().align_offset(HUGE_PAGE_BYTES);
            // SAFETY: `skip` is below the huge page that was added to the mapping. The advice may fail: then pages are small.
            unsafe {
                first = mapping.add(skip);
                libc::madvise(first.as_ptr().cast(), used_bytes, libc::MADV_HUGEPAGE);
            }
        }
        Ok(Self { mapping, mapping_bytes, first, bytes })
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.first.as_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; no pointer outlives the region's owner.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapping_bytes) };
    }
}

/// Plain number types.
///
/// # Safety
/// Any bit pattern is a value.
pub(crate) unsafe trait Number: Copy + Send + Sync + 'static {}

// SAFETY: any bit pattern is a float.
unsafe impl Number for f32 {}
// SAFETY: any bit pattern is a float.
unsafe impl Number for bf16 {}

/// Numbers in a region of their own, initially zero.
pub(crate) struct Buffer<T> {
    region: Region,
    numbers: PhantomData<T>,
}

pub(crate) type Floats = Buffer<f32>;

impl<T: Number> Buffer<T> {
    pub(crate) fn new(len: usize) -> Result<Self, BackendError> {
        Ok(Self { region: Region::new(len * size_of::<T>())?, numbers: PhantomData })
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: the region holds this many, and any bit pattern is a number.
        unsafe { std::slice::from_raw_parts(self.region.as_ptr().cast(), self.region.bytes() / size_of::<T>()) }
    }

    /// Pointers from earlier calls stay valid.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut T {
        self.region.as_ptr().cast()
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above, and exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.region.as_ptr().cast(), self.region.bytes() / size_of::<T>()) }
    }
}
