//! What the system lets one process do.

/// Each request in flight has a connection, and most systems allow 1024 open files by default.
#[allow(unsafe_code, reason = "the limit on open files can only be changed by system calls")]
pub(crate) fn raise_open_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls only read or fill the structure they are given. Where they fail, connections will fail with an error.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}
