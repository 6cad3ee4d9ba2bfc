//! What every engine last reported.

use baton_core::{EngineReport, ShardCounters};
use baton_router::EngineStatus;

use super::text::{Kind, Page};

type Reading = fn(&EngineReport) -> u64;

const GAUGES: [(&str, &str, Reading); 6] = [
    ("baton_requests_running", "Sequences that hold KV pages.", |r| r.load.running.into()),
    ("baton_requests_waiting", "Sequences that wait for KV pages.", |r| r.load.waiting.into()),
    ("baton_pending_prefill_tokens", "Prompt tokens still to be computed.", |r| r.load.pending_prefill_tokens),
    ("baton_reservations", "Places kept for KV from other engines.", |r| r.load.reservations.into()),
    ("baton_reserved_pages", "KV pages set aside for them.", |r| r.load.reserved_pages.into()),
    ("baton_exports", "Prompts being computed for other engines.", |r| r.load.exports.into()),
];

const COUNTERS: [(&str, &str, Reading); 19] = [
    ("baton_steps_total", "Engine steps.", |r| r.counters.steps),
    ("baton_prefill_tokens_total", "Prompt tokens computed, again after a preemption too.", |r| {
        r.counters.prefill_tokens
    }),
    ("baton_cached_tokens_total", "Prompt tokens taken from the prefix cache.", |r| r.counters.cached_tokens),
    ("baton_generated_tokens_total", "Tokens sampled.", |r| r.counters.generated_tokens),
    ("baton_evicted_pages_total", "Pages the prefix cache gave up.", |r| r.counters.evicted_pages),
    ("baton_aborted_total", "Requests given up before their end.", |r| r.counters.aborted),
    ("baton_finished_total", "Requests served to their end.", |r| r.counters.finished),
    ("baton_handoffs_received_total", "Requests that started from another engine's KV.", |r| {
        r.counters.handoffs_received
    }),
    ("baton_handoffs_sent_total", "Prompts whose KV another engine has taken.", |r| r.counters.handoffs_sent),
    ("baton_received_tokens_total", "Prompt tokens that came from another engine.", |r| r.counters.received_tokens),
    ("baton_landing_timeouts_total", "Requests that stopped waiting for KV and computed the rest.", |r| {
        r.counters.landing_timeouts
    }),
    ("baton_leases_expired_total", "Reservations that ran out unused.", |r| r.counters.leases_expired),
    ("baton_kv_pages_received_total", "KV pages received and verified.", |r| r.counters.kv_pages_received),
    ("baton_kv_bytes_received_total", "KV bytes received and verified.", |r| r.counters.kv_bytes_received),
    ("baton_kv_bytes_sent_total", "KV bytes other engines have verified.", |r| r.counters.kv_bytes_sent),
    ("baton_kv_bytes_sent_early_total", "Of those: before the last layer of their prompt was computed.", |r| {
        r.counters.kv_bytes_sent_early
    }),
    ("baton_kv_checksum_failures_total", "KV blocks that arrived damaged and were computed again.", |r| {
        r.counters.checksum_failures
    }),
    ("baton_kv_stale_blocks_total", "KV blocks whose sender had reused them.", |r| r.counters.stale_blocks),
    ("baton_kv_unknown_offers_total", "Offers for reservations that were gone.", |r| r.counters.unknown_offers),
];

type Seconds = fn(&EngineReport) -> u64;

/// Counted in microseconds, shown in seconds.
const TIMES: [(&str, &str, Seconds); 4] = [
    ("baton_busy_seconds_total", "Time spent inside engine steps.", |r| r.counters.busy_us),
    ("baton_prefill_seconds_total", "The part of that which prompts took.", |r| r.counters.prefill_us),
    ("baton_landing_seconds_total", "Time requests waited for KV.", |r| r.counters.landing_us),
    ("baton_kv_copy_seconds_total", "Time spent copying and checking KV.", |r| r.counters.kv_copy_us),
];

type ShardReading = fn(&ShardCounters) -> u64;

/// Of each tensor-parallel shard.
const SHARDS: [(&str, &str, ShardReading); 3] = [
    ("baton_kv_shard_bytes_received_total", "KV bytes received into a shard's memory.", |s| s.kv_bytes_received),
    ("baton_kv_shard_bytes_sent_total", "KV bytes other engines took from a shard's memory.", |s| s.kv_bytes_sent),
    ("baton_shard_gathered_bytes_total", "Activations of a shard that the other shards read.", |s| s.gathered_bytes),
];

pub(super) fn engine_numbers(page: &mut Page, engines: &[EngineStatus]) {
    let mut up = page.family("baton_engine_up", Kind::Gauge, "1 when the engine can be sent requests.");
    for engine in engines {
        up.sample(&[("engine", &engine.name), ("role", engine.role.name())], u8::from(engine.is_ready()));
    }
    let mut restarts = page.family(
        "baton_engine_restarts_total",
        Kind::Counter,
        "Times the engine was started again, or found again.",
    );
    for engine in engines {
        restarts.sample(&[("engine", &engine.name)], engine.restarts);
    }
    let mut hangs = page.family(
        "baton_engine_hangs_total",
        Kind::Counter,
        "Times the engine showed no sign of life, and its requests went on elsewhere.",
    );
    for engine in engines {
        hangs.sample(&[("engine", &engine.name)], engine.hangs);
    }
    let readings = (GAUGES.map(|reading| (Kind::Gauge, reading)).into_iter())
        .chain(COUNTERS.map(|reading| (Kind::Counter, reading)));
    for (kind, (name, help, read)) in readings {
        let mut family = page.family(name, kind, help);
        for engine in engines {
            family.sample(&[("engine", &engine.name)], read(&engine.report));
        }
    }
    for (name, help, read) in TIMES {
        let mut family = page.family(name, Kind::Counter, help);
        for engine in engines {
            family.sample(&[("engine", &engine.name)], read(&engine.report) as f64 / 1e6);
        }
    }
    for (name, help, read) in SHARDS {
        let mut family = page.family(name, Kind::Counter, help);
        for engine in engines {
            for (index, shard) in engine.report.shards.iter().enumerate() {
                family.sample(&[("engine", &engine.name), ("shard", &index.to_string())], read(shard));
            }
        }
    }
    let mut preemptions =
        page.family("baton_preemptions_total", Kind::Counter, "Sequences that lost their KV pages to others.");
    for engine in engines {
        let labels = [("engine", engine.name.as_str()), ("reason", "out_of_pages")];
        preemptions.sample(&labels, engine.report.counters.preemptions);
    }
    let mut pages = page.family("baton_kv_pages", Kind::Gauge, "KV pages; the states add up to the pool.");
    for engine in engines {
        let load = &engine.report.load;
        let used = load.pages_total.saturating_sub(load.pages_free + load.pages_cached);
        for (state, count) in [("used", used), ("cached", load.pages_cached), ("free", load.pages_free)] {
            pages.sample(&[("engine", &engine.name), ("state", state)], count);
        }
    }
}
