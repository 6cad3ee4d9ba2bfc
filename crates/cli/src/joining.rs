//! Engines join and leave through the gateway's routes for administration, once those of the start are there.

use std::pin::Pin;
use std::sync::OnceLock;

use baton_core::{Retry, ServeError};
use baton_gateway::Membership;
use baton_launcher::{EngineControl, LaunchError};
use baton_router::{EngineId, NotThere, Role};

/// Empty until the deployment is launched.
#[derive(Default)]
pub(crate) struct Joining(OnceLock<EngineControl>);

impl Joining {
    pub(crate) fn open(&self, control: EngineControl) {
        // A deployment is launched once.
        let _ = self.0.set(control);
    }

    fn control(&self) -> Result<EngineControl, ServeError> {
        let starting = ServeError::engine("engines can join and leave when those of the start are there");
        self.0.get().cloned().ok_or(ServeError { retry: Retry::AfterMs(1000), ..starting })
    }
}

impl Membership for Joining {
    fn join(
        &self,
        address: String,
        role: Role,
    ) -> Pin<Box<dyn Future<Output = Result<EngineId, ServeError>> + Send + 'static>> {
        let control = self.control();
        Box::pin(async move {
            let wrong = |message: String| ServeError::caller(format!("address: {message}")).about("address");
            let endpoint = address.parse().map_err(wrong)?;
            control?.join(endpoint, role).await.map_err(refusal)
        })
    }

    fn leave(&self, engine: EngineId) -> Result<(), ServeError> {
        self.control()?.leave(engine).map_err(|NotThere| ServeError::conflict("the engine is leaving already"))
    }

    fn address(&self, engine: EngineId) -> Option<String> {
        Some(self.0.get()?.endpoint(engine)?.to_string())
    }
}

fn refusal(error: LaunchError) -> ServeError {
    match error.is_users_fault() {
        true => ServeError::conflict(error.to_string()),
        false => ServeError::engine(error.to_string()),
    }
}
