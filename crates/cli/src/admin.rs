//! `baton router show`, `set`, `role`, `add` and `remove`: a router that serves is changed over its HTTP routes.

use std::fmt::Write as _;
use std::path::PathBuf;

use baton_launcher::Endpoint;
use baton_protocol::Secret;
use baton_router::Role;
use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::json;

use crate::admin_client::AdminClient;
use crate::failure::Failure;
use crate::secret::SecretOptions;
use crate::strategy::{RouterMode, StrategyParameters};

#[derive(Subcommand, Clone, Debug)]
pub(crate) enum AdminCommand {
    /// Show the strategy and the engines of a router that serves
    Show {
        #[command(flatten)]
        router: RouterTarget,
    },

    /// Route by this strategy from now on
    Set {
        strategy: RouterMode,

        #[command(flatten)]
        parameters: StrategyParameters,

        #[command(flatten)]
        router: RouterTarget,
    },

    /// Use an engine for prefill, decode or both (mixed) from now on; what it has is finished
    Role {
        /// Its name, as in `baton router show`
        engine: String,

        /// prefill, decode or mixed
        role: Role,

        #[command(flatten)]
        router: RouterTarget,
    },

    /// Let an engine join that runs already
    Add {
        /// Where it is, like http://10.0.0.2:9001
        #[arg(value_name = "URL")]
        address: Endpoint,

        /// prefill, decode or mixed
        #[arg(long, default_value = "mixed")]
        role: Role,

        #[command(flatten)]
        router: RouterTarget,
    },

    /// Let an engine leave when its requests have ended; one that `baton serve` started then exits
    Remove {
        /// Its name, as in `baton router show`
        engine: String,

        #[command(flatten)]
        router: RouterTarget,
    },
}

/// Which router is changed, and what it must be shown.
#[derive(Args, Clone, Debug)]
pub(crate) struct RouterTarget {
    /// The router's gateway
    #[arg(long, default_value = "http://127.0.0.1:8000")]
    url: String,

    /// Read the deployment's secret from this file [default: BATON_SECRET]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Router {
    strategy: String,
    parameters: std::collections::BTreeMap<String, f64>,
    engines: Vec<Engine>,
}

#[derive(Deserialize)]
struct Engine {
    name: String,
    address: Option<String>,
    role: String,
    state: String,
    in_flight: InFlight,
}

#[derive(Deserialize)]
struct InFlight {
    sequences: u32,
    prefill_tokens: u64,
}

pub(crate) fn run(command: AdminCommand) -> Result<(), Failure> {
    let done = match command {
        AdminCommand::Show { router } => table(&router.client()?.get("/admin/router")?),
        AdminCommand::Set { strategy, parameters, router } => {
            strategy.strategy(&parameters)?;
            let body = json!({"strategy": strategy.name(), "parameters": parameters.values()});
            let now: Router = router.client()?.put("/admin/router", &body)?;
            format!("requests are now routed {}\n", now.routed())
        }
        AdminCommand::Role { engine, role, router } => {
            let path = format!("{}/role", path_of(&engine));
            let now: Engine = router.client()?.put(&path, &json!({"role": role.name()}))?;
            format!("{} is now used as {}\n", now.name, now.role)
        }
        AdminCommand::Add { address, role, router } => {
            let body = json!({"address": address.to_string(), "role": role.name()});
            let now: Engine = router.client()?.post("/admin/engines", &body)?;
            format!("{address} has joined as {}\n", now.name)
        }
        AdminCommand::Remove { engine, router } => {
            let now: Engine = router.client()?.delete(&path_of(&engine))?;
            match now.in_flight.sequences {
                0 => format!("{} leaves\n", now.name),
                open => format!("{} leaves when its {open} sequences have ended\n", now.name),
            }
        }
    };
    print!("{done}");
    Ok(())
}

/// Names that need to be escaped in a URL are none of ours.
fn path_of(engine: &str) -> String {
    format!("/admin/engines/{engine}")
}

impl RouterTarget {
    fn client(&self) -> Result<AdminClient, Failure> {
        let options = SecretOptions { secret_file: self.secret_file.clone(), no_engine_auth: None };
        let secret: Secret = options.given([])?.ok_or_else(|| {
            let failure = Failure::user("a router is changed by those who know its deployment's secret");
            failure.hint("give the one that the deployment was started with: --secret-file or BATON_SECRET")
        })?;
        Ok(AdminClient::new(&self.url, &secret))
    }
}

impl Router {
    /// `disagg, pd_balance_factor 0.5`
    fn routed(&self) -> String {
        let parameters = self.parameters.iter().map(|(name, value)| format!(", {name} {value}"));
        format!("{}{}", self.strategy, parameters.collect::<String>())
    }
}

fn table(router: &Router) -> String {
    let head = ["ENGINE", "ROLE", "STATE", "SEQUENCES", "PROMPT TOKENS", "URL"].map(str::to_owned);
    let rows = router.engines.iter().map(|engine| {
        let url = engine.address.as_ref().map_or_else(String::new, |address| format!("http://{address}"));
        let InFlight { sequences, prefill_tokens } = engine.in_flight;
        let (name, role, state) = (engine.name.clone(), engine.role.clone(), engine.state.clone());
        [name, role, state, sequences.to_string(), prefill_tokens.to_string(), url]
    });
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    let mut text = format!("routed {}\n\n", router.routed());
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            let _ = write!(line, "{cell:<width$}  ");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_shown_in_columns() {
        let in_flight = |sequences, prefill_tokens| InFlight { sequences, prefill_tokens };
        let engine = |name: &str, role: &str, state: &str, in_flight, address: Option<&str>| Engine {
            name: name.into(),
            address: address.map(str::to_owned),
            role: role.into(),
            state: state.into(),
            in_flight,
        };
        let router = Router {
            strategy: "disagg".into(),
            parameters: [("pd_balance_factor".to_owned(), 0.5)].into(),
            engines: vec![
                engine("prefill-0", "prefill", "ready", in_flight(0, 1500), None),
                engine("mixed-12", "mixed", "leaving", in_flight(3, 0), Some("10.0.0.2:9001")),
            ],
        };
        let expected = "\
routed disagg, pd_balance_factor 0.5

ENGINE     ROLE     STATE    SEQUENCES  PROMPT TOKENS  URL
prefill-0  prefill  ready    0          1500
mixed-12   mixed    leaving  3          0              http://10.0.0.2:9001
";
        assert_eq!(table(&router), expected);
    }
}
