//! Spreads work evenly over blocks.

/// When the next portion of some work is due, and how large it is.
pub(super) struct Pace {
    /// Blocks from one portion of work to the next.
    every: usize,
    /// Blocks until the next portion.
    pub(super) until: usize,
    /// The size of a portion.
    each: usize,
}

impl Pace {
    pub(super) const NEVER: Self = Self { every: usize::MAX, until: usize::MAX, each: 0 };

    /// Spreads `work` over `blocks`, about evenly.
    #[inline(always)]
    pub(super) fn within(blocks: usize, work: usize) -> Self {
        if work == 0 || blocks == 0 {
            return Self::NEVER;
        }
        let every = (blocks / work).max(1);
        Self { every, until: every, each: work.div_ceil(blocks / every) }
    }

    /// The work that is due after `blocks`, at most [`until`](Self::until).
    #[inline(always)]
    pub(super) fn advance(&mut self, blocks: usize) -> usize {
        self.until -= blocks;
        if self.until > 0 {
            return 0;
        }
        self.until = self.every;
        self.each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_in_time() {
        for (blocks, work, every) in [(128, 16, 8), (24, 8, 3), (18, 8, 2), (64, 8, 8), (3, 8, 1), (1, 1, 1), (5, 3, 1)]
        {
            let mut pace = Pace::within(blocks, work);
            assert_eq!(pace.every, every, "{work} within {blocks}");
            let done: usize = (0..blocks).map(|_| pace.advance(1)).sum();
            assert!((work..2 * work + every).contains(&done), "{done} of {work} within {blocks}");
        }
        assert_eq!(Pace::within(5, 0).until, usize::MAX);
        let mut never = Pace::NEVER;
        assert_eq!(never.advance(1000), 0);
    }
}
