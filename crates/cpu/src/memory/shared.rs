//! Slices of which the members of a team write disjoint parts.

use std::marker::PhantomData;
use std::ops::Range;

/// A `&mut [T]` that members of a team share. The phase decides who writes what: each item owns its rows or columns, and a phase
/// begins when the one before has ended.
pub(crate) struct Shared<'a, T> {
    first: *mut T,
    len: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: it is a `&mut [T]` whose parts go to different threads; every access states its disjointness.
unsafe impl<T: Send> Sync for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Shared<'_, T> {}

impl<T> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { first: slice.as_mut_ptr(), len: slice.len(), owner: PhantomData }
    }

    /// # Safety
    /// No other thread uses an element of `range` while the result lives.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "that is what it is for; disjointness is the caller's promise")]
    pub(crate) unsafe fn slice_mut(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: inside the slice; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(range.start), range.len()) }
    }

    /// # Safety
    /// No thread writes an element of `range` while the result lives.
    #[inline]
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &'a [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: inside the slice; no writer by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.first.add(range.start), range.len()) }
    }

    /// # Safety
    /// No other thread uses element `index` while the result lives.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "that is what it is for; disjointness is the caller's promise")]
    pub(crate) unsafe fn get_mut(&self, index: usize) -> &mut T {
        // SAFETY: passed on.
        unsafe { &mut self.slice_mut(index..index + 1)[0] }
    }

    /// For kernels that address rows and columns by pointer.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.first
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}
