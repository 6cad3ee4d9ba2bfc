//! Who gets the next request.

use std::sync::Arc;

use crate::scripted::{Act, Scripted, fleet, long_request, read, request};
use baton_core::{AffinityKey, BlockHash, CacheEvent, EngineLoad, GenerateRequest, ServeError};
use baton_protocol::TokenStream;
use baton_router::{DispatchConfig, Dispatcher, EngineId, LeastLoaded, PrefixAware, RoundRobin, SessionAffinity};

fn served(engines: &[Arc<Scripted>]) -> Vec<usize> {
    engines.iter().map(|engine| engine.served()).collect()
}

#[tokio::test(start_paused = true)]
async fn round_robin_really_rotates_and_skips_who_is_gone() {
    let engines = [(); 3].map(|()| Scripted::new([]));
    let fleet = fleet(&engines.each_ref());
    let dispatcher = Dispatcher::new(Arc::clone(&fleet), Arc::new(RoundRobin::default()), DispatchConfig::default());
    let send = async |times: usize| {
        for _ in 0..times {
            read(dispatcher.generate(request(1, 1)).await.unwrap(), 1).await;
        }
    };
    send(7).await;
    assert_eq!(served(&engines), [3, 2, 2]);
    fleet.engine_down(EngineId(1));
    send(4).await;
    assert_eq!(served(&engines), [5, 2, 4]);
}

