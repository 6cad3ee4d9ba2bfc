//! What comes of a request that was started.

use baton_core::{Choice, EngineEvent, RequestId};
use tokio::sync::mpsc;

use crate::Reservation;
use crate::reservation::Release;

/// Events of one request, in order. Ends after the last choice's last token (with nothing to generate: after `Prompt`) or
/// after `Failed`; an end without any of these means that the engine vanished.
pub struct TokenStream {
    events: mpsc::UnboundedReceiver<EngineEvent>,
    _abort: AbortOnDrop,
    end_choice: Option<EndChoice>,
    /// Held until the prompt is computed: a request that ends before that may not have used it up.
    reservation: Option<Release>,
}

impl TokenStream {
    /// `on_drop` is called once, when the stream is dropped, whether or not the request has ended.
    pub fn new(
        request: RequestId,
        events: mpsc::UnboundedReceiver<EngineEvent>,
        on_drop: impl FnOnce(RequestId) + Send + Sync + 'static,
    ) -> Self {
        Self { events, _abort: AbortOnDrop(Some((request, Box::new(on_drop)))), end_choice: None, reservation: None }
    }

    /// What [`end_choice`](Self::end_choice) does.
    #[must_use]
    pub fn with_end_choice(mut self, end_choice: impl Fn(Choice) + Send + Sync + 'static) -> Self {
        self.end_choice = Some(Box::new(end_choice));
        self
    }

    /// The request was started with this reservation.
    #[must_use]
    pub fn with(mut self, reservation: Option<Reservation>) -> Self {
        self.reservation = reservation.map(Reservation::into_release);
        self
    }

    pub async fn next(&mut self) -> Option<EngineEvent> {
        let event = self.events.recv().await?;
        if matches!(event, EngineEvent::Prompt(_) | EngineEvent::Token(_))
            && let Some(used_up) = self.reservation.take()
        {
            used_up.disarm();
        }
        Some(event)
    }

    /// Nothing more is wanted of this choice: the others go on. Events of it that are on their way may still come.
    pub fn end_choice(&mut self, choice: Choice) {
        if let Some(end_choice) = &self.end_choice {
            end_choice(choice);
        }
    }

    /// The engine that was to send KV to the request's reservation has ended: a request that waits for more starts with what has
    /// arrived, and computes the rest.
    pub fn expect_no_more(&mut self) {
        self.reservation = None;
    }
}

type EndChoice = Box<dyn Fn(Choice) + Send + Sync>;
type OnDrop = Box<dyn FnOnce(RequestId) + Send + Sync>;

struct AbortOnDrop(Option<(RequestId, OnDrop)>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some((request, on_drop)) = self.0.take() {
            on_drop(request);
        }
    }
}
