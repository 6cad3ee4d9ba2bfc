//! Prefetches the weights of the next pass while blocks of this one are multiplied.

use crate::simd::prefetch::Pages;

/// Weights of the next pass, which lie in one run of memory or two.
pub(super) struct NextWeights {
    pub(super) pages: Pages,
    /// Blocks until all has been prefetched.
    left: usize,
    /// Blocks until the current run's last page has been prefetched, which the next run follows.
    before_switch: usize,
    run: usize,
    next_runs: [*const u8; 2],
}

impl NextWeights {
    pub(super) fn nothing() -> Self {
        Self { pages: Pages::NONE, left: 0, before_switch: 0, run: 0, next_runs: [std::ptr::null(); 2] }
    }

    /// `bytes` from `first` on and, if there is a second run, from there on. What follows them begins at `then`.
    pub(super) fn new(first: *const u8, second: Option<*const u8>, bytes: usize, then: *const u8) -> Self {
        let pages = bytes.div_ceil(Pages::BYTES).max(1);
        let run = pages * Pages::BLOCKS;
        let (runs, next_runs) = match second {
            Some(second) => (2, [second, then]),
            None => (1, [then; 2]),
        };
        let mut next = Self {
            pages: Pages::new(first, first.wrapping_add(Pages::BYTES)),
            left: runs * run,
            before_switch: run - Pages::BLOCKS,
            run,
            next_runs,
        };
        next.advance(0, next.pages);
        next
    }

    /// Blocks until all has been prefetched.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Blocks that may be multiplied before the next [`advance`](Self::advance).
    #[inline(always)]
    pub(super) fn blocks(&self) -> usize {
        if self.left == 0 { usize::MAX } else { self.left.min(self.before_switch) }
    }

    /// Accounts for blocks that were multiplied and have prefetched up to `reached`.
    #[inline(always)]
    pub(super) fn advance(&mut self, blocks: usize, reached: Pages) {
        if self.left == 0 {
            return;
        }
        self.pages = reached;
        self.left -= blocks;
        self.before_switch -= blocks;
        if self.left == 0 {
            self.pages = Pages::NONE;
        } else if self.before_switch == 0 {
            [self.pages.first, self.next_runs[0]] = self.next_runs;
            self.before_switch = self.run;
        }
    }
}

#[cfg(test)]
impl NextWeights {
    /// The lines that some blocks prefetch, at most `at_a_time` of them in a row.
    pub(super) fn lines(mut self, blocks: usize, at_a_time: usize) -> Vec<usize> {
        let (mut lines, mut done) = (Vec::new(), 0);
        while self.left > 0 && done < blocks {
            let some = self.blocks().min(at_a_time).min(blocks - done);
            let mut prefetch = crate::simd::prefetch::Prefetch { far: self.pages, near: std::ptr::null() };
            for _ in 0..some {
                lines.extend(prefetch.lines());
                prefetch.step();
            }
            self.advance(some, prefetch.far);
            done += some;
        }
        if self.left == 0 {
            // Advancing past the end changes nothing.
            self.advance(3, Pages::new(std::ptr::dangling(), std::ptr::dangling()));
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

    /// All lines.
    fn prefetched(next: NextWeights, at_a_time: usize) -> Vec<usize> {
        next.lines(usize::MAX, at_a_time)
    }

    #[test]
    fn every_line_is_prefetched_once() {
        let place = |page: usize| std::ptr::without_provenance::<u8>(page * Pages::BYTES);
        // Pages of 100 to 103, 200 to 203 and 300; and so on.
        for (second, pages, then) in [(Some(200), 4, 300), (None, 9, 109), (Some(150), 1, 120), (None, 1, 7)] {
            for at_a_time in [1, 3, 16, 100] {
                let next = NextWeights::new(place(100), second.map(place), pages * Pages::BYTES, place(then));
                let mut lines = prefetched(next, at_a_time);
                // The first quarter of the first page was prefetched before, that of what comes next is now.
                let whole = [Some(100), second].into_iter().flatten().flat_map(|page| page..page + pages);
                let whole = whole.flat_map(|page| page * PAGE_LINES..(page + 1) * PAGE_LINES);
                let begun = then * PAGE_LINES..then * PAGE_LINES + FIRST_LINES;
                let mut expected: Vec<usize> = whole.skip(FIRST_LINES).chain(begun).collect();
                lines.sort_unstable();
                expected.sort_unstable();
                assert_eq!(lines, expected, "{pages} pages, {at_a_time} blocks at a time");
            }
        }
        assert!(prefetched(NextWeights::nothing(), 1).is_empty());
    }

    #[test]
    fn a_last_part_of_a_page_is_prefetched_as_well() {
        let next = NextWeights::new(std::ptr::null(), None, Pages::BYTES + 1, std::ptr::null());
        assert_eq!(prefetched(next, 16).len(), 2 * PAGE_LINES);
    }
}
