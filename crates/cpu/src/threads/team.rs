//! The threads of a backend. They run one region of code together; inside it, each phase hands out numbered items. A phase ends
//! when its items are done, not when all members have taken part, so a thread that the system keeps waiting delays none. Which
//! member does which item changes from run to run; an item's result does not depend on it.
//!
//! Members are divided among tensor-parallel shards, and items of a shard are done by its own members only:
//!
//! ```text
//!   5 members, 2 shards   0 0 0 1 1         2 members, 3 shards   0 | 1 2
//! ```

mod member;

use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::os::unix::thread::JoinHandleExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

pub(crate) use self::member::Member;
use super::barrier::{Gate, Occupancy};
use super::item_counter::ItemCounter;
use super::pinning;
use baton_backend::BackendError;

/// The caller of [`Team::run`] is member 0.
pub(crate) struct Team {
    state: Arc<State>,
    workers: Vec<JoinHandle<()>>,
}

/// Returned by phases after a member has failed: the region is left.
#[derive(Debug)]
pub(crate) struct Stopped;

type Job<'a> = dyn Fn(&Member<'_>) -> Result<(), Stopped> + Sync + 'a;

struct State {
    size: usize,
    /// Written only while no member is inside; valid until all members have left.
    job: UnsafeCell<Option<*const Job<'static>>>,
    /// Opens when a region begins.
    start: Gate,
    occupancy: Occupancy,
    shards: usize,
    /// The next item of the current phase, for each shard or queue.
    counters: Vec<ItemCounter>,
    /// Finished items of the current phase, of all shards.
    finished: Apart<AtomicUsize>,
    /// Opens when a phase ends.
    phase: Gate,
    failed: AtomicBool,
    failure: Mutex<Option<String>>,
    quit: AtomicBool,
}

/// Keeps a value on cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Apart<T>(T);

// SAFETY: `job` is written only while no member is inside a region, and read only inside one.
unsafe impl Sync for State {}
// SAFETY: the pointer in `job` is only used inside a region, while its owner waits.
unsafe impl Send for State {}

impl Team {
    #[cfg(test)]
    pub(crate) fn new(size: usize) -> Result<Self, BackendError> {
        Self::with_shards(size, 1)
    }

    pub(crate) fn with_shards(size: usize, shards: usize) -> Result<Self, BackendError> {
        let (size, shards) = (size.max(1), shards.max(1));
        let state = Arc::new(State {
            size,
            shards,
            job: UnsafeCell::new(None),
            start: Gate::default(),
            occupancy: Occupancy::default(),
            counters: (0..size.max(shards)).map(|_| ItemCounter::default()).collect(),
            finished: Apart::default(),
            phase: Gate::default(),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            quit: AtomicBool::new(false),
        });
        let mut team = Self { state, workers: Vec::new() };
        for index in 1..team.state.size {
            let state = Arc::clone(&team.state);
            let worker =
                std::thread::Builder::new().name(format!("compute-{index}")).spawn(move || work(&state, index));
            team.workers.push(worker.map_err(|error| BackendError::Device(format!("cannot start a thread: {error}")))?);
        }
        Ok(team)
    }

    /// Pins the workers to these cores in turn, except the first, which is for the caller of [`Team::run`].
    pub(crate) fn pin(&self, cpus: &[usize]) -> Result<(), BackendError> {
        for (worker, cpu) in self.workers.iter().zip(cpus.iter().cycle().skip(1)) {
            pinning::pin(worker.as_pthread_t(), *cpu)?;
        }
        Ok(())
    }

    pub(crate) fn size(&self) -> usize {
        self.state.size
    }

    /// What it returns changes with every item that a member takes; for threads outside of the team.
    pub(crate) fn progress(&self) -> impl Fn() -> u64 + Send + Sync + use<> {
        let state = Arc::clone(&self.state);
        move || state.counters.iter().fold(0, |sum, counter| sum.wrapping_add(counter.position()))
    }

