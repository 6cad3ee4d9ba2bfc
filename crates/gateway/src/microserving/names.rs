//! `user` names a request over its three calls. One secret is one caller: all who know it share these names.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use baton_core::RequestId;
use baton_protocol::Reservation;
use tokio::time::Instant;

use crate::error::ApiError;

/// From this many on, reservations that ran out are forgotten.
const MAX_NAMES: usize = 4096;

/// All on one session of the engine, so that no two of its requests have the same id.
#[derive(Default)]
pub(super) struct Names {
    known: Mutex<BTreeMap<Name, Known>>,
    next_request: AtomicU64,
}

/// An engine may be on both sides of the same request: a router may let it send to itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Name {
    /// KV is received for it here, and it is generated here.
    Receiving(String),
    /// Its KV is computed here for another engine.
    Sending(String),
}

struct Known {
    request: RequestId,
    stage: Stage,
}

enum Stage {
    /// A call is being answered.
    Busy,
    /// `prep_recv` was answered. Until then the engine keeps the reservation, and longer if KV arrives.
    Reserved { reservation: Reservation, until: Instant },
}

/// A call that is being answered. Dropping it frees the name or, if a reservation is still in it, keeps that.
pub(super) struct Turn {
    names: Arc<Names>,
    name: Option<Name>,
    pub(super) request: RequestId,
    reservation: Option<Reservation>,
}

impl Names {
    /// Whatever was reserved under this name is in the turn. Without a name there is nothing to collide with.
    pub(super) fn enter(self: &Arc<Self>, name: Option<Name>) -> Result<Turn, ApiError> {
        let Some(name) = name else { return Ok(self.turn(None, self.fresh(), None)) };
        let mut known = self.lock();
        let (request, reservation) = match known.remove(&name) {
            None => (self.fresh(), None),
            Some(Known { request, stage: Stage::Reserved { reservation, .. } }) => (request, Some(reservation)),
            Some(busy) => {
                let error = in_flight(&name);
                known.insert(name, busy);
                return Err(error);
            }
        };
        if known.len() >= MAX_NAMES {
            known.retain(|_, known| !known.stage.has_run_out());
        }
        if known.len() >= MAX_NAMES {
            return Err(ApiError::busy(format!("{MAX_NAMES} requests are in flight already"), 1000));
        }
        known.insert(name.clone(), Known { request, stage: Stage::Busy });
        Ok(self.turn(Some(name), request, reservation))
    }

    /// For a new reservation. One whose lease may have ended is in the turn: only the engine knows.
    pub(super) fn enter_anew(self: &Arc<Self>, user: String) -> Result<Turn, ApiError> {
        let name = Name::Receiving(user);
        if self.lock().get(&name).is_some_and(|known| !known.stage.has_run_out()) {
            return Err(in_flight(&name));
        }
        self.enter(Some(name))
    }

    fn turn(self: &Arc<Self>, name: Option<Name>, request: RequestId, reservation: Option<Reservation>) -> Turn {
        Turn { names: Arc::clone(self), name, request, reservation }
    }

    fn fresh(&self) -> RequestId {
        RequestId(self.next_request.fetch_add(1, Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stage {
    fn has_run_out(&self) -> bool {
        matches!(self, Self::Reserved { until, .. } if *until <= Instant::now())
    }
}

impl Turn {
    pub(super) fn take_reservation(&mut self) -> Option<Reservation> {
        self.reservation.take()
    }

    /// The name now stands for this reservation.
    pub(super) fn keep(mut self, reservation: Reservation, lease: Duration) {
        self.reservation = None;
        self.leave(Some(Stage::Reserved { reservation, until: Instant::now() + lease }));
    }

    fn leave(&mut self, stage: Option<Stage>) {
        let Some(name) = self.name.take() else { return };
        let mut known = self.names.lock();
        match stage {
            Some(stage) => drop(known.insert(name, Known { request: self.request, stage })),
            None => drop(known.remove(&name)),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let kept = self.reservation.take().map(|reservation| Stage::Reserved { reservation, until: Instant::now() });
        self.leave(kept);
    }
}

fn in_flight(name: &Name) -> ApiError {
    let (Name::Receiving(user) | Name::Sending(user)) = name;
    let message = format!("the request {user:?} is in flight here already");
    ApiError { status: StatusCode::CONFLICT, ..ApiError::invalid("user", message) }
}

#[cfg(test)]
mod tests {
    use baton_core::ReservationId;
    use baton_protocol::Destination;
    use tokio::sync::mpsc;

    use super::*;

    const LEASE: Duration = Duration::from_secs(60);

    struct Reservations(mpsc::UnboundedSender<ReservationId>);

    impl Reservations {
        fn make(&self, id: u64) -> Reservation {
            let (to, released) = (Destination { matched: 0, end: 0, target: [].into() }, self.0.clone());
            Reservation::new(ReservationId(id), to, move |id| released.send(id).unwrap())
        }
    }

    fn name() -> Option<Name> {
        Some(Name::Receiving("a".to_owned()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_one_request_at_a_time() {
        let (released, mut gone) = mpsc::unbounded_channel();
        let (names, reservations) = (Arc::new(Names::default()), Reservations(released));
        let turn = names.enter_anew("a".into()).unwrap();
        assert_eq!(names.enter(name()).err().unwrap().status, 409, "being answered");
        for other in [Some(Name::Receiving("b".into())), Some(Name::Sending("a".into())), None] {
            assert_ne!(names.enter(other).unwrap().request, turn.request);
        }

        let request = turn.request;
        turn.keep(reservations.make(1), LEASE);
        assert_eq!(names.enter_anew("a".into()).err().unwrap().status, 409, "reserved");
        let mut turn = names.enter(name()).unwrap();
        assert_eq!((turn.request, turn.take_reservation().unwrap().id()), (request, ReservationId(1)));
        assert_eq!(gone.recv().await, Some(ReservationId(1)));
        assert_eq!(names.enter(name()).err().unwrap().status, 409, "started");
        drop(turn);
        assert_ne!(names.enter(name()).unwrap().request, request, "ended: another request may have the name");
    }

    #[tokio::test(start_paused = true)]
    async fn after_its_lease_a_reservation_may_be_requested_again() {
        let (released, mut gone) = mpsc::unbounded_channel();
        let (names, reservations) = (Arc::new(Names::default()), Reservations(released));
        names.enter_anew("a".into()).unwrap().keep(reservations.make(1), LEASE);
        tokio::time::advance(LEASE).await;
        // The engine still holds it.
        drop(names.enter_anew("a".into()).unwrap());
        assert!(gone.try_recv().is_err());
        // The engine has made a new one.
        names.enter_anew("a".into()).unwrap().keep(reservations.make(2), LEASE);
        assert_eq!(gone.recv().await, Some(ReservationId(1)));
        assert_eq!(names.enter(name()).unwrap().take_reservation().unwrap().id(), ReservationId(2));
    }

    #[tokio::test(start_paused = true)]
    async fn names_are_bounded() {
        let (released, _gone) = mpsc::unbounded_channel();
        let (names, reservations) = (Arc::new(Names::default()), Reservations(released));
        for at in 0..MAX_NAMES as u64 {
            names.enter_anew(at.to_string()).unwrap().keep(reservations.make(at), LEASE);
        }
        assert_eq!(names.enter(name()).err().unwrap().status, 429);
        assert!(names.enter(Some(Name::Receiving("7".into()))).is_ok(), "known already");
        tokio::time::advance(LEASE).await;
        assert!(names.enter(name()).is_ok());
        assert_eq!(names.lock().len(), 0);
    }
}
