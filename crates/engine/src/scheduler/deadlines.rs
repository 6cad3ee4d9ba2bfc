//! What ends by itself: nothing waits for another engine without a bound.

use std::time::Duration;

use baton_core::PromptTimes;

use super::receive::Reserved;
use super::{Scheduler, SessionEvent};
use crate::request::ActiveRequest;
use crate::sequence::{Sequence, Stage};

impl Scheduler {
    /// Ends what has waited too long for another engine. Call it whenever [`next_deadline`](Self::next_deadline) is
    /// reached.
    pub fn tick(&mut self, now: Duration, events: &mut Vec<SessionEvent>) {
        self.revoke_dropped();
        self.expire_leases(now);
        self.expire_landings(now);
        self.expire_deliveries(now, events);
        self.end_starvation(now);
    }

    /// When something happens without a command, an answer of the fabric or the end of a step.
    pub fn next_deadline(&self) -> Option<Duration> {
        [self.next_lease_or_landing(), self.next_delivery(), self.starvation_ends()].into_iter().flatten().min()
    }

    fn expire_leases(&mut self, now: Duration) {
        let due = |reserved: &Reserved| reserved.lease.as_ref().is_some_and(|lease| lease.expires <= now);
        let due: Vec<_> = self.reservations.iter().filter(|(_, reserved)| due(reserved)).map(|(&id, _)| id).collect();
        for id in due {
            let arrived = self.handoff.last_arrival(id);
            if let Some(Reserved { lease: Some(lease), .. }) = self.reservations.get_mut(&id) {
                lease.expires = lease.expires.max(arrived + lease.period);
                if lease.expires <= now {
                    self.abandon(id);
                    self.counters.leases_expired += 1;
                }
            }
        }
    }

    fn expire_landings(&mut self, now: Duration) {
        let due = |stage: &Stage| matches!(stage, Stage::Landing { expires, .. } if *expires <= now);
        let due: Vec<_> = self.sequences.iter().filter(|(_, s)| due(&s.stage)).map(|(&id, _)| id).collect();
        for id in due {
            if let Some(Sequence { stage: Stage::Landing { pages, expires, .. }, .. }) = self.sequences.get_mut(&id) {
                let arrived = self.handoff.last_arrival(pages.id());
                *expires = (*expires).max(arrived + self.limits.landing_timeout);
                if *expires <= now {
                    self.end_landing(now, id, PromptTimes::default());
                    self.counters.landing_timeouts += 1;
                }
            }
        }
    }

    /// Two engines whose oldest sequences each need more than half of a pool could wait for each other: each for pages that
    /// are reserved, whose KV is to be computed by the other. So reservations with which no request has started give way in
    /// the end.
    fn end_starvation(&mut self, now: Duration) {
        if self.starvation_ends().is_some_and(|at| at <= now) {
            self.counters.leases_expired += self.reservations.len() as u64;
            self.abandon_all(|_| true);
        }
    }

    fn starvation_ends(&self) -> Option<Duration> {
        let since = self.starving.filter(|_| !self.reservations.is_empty())?;
        Some(since + self.limits.landing_timeout)
    }

    fn next_lease_or_landing(&self) -> Option<Duration> {
        let leases = self.reservations.values().filter_map(|reserved| Some(reserved.lease.as_ref()?.expires));
        let landings = self.sequences.values().filter_map(|sequence| match sequence.stage {
            Stage::Landing { expires, .. } => Some(expires),
            _ => None,
        });
        leases.chain(landings).min()
    }

    /// A receiver that confirms one piece after the other is slow, and no more than that.
    fn expire_deliveries(&mut self, now: Duration, events: &mut Vec<SessionEvent>) {
        let due = |request: &ActiveRequest| confirmed_by(request).is_some_and(|by| by <= now);
        let due: Vec<_> = self.requests.iter().filter(|(_, request)| due(request)).map(|(&key, _)| key).collect();
        for key in due {
            let Some(export) = self.requests.get_mut(&key).and_then(|request| request.export.as_mut()) else {
                continue;
            };
            let renewed = self.handoff.last_taken(export.id) + self.limits.delivery_timeout;
            if renewed > now {
                export.confirmed_by = Some(renewed);
                continue;
            }
            self.fail_export(key, "the receiver did not confirm the hand-off in time".to_owned(), events);
        }
    }

    fn next_delivery(&self) -> Option<Duration> {
        self.requests.values().filter_map(confirmed_by).min()
    }
}

fn confirmed_by(request: &ActiveRequest) -> Option<Duration> {
    request.export.as_ref()?.confirmed_by
}
