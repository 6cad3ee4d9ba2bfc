//! Work that is done a little at a time.

/// When something is done, and how much of it.
pub(super) struct Turns {
    /// Blocks from one turn to the next, and until the next one.
    every: usize,
    pub(super) until: usize,
    each: usize,
}

impl Turns {
    pub(super) const NEVER: Self = Self { every: usize::MAX, until: usize::MAX, each: 0 };

    /// Spreads `work` about evenly over `blocks` blocks.
    #[inline(always)]
    pub(super) fn within(blocks: usize, work: usize) -> Self {
        if work == 0 || blocks == 0 {
            return Self::NEVER;
        }
        let every = (blocks / work).max(1);
        Self { every, until: every, each: work.div_ceil(blocks / every) }
    }

    /// The work that is due after `blocks` more blocks, which must not pass the next turn.
    #[inline(always)]
    pub(super) fn go_on(&mut self, blocks: usize) -> usize {
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
            let mut turns = Turns::within(blocks, work);
            assert_eq!(turns.every, every, "{work} within {blocks}");
            let done: usize = (0..blocks).map(|_| turns.go_on(1)).sum();
            assert!((work..2 * work + every).contains(&done), "{done} of {work} within {blocks}");
        }
        assert_eq!(Turns::within(5, 0).until, usize::MAX);
        let mut never = Turns::NEVER;
        assert_eq!(never.go_on(1000), 0);
    }
}
