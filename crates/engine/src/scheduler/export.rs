//! KV for other engines: a prompt is computed like any other, and its pages are offered as they become final.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use baton_core::{
    Choice, EngineEvent, GenerateRequest, Limits, PAGE_TOKENS, PromptTimes, SamplingParams, SentEvent, ServeError,
    TokenRange,
};
use baton_kv::pages_for;
use baton_protocol::{RemoteSend, SessionId};

use super::{Scheduler, SessionEvent};
use crate::handoff::{Computed, ExportId, Exported, HandedPrompt, PageOffer};
use crate::request::{ActiveRequest, Progress, PromptProgress};
use crate::sequence::{RequestKey, Run, Sequence, SequenceId, Stage};

/// What a request for a hand-off has besides its prompt.
pub(crate) struct PromptExport {
    pub(crate) id: ExportId,
    range: TokenRange,
    /// Pages of the sequence that the receiver wants and will get.
    pages: Range<usize>,
    /// Set once everything was offered.
    pub(super) confirmed_by: Option<Duration>,
}

impl PromptExport {
    /// `room` is what the receiver expects. It counts a page as whole or up to the end of its room: a page that is filled
    /// neither way must not be offered.
    fn new(id: ExportId, range: TokenRange, room: TokenRange) -> Self {
        let first = range.begin().max(room.begin()) as usize / PAGE_TOKENS;
        let end = match range.end() {
            _ if range.is_empty() => first,
            end if end >= room.end() => room.pages(),
            end => end as usize / PAGE_TOKENS,
        };
        Self { id, range, pages: first..end.max(first), confirmed_by: None }
    }

    /// Pages that are final once positions `[from, to)` of `total` have been computed.
    fn final_pages(&self, from: usize, to: usize, total: usize) -> Range<usize> {
        let whole = |end: usize| if end == total { pages_for(end) } else { end / PAGE_TOKENS };
        let within = |page: usize| page.clamp(self.pages.start, self.pages.end);
        within(whole(from))..within(whole(to))
    }
}

impl Scheduler {
    pub(super) fn remote_send(
        &mut self,
        now: Duration,
        session: SessionId,
        call: RemoteSend,
    ) -> Result<(), ServeError> {
        let RemoteSend { request, attempt, prompt, adapter, range, target } = call;
        let Some(computed) = prompt.get(..range.end() as usize) else {
            let length = prompt.len();
            return Err(ServeError::caller(format!("{range} lies behind the prompt of {length} tokens")).about("end"));
        };
        // What comes after it is the receiver's business.
        if !computed.is_empty() {
            self.limits.check_prompt(computed, adapter)?;
        }
        let key = RequestKey { session, request };
        self.make_way(key, attempt)?;

        let id = ExportId(self.next_export);
        self.next_export += 1;
        let room = self.handoff.begin_export(id, HandedPrompt { tokens: &prompt, adapter }, &target)?;
        let mut export = PromptExport::new(id, range, room);
        let mut active = ActiveRequest {
            input: GenerateRequest {
                id: request,
                attempt,
                prompt: Arc::from(computed),
                outputs: vec![Vec::new()],
                ended: vec![false],
                sampling: SamplingParams::greedy(),
                limits: Limits { max_tokens: 0, min_tokens: 0, stop_tokens: Vec::new() },
                logprobs: None,
                prompt_logprobs: None,
                adapter,
                pooling: None,
                affinity: None,
            },
            generates: false,
            sequences: Vec::new(),
            prompt: PromptProgress::Reported,
            pooled: None,
            export: None,
            progress: Progress::new(now),
        };
        if export.pages.is_empty() {
            self.handoff.finish_export(id, PromptTimes::default());
            export.confirmed_by = Some(now + self.limits.delivery_timeout);
        } else {
            let sequence = self.queue(key, Choice(0), computed.to_vec());
            self.make_ready(sequence);
            active.sequences.push(sequence);
        }
        active.export = Some(export);
        self.requests.insert(key, active);
        Ok(())
    }

    pub(super) fn is_export(&self, id: SequenceId) -> bool {
        let request = self.sequences.get(&id).and_then(|sequence| self.requests.get(&sequence.request));
        request.is_some_and(|request| request.export.is_some())
    }

    /// Pages of an exported sequence that are final once these positions are computed; `None` for other sequences.
    pub(super) fn offer_of(&self, id: SequenceId, positions: Range<usize>, computed: Computed) -> Option<PageOffer> {
        let sequence = self.sequences.get(&id)?;
        let export = self.requests.get(&sequence.request)?.export.as_ref()?;
        let total = sequence.tokens.len();
        let indices = export.final_pages(positions.start, positions.end, total);
        let pages = sequence.pages()?.pages().get(indices.clone())?.to_vec();
        let last = positions.end == total;
        Some(PageOffer { export: export.id, first_index: indices.start, pages, computed, last })
    }

