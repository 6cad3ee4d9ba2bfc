//! Which cores belong to which deployment on this machine, so that two do not choose the same ones.
//!
//! A claim is an abstract socket's name: there is one of each per machine, nothing lies on a disk, and it ends with its
//! process, however that ends.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::cpu_list::CpuList;

/// Ours as long as it lives.
pub(crate) struct CoreClaims {
    cpus: CpuList,
    #[expect(dead_code, reason = "held, not used")]
    names: Vec<UnixDatagram>,
}

impl CoreClaims {
    /// The first `wanted` of `all` that nobody else has; `None` where there are not so many.
    pub(crate) fn take(all: &CpuList, wanted: usize) -> Option<Self> {
        Self::take_named(all, wanted, "baton-core")
    }

    fn take_named(all: &CpuList, wanted: usize, prefix: &str) -> Option<Self> {
        let free = all.as_slice().iter().filter_map(|cpu| Some((*cpu, claim(&format!("{prefix}-{cpu}")).ok()?)));
        let (cpus, names): (Vec<_>, Vec<_>) = free.take(wanted).unzip();
        if cpus.len() < wanted { None } else { Some(Self { cpus: CpuList::of(cpus)?, names }) }
    }

    pub(crate) fn cpus(&self) -> &CpuList {
        &self.cpus
    }
}

fn claim(name: &str) -> io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_has_one_owner_at_a_time() {
        let prefix = format!("baton-test-{}", std::process::id());
        let all: CpuList = "0-2,8-9".parse().unwrap();
        let take = |wanted| CoreClaims::take_named(&all, wanted, &prefix);
        let shown = |claims: &Option<CoreClaims>| claims.as_ref().map(|claims| claims.cpus().to_string());
        let first = take(2);
        assert_eq!(shown(&first).as_deref(), Some("0,1"));
        // Too many: then none, and those that were free are free again.
        assert_eq!(shown(&take(4)), None);
        let second = take(3);
        assert_eq!(shown(&second).as_deref(), Some("2,8,9"));
        drop(first);
        assert_eq!(shown(&take(2)).as_deref(), Some("0,1"));
        assert!(take(0).is_none());
    }
}
