//! Cores, memory and CPU features of this machine.

use std::fs;

use baton_cpu::{HardwareThreads, quota};

use crate::byte_size::ByteSize;
use crate::cpu_list::CpuList;

/// The cores that `wanted` compute threads may be pinned to. `None` where there are too few, or where a CPU quota shows that they are
/// shared with other containers.
pub(crate) fn cpus(wanted: usize) -> Option<CpuList> {
    let threads = HardwareThreads::allowed().filter(|threads| threads.count() == quota())?;
    CpuList::of(threads.for_compute(wanted)?.to_vec())
}

/// Memory of the machine, or of the container where that is less. `None` where /proc does not show it.
pub(crate) fn memory() -> Option<ByteSize> {
    let machine = meminfo("MemTotal:")?;
    let container = fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|max| max.trim().parse().ok());
    Some(ByteSize(container.map_or(machine, |limit: u64| limit.min(machine))))
}

pub(crate) fn available_memory() -> Option<ByteSize> {
    meminfo("MemAvailable:").map(ByteSize)
}

fn meminfo(field: &str) -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

pub(crate) fn cpu_name() -> Option<String> {
    cpuinfo("model name")
}

/// Which of `wanted` the processor has.
pub(crate) fn cpu_features<'a>(wanted: &[&'a str]) -> Vec<&'a str> {
    let flags = cpuinfo("flags").unwrap_or_default();
    wanted.iter().copied().filter(|feature| flags.split(' ').any(|flag| flag == *feature)).collect()
}

/// A field of the first core.
fn cpuinfo(field: &str) -> Option<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = cpuinfo.lines().find(|line| line.starts_with(field))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
