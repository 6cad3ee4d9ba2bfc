//! Engines join and leave, and roles change, while requests are served.

use std::sync::Arc;
use std::time::Duration;

use baton_protocol::Engine;
use baton_router::{
    Disagg, DispatchConfig, Dispatcher, EngineId, EngineState, Fleet, LeastLoaded, NameTaken, NotThere, Role,
    RoundRobin,
};
use futures_util::FutureExt;
use tokio::time::{sleep, timeout};

use crate::scripted::{Act, Scripted, fleet, long_request, read, request, undisturbed};
use crate::wired::Wired;

const A_WHILE: Duration = Duration::from_secs(60);

fn add(fleet: &Fleet, name: &str, role: Role, engine: &Arc<Scripted>) -> EngineId {
    let id = fleet.add(name, role).unwrap();
    fleet.engine_ready(id, Arc::clone(engine) as _);
    id
}

#[test]
fn ids_are_never_used_twice_and_names_are_unique() {
    let fleet = Fleet::new([("a".to_owned(), Role::Mixed), ("b".to_owned(), Role::Mixed)]);
    assert_eq!(fleet.ids(), [EngineId(0), EngineId(1)]);
    assert_eq!(fleet.add("a", Role::Decode), Err(NameTaken("a".to_owned())));
    fleet.remove(EngineId(1)).unwrap();
    assert_eq!(fleet.add("b", Role::Decode), Err(NameTaken("b".to_owned())), "it is still leaving");
    fleet.drained(EngineId(1)).now_or_never().unwrap();
    assert_eq!(fleet.add("b", Role::Decode), Ok(EngineId(2)));
    assert_eq!((fleet.ids(), fleet.id("b")), (vec![EngineId(0), EngineId(2)], Some(EngineId(2))));
    assert_eq!(fleet.remove(EngineId(1)), Err(NotThere));
    assert_eq!(fleet.set_role(EngineId(1), Role::Mixed), Err(NotThere));
    // What is reported of an engine that has left is ignored.
    fleet.engine_ready(EngineId(1), Scripted::new([]));
    fleet.engine_down(EngineId(1));
    assert!(!fleet.is_ready());
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_joins_is_used_and_wakes_requests_that_wait() {
    let (first, second) = (Scripted::new([]), Scripted::new([]));
    let fleet = Arc::new(Fleet::new([]));
    let dispatcher = Dispatcher::new(Arc::clone(&fleet), Arc::new(RoundRobin::default()), DispatchConfig::default());
    let waiting = dispatcher.generate(request(1, 4)).await.unwrap();
    let joining = async {
        sleep(Duration::from_secs(3)).await;
        add(&fleet, "late", Role::Mixed, &first);
    };
    let ((outputs, ..), ()) = tokio::join!(read(waiting, 1), joining);
    assert_eq!(outputs, undisturbed(1, 4));
    add(&fleet, "later", Role::Mixed, &second);
    for _ in 0..4 {
        read(dispatcher.generate(request(1, 4)).await.unwrap(), 1).await;
    }
    assert_eq!((first.served(), second.served()), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_leaves_finishes_what_it_has() {
    let (leaves, stays) = (Scripted::new([Act::Hang]), Scripted::new([]));
    let fleet = fleet(&[&leaves, &stays]);
    let dispatcher = Dispatcher::new(Arc::clone(&fleet), Arc::new(LeastLoaded), DispatchConfig::default());
    let mut open = dispatcher.generate(request(1, 4)).await.unwrap();
    open.next().await.unwrap();
    assert_eq!(leaves.served(), 1);

    let drained = {
        let fleet = Arc::clone(&fleet);
        tokio::spawn(async move { fleet.drained(EngineId(0)).await })
    };
    sleep(A_WHILE).await;
    fleet.remove(EngineId(0)).unwrap();
    assert_eq!(fleet.remove(EngineId(0)), Err(NotThere), "it is leaving already");
    assert_eq!(fleet.set_role(EngineId(0), Role::Decode), Err(NotThere));
    for _ in 0..4 {
        let (outputs, ..) = read(dispatcher.generate(request(1, 4)).await.unwrap(), 1).await;
        assert_eq!(outputs, undisturbed(1, 4));
    }
    sleep(A_WHILE).await;
    let status = fleet.status();
    assert_eq!((status[0].state, status[0].in_flight.sequences), (EngineState::Leaving, 1));
    assert!(!drained.is_finished() && leaves.dropped.lock().unwrap().is_empty(), "its request was disturbed");

    drop(open);
    timeout(Duration::from_secs(1), drained).await.unwrap().unwrap();
    assert_eq!(fleet.ids(), [EngineId(1)]);
    assert_eq!((leaves.served(), stays.served(), dispatcher.resumed_total()), (1, 4, 0));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_dies_while_it_leaves_has_left() {
    let (dies, stays) = (Scripted::new([Act::DieAfter(2)]), Scripted::new([]));
    let fleet = fleet(&[&dies, &stays]);
    let dispatcher = Dispatcher::new(Arc::clone(&fleet), Arc::new(LeastLoaded), DispatchConfig::default());
    let stream = dispatcher.generate(request(1, 6)).await.unwrap();
    fleet.remove(EngineId(0)).unwrap();
    let (outputs, ..) = read(stream, 1).await;
    assert_eq!(outputs, undisturbed(1, 6));
    timeout(Duration::from_secs(1), fleet.drained(EngineId(0))).await.unwrap();
    assert_eq!(fleet.ids(), [EngineId(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_role_changes_for_the_next_request_and_not_for_those_in_flight() {
    let wire = Arc::default();
    let engines = [(); 2].map(|()| Arc::new(Wired::new(&wire)));
    let named = engines.iter().zip([("one", Role::Prefill), ("two", Role::Decode)]).map(|(engine, (name, role))| {
        let engine: Arc<dyn Engine> = Arc::clone(engine) as _;
        (name.to_owned(), role, engine)
    });
    let fleet = Arc::new(Fleet::of_ready(named));
    let dispatcher = Dispatcher::new(Arc::clone(&fleet), Arc::new(Disagg::new(0.0)), DispatchConfig::default());
    let starts_and_sends = || engines.each_ref().map(|engine| (engine.starts(), engine.sends()));

    // A prompt is on its way from the first to the second when they change places.
    let under_way = dispatcher.generate(long_request(100, 1, 8)).await.unwrap();
    sleep(Duration::from_millis(5)).await;
    assert_eq!(starts_and_sends(), [(0, 1), (1, 0)]);
    fleet.set_role(EngineId(0), Role::Decode).unwrap();
    fleet.set_role(EngineId(1), Role::Prefill).unwrap();
    let (outputs, ..) = read(under_way, 1).await;
    assert_eq!(outputs, undisturbed(1, 8));
    assert_eq!(starts_and_sends(), [(0, 1), (1, 0)]);

    let (outputs, ..) = read(dispatcher.generate(long_request(100, 1, 8)).await.unwrap(), 1).await;
    assert_eq!(outputs, undisturbed(1, 8));
    assert_eq!(starts_and_sends(), [(1, 1), (1, 1)]);
    assert_eq!(dispatcher.resumed_total(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_role_stays_over_restarts() {
    let (engine, restarted) = (Scripted::new([]), Scripted::new([]));
    let fleet = fleet(&[&engine]);
    fleet.set_role(EngineId(0), Role::Decode).unwrap();
    fleet.engine_down(EngineId(0));
    fleet.engine_restarting(EngineId(0));
    fleet.engine_ready(EngineId(0), restarted);
    let status = &fleet.status()[0];
    assert_eq!((status.role, status.state), (Role::Decode, EngineState::Ready));
}

#[tokio::test(start_paused = true)]
async fn without_an_engine_for_decode_prefill_engines_serve() {
    let engine = Scripted::new([]);
    let fleet = fleet(&[&engine]);
    fleet.set_role(EngineId(0), Role::Prefill).unwrap();
    for strategy in [Arc::new(Disagg::new(0.0)) as _, Arc::new(LeastLoaded) as _, Arc::new(RoundRobin::default()) as _]
    {
        let dispatcher = Dispatcher::new(Arc::clone(&fleet), strategy, DispatchConfig::default());
        let (outputs, ..) = read(dispatcher.generate(request(1, 4)).await.unwrap(), 1).await;
        assert_eq!(outputs, undisturbed(1, 4));
    }
    assert_eq!(engine.served(), 3);
}
