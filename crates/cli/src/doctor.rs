//! `baton doctor`: reports what this machine can do, and problems that would show later.

use std::fmt::Display;
use std::net::{Ipv4Addr, TcpListener};

use baton_bench::measure::Ceilings;
use baton_cpu::{Isa, cores, quota};
use baton_model::bundled_names;

use crate::config::DEFAULT_PORT;
use crate::failure::Failure;
use crate::machine;

/// CPU features that kernels use or could use, as /proc/cpuinfo spells them.
const INTERESTING_FEATURES: [&str; 7] =
    ["avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16"];

/// Larger than any cache, so that reading it measures DRAM.
const MEASURED_BYTES: usize = 512 << 20;
/// The best of these measurements counts, since other programs can only make them slower.
const MEASUREMENTS: usize = 3;

pub(crate) fn run() -> Result<(), Failure> {
    println!("baton {}\n", env!("CARGO_PKG_VERSION"));
    processor()?;
    memory();
    ceilings()?;
    line("CUDA", if has_cuda() { "driver found (not used by this version)" } else { "no driver; not needed" });
    line("models", format!("{} (bundled)", bundled_names().collect::<Vec<_>>().join(", ")));
    line("port", port());
    Ok(())
}

fn processor() -> Result<(), Failure> {
    let chosen = Isa::choose(None).map_err(Failure::user)?;
    let others: Vec<_> = Isa::available().into_iter().filter(|isa| *isa != chosen).map(|isa| isa.to_string()).collect();
    line("CPU", machine::cpu_name().unwrap_or_else(|| "unknown".into()));
    let (cores, threads) = (cores(), quota());
    let of_threads = if threads > cores { format!(" with {threads} hardware threads") } else { String::new() };
    line("cores", format!("{cores}{of_threads}, so --threads {cores} with one engine"));
    line("features", machine::cpu_features(&INTERESTING_FEATURES).join(" "));
    line("kernels", format!("{chosen} (also: {})", others.join(", ")));
    Ok(())
}

fn memory() {
    if let (Some(total), Some(available)) = (machine::memory(), machine::available_memory()) {
        line("memory", format!("{total}, {available} available"));
    }
}

/// Measures the ceilings of all kernels, with all cores.
fn ceilings() -> Result<(), Failure> {
    let mut ceilings = Ceilings::new(cores(), None, MEASURED_BYTES).map_err(Failure::ours)?;
    let (mut gflops, mut tile_gflops, mut gbytes_per_s) = (0f64, 0f64, 0f64);
    for _ in 0..MEASUREMENTS {
        gflops = gflops.max(ceilings.fma_gflops().map_err(Failure::ours)?);
        tile_gflops = tile_gflops.max(ceilings.tile_gflops().map_err(Failure::ours)?.unwrap_or(0.0));
        gbytes_per_s = gbytes_per_s.max(ceilings.read_gbytes_per_s(MEASURED_BYTES).map_err(Failure::ours)?);
    }
    let tiles = if tile_gflops > 0.0 { format!(", {tile_gflops:.0} of bf16 on tiles") } else { String::new() };
    line("measured", format!("{gflops:.0} GFLOP/s of f32 FMA{tiles}, {gbytes_per_s:.1} GB/s read from memory"));
    Ok(())
}

fn port() -> String {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, DEFAULT_PORT)) {
        Ok(_) => format!("{DEFAULT_PORT} is free"),
        Err(error) => format!("{DEFAULT_PORT} cannot be used ({error}); choose another with --port"),
    }
}

#[allow(unsafe_code, reason = "the only way to know whether a driver can be loaded is to load it")]
fn has_cuda() -> bool {
    // SAFETY: the name is a terminated string; loading NVIDIA's driver library runs its initialisers only.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    !library.is_null()
}

fn line(name: &str, value: impl Display) {
    println!("{name:10}{value}");
}
