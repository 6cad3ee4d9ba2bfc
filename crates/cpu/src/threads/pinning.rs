//! Pins threads to cores, so that the system does not move them and their caches stay warm.

use baton_backend::BackendError;

pub(crate) fn pin_this_thread(cpu: usize) -> Result<(), BackendError> {
    // SAFETY: always succeeds.
    pin(unsafe { libc::pthread_self() }, cpu)
}

/// `thread` must not have been joined.
pub(crate) fn pin(thread: libc::pthread_t, cpu: usize) -> Result<(), BackendError> {
    let refused = |error| BackendError::Load(format!("a thread cannot run on core {cpu}: {error}"));
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(refused(std::io::Error::from_raw_os_error(libc::EINVAL)));
    }
    // SAFETY: a set of bits, all zero; the core's bit is one of them.
    let error = unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut cpus);
        libc::pthread_setaffinity_np(thread, size_of_val(&cpus), &raw const cpus)
    };
    if error == 0 { Ok(()) } else { Err(refused(std::io::Error::from_raw_os_error(error))) }
}

/// Cores on which this thread may run, ascending; `None` where there are more than a `cpu_set_t` can hold.
pub(crate) fn allowed_cpus() -> Option<Vec<usize>> {
    // SAFETY: a set of bits, all zero, which the call fills in.
    let cpus = unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        (libc::sched_getaffinity(0, size_of_val(&cpus), &raw mut cpus) == 0).then_some(cpus)
    }?;
    // SAFETY: bits of the set.
    Some((0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &cpus) }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_where_it_was_put() {
        std::thread::spawn(|| {
            // SAFETY: only returns a number.
            let here = unsafe { libc::sched_getcpu() } as usize;
            assert!(allowed_cpus().unwrap().contains(&here));
            pin_this_thread(here).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [here]);
            for _ in 0..100 {
                std::thread::yield_now();
                // SAFETY: only returns a number.
                assert_eq!(unsafe { libc::sched_getcpu() } as usize, here);
            }
            for nowhere in [1 << 20, libc::CPU_SETSIZE as usize - 1] {
                let error = pin_this_thread(nowhere).unwrap_err().to_string();
                assert!(error.contains(&format!("core {nowhere}")), "{error}");
            }
        })
        .join()
        .unwrap();
    }
}
