//! Engines join, leave, and change their roles.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use baton_core::ServeError;
use baton_router::{EngineState, EngineStatus, NotThere, Role};

use super::view::EngineView;
use super::{Administered, short};
use crate::body;
use crate::error::ApiError;
use crate::fields::Fields;

type Answer = (StatusCode, Json<EngineView>);

/// `{"address": "10.0.0.2:9001", "role": "decode"}`; the role is mixed by default.
pub(super) async fn join(State(router): State<Arc<Administered>>, body: Body) -> Result<Answer, ApiError> {
    let text = body::read_small(&router.gateway, body).await?;
    let mut fields = body::parse(&text)?;
    let address: String = fields.require("address")?;
    let role = take_role(&mut fields)?.unwrap_or(Role::Mixed);
    fields.refuse_rest()?;
    let id = router.membership.join(address, role).await?;
    let joined = router.engine(|engine| engine.id == id);
    let joined = joined.ok_or_else(|| ServeError::conflict("the engine has joined, and left again"))?;
    Ok((StatusCode::CREATED, Json(router.engine_view(joined))))
}

/// Answers at once; the engine leaves when what it has in flight has ended.
pub(super) async fn leave(
    State(router): State<Arc<Administered>>,
    Path(name): Path<String>,
) -> Result<Answer, ApiError> {
    let engine = router.named(&name)?;
    if engine.state != EngineState::Leaving {
        if router.engine(|other| other.id != engine.id && other.state != EngineState::Leaving).is_none() {
            let message = format!("{name} is the only engine: add another before it leaves");
            return Err(ServeError::conflict(message).into());
        }
        router.membership.leave(engine.id)?;
        tracing::info!(engine = name, "leaves when its requests have ended");
    }
    // It may be gone already.
    let now = router.engine(|other| other.id == engine.id);
    let leaving = now.unwrap_or(EngineStatus { state: EngineState::Leaving, ..engine });
    Ok((StatusCode::ACCEPTED, Json(router.engine_view(leaving))))
}

/// `{"role": "prefill"}`
pub(super) async fn set_role(
    State(router): State<Arc<Administered>>,
    Path(name): Path<String>,
    body: Body,
) -> Result<Json<EngineView>, ApiError> {
    let text = body::read_small(&router.gateway, body).await?;
    let mut fields = body::parse(&text)?;
    let role = take_role(&mut fields)?.ok_or_else(|| ApiError::invalid("role", "role is missing"))?;
    fields.refuse_rest()?;
    let engine = router.named(&name)?;
    let leaving = |NotThere| ServeError::conflict(format!("{name} is leaving: it gets no more requests"));
    router.gateway.dispatcher.fleet().set_role(engine.id, role).map_err(leaving)?;
    tracing::info!(engine = name, role = role.name(), "has another role from now on");
    Ok(Json(router.engine_view(EngineStatus { role, ..engine })))
}

fn take_role(fields: &mut Fields<'_>) -> Result<Option<Role>, ApiError> {
    let role = fields.take::<String>("role")?;
    let wrong = |message: String| ApiError::invalid("role", format!("role: {message}"));
    role.map(|role| short(&role).parse().map_err(wrong)).transpose()
}

impl Administered {
    fn engine(&self, is_it: impl Fn(&EngineStatus) -> bool) -> Option<EngineStatus> {
        self.gateway.dispatcher.fleet_status().into_iter().find(is_it)
    }

    fn named(&self, name: &str) -> Result<EngineStatus, ApiError> {
        let engines = self.gateway.dispatcher.fleet_status();
        let names: Vec<_> = engines.iter().map(|engine| engine.name.clone()).collect();
        engines.into_iter().find(|engine| engine.name == name).ok_or_else(|| {
            let message = format!("there is no engine {:?}: there are {}", short(name), names.join(", "));
            ApiError::new(StatusCode::NOT_FOUND, message)
        })
    }
}
