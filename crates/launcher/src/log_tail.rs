//! The last lines of an engine's log, shown when it crashes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Tail;

const KEPT_LINES: usize = 40;

#[derive(Default)]
pub(crate) struct LogTail(Mutex<VecDeque<String>>);

impl LogTail {
    pub(crate) fn push(&self, line: String) {
        let mut lines = self.lock();
        if lines.len() == KEPT_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    pub(crate) fn lines(&self) -> Tail {
        Tail(Some(self.lock().iter().cloned().collect()))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest_lines() {
        let tail = LogTail::default();
        assert_eq!(tail.lines().to_string(), "; its log is empty");
        (0..50).for_each(|line| tail.push(line.to_string()));
        let lines = tail.lines().0.unwrap();
        assert_eq!((lines.len(), lines[0].as_str(), lines[39].as_str()), (40, "10", "49"));
    }
}
