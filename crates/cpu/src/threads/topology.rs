//! Which hardware threads this process may run on, and which of them share a core.

use std::collections::HashMap;
use std::num::NonZero;
use std::{fs, thread};

use crate::threads::pinning::allowed_cpus;

/// The first hardware thread of each core, then the second ones, and so on. Two compute threads on one core share its units and
/// caches; matmuls on tiles suffer most.
///
/// ```text
///   core       0     1     2
///   threads    0 3   1 4   2 5      in this order: 0 1 2, 3 4 5
/// ```
pub struct HardwareThreads {
    ids: Vec<usize>,
    cores: usize,
}

impl HardwareThreads {
    /// The hardware threads that this process may use; `None` where Linux does not report them.
    pub fn allowed() -> Option<Self> {
        Some(Self::by_core(allowed_cpus()?, |id| {
            fs::read_to_string(format!("/sys/devices/system/cpu/cpu{id}/topology/thread_siblings_list")).ok()
        }))
    }

    /// `core_of` names the core of a hardware thread, if it is known.
    fn by_core(ids: Vec<usize>, core_of: impl Fn(usize) -> Option<String>) -> Self {
        let mut seen = HashMap::<String, usize>::new();
        let nth_of_core = |id: usize| {
            let nth = seen.entry(core_of(id).unwrap_or_else(|| format!("of {id}"))).or_default();
            *nth += 1;
            (*nth, id)
        };
        let mut placed: Vec<(usize, usize)> = ids.into_iter().map(nth_of_core).collect();
        placed.sort_unstable();
        Self { ids: placed.into_iter().map(|(_, id)| id).collect(), cores: seen.len() }
    }

    pub fn count(&self) -> usize {
        self.ids.len()
    }

    /// The hardware threads for `wanted` compute threads: the first of each core, or all of them where there are fewer cores than
    /// that. `None` where there are fewer hardware threads than `wanted`.
    pub fn for_compute(&self, wanted: usize) -> Option<&[usize]> {
        let enough = [self.cores, self.ids.len()].into_iter().find(|&threads| threads >= wanted)?;
        Some(&self.ids[..enough])
    }
}

/// Cores that this process may keep busy.
pub fn cores() -> usize {
    let quota = quota();
    HardwareThreads::allowed().map_or(quota, |threads| threads.cores.min(quota))
}

/// Hardware threads that this process may keep busy. A container's CPU quota may be smaller than the number of threads it sees.
pub fn quota() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids in order, and how many cores they are on.
    fn by_core(ids: &[usize], core_of: impl Fn(usize) -> Option<String>) -> (Vec<usize>, usize) {
        let threads = HardwareThreads::by_core(ids.to_vec(), core_of);
        (threads.ids, threads.cores)
    }

    #[test]
    fn one_thread_of_each_core_comes_first() {
        let far = |id: usize| Some(format!("{},{}", id % 4, id % 4 + 4));
        let side_by_side = |id: usize| Some(format!("{}-{}", id / 2 * 2, id / 2 * 2 + 1));
        assert_eq!(by_core(&[0, 1, 2, 3, 4, 5, 6, 7], far), (vec![0, 1, 2, 3, 4, 5, 6, 7], 4));
        assert_eq!(by_core(&[0, 1, 2, 3, 4, 5], side_by_side), (vec![0, 2, 4, 1, 3, 5], 3));
        // A process that may not use the first thread of core 1; small cores with one thread each.
        assert_eq!(by_core(&[0, 1, 3], side_by_side), (vec![0, 3, 1], 2));
        let mixed = |id: usize| if id < 4 { side_by_side(id) } else { Some(id.to_string()) };
        assert_eq!(by_core(&[0, 1, 2, 3, 4, 5], mixed), (vec![0, 2, 4, 5, 1, 3], 4));
        // The topology is not known.
        assert_eq!(by_core(&[3, 5, 7], |_| None), (vec![3, 5, 7], 3));
    }

    #[test]
    fn threads_share_cores_only_where_they_must() {
        let threads = HardwareThreads::by_core((0..6).collect(), |id| Some((id / 2).to_string()));
        for (wanted, expected) in [(1, Some(3)), (3, Some(3)), (4, Some(6)), (6, Some(6)), (7, None)] {
            assert_eq!(threads.for_compute(wanted).map(<[usize]>::len), expected, "{wanted} wanted");
        }
        assert_eq!(threads.for_compute(2), Some(&[0, 2, 4][..]));
    }

    #[test]
    fn this_machine_has_some() {
        let threads = HardwareThreads::allowed().unwrap();
        assert!((1..=threads.count()).contains(&threads.cores) && quota() <= threads.count());
        assert!((1..=quota()).contains(&cores()));
    }
}
