//! What a deployment is made of, before anything of it is started.

use std::sync::Arc;
use std::time::Duration;

use baton_core::EngineInfo;
use baton_launcher::{LaunchError, LaunchPlan};
use baton_model::{DEFAULT_MODEL, ModelFiles};
use baton_protocol::SessionError;
use baton_router::Strategy;

use crate::config::RouterConfig;
use crate::core_claims::CoreClaims;
use crate::failure::Failure;
use crate::located::Located;
use crate::mock;

/// The longest time between two announcements of an engine that loads; it announces every percent of its weights.
pub(crate) const ENGINE_SILENCE: Duration = Duration::from_secs(300);

pub(crate) struct Blueprint {
    pub(crate) config: RouterConfig,
    pub(crate) strategy: Arc<dyn Strategy>,
    pub(crate) files: ModelFiles,
    /// The context length of the engines that will be started here, if any.
    pub(crate) context_tokens: usize,
    pub(crate) engines: LaunchPlan,
    /// Of those that will be started here.
    pub(crate) cores: Option<CoreClaims>,
    /// What the engines that run already have reported about themselves.
    pub(crate) answers: Vec<(String, EngineInfo)>,
}

pub(crate) fn open_model(name: &str) -> Result<ModelFiles, Failure> {
    if name == mock::NAME {
        return Ok(open_model(DEFAULT_MODEL)?.renamed(name));
    }
    Located::find(name)?.files()
}

pub(crate) fn launch_failure(error: LaunchError) -> Failure {
    let failure = if error.is_users_fault() { Failure::user(&error) } else { Failure::ours(&error) };
    match error {
        LaunchError::Mismatch { what: "numerics", .. } => {
            failure.hint("start all engines with the same model, --dtype, --kv-dtype and --products")
        }
        LaunchError::Unreachable { .. } => failure.hint("is it running? --connect-timeout looks for it longer"),
        LaunchError::TurnedAway { source: SessionError::Refused(_) | SessionError::Impostor, .. } => {
            failure.hint("engines and routers need the same --secret-file or BATON_SECRET")
        }
        LaunchError::TurnedAway { .. } => failure.hint("is it a Baton engine, of the same version?"),
        _ => failure,
    }
}
