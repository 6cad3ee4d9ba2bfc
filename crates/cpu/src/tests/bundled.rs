//! The bundled model, whose near-ties show any difference.

use std::sync::Arc;

use baton_model::{DEFAULT_MODEL, Model, ModelSource};

use super::exact::check_all_ways;
use super::reference::check_close;
use super::runner::Setup;

pub(super) fn storyteller() -> Arc<Model> {
    Arc::new(Model::open(&ModelSource::resolve(DEFAULT_MODEL).unwrap()).unwrap())
}

#[test]
fn however_it_is_computed() {
    check_all_ways("storyteller-11m", storyteller(), Setup::PLAIN, 300, false);
    check_all_ways("storyteller-11m, int8 KV", storyteller(), Setup::INT8_KV, 300, false);
}

#[test]
fn close_to_f64() {
    check_close("storyteller-11m", storyteller(), Setup::PLAIN, 70, 1e-2);
}