#[tokio::test(start_paused = true)]
async fn least_loaded_counts_reports_and_own_requests() {
    let engines = [(); 3].map(|()| Scripted::new(vec![Act::Hang; 9]));
    engines[0].load.lock().unwrap().running = 3;
    *engines[1].load.lock().unwrap() = EngineLoad { waiting: 1, pending_prefill_tokens: 10, ..EngineLoad::default() };
    let fleet = fleet(&engines.each_ref());
    let dispatcher = Dispatcher::new(fleet, Arc::new(LeastLoaded), DispatchConfig::default());
    let mut open = Vec::new();
    // Loads before each: 3 1 0 · 3 1 1 (shorter prefill queue wins) · 3 1 2 · 3 3 2 · 3 3 3 (lowest id wins)
    for (choices, picked) in [(1, 2), (1, 2), (2, 1), (1, 2), (1, 0)] {
        let before = served(&engines)[picked];
        let mut stream = dispatcher.generate(request(choices, 1)).await.unwrap();
        stream.next().await.unwrap();
        open.push(stream);
        assert_eq!(served(&engines)[picked], before + 1, "request {}", open.len());
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_engine_reports_as_ours_is_not_counted_twice() {
    let engines = [(); 2].map(|()| Scripted::new(vec![Act::Hang; 9]));
    engines[1].load.lock().unwrap().running = 2;
    let dispatcher = Dispatcher::new(fleet(&engines.each_ref()), Arc::new(LeastLoaded), DispatchConfig::default());
    let mut open = Vec::new();
    // Two of ours on the first engine weigh as much as two of others on the second: the lower id wins, then not any more.
    for picked in [0, 0, 0, 1] {
        let before = served(&engines)[picked];
        let mut stream = dispatcher.generate(request(1, 1)).await.unwrap();
        stream.next().await.unwrap();
        open.push(stream);
        assert_eq!(served(&engines)[picked], before + 1, "request {}", open.len());
        let ours = served(&engines)[0] as u32;
        engines[0].load.lock().unwrap().running = ours;
        engines[0].own.lock().unwrap().sequences = ours;
    }
}

#[tokio::test(start_paused = true)]
async fn load_is_given_back_when_a_request_ends_or_is_left() {
    let engines = [Scripted::new([Act::Hang]), Scripted::new([Act::Hang])];
    let fleet = fleet(&engines.each_ref());
    let dispatcher = Dispatcher::new(fleet, Arc::new(LeastLoaded), DispatchConfig::default());
    let mut first = dispatcher.generate(request(1, 1)).await.unwrap();
    first.next().await.unwrap();
    drop(first);
    tokio::task::yield_now().await;
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    // The first engine is free again, and stays first however often it serves.
    for _ in 0..3 {
        read(dispatcher.generate(request(1, 1)).await.unwrap(), 1).await;
    }
    assert_eq!(served(&engines), [4, 0]);
}

/// Engine `at` reports the first `pages` of a long request's prompt as cached.
fn cache(engine: &Scripted, prompt_tokens: u32, pages: usize) {
    let prompt = long_request(prompt_tokens, 1, 1).prompt;
    let blocks = BlockHash::chain(&prompt, None).take(pages).collect();
    engine.report_cache(0, vec![CacheEvent::Reset, CacheEvent::Stored { parent: None, blocks }]);
}

#[tokio::test(start_paused = true)]
async fn prefix_aware_takes_the_longest_match_until_it_has_too_much_to_do() {
    let engines = [(); 4].map(|()| Scripted::new(vec![Act::Hang; 9]));
    let fleet = fleet(&engines.each_ref());
    for (engine, pages) in [(1, 2), (2, 5), (3, 5)] {
        cache(&engines[engine], 200, pages);
    }
    engines[3].load.lock().unwrap().running = 1;
    let dispatcher = Dispatcher::new(Arc::clone(&fleet), Arc::new(PrefixAware::new(2)), DispatchConfig::default());
    let mut open = Vec::new();
    // Loads before each: 0 0 0 1 · 0 0 1 1 (lowest id) · 0 0 2 1 · 0 0 2 2 · 0 0 3 2 · 0 0 3 3 (the next best match)
    // · 0 1 3 3 · 0 2 3 3 · 0 3 3 3 (all are more than 2 above the least) · 1 3 3 3 (they are not)
    for (request, picked) in [2, 2, 3, 2, 3, 1, 1, 1, 0, 2].into_iter().enumerate() {
        let before = served(&engines);
        let mut stream = dispatcher.generate(long_request(200, 1, 1)).await.unwrap();
        stream.next().await.unwrap();
        open.push(stream);
        assert_eq!(served(&engines)[picked], before[picked] + 1, "request {request}: {before:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn prefix_aware_leaves_an_engine_that_has_failed_the_request() {
    let failure = ServeError::engine("out of order");
    let engines = [Scripted::new([]), Scripted::new([Act::FailAfter(0, failure)])];
    let fleet = fleet(&engines.each_ref());
    cache(&engines[1], 200, 6);
    let dispatcher = Dispatcher::new(fleet, Arc::new(PrefixAware::new(8)), DispatchConfig::default());
    let (_, _, failure) = read(dispatcher.generate(long_request(200, 1, 3)).await.unwrap(), 1).await;
    assert_eq!((served(&engines), failure), (vec![1, 1], None));
}

#[tokio::test(start_paused = true)]
async fn what_is_cached_is_expected_and_not_counted_as_load() {
    let engine = Scripted::new([Act::Serve, Act::Silent]);
    let fleet = fleet(&[&engine]);
    cache(&engine, 200, 5);
    let dispatcher = Dispatcher::new(Arc::clone(&fleet), Arc::new(RoundRobin::default()), DispatchConfig::default());
    read(dispatcher.generate(long_request(200, 1, 1)).await.unwrap(), 1).await;
    let counters = dispatcher.counters();
    assert_eq!(
        (counters.cached_tokens_expected, counters.cached_tokens_found),
        (160, 0),
        "scripted engines take nothing"
    );

    let _open = dispatcher.generate(long_request(200, 1, 1)).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    assert_eq!(fleet.status()[0].in_flight.prefill_tokens, 40);
}

/// Which engine serves a request with this key; the stream stays open.
async fn serve(dispatcher: &Dispatcher, engines: &[Arc<Scripted>], user: Option<&str>) -> (usize, TokenStream) {
    let before = served(engines);
    let request = GenerateRequest { affinity: user.map(AffinityKey::of), ..request(1, 1) };
    let mut stream = dispatcher.generate(request).await.unwrap();
    stream.next().await.unwrap();
    let engine = served(engines).iter().zip(before).position(|(after, before)| *after > before).unwrap();
    (engine, stream)
}

#[tokio::test(start_paused = true)]
async fn session_affinity_keeps_a_session_on_its_engine_while_that_is_there() {
    let engines = [(); 3].map(|()| Scripted::new([]));
    let fleet = fleet(&engines.each_ref());
    let strategy = Arc::new(SessionAffinity::new(8));
    let dispatcher = Dispatcher::new(Arc::clone(&fleet), strategy, DispatchConfig::default());
    let homes = async || {
        let mut homes = Vec::new();
        for user in 0..30 {
            homes.push(serve(&dispatcher, &engines, Some(&format!("user {user}"))).await.0);
        }
        homes
    };
    let before = homes().await;
    assert_eq!(homes().await, before);
    for engine in 0..3 {
        assert!(before.iter().filter(|home| **home == engine).count() > 4, "{before:?}");
    }

    fleet.engine_down(EngineId(1));
    for (before, after) in before.iter().zip(homes().await) {
        assert!(after == *before || *before == 1 && after != 1, "only sessions of the engine that is gone move");
    }
    fleet.engine_ready(EngineId(1), Arc::clone(&engines[1]) as _);
    assert_eq!(homes().await, before);
}

#[tokio::test(start_paused = true)]
async fn session_affinity_bounds_what_a_session_can_do_to_its_engine() {
    let engines = [(); 3].map(|()| Scripted::new(vec![Act::Hang; 20]));
    let dispatcher =
        Dispatcher::new(fleet(&engines.each_ref()), Arc::new(SessionAffinity::new(2)), DispatchConfig::default());
    let (mut open, mut homes) = (Vec::new(), Vec::new());
    for _ in 0..9 {
        let (home, stream) = serve(&dispatcher, &engines, Some("a busy user")).await;
        open.push(stream);
        homes.push(home);
    }
    let (first, second, third) = (homes[0], homes[3], homes[6]);
    assert_eq!(homes[..6], [first, first, first, second, second, second], "in the key's order");
    assert!(first != second && second != third && first != third, "{homes:?}");
    assert_eq!(homes[7..], [first, second], "the least loaded one has a sequence by then, and the bound is higher");
    assert_eq!(serve(&dispatcher, &engines, None).await.0, third, "the least loaded");
}
