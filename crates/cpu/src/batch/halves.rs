//! Where prompt rows and generated rows are multiplied differently, a step's batch is cut in two halves, and each goes through all
//! layers by itself.
//!
//! ```text
//!   rows of the step   | prompt | generated |     a prompt computed again, with what was generated
//!                      | prompt |                 a chunk
//!                               | generated |     a decoding sequence
//!                       first     second          tokens see the KV of earlier ones, which the first half has stored
//! ```

use super::{Batch, SegmentRows, Wanted};
use crate::matmul::quant::{QuantMatmul, TokenMatmuls};

/// Buffers are reused from step to step.
#[derive(Default)]
pub(crate) struct BatchHalves {
    prompts: Batch,
    generated: Batch,
}

impl BatchHalves {
    /// The halves in the order in which they run; without a cut, all rows are the second one.
    pub(crate) fn cut<'a>(
        &'a mut self,
        step: &'a Batch,
        products: TokenMatmuls,
    ) -> (Option<(&'a Batch, QuantMatmul)>, (&'a Batch, QuantMatmul)) {
        let of = |generated| products.of(generated);
        let any = |generated| step.rows.iter().any(|row| row.generated == generated);
        match (any(false), any(true)) {
            (true, true) if of(false) != of(true) => {
                self.prompts.take_part(step, false);
                self.generated.take_part(step, true);
                (Some((&self.prompts, of(false))), (&self.generated, of(true)))
            }
            (_, any_generated) => (None, (step, of(any_generated))),
        }
    }
}

impl Batch {
    /// Copies the generated rows of a step, or all others. A segment is cut in two where its prompt ends.
    fn take_part(&mut self, step: &Self, generated: bool) {
        self.rows.clear();
        self.segments.clear();
        self.wanted.clear();
        self.pages.clone_from(&step.pages);
        let mut wanted = step.wanted.iter().peekable();
        for segment in &step.segments {
            let first_row = self.rows.len();
            for row in segment.rows.clone() {
                let is_wanted = wanted.next_if(|wanted| wanted.row == row);
                if step.rows[row].generated == generated {
                    self.wanted.extend(is_wanted.map(|wanted| Wanted { row: self.rows.len(), ..*wanted }));
                    self.rows.push(step.rows[row]);
                }
            }
            if let Some(first) = self.rows.get(first_row) {
                self.segments.push(SegmentRows {
                    rows: first_row..self.rows.len(),
                    first_position: first.position,
                    pages: segment.pages.clone(),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use baton_core::{PageId, TokenId};

    use super::super::Row;
    use super::*;
    use baton_backend::SlotId;

    /// A batch of (first position, tokens, prompt length) per segment; all rows are wanted.
    fn step(segments: &[(usize, usize, usize)]) -> Batch {
        let mut batch = Batch::default();
        for &(first, tokens, prompt) in segments {
            let first_row = batch.rows.len();
            for position in first..first + tokens {
                let (number, row) = (batch.wanted.len(), batch.rows.len());
                let page = PageId(position as u32 / 32);
                batch.rows.push(Row { token: TokenId(7), position, page, generated: position >= prompt });
                batch.wanted.push(Wanted {
                    number,
                    row,
                    slot: SlotId(0),
                    position,
                    sample: true,
                    prompt_logprobs: None,
                });
            }
            let rows = first_row..batch.rows.len();
            batch.segments.push(SegmentRows { rows, first_position: first, pages: 0..1 });
        }
        batch
    }

    type Part = (Vec<(usize, usize, usize)>, Vec<usize>);

    /// First row, first position and rows of each segment; numbers of wanted rows.
    fn part(batch: &Batch) -> Part {
        assert!(batch.wanted.iter().enumerate().all(|(row, wanted)| wanted.row == row));
        let segments = batch.segments.iter().map(|s| (s.rows.start, s.first_position, s.rows.len()));
        (segments.collect(), batch.wanted.iter().map(|wanted| wanted.number).collect())
    }

    #[test]
    fn prompts_come_first() {
        let mixed = step(&[(9, 1, 9), (30, 5, 33), (0, 2, 4), (4, 1, 4)]);
        let mut halves = BatchHalves::default();
        let (first, last) = halves.cut(&mixed, TokenMatmuls::Both);
        let (prompts, products) = first.unwrap();
        assert_eq!((part(prompts), products), ((vec![(0, 30, 3), (3, 0, 2)], vec![1, 2, 3, 6, 7]), QuantMatmul::Float));
        let generated = (vec![(0, 9, 1), (1, 33, 2), (3, 4, 1)], vec![0, 4, 5, 8]);
        assert_eq!((part(last.0), last.1), (generated, QuantMatmul::Integer));
    }

    #[test]
    fn batches_of_one_kind_are_not_cut() {
        let (prompts, generated) = (step(&[(0, 3, 3), (2, 1, 5)]), step(&[(3, 1, 3)]));
        let mixed = step(&[(0, 3, 3), (3, 1, 3)]);
        for (batch, products, expected) in [
            (&prompts, TokenMatmuls::Both, QuantMatmul::Float),
            (&generated, TokenMatmuls::Both, QuantMatmul::Integer),
            (&mixed, TokenMatmuls::Float, QuantMatmul::Float),
            (&mixed, TokenMatmuls::Integer, QuantMatmul::Integer),
        ] {
            let mut halves = BatchHalves::default();
            let (first, (last, got)) = halves.cut(batch, products);
            assert!(first.is_none() && std::ptr::eq(last, batch) && got == expected, "{products:?}");
        }
    }
}
