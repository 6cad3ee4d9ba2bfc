//! Sends one long prompt through a custom strategy over engines that already run, and prints the tokens of the answer.
//!
//! ```text
//! BATON_SECRET=… cargo run -p baton-router --example custom_strategy -- 127.0.0.1:8101 127.0.0.1:8102
//! ```

mod strategy;

use std::env;
use std::error::Error;
use std::sync::Arc;

use baton_core::{Attempt, EngineEvent, GenerateRequest, Limits, RequestId, SamplingParams, TokenId};
use baton_protocol::{Engine, Secret, SessionClient};
use baton_router::{DispatchConfig, Dispatcher, Fleet, Role};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let secret = Secret::new(env::var(Secret::ENV)?);
    let mut engines = Vec::new();
    for address in env::args().skip(1) {
        let engine: Arc<dyn Engine> = Arc::new(SessionClient::connect(address.parse()?, &secret).await?);
        engines.push((address, Role::Mixed, engine));
    }
    let strategy = Arc::new(strategy::LongPromptsApart { long_tokens: 256 });
    let dispatcher = Dispatcher::new(Arc::new(Fleet::of_ready(engines)), strategy, DispatchConfig::default());

    let mut answer = dispatcher.generate(a_long_request()).await?;
    while let Some(event) = answer.next().await {
        match event {
            EngineEvent::Token(token) => println!("{}", token.token),
            EngineEvent::Failed(failed) => return Err(failed.error.into()),
            _ => {}
        }
    }
    println!("{:?}", dispatcher.counters());
    Ok(())
}

fn a_long_request() -> GenerateRequest {
    GenerateRequest {
        id: RequestId(0),
        attempt: Attempt(0),
        prompt: (0..400).map(|at| TokenId(at % 100)).collect(),
        outputs: vec![vec![]],
        ended: vec![false],
        sampling: SamplingParams::greedy(),
        limits: Limits { max_tokens: 16, min_tokens: 0, stop_tokens: vec![] },
        logprobs: None,
        prompt_logprobs: None,
        adapter: None,
        pooling: None,
        affinity: None,
    }
}
