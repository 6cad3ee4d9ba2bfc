//! Decides from the options which engines there are, where, and in which role. Nothing is resolved or started here.

use baton_launcher::{Endpoint, Host};
use baton_router::{PrefillUse, Role};

use crate::failure::Failure;
use crate::fleet_options::{EngineUrl, FleetOptions};
use crate::strategy::RouterMode;

/// More are a typing error, and would start as many processes.
const MAX_ENGINES: usize = 256;

#[derive(Debug, PartialEq)]
pub(crate) struct Topology {
    pub(crate) mode: RouterMode,
    pub(crate) engines: Vec<Seat>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seat {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// `None` for an engine on this machine at a free port.
    pub(crate) place: Option<Endpoint>,
    /// The number of tensor-parallel shards; `None` leaves it to the engine's option.
    pub(crate) shards: Option<usize>,
}

impl Topology {
    /// The engines of `baton serve`, which are counted (`--prefill`, `--decode`) or listed (`--endpoint-hosts`, `--endpoint-ports`).
    pub(crate) fn of_serve(options: &FleetOptions, mode: Option<RouterMode>) -> Result<Self, Failure> {
        let places = places(options)?;
        let prefill_by_default = match mode.map_or(PrefillUse::IfThere, RouterMode::prefill) {
            PrefillUse::Never => 0,
            PrefillUse::IfThere => places.is_none().into(),
            PrefillUse::Always => 1,
        };
        let prefill = options.prefill.unwrap_or(prefill_by_default);
        let decode = match &places {
            None => options.decode.unwrap_or(1),
            Some(places) => rest_decodes(places.len(), prefill, options.decode)?,
        };
        if decode == 0 || prefill.saturating_add(decode) > MAX_ENGINES {
            let message = format!("--decode must be at least 1, and engines at most {MAX_ENGINES} in all");
            return Err(Failure::user(format!("{message}, not {prefill} + {decode}")));
        }
        let mode = mode.unwrap_or(match (prefill, &places) {
            (0, Some(_)) => RouterMode::ROUND_ROBIN,
            _ => RouterMode::AUTO,
        });
        check_mode(mode, prefill, "add --prefill 1")?;
        let whole = if places.is_some() && prefill == 0 { Role::Mixed } else { Role::Decode };
        let roles: Vec<_> = [vec![Role::Prefill; prefill], vec![whole; decode]].concat();
        let shards = shards(options, roles.len())?;
        let places = places.map_or(vec![None; roles.len()], |places| places.into_iter().map(Some).collect());
        Ok(Self { mode, engines: seats(roles, places, shards) })
    }

    /// The engines of `baton router`, each of which is named.
    pub(crate) fn of_router(engines: &[EngineUrl], mode: Option<RouterMode>) -> Result<Self, Failure> {
        no_repeats(engines.iter().map(|engine| &engine.endpoint))?;
        let roles: Vec<_> = engines.iter().map(|engine| engine.role).collect();
        if !roles.iter().any(|role| *role != Role::Prefill) {
            return Err(Failure::user("no engine can decode").hint("give at least one the role decode or mixed"));
        }
        let prefill = roles.iter().filter(|role| **role == Role::Prefill).count();
        let mode = mode.unwrap_or(RouterMode::AUTO);
        let mixed = roles.iter().filter(|role| **role == Role::Mixed).count();
        let compute_prompts = if mode.prefill() == PrefillUse::Never { prefill } else { prefill + mixed };
        check_mode(mode, compute_prompts, "give one the role prefill or mixed")?;
        let places = engines.iter().map(|engine| Some(engine.endpoint.clone())).collect();
        Ok(Self { mode, engines: seats(roles, places, vec![None; engines.len()]) })
    }
}

/// `None` when engines are not listed.
fn places(options: &FleetOptions) -> Result<Option<Vec<Endpoint>>, Failure> {
    let (hosts, ports) = match (&options.endpoint_hosts, &options.endpoint_ports) {
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(Failure::user("--endpoint-hosts needs --endpoint-ports, as many of them")),
        (None, Some(ports)) => (vec![Host::localhost(); ports.len()], ports),
        (Some(hosts), Some(ports)) => (hosts.clone(), ports),
    };
    let gpus = options.endpoint_num_gpus.as_ref().map_or(ports.len(), Vec::len);
    if hosts.len() != ports.len() || gpus != ports.len() {
        let mut lists = vec![format!("{} ports", ports.len())];
        if options.endpoint_hosts.is_some() {
            lists.insert(0, format!("{} hosts", hosts.len()));
        }
        if options.endpoint_num_gpus.is_some() {
            lists.push(format!("{gpus} num-gpus"));
        }
        return Err(Failure::user(format!("the endpoint lists must be equally long, not {}", lists.join(", "))));
    }
    let places: Vec<_> = hosts.into_iter().zip(ports).map(|(host, port)| Endpoint { host, port: *port }).collect();
    // Port 0 takes a free one, so it may be repeated.
    no_repeats(places.iter().filter(|place| place.port != 0))?;
    Ok(Some(places))
}

fn rest_decodes(listed: usize, prefill: usize, decode: Option<usize>) -> Result<usize, Failure> {
    let decode = decode.unwrap_or(listed.saturating_sub(prefill));
    if prefill + decode != listed {
        let message =
            format!("--prefill {prefill} and --decode {decode} do not add up to the {listed} endpoints listed");
        return Err(Failure::user(message));
    }
    match decode {
        0 => Err(Failure::user(format!("of {listed} endpoints {prefill} compute prompts: none is left to decode"))),
        decode => Ok(decode),
    }
}

fn shards(options: &FleetOptions, engines: usize) -> Result<Vec<Option<usize>>, Failure> {
    let Some(shards) = &options.endpoint_num_gpus else { return Ok(vec![None; engines]) };
    if shards.len() != engines {
        let message =
            format!("--endpoint-num-gpus needs a number for each of the {engines} engines, not {}", shards.len());
        return Err(Failure::user(message));
    }
    if shards.contains(&0) {
        return Err(Failure::user("--endpoint-num-gpus must be at least 1"));
    }
    Ok(shards.iter().copied().map(Some).collect())
}

fn check_mode(mode: RouterMode, prefill: usize, hint: &str) -> Result<(), Failure> {
    match (mode.prefill(), prefill) {
        (PrefillUse::Always, 0) => {
            Err(Failure::user(format!("--router-mode {} needs prefill engines", mode.name())).hint(hint))
        }
        (PrefillUse::Never, 1..) => {
            let message = format!("prefill engines take no part in --router-mode {}", mode.name());
            Err(Failure::user(message).hint("leave out --router-mode or the prefill engines"))
        }
        _ => Ok(()),
    }
}

fn no_repeats<'a>(places: impl Iterator<Item = &'a Endpoint>) -> Result<(), Failure> {
    let mut seen = std::collections::BTreeSet::new();
    for place in places {
        if !seen.insert(place) {
            return Err(Failure::user(format!("endpoint {place} is listed twice")));
        }
    }
    Ok(())
}

/// Named after their roles: prefill-0, decode-0, decode-1, …
fn seats(roles: Vec<Role>, places: Vec<Option<Endpoint>>, shards: Vec<Option<usize>>) -> Vec<Seat> {
    let mut seats: Vec<Seat> = Vec::new();
    for ((role, place), shards) in roles.into_iter().zip(places).zip(shards) {
        let index = seats.iter().filter(|seat| seat.role == role).count();
        seats.push(Seat { name: format!("{}-{index}", role.name()), role, place, shards });
    }
    seats
}

#[cfg(test)]
#[path = "topology_tests.rs"]
mod tests;
