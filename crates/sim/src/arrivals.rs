//! The deployment at its start, and the arrivals of clients, scripts and faults.

use std::sync::Arc;
use std::time::Duration;

use baton_core::GenerateRequest;

use crate::client::Client;
use crate::client_requests::Expectation;
use crate::event::Event;
use crate::executor::Owner;
use crate::hang_scenario::HangScenario;
use crate::log_entry::LogEntry;
use crate::peer::{Peer, PeerKind};
use crate::request_draw;
use crate::script::{Plan, Script};
use crate::stream_checker::StreamChecker;
use crate::world::{Phase, World};

impl World {
    pub(crate) fn start_deployment(&mut self) {
        for engine in 0..self.scenario.engines.len() {
            self.start_engine(engine);
        }
        for router in 0..self.scenario.routers.len() {
            self.start_router(router);
        }
        let scripts = self.peers.len() - 1;
        self.incarnations += 1;
        self.add_peer(scripts, Peer::scripts(self.incarnations, self.scenario.engines.len()));
        let faults_ms = self.scenario.faults_end_at.as_millis() as u64;
        for _ in 0..self.scenario.clients {
            self.clock.at(self.random.millis(0, faults_ms), Event::Client);
        }
        for _ in 0..self.scenario.scripts {
            self.clock.at(self.random.millis(0, faults_ms), Event::Script);
        }
        for _ in 0..self.scenario.faults {
            let fault = self.draw_fault();
            self.clock.at(self.random.millis(0, faults_ms), Event::Fault(fault));
        }
        if let Some(hangs) = self.scenario.hangs {
            self.plan_hangs(hangs);
        }
        self.plan_changes();
        self.clock.at(self.scenario.faults_end_at, Event::EndFaults);
    }

    /// A client sends a request to a random router.
    pub(crate) fn send_request(&mut self) {
        let router = self.random.index(self.scenario.routers.len());
        let request = request_draw::any(self.next_client, &self.scenario, &mut self.random);
        let expectation = if self.scenario.may_only_be_busy() { Expectation::OnlyBusy } else { Expectation::Any };
        self.request_from(router, request, expectation);
    }

    pub(crate) fn send_final_requests(&mut self) {
        for router in 0..self.scenario.routers.len() {
            for _ in 0..2 {
                let request = request_draw::small(self.next_client, self.scenario.context_tokens, &mut self.random);
                self.request_from(router, request, Expectation::Success);
            }
        }
    }

    fn request_from(&mut self, router: usize, request: GenerateRequest, expectation: Expectation) {
        let Some(Peer { incarnation, kind: PeerKind::Router { dispatcher, .. }, .. }) = &self.peers[router] else {
            return;
        };
        let id = self.next_client;
        self.next_client += 1;
        let (prompt_tokens, choices) = (request.prompt.len(), request.outputs.len());
        self.log.record(LogEntry::Requested { client: id, router, prompt_tokens, choices });
        self.requests.open(id, expectation);
        let mut stream = StreamChecker::new(request.clone(), self.scenario.context_tokens);
        for choice in 0..choices {
            if self.random.percent(20) && !stream.is_hopeless() {
                stream.stop_after(choice, self.random.between(1, 10) as usize);
            }
        }
        let leaves = self.phase == Phase::Faults && self.random.percent(12);
        let client = Client {
            id,
            clock: Arc::clone(&self.clock),
            requests: Arc::clone(&self.requests),
            router_incarnation: *incarnation,
            patience: leaves.then(|| self.random.millis(0, 120)),
            longest_stall: self.scenario.hangs.and_then(HangScenario::longest_stall),
        };
        self.executor.spawner().spawn(Owner::Clients, client.run(Arc::clone(dispatcher), request, stream));
    }

    pub(crate) fn start_script(&mut self) {
        let Some(Some(Peer { kind: PeerKind::Scripts(sessions), .. })) = self.peers.last() else { return };
        let id = self.next_client;
        self.next_client += 1;
        let request = request_draw::any(id, &self.scenario, &mut self.random);
        let plan = Plan::draw(&mut self.random);
        self.log.record(LogEntry::ScriptStarted { script: id, plan: plan.name(), prompt_tokens: request.prompt.len() });
        self.requests.open(id, Expectation::Any);
        // Scripts have no watchdog: only their patience ends a call to a stopped engine.
        let patience_ms = if self.random.percent(15) { self.random.below(120) } else { 5000 };
        let script = Script {
            id,
            clock: Arc::clone(&self.clock),
            requests: Arc::clone(&self.requests),
            sessions: Arc::clone(sessions),
            context_tokens: self.scenario.context_tokens,
            plan,
            patience: Duration::from_millis(patience_ms),
            random: self.random.fork(),
        };
        self.executor.spawner().spawn(Owner::Clients, script.run(request));
    }
}
