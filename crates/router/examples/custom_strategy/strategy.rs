//! A strategy of one's own: long prompts are computed by one engine and handed to another, short ones are not worth it.

use std::sync::Arc;

use baton_core::{GenerateRequest, ServeError};
use baton_router::{Leg, Roster, Strategy};
use futures_util::future::BoxFuture;

pub(crate) struct LongPromptsApart {
    pub(crate) long_tokens: usize,
}

impl Strategy for LongPromptsApart {
    fn name(&self) -> &str {
        "long-prompts-apart"
    }

    fn route(&self, engines: Arc<Roster>, request: GenerateRequest) -> BoxFuture<'static, Result<Leg, ServeError>> {
        let long_tokens = self.long_tokens;
        Box::pin(async move {
            let decode = engines.serving().least_loaded()?;
            let prefill = engines.prefill().pairing_with(&decode);
            if request.prompt.len() < long_tokens || prefill.is_empty() {
                return decode.start_generate(request, None).await;
            }
            // A prompt that finds no room there can still be computed there.
            let Ok(reserved) = decode.prep_recv(&request, request.prompt.len() as u32 - 1).await else {
                return decode.start_generate(request, None).await;
            };
            let sent = match reserved.missing() {
                Some(range) => Some(prefill.least_loaded()?.remote_send(&request, &reserved, range).await?),
                None => None,
            };
            decode.start_generate(request, Some((reserved, sent))).await
        })
    }
}
