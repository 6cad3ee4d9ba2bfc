//! Lists of cores as Linux writes them: `0-3,8`.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// Cores in the order in which they were named, each once; never empty.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct CpuList(Vec<usize>);

/// The highest number that Linux supports.
const MAX_CPU: usize = 8191;

impl CpuList {
    /// `None` for an empty list. Each core must be named once.
    pub(crate) fn of(cpus: Vec<usize>) -> Option<Self> {
        (!cpus.is_empty()).then_some(Self(cpus))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn as_slice(&self) -> &[usize] {
        &self.0
    }

    /// The share of engine `which`, where `of` engines get `each` cores; `None` when there are not enough for all.
    ///
    /// ```text
    ///   0 1 2 3 4   two each   0 1 | 2 3
    /// ```
    pub(crate) fn share(&self, which: usize, of: usize, each: usize) -> Option<Self> {
        let enough = each > 0 && of.checked_mul(each)? <= self.0.len();
        enough.then(|| Self(self.0[which * each..][..each].to_vec()))
    }
}

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a list of cores; write it like 0-3,8");
        let number = |text: &str| text.trim().parse::<usize>().ok().filter(|cpu| *cpu <= MAX_CPU).ok_or_else(wrong);
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(wrong());
            }
            cpus.extend(first..=last);
        }
        let mut once = cpus.clone();
        once.sort_unstable();
        once.dedup();
        if once.len() == cpus.len() { Ok(Self(cpus)) } else { Err(format!("{text:?} names a core twice")) }
    }
}

impl TryFrom<String> for CpuList {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_linux_writes_them() {
        for (text, shown) in [("0", "0"), ("0-3,8", "0,1,2,3,8"), ("5, 2 - 3", "5,2,3"), ("0-0", "0")] {
            assert_eq!(text.parse::<CpuList>().unwrap().to_string(), shown, "{text}");
        }
        for text in ["", ",", "a", "-1", "3-1", "0,0", "0-2,1", "9999", "1-"] {
            assert!(text.parse::<CpuList>().is_err(), "{text}");
        }
    }

    #[test]
    fn shares_do_not_overlap() {
        let cpus: CpuList = "0-4".parse().unwrap();
        let share = |which, of, each| cpus.share(which, of, each).map(|share| share.to_string());
        assert_eq!([share(0, 2, 2), share(1, 2, 2)], [Some("0,1".to_owned()), Some("2,3".to_owned())]);
        assert_eq!((share(0, 1, 5), share(0, 2, 3), share(0, 1, 0)), (Some("0,1,2,3,4".to_owned()), None, None));
    }
}
