//! File descriptors: how many this process may have, and how many of them clients may take.

use std::io;

/// Kept for the listener, the runtime, files of the model, and what libraries open for a moment.
const OWN: usize = 64;
/// Kept for one engine's session, its pipes and the process itself, twice: the old ones may still be open while it is replaced.
const PER_ENGINE: usize = 16;

/// Allows this process, and those that it starts, as many descriptors as the system lets it have: the soft limit is 1024 on
/// most systems for the sake of programs that use `select`. Returns that number.
#[allow(unsafe_code, reason = "the limit can only be read and changed by system calls")]
pub fn raise_descriptor_limit() -> io::Result<usize> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls read or fill the structure they are given, and nothing else.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return Err(io::Error::last_os_error());
        }
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) == 0 {
            limit = raised;
        }
    }
    Ok(usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX))
}

/// How many clients may be connected to a process with `engines` engines: the rest of its descriptors is kept for itself,
/// so that engines can be replaced however many clients there are. A quarter is for clients in any case.
pub fn connections_within(descriptors: usize, engines: usize) -> usize {
    let reserve = OWN + engines * PER_ENGINE;
    descriptors.saturating_sub(reserve).max(descriptors / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_what_engines_do_not_need_but_a_quarter_at_least() {
        for (descriptors, engines, connections) in
            [(256, 2, 160), (256, 20, 64), (1024, 2, 928), (1 << 20, 4, (1 << 20) - 128), (16, 2, 4)]
        {
            assert_eq!(connections_within(descriptors, engines), connections);
        }
    }

    #[test]
    fn the_limit_can_be_raised() {
        assert!(raise_descriptor_limit().unwrap() > 0);
    }
}
