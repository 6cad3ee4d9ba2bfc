//! Runs the tasks of a simulation on one thread. Woken tasks join a set, and the seed decides which of them runs next. So the
//! order in which a channel wakes its waiters, which tokio randomizes, has no effect, and other orders are tried too.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use baton_router::Runtime;
use futures_util::future::BoxFuture;

use crate::clock::{Clock, lock};
use crate::random::Random;

/// More polls than this at one time mean that a task wakes itself for ever.
const MAX_POLLS: usize = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TaskId(u64);

/// A task ends when its owner dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// They never die.
    Clients,
    /// One life of one router.
    Router(u64),
}

pub(crate) struct Executor {
    random: Random,
    tasks: BTreeMap<TaskId, Task>,
    next: u64,
    spawner: Arc<Spawner>,
    ready: Arc<Ready>,
    /// Their tasks are woken, but not run.
    suspended: Vec<Owner>,
}

struct Task {
    owner: Owner,
    future: BoxFuture<'static, ()>,
    waker: Waker,
}

#[derive(Default)]
pub(crate) struct Spawner(Mutex<Vec<(Owner, BoxFuture<'static, ()>)>>);

#[derive(Default)]
struct Ready(Mutex<BTreeSet<TaskId>>);

struct TaskWaker {
    id: TaskId,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        lock(&self.ready.0).insert(self.id);
    }
}

impl Spawner {
    pub(crate) fn spawn(&self, owner: Owner, task: impl Future<Output = ()> + Send + 'static) {
        lock(&self.0).push((owner, Box::pin(task)));
    }
}

impl Executor {
    pub(crate) fn new(random: Random) -> Self {
        let (spawner, ready) = (Arc::default(), Arc::default());
        Self { random, tasks: BTreeMap::new(), next: 0, spawner, ready, suspended: Vec::new() }
    }

    pub(crate) fn spawner(&self) -> Arc<Spawner> {
        Arc::clone(&self.spawner)
    }

    pub(crate) fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Runs tasks until all of them wait, with a call of `polled` before each poll. Returns `false` if that does not end.
    pub(crate) fn run(&mut self, mut polled: impl FnMut(TaskId)) -> bool {
        for _ in 0..MAX_POLLS {
            self.adopt();
            let Some(id) = self.draw() else { return true };
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            polled(id);
            if task.future.as_mut().poll(&mut Context::from_waker(&task.waker)).is_ready() {
                self.tasks.remove(&id);
            }
        }
        false
    }

    /// Drops all tasks of an owner where they stand.
    pub(crate) fn kill(&mut self, owner: Owner) {
        self.adopt();
        let dead: Vec<_> = self.tasks.extract_if(.., |_, task| task.owner == owner).collect();
        drop(dead);
    }

    pub(crate) fn suspend(&mut self, owner: Owner) {
        self.suspended.push(owner);
    }

    pub(crate) fn resume(&mut self, owner: Owner) {
        self.suspended.retain(|suspended| *suspended != owner);
    }

    fn adopt(&mut self) {
        let new = std::mem::take(&mut *lock(&self.spawner.0));
        for (owner, future) in new {
            let id = TaskId(self.next);
            self.next += 1;
            let waker = Waker::from(Arc::new(TaskWaker { id, ready: Arc::clone(&self.ready) }));
            self.tasks.insert(id, Task { owner, future, waker });
            lock(&self.ready.0).insert(id);
        }
    }

    fn draw(&mut self) -> Option<TaskId> {
        let mut ready = lock(&self.ready.0);
        let id = if self.suspended.is_empty() {
            let at = self.random.index(ready.len());
            ready.iter().nth(at).copied()?
        } else {
            let runs = |id: &&TaskId| self.tasks.get(id).is_none_or(|task| !self.suspended.contains(&task.owner));
            let able: Vec<_> = ready.iter().filter(runs).copied().collect();
            able.get(self.random.index(able.len())).copied()?
        };
        ready.remove(&id);
        Some(id)
    }
}

/// A router's runtime: virtual time and seeded task order.
pub(crate) struct SimRuntime {
    pub(crate) clock: Arc<Clock>,
    pub(crate) spawner: Arc<Spawner>,
    pub(crate) owner: Owner,
}

impl Runtime for SimRuntime {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(self.clock.sleep(duration))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.spawner.spawn(self.owner, task);
    }
}
