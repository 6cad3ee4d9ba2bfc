//! For warnings about what goes on for a while: the first one helps, a thousand hide everything else.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const INTERVAL: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct WarnLimit(Mutex<Option<Instant>>);

impl WarnLimit {
    /// True the first time, then not before a minute without any call has passed.
    pub(crate) fn should_warn(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let news = last.is_none_or(|last| now - last >= INTERVAL);
        *last = Some(now);
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_goes_on_is_warned_of_once() {
        let limit = WarnLimit::default();
        assert!(limit.should_warn());
        for _ in 0..10 {
            tokio::time::advance(INTERVAL / 2).await;
            assert!(!limit.should_warn());
        }
        tokio::time::advance(INTERVAL).await;
        assert!(limit.should_warn());
    }
}
