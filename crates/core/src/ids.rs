//! Newtypes for what crosses crate borders as a number.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The id as an array index.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// An entry of the model's vocabulary.
    TokenId(u32)
}
id! {
    /// A request as one router session knows it. Made by the router, never by a client; two sessions may use the same number.
    RequestId(u64)
}
id! {
    /// Which of a request's `n` answers.
    Choice(u32)
}
id! {
    /// Which try at a request produced an event: a router drops events of older tries.
    Attempt(u32)
}
id! {
    /// Pages that an engine holds for KV that is still to arrive. Made by that engine; never used twice in its process.
    ReservationId(u64)
}
id! {
    /// What is computed on top of the model's own weights, such as a LoRA. Means the same on all engines of a deployment.
    AdapterId(u64)
}
id! {
    /// A page of a KV pool.
    PageId(u32)
}