    /// All of it is computed and offered: the pages stay until the receiver has confirmed.
    pub(super) fn deliver(&mut self, now: Duration, id: SequenceId) {
        let Some(Sequence { request, stage, .. }) = self.sequences.get_mut(&id) else { return };
        let Some(request) = self.requests.get_mut(request) else { return };
        let Some(export) = &mut request.export else { return };
        let times = request.progress.times(now);
        *stage = match std::mem::replace(stage, Stage::Waiting) {
            Stage::Running(Run { slot, pages, .. }) => {
                self.slots.release(slot);
                Stage::Delivering { pages }
            }
            stage => stage,
        };
        self.running.retain(|&running| running != id);
        self.handoff.finish_export(export.id, times);
        export.confirmed_by = Some(now + self.limits.delivery_timeout);
    }

    /// What became of a hand-off.
    pub fn exported(&mut self, id: ExportId, outcome: Result<Exported, String>, events: &mut Vec<SessionEvent>) {
        let of = |request: &ActiveRequest| request.export.as_ref().is_some_and(|export| export.id == id);
        let Some(key) = self.requests.iter().find(|(_, request)| of(request)).map(|(&key, _)| key) else { return };
        match outcome {
            Ok(exported) => self.end_export(key, exported, events),
            Err(reason) => self.fail_export(key, format!("the hand-off broke off: {reason}"), events),
        }
    }

    fn end_export(&mut self, key: RequestKey, exported: Exported, events: &mut Vec<SessionEvent>) {
        let Exported { verified_tokens: verified, damaged } = exported;
        let Some(ActiveRequest { input, export: Some(export), .. }) = self.remove_request(key, !damaged) else {
            return;
        };
        if damaged {
            // It may have been cached before: offered once more it would be summed anew, and pass.
            self.ledger.forget(&input.prompt, input.adapter, verified / PAGE_TOKENS);
        }
        let verified = verified.min(export.range.end() as usize).saturating_sub(export.range.begin() as usize);
        let sent = SentEvent { request: input.id, attempt: input.attempt, verified_tokens: verified as u32 };
        events.push(SessionEvent { session: key.session, event: EngineEvent::Sent(sent) });
        self.counters.handoffs_sent += 1;
    }

    pub(super) fn fail_export(&mut self, key: RequestKey, message: String, events: &mut Vec<SessionEvent>) {
        if let Some(request) = self.remove_request(key, true) {
            let event = request.failed(ServeError::engine(message));
            events.push(SessionEvent { session: key.session, event });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_offered_when_they_are_final_and_only_if_they_count() {
        let range = |begin, end| TokenRange::new(begin, end).unwrap();
        // (requested, the receiver's room, computed chunks) → pages that are final after each chunk
        type Case<'a> = (TokenRange, TokenRange, &'a [usize], &'a [(usize, usize)]);
        let cases: [Case<'_>; 9] = [
            (range(0, 100), range(0, 100), &[100], &[(0, 4)]),
            (range(0, 100), range(0, 100), &[40, 70, 100], &[(0, 1), (1, 2), (2, 4)]),
            (range(0, 100), range(0, 100), &[10, 31, 32, 99, 100], &[(0, 0), (0, 0), (0, 1), (1, 3), (3, 4)]),
            (range(0, 100), range(64, 100), &[40, 70, 100], &[(2, 2), (2, 2), (2, 4)]),
            (range(40, 100), range(0, 100), &[70, 100], &[(1, 2), (2, 4)]),
            // The receiver would take page 3 for whole up to 120.
            (range(0, 100), range(0, 120), &[100], &[(0, 3)]),
            (range(0, 120), range(0, 100), &[98, 120], &[(0, 3), (3, 4)]),
            (range(96, 96), range(96, 96), &[96], &[(3, 3)]),
            (range(99, 99), range(64, 99), &[99], &[(3, 3)]),
        ];
        for (requested, room, chunks, expected) in cases {
            let export = PromptExport::new(ExportId(0), requested, room);
            let mut from = 0;
            for (&to, &(first, end)) in chunks.iter().zip(expected) {
                let got = export.final_pages(from, to, requested.end() as usize);
                assert_eq!(got, first..end, "{requested} into {room}: [{from}, {to})");
                from = to;
            }
        }
    }
}
