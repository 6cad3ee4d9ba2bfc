//! Claims of cores, so that two deployments on one machine do not choose the same ones.
//!
//! A claim is the name of an abstract socket: each name exists once, nothing is stored on disk, and it is released when its process
//! ends in any way. Containers with a network of their own do not see each other's claims.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::cpu_list::CpuList;

const PREFIX: &str = "baton-core";

/// Claimed cores, which are released when this is dropped.
pub(crate) struct CoreClaims {
    /// Where the user named them, others may have claimed some of them too.
    cpus: CpuList,
    #[expect(dead_code, reason = "held, not used")]
    names: Vec<UnixDatagram>,
}

impl CoreClaims {
    /// Claims the first `wanted` cores of `all` that no other process has claimed; `None` where there are fewer.
    pub(crate) fn take(all: &CpuList, wanted: usize) -> Option<Self> {
        Self::take_named(all, wanted, PREFIX)
    }

    /// Claims the cores that the user named, even if others have claimed them.
    pub(crate) fn hold(named: &CpuList) -> Self {
        let names = named.as_slice().iter().filter_map(|cpu| claim(PREFIX, *cpu).ok().flatten()).collect();
        Self { cpus: named.clone(), names }
    }

    fn take_named(all: &CpuList, wanted: usize, prefix: &str) -> Option<Self> {
        // Where the system has no abstract sockets, all cores are free.
        let free = all.as_slice().iter().filter_map(|cpu| match claim(prefix, *cpu) {
            Ok(name) => Some((*cpu, name)),
            Err(AlreadyClaimed) => None,
        });
        let (cpus, names): (Vec<_>, Vec<_>) = free.take(wanted).unzip();
        let names = names.into_iter().flatten().collect();
        if cpus.len() < wanted { None } else { Some(Self { cpus: CpuList::of(cpus)?, names }) }
    }

    pub(crate) fn cpus(&self) -> &CpuList {
        &self.cpus
    }
}

struct AlreadyClaimed;

/// `None` where the system has no abstract sockets.
fn claim(prefix: &str, cpu: usize) -> Result<Option<UnixDatagram>, AlreadyClaimed> {
    let name = SocketAddr::from_abstract_name(format!("{prefix}-{cpu}"));
    match name.and_then(|name| UnixDatagram::bind_addr(&name)) {
        Ok(name) => Ok(Some(name)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(AlreadyClaimed),
        Err(_) => Ok(None),
    }
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
        // Fewer exist, so none is claimed.
        assert_eq!(shown(&take(4)), None);
        let second = take(3);
        assert_eq!(shown(&second).as_deref(), Some("2,8,9"));
        drop(first);
        assert_eq!(shown(&take(2)).as_deref(), Some("0,1"));
        assert!(take(0).is_none());
    }
}
