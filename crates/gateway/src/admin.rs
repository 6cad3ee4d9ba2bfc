//! Changes to a router while it serves: which strategy routes, what each engine is used for, and which engines there are.
//! For holders of the deployment's secret.

mod auth;
mod engines;
mod view;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::routing::{delete, get, post, put};
use axum::{Json, Router};
use baton_router::{Parameters, StrategyError, strategy};

use self::view::RouterView;
use crate::body;
use crate::error::ApiError;
use crate::fallbacks::wrong_method;
use crate::gateway::Gateway;
use crate::json::{FromJson, Json as Value, Mismatch};
use crate::membership::{Admin, Membership};

/// What the routes share.
struct Administered {
    gateway: Arc<Gateway>,
    membership: Arc<dyn Membership>,
}

pub(crate) fn routes(gateway: &Arc<Gateway>, admin: &Admin) -> Router {
    let routes = Router::new()
        .route("/admin/router", get(show).put(set_strategy))
        .route("/admin/engines", post(engines::join))
        .route("/admin/engines/{name}", delete(engines::leave))
        .route("/admin/engines/{name}/role", put(engines::set_role))
        .method_not_allowed_fallback(wrong_method)
        .with_state(Arc::new(Administered { gateway: Arc::clone(gateway), membership: Arc::clone(&admin.membership) }));
    auth::guarded(routes, &admin.secret)
}

async fn show(State(router): State<Arc<Administered>>) -> Json<RouterView> {
    Json(router.view())
}

/// `{"strategy": "disagg", "parameters": {"pd_balance_factor": 0.5}}`; parameters that are not given have their defaults.
async fn set_strategy(State(router): State<Arc<Administered>>, body: Body) -> Result<Json<RouterView>, ApiError> {
    let text = body::read_small(&router.gateway, body).await?;
    let mut fields = body::parse(&text)?;
    let name: String = fields.require("strategy")?;
    let parameters = match fields.take_json("parameters") {
        Some(given) => parameters(given).map_err(|mismatch| mismatch.at("parameters"))?,
        None => Parameters::new(),
    };
    fields.refuse_rest()?;
    let strategy = strategy(&name, &parameters).map_err(|error| {
        let param = match error {
            StrategyError::Unknown { .. } => "strategy",
            StrategyError::UnknownParameter { .. } | StrategyError::OutOfBounds { .. } => "parameters",
        };
        ApiError::invalid(param, error.to_string())
    })?;
    tracing::info!(strategy = name, ?parameters, "requests are routed by another strategy from now on");
    router.gateway.dispatcher.set_strategy(strategy);
    Ok(Json(router.view()))
}

fn parameters(given: Value<'_>) -> Result<Parameters, Mismatch> {
    let mut parameters = Parameters::new();
    given.each_member(|name, value| {
        let name = String::from_json(name)?;
        let number = f64::from_json(value).map_err(|mismatch| mismatch.inside(format_args!(".{}", short(&name))))?;
        parameters.insert(name, number);
        Ok(())
    })?;
    Ok(parameters)
}

/// Names in messages are as long as a person needs.
fn short(name: &str) -> &str {
    &name[..name.floor_char_boundary(64)]
}
