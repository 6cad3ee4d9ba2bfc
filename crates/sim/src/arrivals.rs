//! The deployment at its start, and the arrivals of clients, scripts and faults.

use std::sync::Arc;
use std::time::Duration;

use baton_core::GenerateRequest;

use crate::book::Expectation;
use crate::client::Client;
use crate::executor::Owner;
use crate::hangs::Hangs;
use crate::happening::Happening;
use crate::requests;
use crate::router::{Peer, PeerKind};
use crate::script::{Plan, Script};
use crate::stream::StreamChecker;
use crate::world::{Event, Phase, World};

impl World {
    pub(crate) fn populate(&mut self) {
        for engine in 0..self.weather.engines.len() {
            self.start_engine(engine);
        }
        for router in 0..self.weather.routers.len() {
            self.start_router(router);
        }
        let scripts = self.peers.len() - 1;
        self.lives += 1;
        self.add_peer(scripts, Peer::scripts(self.lives, self.weather.engines.len()));
        let storm_ms = self.weather.heals_at.as_millis() as u64;
        for _ in 0..self.weather.clients {
            self.clock.at(self.random.millis(0, storm_ms), Event::Client);
        }
        for _ in 0..self.weather.scripts {
            self.clock.at(self.random.millis(0, storm_ms), Event::Script);
        }
        for _ in 0..self.weather.faults {
            let fault = self.draw_fault();
            self.clock.at(self.random.millis(0, storm_ms), Event::Fault(fault));
        }
        if let Some(hangs) = self.weather.hangs {
            self.plan_hangs(hangs);
        }
        self.clock.at(self.weather.heals_at, Event::Heal);
    }

    /// A client sends a request to a random router.
    pub(crate) fn ask(&mut self) {
        let router = self.random.index(self.weather.routers.len());
        let request = requests::any(self.next_client, &self.weather, &mut self.random);
        let expectation = if self.weather.is_fair() { Expectation::OnlyBusy } else { Expectation::Any };
        self.ask_router(router, request, expectation);
    }

    pub(crate) fn ask_for_proof(&mut self) {
        for router in 0..self.weather.routers.len() {
            for _ in 0..2 {
                let request = requests::modest(self.next_client, self.weather.context_tokens, &mut self.random);
                self.ask_router(router, request, Expectation::Success);
            }
        }
    }

    fn ask_router(&mut self, router: usize, request: GenerateRequest, expectation: Expectation) {
        let Some(Peer { life, kind: PeerKind::Router { dispatcher, .. }, .. }) = &self.peers[router] else { return };
        let id = self.next_client;
        self.next_client += 1;
        let (prompt_tokens, choices) = (request.prompt.len(), request.outputs.len());
        self.journal.note(Happening::Asked { client: id, router, prompt_tokens, choices });
        self.book.open(id, expectation);
        let mut stream = StreamChecker::new(request.clone(), self.weather.context_tokens);
        for choice in 0..choices {
            if self.random.percent(20) && !stream.is_hopeless() {
                stream.stop_after(choice, self.random.between(1, 10) as usize);
            }
        }
        let leaves = self.phase == Phase::Storm && self.random.percent(12);
        let client = Client {
            id,
            clock: Arc::clone(&self.clock),
            book: Arc::clone(&self.book),
            router_life: *life,
            patience: leaves.then(|| self.random.millis(0, 120)),
            longest_stall: self.weather.hangs.and_then(Hangs::longest_stall),
        };
        self.executor.spawner().spawn(Owner::Nobody, client.run(Arc::clone(dispatcher), request, stream));
    }

    pub(crate) fn start_script(&mut self) {
        let Some(Some(Peer { kind: PeerKind::Scripts(sessions), .. })) = self.peers.last() else { return };
        let id = self.next_client;
        self.next_client += 1;
        let request = requests::any(id, &self.weather, &mut self.random);
        let plan = Plan::draw(&mut self.random);
        self.journal.note(Happening::ScriptAsked {
            script: id,
            plan: plan.name(),
            prompt_tokens: request.prompt.len(),
        });
        self.book.open(id, Expectation::Any);
        // Scripts have no watchdog: only their patience ends a call to a stopped engine.
        let patience_ms = if self.random.percent(15) { self.random.below(120) } else { 5000 };
        let script = Script {
            id,
            clock: Arc::clone(&self.clock),
            book: Arc::clone(&self.book),
            sessions: Arc::clone(sessions),
            context_tokens: self.weather.context_tokens,
            plan,
            patience: Duration::from_millis(patience_ms),
            random: self.random.fork(),
        };
        self.executor.spawner().spawn(Owner::Nobody, script.run(request));
    }
}
