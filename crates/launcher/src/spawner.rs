//! The thread that spawns child processes. The kernel's parent-death signal follows the *thread* that spawned a child, so that
//! thread must live as long as this process.

use std::io;
use std::sync::mpsc;
use std::thread;

use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

#[derive(Clone)]
pub(crate) struct Spawner {
    orders: mpsc::Sender<Order>,
}

struct Order {
    command: Command,
    child: oneshot::Sender<io::Result<Child>>,
}

impl Spawner {
    pub(crate) fn start() -> io::Result<Self> {
        let (orders, received) = mpsc::channel::<Order>();
        let runtime = Handle::current();
        thread::Builder::new().name("spawner".into()).spawn(move || {
            let _runtime = runtime.enter();
            for Order { mut command, child } in received {
                // If the receiver was dropped, so is the child, which kills it.
                let _ = child.send(die_with_parent(&mut command).spawn());
            }
        })?;
        Ok(Self { orders })
    }

    pub(crate) async fn spawn(&self, command: Command) -> io::Result<Child> {
        let ended = || io::Error::other("the spawning thread has ended");
        let (child, spawned) = oneshot::channel();
        self.orders.send(Order { command, child }).map_err(|_| ended())?;
        spawned.await.map_err(|_| ended())?
    }
}

/// The child is killed when its handle is dropped or its parent dies. It has a process group of its own, so that Ctrl-C reaches the
/// parent alone.
#[allow(unsafe_code, reason = "the parent-death signal can only be set between fork and exec")]
fn die_with_parent(command: &mut Command) -> &mut Command {
    let parent = std::process::id();
    command.kill_on_drop(true).process_group(0);
    // SAFETY: the closure runs in the forked child and makes only async-signal-safe calls: prctl and getppid.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before the signal was set.
            if libc::getppid() as u32 != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        })
    }
}
