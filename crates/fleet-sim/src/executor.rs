//! Runs the router's and the clients' tasks on one thread. Of the tasks that are woken the oldest runs next, so a run does not
//! depend on the order in which a channel wakes those that wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use baton_router::Runtime;
use futures_util::future::BoxFuture;

use crate::clock::{Clock, lock};

#[derive(Default)]
pub(crate) struct Executor {
    tasks: BTreeMap<u64, Task>,
    next: u64,
    spawner: Arc<Spawner>,
    ready: Arc<Ready>,
}

struct Task {
    future: BoxFuture<'static, ()>,
    waker: Waker,
}

#[derive(Default)]
struct Spawner(Mutex<Vec<BoxFuture<'static, ()>>>);

#[derive(Default)]
struct Ready(Mutex<BTreeSet<u64>>);

struct TaskWaker {
    task: u64,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        lock(&self.ready.0).insert(self.task);
    }
}

impl Executor {
    pub(crate) fn runtime(&self, clock: &Arc<Clock>) -> Arc<VirtualRuntime> {
        Arc::new(VirtualRuntime { clock: Arc::clone(clock), spawner: Arc::clone(&self.spawner) })
    }

    /// Until all tasks wait.
    pub(crate) fn run(&mut self) {
        loop {
            self.adopt();
            let Some(id) = lock(&self.ready.0).pop_first() else { return };
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            if task.future.as_mut().poll(&mut Context::from_waker(&task.waker)).is_ready() {
                self.tasks.remove(&id);
            }
        }
    }

    fn adopt(&mut self) {
        let new = std::mem::take(&mut *lock(&self.spawner.0));
        for future in new {
            let task = self.next;
            self.next += 1;
            let waker = Waker::from(Arc::new(TaskWaker { task, ready: Arc::clone(&self.ready) }));
            self.tasks.insert(task, Task { future, waker });
            lock(&self.ready.0).insert(task);
        }
    }
}

/// The router's runtime.
pub(crate) struct VirtualRuntime {
    clock: Arc<Clock>,
    spawner: Arc<Spawner>,
}

impl Runtime for VirtualRuntime {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(self.clock.sleep(duration))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        lock(&self.spawner.0).push(task);
    }
}
