//! Masks of the tokens that a choice may get next. They are made outside of the step loop, which only hands their cells to
//! steps and reports to the maker what was sampled.

use baton_backend::MaskCell;
use baton_core::{Choice, GenerateRequest, TokenId};

/// Decides which requests get masks. Called once for each choice, with the outputs it has already.
pub trait MaskMaker: Send {
    /// `None`: every token may be sampled.
    fn masks_of(
        &mut self,
        request: &GenerateRequest,
        choice: Choice,
        outputs: &[TokenId],
    ) -> Option<Box<dyn MaskSource>>;
}

/// The masks of one choice. Called by the step loop: neither call may wait, masks are made on another thread. Dropped when
/// nothing more is wanted of the choice.
pub trait MaskSource: Send {
    /// Where the mask of the next output will be. One for each, in their order; where steps are planned ahead, before the
    /// output before it is known.
    fn next_cell(&mut self) -> MaskCell;

    /// What the next output has become. One for each, in their order.
    fn sampled(&mut self, token: TokenId);
}
