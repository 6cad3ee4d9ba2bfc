//! All processes of a server. A session is inherited by whatever a process starts, also where children get groups of their own.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessSession(pub(crate) u32);

/// The fields of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    session: u32,
    /// Of itself and of children that have ended.
    cpu_ticks: u64,
}

impl ProcessSession {
    /// Used by all of them so far.
    pub(crate) fn cpu(self) -> Duration {
        let ticks: u64 = self.members().map(|(_, stat)| stat.cpu_ticks).sum();
        Duration::from_secs_f64(ticks as f64 / ticks_per_s())
    }

    #[allow(unsafe_code, reason = "processes can only be signalled by a system call")]
    pub(crate) fn signal(self, signal: i32) {
        for (pid, _) in self.members() {
            // SAFETY: kill has no memory effects. A process that has ended meanwhile makes it fail.
            unsafe { libc::kill(pid, signal) };
        }
    }

    fn members(self) -> impl Iterator<Item = (i32, Stat)> {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        processes.filter_map(move |entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = Stat::parse(&std::fs::read_to_string(entry.path().join("stat")).ok()?)?;
            (stat.session == self.0).then_some((pid, stat))
        })
    }
}

impl Stat {
    /// `PID (NAME) STATE PPID PGRP SESSION TTY TPGID FLAGS MINFLT CMINFLT MAJFLT CMAJFLT UTIME STIME CUTIME CSTIME …`
    fn parse(text: &str) -> Option<Self> {
        // A name may have spaces and parentheses of its own.
        let fields: Vec<_> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let cpu_ticks = (11..15).map(number).sum::<Option<u64>>()?;
        Some(Self { session: u32::try_from(number(3)?).ok()?, cpu_ticks })
    }
}

#[allow(unsafe_code, reason = "the unit of /proc's times is only known from a system call")]
fn ticks_per_s() -> f64 {
    // SAFETY: reads a constant of the system.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines() {
        let line = "42 (a (b) c) S 1 42 7 0 -1 4194560 1 2 3 4 100 20 3 1 20 0 9 0 5";
        assert_eq!(Stat::parse(line), Some(Stat { session: 7, cpu_ticks: 124 }));
        assert_eq!(Stat::parse("42 (short) S 1"), None);
    }
}