    /// Runs `job` on all members that arrive before it is over; all go through the same phases. A panic in one of them, or
    /// [a failure](Member::fail), ends the region for all and is returned as an error.
    pub(crate) fn run(&mut self, job: &Job<'_>) -> Result<(), BackendError> {
        let state = &*self.state;
        state.counters.iter().for_each(ItemCounter::reset);
        state.finished.0.store(0, Ordering::Relaxed);
        state.failed.store(false, Ordering::Relaxed);
        let job: *const Job<'_> = job;
        // SAFETY: no member is inside. The lifetime is erased, not extended: this function returns only after the region was
        // closed and all members have left, below.
        unsafe { *state.job.get() = Some(std::mem::transmute::<*const Job<'_>, *const Job<'static>>(job)) };
        if state.size > 1 {
            state.occupancy.open();
            state.start.open();
        }
        // SAFETY: `job` is a live reference.
        state.run_member(0, unsafe { &*job });
        if state.size > 1 {
            state.occupancy.close_and_wait();
        }
        match state.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(message) => Err(BackendError::Device(message)),
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
    let mut seen = 0;
    loop {
        state.start.wait_past(seen, &state.quit);
        if state.quit.load(Ordering::SeqCst) {
            return;
        }
        seen = state.start.openings();
        if !state.occupancy.enter() {
            continue;
        }
        // SAFETY: inside: the job is set, and its owner waits.
        if let Some(job) = unsafe { *state.job.get() } {
            // SAFETY: as above.
            state.run_member(index, unsafe { &*job });
        }
        state.occupancy.leave();
    }
}

impl State {
    fn run_member(&self, index: usize, job: &Job<'_>) {
        let member = Member::new(self, index);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(&member))) {
            self.fail(format!("a compute thread panicked: {}", panic_message(&*panic)));
        }
    }

    /// Keeps the message of the first failure.
    fn fail(&self, message: String) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(message);
        self.failed.store(true, Ordering::SeqCst);
        self.phase.open();
    }

    /// The shards of a member, divided evenly: a shard has members of its own, or a member has several shards.
    fn shards_of(&self, member: usize) -> Range<usize> {
        let first = |member: usize| member * self.shards / self.size;
        first(member)..first(member + 1).max(first(member) + 1)
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
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
    fn every_item_is_progress() {
        let mut team = Team::with_shards(1, 2).unwrap();
        let progress = team.progress();
        let seen = Mutex::new(Vec::new());
        let job = |member: &Member<'_>| {
            let look = || seen.lock().unwrap().push(progress());
            member.each_of_shards(|_| 10, |_, _| look())?;
            member.each(10, |_| look())
        };
        team.run(&job).unwrap();
        let seen = seen.into_inner().unwrap();
        assert_eq!(seen.len(), 30);
        assert!(seen.windows(2).all(|pair| pair[0] != pair[1]), "{seen:?}");
    }

    #[test]
    fn items_of_a_shard_are_done_by_its_members() {
        for (size, shards, members_of) in [
            (1, 3, vec![0..1, 0..1, 0..1]),
            (2, 3, vec![0..1, 1..2, 1..2]),
            (3, 3, vec![0..1, 1..2, 2..3]),
            (5, 2, vec![0..3, 3..5]),
        ] {
            let mut team = Team::with_shards(size, shards).unwrap();
            for _ in 0..200 {
                let counts: Vec<AtomicUsize> = (0..shards * 10).map(|_| AtomicUsize::new(0)).collect();
                // Some phases have no items for a shard, and phases of all members come in between.
                let items = |phase: usize, shard: usize| if (phase + shard).is_multiple_of(2) { 10 } else { 0 };
                let job = |member: &Member<'_>| {
                    for phase in 0..6 {
                        member.each_of_shards(
                            |shard| items(phase, shard),
                            |shard, item| {
                                assert!(members_of[shard].contains(&member.index()), "{size} members, {shards} shards");
                                assert_eq!(counts[shard * 10 + item].fetch_add(1, Ordering::Relaxed), phase / 2);
                            },
                        )?;
                        member.each(3, |_| {})?;
                    }
                    Ok(())
                };
                team.run(&job).unwrap();
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 3));
            }
        }
    }

    #[test]
    fn idle_members_empty_the_queues_of_others() {
        let mut team = Team::new(3).unwrap();
        for queues in 1..=3 {
            let counts: Vec<AtomicUsize> = (0..queues * 20).map(|_| AtomicUsize::new(0)).collect();
            let job = |member: &Member<'_>| {
                for phase in 0..5 {
                    // The last queue is empty every other time.
                    let items = |queue: usize| if (phase + queue).is_multiple_of(2) { 20 } else { 0 };
                    member.each_of_queues(queues, items, |queue, item| {
                        counts[queue * 20 + item].fetch_add(1, Ordering::Relaxed);
                    })?;
                }
                Ok(())
            };
            team.run(&job).unwrap();
            for (i, count) in counts.iter().enumerate() {
                let expected = if (i / 20).is_multiple_of(2) { 3 } else { 2 };
                assert_eq!(count.load(Ordering::Relaxed), expected, "item {i} of {queues} queues");
            }
        }
    }

    #[test]
    fn a_panic_is_an_error_and_the_team_lives_on() {
        let mut team = Team::new(3).unwrap();
        for unlucky in 0..30 {
            let job = |member: &Member<'_>| {
                member.each(30, |_| {})?;
                member.each(30, |item| assert!(item != unlucky, "no luck today"))?;
                member.each(30, |_| {})
            };
            let error = team.run(&job).unwrap_err();
            assert!(error.to_string().contains("no luck today"), "{error}");
            team.run(&|member: &Member<'_>| member.each(10, |_| {})).unwrap();
        }
    }

    #[test]
    fn what_fails_says_why_and_nothing_follows() {
        let mut team = Team::new(3).unwrap();
        for unlucky in 0..30 {
            let after = AtomicUsize::new(0);
            let job = |member: &Member<'_>| {
                member.each(30, |item| {
                    if item == unlucky {
                        member.fail("no such file".to_owned());
                    }
                })?;
                // A single item: members that arrive late find it done.
                member.each(1, |_| {
                    after.fetch_add(1, Ordering::Relaxed);
                })
            };
            assert_eq!(team.run(&job).unwrap_err().to_string(), "device: no such file");
            assert_eq!(after.into_inner(), 0);
            team.run(&|member: &Member<'_>| member.each(10, |_| {})).unwrap();
        }
    }

    #[test]
    fn a_member_that_is_kept_waiting_holds_up_no_other() {
        let mut team = Team::new(2).unwrap();
        let others_are_through = AtomicBool::new(false);
        let job = |member: &Member<'_>| {
            member.each(3, |_| {})?;
            while member.index() == 1 && !others_are_through.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            for _ in 0..20 {
                member.each(3, |_| {})?;
            }
            others_are_through.store(true, Ordering::Relaxed);
            Ok(())
        };
        team.run(&job).unwrap();
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
