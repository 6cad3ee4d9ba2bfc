//! KV that vLLM's first leg leaves for the second.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::book::{Book, lock};
use super::desk::Refusal;

pub(super) struct Offers {
    timeout: Duration,
    book: Mutex<Book<String, Offer>>,
}

struct Offer {
    tokens: u32,
    prompt: u64,
    expires: Instant,
    taken: bool,
}

impl Offers {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout, book: Mutex::default() }
    }

    /// Returns how long it will wait.
    pub(super) fn put(&self, name: String, prompt: u64, tokens: u32) -> Duration {
        let expires = Instant::now() + self.timeout;
        lock(&self.book).insert(name, Offer { tokens, prompt, expires, taken: false });
        self.timeout
    }

    /// How many tokens it was.
    pub(super) fn take(&self, name: &str, prompt: u64) -> Result<u32, Refusal> {
        let mut book = lock(&self.book);
        let offer = book.entries.get_mut(name).ok_or(Refusal::Unknown)?;
        if offer.taken {
            return Err(Refusal::Used);
        }
        if offer.expires <= Instant::now() {
            return Err(Refusal::Expired);
        }
        if offer.prompt != prompt {
            return Err(Refusal::OtherPrompt);
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
        assert_eq!(offers.take("b", 7), Err(Refusal::Unknown));
        assert_eq!(offers.take("a", 8), Err(Refusal::OtherPrompt));
        assert_eq!(offers.take("a", 7), Ok(100));
        assert_eq!(offers.take("a", 7), Err(Refusal::Used));
        offers.put("late".to_owned(), 7, 100);
        tokio::time::advance(Duration::from_secs(31)).await;
        assert_eq!(offers.take("late", 7), Err(Refusal::Expired));
    }
}
