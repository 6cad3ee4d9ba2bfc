//! KV hand-off between engines. The sender's step loop reports which pages are final, layer by layer; verified pages arrive in
//! the receiver's memory. Only the receiver writes to reserved pages there, so a sender that is stopped, late or restarted cannot
//! hurt anyone: it can only offer.
//!
//! ```text
//!   sender                                     receiver
//!   Export::offer ──── checksum ─── offer ──▶  copy + checksum in one pass ─ fence still up? ─ page valid
//!   Export::finish ───────────────────────▶    Landed → step loop
//! ```
#![allow(unsafe_code, reason = "memory shared between processes lives here; each block states why it is sound")]

mod auth;
mod checksum;
mod connection;
mod counters;
mod cursor;
mod cursors;
mod error;
mod expected;
mod expected_pages;
mod fence;
mod host;
mod layers;
mod layout;
mod link;
mod memory;
mod options;
mod pace;
mod port;
mod receiver;
mod region;
mod sender;
mod source;
mod wire;

pub use auth::PortKey;
pub use checksum::checksum;
pub use counters::FabricCounters;
pub use cursor::{Chunk, Computed, Delivered, Outcome};
pub use error::FabricError;
pub use host::{HostMemory, HostShard};
pub use layers::LayerCounter;
pub use layout::{Half, KvLayout, PageOrder, ShardLayout};
pub use memory::{KvMemory, PeerMemory, RegionAddress, ShardAddress};
pub use options::FabricOptions;
pub use port::PortLimits;
pub use receiver::{Receiver, ReceiverEvent};
pub use region::{MemfdAddress, Region};
pub use sender::{Export, Sender};
pub use wire::{KvTarget, ReservationKey, Transport};
