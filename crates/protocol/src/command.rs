//! What a router may ask of an engine, and what an engine's step says back. The native session and the compatible HTTP
//! face both speak in these.

use baton_core::{EngineEvent, EngineReport, GenerateRequest, RequestId};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    Generate(Box<GenerateRequest>),
    /// Unknown and ended requests are ignored: an abort may cross the end on its way.
    Abort(RequestId),
}

/// Everything one engine step has to say to one session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReply {
    pub report: EngineReport,
    pub events: Vec<EngineEvent>,
}
