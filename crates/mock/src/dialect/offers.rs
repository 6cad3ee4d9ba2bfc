//! KV that vLLM's prefill leg leaves for the decode leg, by name.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::bounded_map::{BoundedMap, lock};
use super::handoffs::KvError;

pub(super) struct Offers {
    timeout: Duration,
    by_name: Mutex<BoundedMap<String, PendingOffer>>,
}

struct PendingOffer {
    tokens: u32,
    prompt: u64,
    expires: Instant,
    taken: bool,
}

impl Offers {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout, by_name: Mutex::default() }
    }

    /// Returns the time for which it can be fetched.
    pub(super) fn put(&self, name: String, prompt: u64, tokens: u32) -> Duration {
        let expires = Instant::now() + self.timeout;
        lock(&self.by_name).insert(name, PendingOffer { tokens, prompt, expires, taken: false });
        self.timeout
    }

    /// Returns the number of tokens.
    pub(super) fn take(&self, name: &str, prompt: u64) -> Result<u32, KvError> {
        let mut offers = lock(&self.by_name);
        let offer = offers.entries.get_mut(name).ok_or(KvError::Unknown)?;
        if offer.taken {
            return Err(KvError::Used);
        }
        if offer.expires <= Instant::now() {
            return Err(KvError::Expired);
        }
        if offer.prompt != prompt {
            return Err(KvError::OtherPrompt);
        }
        offer.taken = true;
        Ok(offer.tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn kv_is_fetched_once_in_time_and_for_its_prompt() {
        let offers = Offers::new(Duration::from_secs(30));
        offers.put("a".to_owned(), 7, 100);
        assert_eq!(offers.take("b", 7), Err(KvError::Unknown));
        assert_eq!(offers.take("a", 8), Err(KvError::OtherPrompt));
        assert_eq!(offers.take("a", 7), Ok(100));
        assert_eq!(offers.take("a", 7), Err(KvError::Used));
        offers.put("late".to_owned(), 7, 100);
        tokio::time::advance(Duration::from_secs(31)).await;
        assert_eq!(offers.take("late", 7), Err(KvError::Expired));
    }
}
