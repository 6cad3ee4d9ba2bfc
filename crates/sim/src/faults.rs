//! What goes wrong, and when it stops.

use std::time::Duration;

use crate::hangs::Hang;
use crate::happening::Happening;
use crate::machine::{Letter, Process};
use crate::weather::Theme;
use crate::world::{DEADLINE, Event, Phase, World};

#[derive(Clone, Copy, Debug, Hash)]
pub(crate) enum Fault {
    KillEngine {
        engine: usize,
        down: Duration,
    },
    StopEngine {
        engine: usize,
        pause: Duration,
    },
    /// Stopped for good: somebody has to notice, and at last it is killed.
    FreezeEngine {
        engine: usize,
    },
    DrainEngine {
        engine: usize,
    },
    KillRouter {
        router: usize,
        down: Duration,
    },
    CutSession,
    BreakLink,
    /// `None`: until it is killed.
    HangEngine {
        engine: usize,
        how: Hang,
        lasts: Option<Duration>,
    },
    SuspendRouter {
        router: usize,
        pause: Duration,
    },
}

impl World {
    pub(crate) fn draw_fault(&mut self) -> Fault {
        let random = &mut self.random;
        let engine = random.index(self.weather.engines.len());
        let router = random.index(self.weather.routers.len());
        let kind = match self.weather.theme {
            Theme::Stops if random.percent(70) => random.pick(&[1, 1, 1, 1, 1, 1, 1, 6]),
            Theme::Crashes if random.percent(70) => random.pick(&[0, 0, 2, 3]),
            Theme::BadLinks if random.percent(70) => 5,
            _ => random.below(6),
        };
        match kind {
            0 => Fault::KillEngine { engine, down: random.millis(1, 300) },
            1 => Fault::StopEngine { engine, pause: random.millis(5, 400) },
            2 => Fault::DrainEngine { engine },
            3 => Fault::KillRouter { router, down: random.millis(1, 100) },
            4 => Fault::CutSession,
            5 => Fault::BreakLink,
            _ => Fault::FreezeEngine { engine },
        }
    }

    pub(crate) fn strike(&mut self, fault: Fault) {
        self.journal.note(Happening::Fault(fault));
        self.past.faults += 1;
        match fault {
            Fault::KillEngine { engine, down } => {
                self.kill_engine(engine, "killed");
                self.clock.after(down, Event::StartEngine(engine));
            }
            Fault::StopEngine { engine, pause } => {
                if let Some(process) = &mut self.processes[engine] {
                    process.stop();
                    self.clock.after(pause, Event::GoOn(process.id));
                }
            }
            Fault::FreezeEngine { engine } => {
                if let Some(process) = &mut self.processes[engine] {
                    process.freeze();
                }
            }
            Fault::DrainEngine { engine } => {
                if let Some(id) = self.processes[engine].as_ref().map(|process| process.id) {
                    self.clock.after(self.random.micros(1, 100), Event::Letter(id, Letter::Drain));
                }
            }
            Fault::KillRouter { router, down } => {
                self.kill_router(router);
                self.clock.after(down, Event::StartRouter(router));
            }
            Fault::CutSession => {
                let wires: Vec<_> = self.peers.iter().flatten().flat_map(|peer| &peer.wires).flatten().collect();
                if !wires.is_empty()
                    && let Some(connection) = self.connections.get(self.random.pick(&wires))
                {
                    connection.wire.cut();
                }
            }
            Fault::BreakLink => self.fabric.break_any(),
            Fault::HangEngine { engine, how, lasts } => self.hang_engine(engine, how, lasts),
            Fault::SuspendRouter { router, pause } => self.suspend_router(router, pause),
        }
    }

    pub(crate) fn heal(&mut self) {
        self.phase = Phase::Healed;
        self.journal.note(Happening::Healed);
        self.fabric.calm(self.weather.transfers.calm());
        for connection in self.connections.values() {
            connection.wire.calm(self.weather.network.calm());
        }
        let stopped: Vec<_> = self.processes.iter().flatten().map(|process| process.id).collect();
        for process in stopped {
            self.go_on(process);
        }
        self.end_hangs();
        self.clock.after(DEADLINE, Event::Deadline);
    }

    /// Whoever waited for a frozen engine has found another way by now.
    pub(crate) fn thaw(&mut self) {
        for engine in 0..self.processes.len() {
            if self.processes[engine].as_ref().is_some_and(Process::is_frozen) {
                self.kill_engine(engine, "killed, having stopped for good");
                self.start_engine(engine);
            }
        }
    }
}
