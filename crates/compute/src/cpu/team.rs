//! The threads of a backend. They run one region of code together; inside it, phases hand out numbered items and end with
//! a barrier. Which member does which item changes from run to run and never matters: an item's result is its own.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::gate::Gate;
use crate::ComputeError;

/// The caller of [`Team::run`] is member 0.
pub(crate) struct Team {
    state: Arc<State>,
    workers: Vec<JoinHandle<()>>,
}

/// Another member has failed: leave the region.
#[derive(Debug)]
pub(crate) struct Stopped;

type Job<'a> = dyn Fn(&Member<'_>) -> Result<(), Stopped> + Sync + 'a;

struct State {
    size: usize,
    /// Set before `start` opens, read by workers after; alive until all workers have left the region.
    job: UnsafeCell<Option<*const Job<'static>>>,
    start: Gate,
    /// Workers still inside the region.
    inside: AtomicUsize,
    left: Gate,
    /// Members that have reached the end of the phase.
    arrived: AtomicUsize,
    phase: Gate,
    next_item: AtomicUsize,
    failed: AtomicBool,
    failure: Mutex<Option<String>>,
    quit: AtomicBool,
}

// SAFETY: `job` is written only while no worker is inside a region, and read only inside one.
unsafe impl Sync for State {}
// SAFETY: the pointer in `job` is only used inside a region, while its owner waits.
unsafe impl Send for State {}

impl Team {
    pub(crate) fn new(size: usize) -> Result<Self, ComputeError> {
        let state = Arc::new(State {
            size: size.max(1),
            job: UnsafeCell::new(None),
            start: Gate::default(),
            inside: AtomicUsize::new(0),
            left: Gate::default(),
            arrived: AtomicUsize::new(0),
            phase: Gate::default(),
            next_item: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            quit: AtomicBool::new(false),
        });
        let mut team = Self { state, workers: Vec::new() };
        for index in 1..team.state.size {
            let state = Arc::clone(&team.state);
            let worker =
                std::thread::Builder::new().name(format!("compute-{index}")).spawn(move || work(&state, index));
            team.workers.push(worker.map_err(|error| ComputeError::Device(format!("cannot start a thread: {error}")))?);
        }
        Ok(team)
    }

    pub(crate) fn size(&self) -> usize {
        self.state.size
    }

    /// Runs `job` on every member at once; all must go through the same phases. A panic in one of them ends the region
    /// for all and comes back as an error.
    pub(crate) fn run(&mut self, job: &Job<'_>) -> Result<(), ComputeError> {
        let state = &*self.state;
        state.arrived.store(0, Ordering::Relaxed);
        state.next_item.store(0, Ordering::Relaxed);
        state.failed.store(false, Ordering::Relaxed);
        state.inside.store(state.size - 1, Ordering::Relaxed);
        let job: *const Job<'_> = job;
        // SAFETY: no worker is inside a region. The lifetime is erased, not extended: this function returns only after the
        // last worker has left, below.
        unsafe { *state.job.get() = Some(std::mem::transmute::<*const Job<'_>, *const Job<'static>>(job)) };
        let left = state.left.openings();
        if state.size > 1 {
            state.start.open();
        }
        // SAFETY: `job` is a live reference.
        state.run_member(0, unsafe { &*job });
        if state.size > 1 {
            state.left.wait_past(left, &AtomicBool::new(false));
        }
        match state.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(message) => Err(ComputeError::Device(message)),
            None => Ok(()),
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.state.quit.store(true, Ordering::SeqCst);
        self.state.start.open();
        for worker in self.workers.drain(..) {
            // A worker never panics outside the guarded job.
            let _ = worker.join();
        }
    }
}

fn work(state: &State, index: usize) {
    // Every region opens the gate once and waits for all members, so none is missed.
    let mut seen = 0_u32;
    loop {
        state.start.wait_past(seen, &state.quit);
        if state.quit.load(Ordering::SeqCst) {
            return;
        }
        seen = seen.wrapping_add(1);
        // SAFETY: the gate opened after the job was set, and its owner waits until `inside` is 0.
        if let Some(job) = unsafe { *state.job.get() } {
            // SAFETY: as above.
            state.run_member(index, unsafe { &*job });
        }
        if state.inside.fetch_sub(1, Ordering::AcqRel) == 1 {
            state.left.open();
        }
    }
}

impl State {
    fn run_member(&self, index: usize, job: &Job<'_>) {
        let member = Member { state: self, index };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(&member))) {
            let message = format!("a compute thread panicked: {}", panic_message(&*panic));
            self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(message);
            self.failed.store(true, Ordering::SeqCst);
            self.phase.open();
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// One thread inside a region.
pub(crate) struct Member<'a> {
    state: &'a State,
    index: usize,
}

impl Member<'_> {
    /// Below the team's size, and nobody else's: scratch memory goes by it.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// One phase: `body` sees each of `0..items` once, on some member, lower ones first. Returns when all are done.
    pub(crate) fn each(&self, items: usize, mut body: impl FnMut(usize)) -> Result<(), Stopped> {
        loop {
            let item = self.state.next_item.fetch_add(1, Ordering::Relaxed);
            if item >= items {
                break;
            }
            body(item);
        }
        self.barrier()
    }

    fn barrier(&self) -> Result<(), Stopped> {
        let state = self.state;
        let seen = state.phase.openings();
        if state.arrived.fetch_add(1, Ordering::AcqRel) + 1 == state.size {
            state.arrived.store(0, Ordering::Relaxed);
            state.next_item.store(0, Ordering::Relaxed);
            if state.size > 1 {
                state.phase.open();
            }
        } else {
            state.phase.wait_past(seen, &state.failed);
        }
        if state.failed.load(Ordering::SeqCst) { Err(Stopped) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_once_and_phases_in_order() {
        for size in [1, 2, 5] {
            let mut team = Team::new(size).unwrap();
            for round in 0..200 {
                let counts: Vec<AtomicUsize> = (0..37).map(|_| AtomicUsize::new(0)).collect();
                let job = |member: &Member<'_>| {
                    for phase in 0..5 {
                        member.each(counts.len(), |item| {
                            assert_eq!(counts[item].fetch_add(1, Ordering::Relaxed), phase);
                        })?;
                    }
                    Ok(())
                };
                team.run(&job).unwrap();
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 5), "round {round}");
            }
        }
    }

    #[test]
    fn a_panic_is_an_error_and_the_team_lives_on() {
        for culprit in 0..3 {
            let mut team = Team::new(3).unwrap();
            let error = team
                .run(&|member: &Member<'_>| {
                    member.each(10, |_| {})?;
                    assert!(member.index() != culprit, "no luck today");
                    member.each(10, |_| {})
                })
                .unwrap_err();
            assert!(error.to_string().contains("no luck today"), "{error}");
            team.run(&|member: &Member<'_>| member.each(10, |_| {})).unwrap();
        }
    }

    #[test]
    fn sleeping_members_wake_up() {
        let mut team = Team::new(2).unwrap();
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(2));
            let slow = |member: &Member<'_>| {
                member.each(2, |item| std::thread::sleep(std::time::Duration::from_millis(item as u64 * 2)))
            };
            team.run(&slow).unwrap();
        }
    }
}
