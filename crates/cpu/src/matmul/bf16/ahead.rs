//! What comes next is prefetched while blocks are multiplied.

use crate::simd::prefetch::Pages;

/// Weights that the next pass meets, or is expanded from, in one run of memory or two.
pub(super) struct Ahead {
    pub(super) pages: Pages,
    /// Blocks until all has been prefetched.
    left: usize,
    /// … until a run's last page is, which is followed by the next run.
    before_turn: usize,
    run: usize,
    turns: [*const u8; 2],
}

impl Ahead {
    pub(super) fn nothing() -> Self {
        Self { pages: Pages::NONE, left: 0, before_turn: 0, run: 0, turns: [std::ptr::null(); 2] }
    }

    /// Prefetches `bytes` bytes from `first` on and, if there is a second place, from there on. The next one begins at `then`.
    pub(super) fn new(first: *const u8, second: Option<*const u8>, bytes: usize, then: *const u8) -> Self {
        let pages = bytes.div_ceil(Pages::BYTES).max(1);
        let run = pages * Pages::BLOCKS;
        let (runs, turns) = match second {
            Some(second) => (2, [second, then]),
            None => (1, [then; 2]),
        };
        let mut ahead = Self {
            pages: Pages::new(first, first.wrapping_add(Pages::BYTES)),
            left: runs * run,
            before_turn: run - Pages::BLOCKS,
            run,
            turns,
        };
        ahead.go_on(0, ahead.pages);
        ahead
    }

    /// Blocks until all has been prefetched.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Blocks that can follow each other without [`Self::go_on`].
    #[inline(always)]
    pub(super) fn blocks(&self) -> usize {
        if self.left == 0 { usize::MAX } else { self.left.min(self.before_turn) }
    }

    /// Called after `blocks` blocks, which have prefetched up to `reached`.
    #[inline(always)]
    pub(super) fn go_on(&mut self, blocks: usize, reached: Pages) {
        if self.left == 0 {
            return;
        }
        self.pages = reached;
        self.left -= blocks;
        self.before_turn -= blocks;
        if self.left == 0 {
            self.pages = Pages::NONE;
        } else if self.before_turn == 0 {
            [self.pages.first, self.turns[0]] = self.turns;
            self.before_turn = self.run;
        }
    }
}

#[cfg(test)]
impl Ahead {
    /// The cache lines that `blocks` blocks prefetch, some at a time.
    pub(super) fn lines(mut self, blocks: usize, at_a_time: usize) -> Vec<usize> {
        let (mut lines, mut done) = (Vec::new(), 0);
        while self.left > 0 && done < blocks {
            let some = self.blocks().min(at_a_time).min(blocks - done);
            let mut prefetch = crate::simd::prefetch::Prefetch { far: self.pages, near: std::ptr::null() };
            for _ in 0..some {
                lines.extend(prefetch.lines());
                prefetch.step();
            }
            self.go_on(some, prefetch.far);
            done += some;
        }
        if self.left == 0 {
            // Whatever becomes of nothing is still nothing.
            self.go_on(3, Pages::new(std::ptr::dangling(), std::ptr::dangling()));
            assert_eq!((self.pages, self.blocks()), (Pages::NONE, usize::MAX));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_LINES: usize = Pages::BYTES / 64;
    const FIRST_LINES: usize = Pages::BLOCKS * Pages::FIRST_BYTES / 64;

    /// All of them.
    fn prefetched(ahead: Ahead, at_a_time: usize) -> Vec<usize> {
        ahead.lines(usize::MAX, at_a_time)
    }

    #[test]
    fn every_line_is_prefetched_once() {
        let place = |page: usize| std::ptr::without_provenance::<u8>(page * Pages::BYTES);
        // Pages of 100 to 103, 200 to 203 and 300; and so on.
        for (second, pages, then) in [(Some(200), 4, 300), (None, 9, 109), (Some(150), 1, 120), (None, 1, 7)] {
            for at_a_time in [1, 3, 16, 100] {
                let ahead = Ahead::new(place(100), second.map(place), pages * Pages::BYTES, place(then));
                let mut lines = prefetched(ahead, at_a_time);
                // The first quarter of the first page was prefetched before, that of what comes next is now.
                let whole = [Some(100), second].into_iter().flatten().flat_map(|page| page..page + pages);
                let whole = whole.flat_map(|page| page * PAGE_LINES..(page + 1) * PAGE_LINES);
                let next = then * PAGE_LINES..then * PAGE_LINES + FIRST_LINES;
                let mut expected: Vec<usize> = whole.skip(FIRST_LINES).chain(next).collect();
                lines.sort_unstable();
                expected.sort_unstable();
                assert_eq!(lines, expected, "{pages} pages, {at_a_time} blocks at a time");
            }
        }
        assert!(prefetched(Ahead::nothing(), 1).is_empty());
    }

    #[test]
    fn a_last_part_of_a_page_is_prefetched_as_well() {
        let ahead = Ahead::new(std::ptr::null(), None, Pages::BYTES + 1, std::ptr::null());
        assert_eq!(prefetched(ahead, 16).len(), 2 * PAGE_LINES);
    }
}
