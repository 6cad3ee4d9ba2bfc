//! The model and numerics that all engines of a deployment must share, so that a request can continue on any of them.

use std::sync::OnceLock;

use baton_core::EngineInfo;

use crate::error::LaunchError;

/// The model is configured; numerics are those of the first engine that is ready.
pub struct Identity {
    model: String,
    /// Promised to clients.
    context_tokens: u32,
    first: OnceLock<First>,
}

struct First {
    engine: String,
    numerics_id: String,
}

impl Identity {
    pub fn of_model(model: impl Into<String>) -> Self {
        Self { model: model.into(), context_tokens: 0, first: OnceLock::new() }
    }

    /// Engines that join later must hold sequences of this length.
    #[must_use]
    pub fn with_context(self, context_tokens: u32) -> Self {
        Self { context_tokens, ..self }
    }

    pub(crate) fn check_context(&self, engine: &str, info: &EngineInfo) -> Result<(), LaunchError> {
        let (theirs, ours) = (info.max_context_tokens, self.context_tokens);
        match theirs >= ours {
            true => Ok(()),
            false => Err(LaunchError::ShortContext { name: engine.to_owned(), theirs, ours }),
        }
    }

    pub fn check(&self, engine: &str, info: &EngineInfo) -> Result<(), LaunchError> {
        let differs = |what, theirs: &str, whose: String, ours: &str| {
            let [theirs, ours] = [theirs, ours].map(str::to_owned);
            Err(LaunchError::Mismatch { name: engine.to_owned(), what, theirs, whose, ours })
        };
        if info.model != self.model {
            return differs("model", &info.model, "this deployment".to_owned(), &self.model);
        }
        let numerics = || First { engine: engine.to_owned(), numerics_id: info.numerics_id.clone() };
        let first = self.first.get_or_init(numerics);
        match first.numerics_id == info.numerics_id {
            true => Ok(()),
            false => differs("numerics", &info.numerics_id, format!("engine {}", first.engine), &first.numerics_id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(model: &str, numerics_id: &str) -> EngineInfo {
        EngineInfo {
            model: model.into(),
            numerics_id: numerics_id.into(),
            vocab_size: 1,
            max_context_tokens: 1,
            pages_total: 1,
            threads: 1,
            prefix_cache: false,
        }
    }

    #[test]
    fn a_stranger_is_named_with_both_values() {
        let identity = Identity::of_model("m");
        let refused = |engine, info| identity.check(engine, &info).unwrap_err().to_string();
        assert_eq!(
            refused("decode-0", info("other", "a")),
            "engine decode-0 has model \"other\", this deployment \"m\""
        );
        identity.check("decode-1", &info("m", "a")).unwrap();
        identity.check("decode-2", &info("m", "a")).unwrap();
        assert_eq!(refused("decode-3", info("m", "b")), "engine decode-3 has numerics \"b\", engine decode-1 \"a\"");
        identity.check("decode-1", &info("m", "a")).unwrap();
    }

    #[test]
    fn an_engine_that_joins_must_hold_what_clients_were_promised() {
        let info = info("m", "a");
        Identity::of_model("m").with_context(1).check_context("decode-1", &info).unwrap();
        let refused = Identity::of_model("m").with_context(2).check_context("decode-1", &info).unwrap_err().to_string();
        assert_eq!(refused, "engine decode-1 has a context of 1 tokens, this deployment one of 2");
    }
}
