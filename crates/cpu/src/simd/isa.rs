//! Which instructions kernels are compiled for. Chosen once, when a backend is loaded; the choice never changes a result.

use std::fmt;
use std::str::FromStr;

#[cfg(target_arch = "x86_64")]
use super::amx;
#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use super::avx512::Avx512;
use super::portable::Portable;
use super::vector::{Kernel, Lanes};
use crate::simd::flush::Flushed;
use baton_backend::BackendError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// With VNNI; machines that have AVX-512 without it use AVX2.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// Tile registers for products of bf16, AVX-512 for all else.
    #[cfg(target_arch = "x86_64")]
    Amx,
}

impl Isa {
    /// What this machine has, best first.
    pub fn available() -> Vec<Self> {
        let mut available = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 =
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
            let avx512 = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vnni");
            if avx512 && is_x86_feature_detected!("avx512bf16") && amx::available() {
                available.push(Self::Amx);
            }
            if avx512 {
                available.push(Self::Avx512);
            }
            if avx2 {
                available.push(Self::Avx2);
            }
        }
        available.push(Self::Portable);
        // Emulated, and so not the best.
        #[cfg(all(test, target_arch = "x86_64"))]
        if available.contains(&Self::Avx512) && !available.contains(&Self::Amx) {
            available.push(Self::Amx);
        }
        available
    }

    /// Of what this machine has.
    pub(crate) fn best() -> Self {
        Self::available().first().copied().unwrap_or(Self::Portable)
    }

    /// The wanted one if this machine has it; without a wish what `BATON_ISA` names, or the best.
    pub fn choose(wanted: Option<Self>) -> Result<Self, BackendError> {
        let wanted = match (wanted, std::env::var("BATON_ISA")) {
            (Some(isa), _) => Some(isa),
            (None, Ok(name)) => Some(name.parse::<Self>().map_err(BackendError::Load)?),
            (None, Err(_)) => None,
        };
        let available = Self::available();
        match wanted {
            Some(isa) if available.contains(&isa) => Ok(isa),
            Some(isa) => Err(BackendError::Load(format!("this machine has no {isa}"))),
            None => Ok(Self::best()),
        }
    }

    pub(crate) fn has_tiles(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        if self == Self::Amx {
            return true;
        }
        false
    }

    /// With tiles or without.
    pub(crate) fn has_avx512(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        if matches!(self, Self::Avx512 | Self::Amx) {
            return true;
        }
        false
    }

    /// The instruction set must be one of [`Isa::available`]; every way into a backend goes through [`Isa::choose`].
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        let _flushed = Flushed::enter();
        match self {
            Self::Portable => Portable::call(kernel),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => Avx2::call(kernel),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Avx512::<false>::call(kernel),
            #[cfg(target_arch = "x86_64")]
            Self::Amx => {
                // SAFETY: the machine has them, or they are emulated.
                let _configured = unsafe { amx::Configured::enter() };
                Avx512::<true>::call(kernel)
            }
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Self::Amx => "amx",
        })
    }
}

impl FromStr for Isa {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "portable" => Ok(Self::Portable),
            #[cfg(target_arch = "x86_64")]
            "avx2" => Ok(Self::Avx2),
            #[cfg(target_arch = "x86_64")]
            "avx512" => Ok(Self::Avx512),
            #[cfg(target_arch = "x86_64")]
            "amx" => Ok(Self::Amx),
            _ => Err(format!("unknown instruction set {name:?}: portable, avx2, avx512 and amx are known")),
        }
    }
}
