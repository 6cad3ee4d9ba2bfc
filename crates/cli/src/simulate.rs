//! `baton simulate`.

use baton_fleet_sim::SimulateOptions;

use crate::failure::Failure;

pub(crate) fn run(options: &SimulateOptions) -> Result<(), Failure> {
    let done = baton_fleet_sim::simulate(options);
    done.map_err(|error| if error.is_usage() { Failure::user(error) } else { Failure::ours(error) })
}
