//! Generations that show whether offered pages still hold what was offered, as in `crates/fabric`.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    slot: usize,
    generation: u64,
}

#[derive(Default)]
pub(super) struct Fences {
    generations: Vec<u64>,
    free: Vec<usize>,
}

impl Fences {
    pub(super) fn open(&mut self) -> Mark {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.generations.push(0);
            self.generations.len() - 1
        });
        Mark { slot, generation: self.generations[slot] }
    }

    pub(super) fn close(&mut self, mark: Mark) {
        self.generations[mark.slot] += 1;
        self.free.push(mark.slot);
    }

    pub(super) fn holds(&self, mark: Mark) -> bool {
        self.generations[mark.slot] == mark.generation
    }
}
