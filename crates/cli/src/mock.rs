//! `baton engine --mock`: an engine without a model that uses the tokenizer of one; with `--dialect` it speaks another project's
//! protocol.

use std::sync::Arc;

use baton_core::TokenId;
use baton_engine::{EngineConfig, EngineHandle};
use baton_launcher::{Screen, Shutdown, Stage};
use baton_mock::{
    Dialect, DialectConfig, DialectRole, DialectServer, MockBackend, MockConfig, MockConfigError, MockSize,
    MockVocabulary,
};

use baton_protocol::Secret;

use crate::blueprint::open_model;
use crate::byte_size::ByteSize;
use crate::fabric;
use crate::failure::Failure;
use crate::model_text::ModelText;
use crate::near_match::near_matches;
use crate::options::{DialectOption, EngineArgs, EngineOptions, MockRole};

/// The name of a mock that does not stand in for a model; it uses the default model's tokenizer.
pub(crate) const NAME: &str = "mock";
/// Two million tokens, which is more than a load generator on one machine needs.
const KV_PAGES: usize = 1 << 16;

pub(crate) fn load(args: &EngineArgs, secret: &Secret, mock: &str) -> Result<EngineHandle, Failure> {
    let config = parse(mock)?;
    let (model, vocabulary) = stand_in(args.model.as_deref(), &config)?;
    let options = &args.options;
    let size = MockSize {
        kv_pages: kv_pages(options, &config),
        step_tokens: options.step_tokens.unwrap_or(512),
        max_slots: options.max_slots.unwrap_or(256),
        tp: options.tp.unwrap_or(1) as u32,
    };
    let backend = MockBackend::new(config, size, Arc::new(vocabulary)).map_err(Failure::user)?;
    let fabric = fabric::open(args, secret, backend.transfer_bytes_per_s())?;
    let config = EngineConfig {
        model,
        prefix_cache: options.enable_prefix_cache.unwrap_or(true),
        step_tokens: size.step_tokens,
        max_running: size.max_slots,
        max_waiting: options.max_waiting.unwrap_or(1024),
        ..EngineConfig::default()
    };
    EngineHandle::spawn(Box::new(backend), config, Some(fabric)).map_err(Failure::ours)
}

/// Serves until the first signal, without draining: a mock's answers are not worth waiting for.
pub(crate) fn run_dialect(
    args: &EngineArgs,
    mock: &str,
    dialect: DialectOption,
    screen: &Screen,
) -> Result<(), Failure> {
    let config = parse(mock)?;
    let (model, vocabulary) = stand_in(args.model.as_deref(), &config)?;
    let config = DialectConfig {
        dialect: match dialect {
            DialectOption::Vllm => Dialect::Vllm,
            DialectOption::Sglang => Dialect::Sglang,
        },
        role: args.mock_role.map(|role| match role {
            MockRole::Prefill => DialectRole::Prefill,
            MockRole::Decode => DialectRole::Decode,
        }),
        model,
        mock: config,
        bootstrap_port: args.bootstrap_port,
    };
    // One thread, to leave the other cores to the router that is measured.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::ours)?;
    runtime.block_on(async {
        let server = DialectServer::bind(args.listen(), config, Arc::new(vocabulary)).await;
        let server = server.map_err(Failure::user)?;
        let shutdown = Shutdown::on_signals().map_err(Failure::ours)?;
        if let Some(bootstrap) = server.bootstrap_address() {
            screen.print(&format!("bootstrap on {bootstrap}\n"));
        }
        screen.print(&format!("listening on {}\n", server.address().map_err(Failure::ours)?));
        tokio::select! {
            biased;
            () = shutdown.reached(Stage::Draining) => Ok(()),
            () = server.serve() => Ok(()),
        }
    })
}

pub(crate) fn parse(mock: &str) -> Result<MockConfig, Failure> {
    mock.parse().map_err(|error| {
        let failure = Failure::user(&error);
        match error {
            MockConfigError::UnknownKey(key) => match near_matches(&key, MockConfig::KEYS)[..] {
                [] => failure.hint(format!("there are {}", MockConfig::KEYS.join(", "))),
                ref near => failure.hint(format!("did you mean {}?", near.join(" or "))),
            },
            MockConfigError::NotAPair(_) => failure.hint("a model is named before --mock"),
            _ => failure,
        }
    })
}

/// The name and the tokens of the model that it stands in for.
fn stand_in(model: Option<&str>, config: &MockConfig) -> Result<(String, MockVocabulary), Failure> {
    let files = open_model(model.unwrap_or(NAME))?;
    let tokenizer = ModelText::open(&files)?.tokenizer;
    let tokens = tokenizer.vocabulary();
    let size = config.shape.vocab.unwrap_or(files.decoder().map_err(Failure::user)?.vocab as u32);
    let visible = |id: u32| {
        let text = std::str::from_utf8(tokens.bytes(TokenId(id))).ok()?;
        let shows = !tokens.is_special(TokenId(id)) && text.contains(char::is_alphanumeric);
        shows.then(|| (TokenId(id), text.to_owned()))
    };
    let vocabulary = MockVocabulary::new(size, (0..tokens.len() as u32).filter_map(visible))
        .ok_or_else(|| Failure::user("no token of this tokenizer is a visible word; use another model's"))?;
    Ok((files.name().to_owned(), vocabulary))
}

fn kv_pages(options: &EngineOptions, config: &MockConfig) -> usize {
    match (options.kv_pages, options.kv_memory) {
        (Some(pages), _) => pages,
        (None, Some(ByteSize(bytes))) => ((bytes / MockBackend::page_bytes(config)) as usize).max(1),
        (None, None) => KV_PAGES,
    }
}
