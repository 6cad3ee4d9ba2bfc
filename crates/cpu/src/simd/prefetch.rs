//! Hints of tile matmuls to the caches: which operands are streamed, and what each block of k prefetches.

#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "tiles prefetch it"))]

/// An operand that is read once while the other is used again and again: it should not drive that one out of the first-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Streamed {
    Neither,
    Left,
    Right,
    Both,
}

/// Moves on from block to block.
#[derive(Clone, Copy)]
pub(crate) struct Prefetch {
    /// For the second-level cache.
    pub(crate) far: Pages,
    /// For the first-level cache: [`Self::NEAR_LINES`] with each block. Null if nothing is prefetched.
    pub(crate) near: *const f32,
}

const LINE_BYTES: usize = 64;

impl Prefetch {
    pub(crate) const NEAR_LINES: usize = 4;
    pub(crate) const NEAR_BYTES: usize = Self::NEAR_LINES * LINE_BYTES;
}

/// A page of memory and the next one.
///
/// The machine itself fetches what is ahead in a page once it has seen a dozen of the page's lines go by one after the other. What
/// is prefetched before that is on its way for all of the time that memory takes, in one of the few places that lines of rows need,
/// too. So there are never many such lines: the first quarter of a page is prefetched while the rest of the page before is, which
/// the machine has by then.
///
/// ```text
///   block              0           1           2 …         15
///   lines of a page    16 17 18    19 20 21    22 23 24 …  61 62 63
///   … of the next      0           1           2 …         15
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    /// The line of the next page; null if nothing is prefetched.
    pub(crate) first: *const u8,
    /// The lines of this page.
    pub(crate) rest: *const u8,
    /// Until this page's end. Then the next one takes its place, and is followed by what lies behind it.
    pub(crate) blocks: usize,
}

impl Pages {
    pub(crate) const NONE: Self = Self { first: std::ptr::null(), rest: std::ptr::null(), blocks: Self::BLOCKS };
    pub(crate) const BYTES: usize = 4096;
    pub(crate) const BLOCKS: usize = 16;
    /// With each block.
    pub(crate) const FIRST_BYTES: usize = LINE_BYTES;
    pub(crate) const REST_BYTES: usize = Self::BYTES / Self::BLOCKS - Self::FIRST_BYTES;

    /// The first quarter of this page has been prefetched.
    pub(crate) fn new(page: *const u8, next: *const u8) -> Self {
        Self { first: next, rest: page.wrapping_add(Self::BLOCKS * Self::FIRST_BYTES), blocks: Self::BLOCKS }
    }
}

/// What tiles do, for tests.
#[cfg(test)]
impl Prefetch {
    pub(crate) fn step(&mut self) {
        self.near = self.near.wrapping_byte_add(Self::NEAR_BYTES);
        let Pages { first, rest, blocks } = &mut self.far;
        *first = first.wrapping_add(Pages::FIRST_BYTES);
        *rest = rest.wrapping_add(Pages::REST_BYTES);
        *blocks -= 1;
        if *blocks == 0 {
            let page = first.wrapping_sub(Pages::BLOCKS * Pages::FIRST_BYTES);
            self.far = Pages::new(page, page.wrapping_add(Pages::BYTES));
        }
    }

    /// The far lines of one block.
    pub(crate) fn lines(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, rest) = (self.far.first.addr() / LINE_BYTES, self.far.rest.addr() / LINE_BYTES);
        std::iter::once(first).chain(rest..rest + Pages::REST_BYTES / LINE_BYTES)
    }
}
