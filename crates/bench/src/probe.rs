//! Finds out what kind of server it is: once, before the run, with requests of a few tokens.

use std::ops::Range;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::body::{PromptForm, RequestApi, RequestDialect};
use crate::client::HttpClient;
use crate::error::BenchError;
use crate::exchange::RequestSender;
use crate::record::RequestFailure;
use crate::workload::Synthetic;
use crate::workload::lengths::Lengths;

/// What the user already knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub(crate) model: Option<String>,
    pub(crate) api: Option<RequestApi>,
    pub(crate) ids: Option<bool>,
    pub(crate) vocab: Option<u32>,
    pub(crate) extra: Map<String, Value>,
    pub(crate) seed: u64,
}

pub(crate) struct Server {
    pub(crate) dialect: RequestDialect,
    pub(crate) context_tokens: Option<u32>,
    /// It counts the tokens itself.
    pub(crate) counts_tokens: bool,
}

/// One of `/v1/models`. vLLM, SGLang and Baton name the context; Baton names the size of the vocabulary as well.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ListedModel {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) max_model_len: Option<u32>,
    #[serde(default)]
    pub(crate) vocab_size: Option<u32>,
}

#[derive(Deserialize)]
struct ListedModels {
    data: Vec<ListedModel>,
}

/// A prompt of this many tokens is sent.
const PROBE_TOKENS: u32 = 4;
/// Every model in use has at least that many.
const LEAST_VOCAB: u32 = 1024;

/// Tries the dialects from the most exact one to the most common one.
pub(crate) async fn probe(sender: &RequestSender, known: &Known) -> Result<Server, RequestFailure> {
    let model = find_model(&sender.client, known.model.as_deref()).await?;
    let vocab = known.vocab.or(model.as_ref().and_then(|model| model.vocab_size)).unwrap_or(LEAST_VOCAB);
    let mut refused = None;
    for (api, ids) in [(RequestApi::Completions, true), (RequestApi::Completions, false), (RequestApi::Chat, false)] {
        if known.api.is_some_and(|wanted| wanted != api) || known.ids.is_some_and(|wanted| wanted != ids) {
            continue;
        }
        for (ignore_eos, usage) in [(true, true), (false, true), (false, false)] {
            let dialect = RequestDialect {
                api,
                prompt: if ids { PromptForm::Ids(ordinary_ids(vocab)) } else { PromptForm::Text },
                model: model.as_ref().map(|model| model.id.clone()).or_else(|| known.model.clone()),
                ignore_eos,
                usage,
                extra: known.extra.clone(),
                seed: known.seed,
            };
            match speaks(sender, &dialect).await {
                Ok(counts_tokens) => {
                    let context_tokens = model.and_then(|model| model.max_model_len);
                    return Ok(Server { dialect, context_tokens, counts_tokens });
                }
                // A 4xx means: not like this. The first explains best what the server would accept.
                Err(failure @ RequestFailure::Status { status: 400 | 404 | 405 | 415 | 422 | 501, .. }) => {
                    refused.get_or_insert(failure);
                }
                Err(failure) => return Err(failure),
            }
        }
    }
    Err(refused.unwrap_or(RequestFailure::Malformed("token ids can only be sent to /v1/completions".into())))
}

/// Whether the server answers, and counts tokens.
async fn speaks(sender: &RequestSender, dialect: &RequestDialect) -> Result<bool, RequestFailure> {
    let lengths = (Lengths::Fixed(PROBE_TOKENS), Lengths::Fixed(2));
    let (input, output) = lengths;
    let hello = Synthetic { input, output, turns: Lengths::Fixed(1), shared_prefix_share: 0.0, prefix_groups: 1 };
    // A number that no chat of a run has: the probe must not warm a prefix cache.
    let body = dialect.body(&hello.chat(dialect.seed, u64::MAX), 0);
    let sender = RequestSender {
        client: sender.client.clone(),
        api: dialect.api,
        timeout: sender.timeout,
        progress: Default::default(),
    };
    let (exchange, result) = sender.send(body).await;
    result.map(|()| exchange.usage.is_some())
}

/// The requested one, else the first. A server without the list is no obstacle.
async fn find_model(client: &HttpClient, wanted: Option<&str>) -> Result<Option<ListedModel>, RequestFailure> {
    let models = match models(client).await {
        Ok(models) => models,
        Err(RequestFailure::Status { status: 404 | 405 | 501, .. } | RequestFailure::Malformed(_)) => return Ok(None),
        Err(failure) => return Err(failure),
    };
    Ok(match wanted {
        Some(wanted) => models.into_iter().find(|model| model.id == wanted),
        None => models.into_iter().next(),
    })
}

pub(crate) async fn models(client: &HttpClient) -> Result<Vec<ListedModel>, RequestFailure> {
    let list: ListedModels = serde_json::from_slice(&client.get("/models").await?)
        .map_err(|error| RequestFailure::Malformed(format!("/v1/models: {error}")))?;
    Ok(list.data)
}

/// Bytes and special tokens live at the ends of a vocabulary.
fn ordinary_ids(vocab: u32) -> Range<u32> {
    let edge = vocab / 16;
    edge..(vocab - edge).max(edge + 1)
}

impl RequestFailure {
    pub(crate) fn of_server(self, client: &HttpClient) -> BenchError {
        BenchError::Server { url: client.target.to_string(), message: self.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_stay_inside() {
        assert_eq!(ordinary_ids(32_000), 2000..30_000);
        assert_eq!(ordinary_ids(1), 0..1);
    }
}
