//! What goes wrong, and when it stops.

use crate::event::{Event, InjectedFault, Input};
use crate::log_entry::LogEntry;
use crate::process::Process;
use crate::scenario::Theme;
use crate::world::{DEADLINE, Phase, World};

impl World {
    pub(crate) fn draw_fault(&mut self) -> InjectedFault {
        let random = &mut self.random;
        let engine = random.index(self.scenario.engines.len());
        let router = random.index(self.scenario.routers.len());
        let kind = match self.scenario.theme {
            Theme::Stops if random.percent(70) => random.pick(&[1, 1, 1, 1, 1, 1, 1, 6]),
            Theme::Crashes if random.percent(70) => random.pick(&[0, 0, 2, 3]),
            Theme::BadLinks if random.percent(70) => 5,
            _ => random.below(6),
        };
        match kind {
            0 => InjectedFault::KillEngine { engine, down: random.millis(1, 300) },
            1 => InjectedFault::StopEngine { engine, pause: random.millis(5, 400) },
            2 => InjectedFault::DrainEngine { engine },
            3 => InjectedFault::KillRouter { router, down: random.millis(1, 100) },
            4 => InjectedFault::CutSession,
            5 => InjectedFault::BreakLink,
            _ => InjectedFault::FreezeEngine { engine },
        }
    }

    pub(crate) fn inject(&mut self, fault: InjectedFault) {
        self.log.record(LogEntry::Fault(fault));
        self.past.faults += 1;
        match fault {
            InjectedFault::KillEngine { engine, down } => {
                self.kill_engine(engine, "killed");
                self.clock.after(down, Event::StartEngine(engine));
            }
            InjectedFault::StopEngine { engine, pause } => {
                if let Some(process) = &mut self.processes[engine] {
                    process.stop();
                    self.clock.after(pause, Event::ResumeEngine(process.id));
                }
            }
            InjectedFault::FreezeEngine { engine } => {
                if let Some(process) = &mut self.processes[engine] {
                    process.freeze();
                }
            }
            InjectedFault::DrainEngine { engine } => {
                if let Some(id) = self.processes[engine].as_ref().map(|process| process.id) {
                    self.clock.after(self.random.micros(1, 100), Event::Input(id, Input::Drain));
                }
            }
            InjectedFault::KillRouter { router, down } => {
                self.kill_router(router);
                self.clock.after(down, Event::StartRouter(router));
            }
            InjectedFault::CutSession => {
                let wires: Vec<_> = self.peers.iter().flatten().flat_map(|peer| &peer.wires).flatten().collect();
                if !wires.is_empty()
                    && let Some(connection) = self.connections.get(self.random.pick(&wires))
                {
                    connection.wire.cut();
                }
            }
            InjectedFault::BreakLink => self.fabric.break_any(),
            InjectedFault::HangEngine { engine, how, lasts } => self.hang_engine(engine, how, lasts),
            InjectedFault::SuspendRouter { router, pause } => self.suspend_router(router, pause),
        }
    }

    pub(crate) fn end_faults(&mut self) {
        self.phase = Phase::Calm;
        self.log.record(LogEntry::Calm);
        self.fabric.calm(self.scenario.transfers.calm());
        for connection in self.connections.values() {
            connection.wire.calm(self.scenario.network.calm());
        }
        let stopped: Vec<_> = self.processes.iter().flatten().map(|process| process.id).collect();
        for process in stopped {
            self.resume_engine(process);
        }
        self.end_hangs();
        self.clock.after(DEADLINE, Event::Deadline);
    }

    /// Requests that waited for a frozen engine have found another way by now.
    pub(crate) fn restart_frozen(&mut self) {
        for engine in 0..self.processes.len() {
            if self.processes[engine].as_ref().is_some_and(Process::is_frozen) {
                self.kill_engine(engine, "killed, having stopped for good");
                self.start_engine(engine);
            }
        }
    }
}
