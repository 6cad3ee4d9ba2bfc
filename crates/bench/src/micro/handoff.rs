//! Hand-offs of KV from one engine to another over each transport, beside a plain copy of as many bytes.

use std::time::Duration;

use baton_fabric::{FabricError, Transport};

use super::section::{Column, Section};
use crate::error::BenchError;
use crate::measure::EnginePair;

const COLUMNS: &[Column] = &[Column::plain("GB/s"), Column::percent("share")];
/// Half a GiB: no cache holds it.
const PAGES: u32 = 512;

const MEMCPY: &str = "memcpy";
const LOOPBACK: &str = "loopback tcp";

pub(super) struct HandOffBench {
    hand_offs: EnginePair,
    pub(super) section: Section,
}

impl HandOffBench {
    pub(super) fn new() -> Result<Self, BenchError> {
        let hand_offs = EnginePair::new(PAGES).map_err(failed)?;
        // Mappings and socket buffers are set up once per pair of engines, not once per hand-off.
        for transport in [Transport::Shm, Transport::Tcp] {
            hand_offs.over(transport).map_err(failed)?;
        }
        let title =
            format!("hand-off: {} MiB of KV of a 1B Llama, checksummed, copied and verified", hand_offs.bytes() >> 20);
        Ok(Self { hand_offs, section: Section::new("handoff", title, COLUMNS) })
    }

    pub(super) fn round(&mut self) -> Result<(), BenchError> {
        self.pair(MEMCPY, |hand_offs| Ok(hand_offs.memcpy()), "over shared memory", Transport::Shm)?;
        self.pair(LOOPBACK, EnginePair::loopback, "over tcp", Transport::Tcp)
    }

    fn pair(
        &mut self,
        plain: &'static str,
        measure: impl Fn(&EnginePair) -> Result<Duration, FabricError>,
        name: &str,
        transport: Transport,
    ) -> Result<(), BenchError> {
        let gbytes_per_s = |time: Duration| self.hand_offs.bytes() as f64 / time.as_secs_f64() / 1e9;
        let best = gbytes_per_s(measure(&self.hand_offs).map_err(failed)?);
        let reached = gbytes_per_s(self.hand_offs.over(transport).map_err(failed)?);
        self.section.add(plain, &[Some(best), None]);
        self.section.add(name, &[Some(reached), Some(reached / best)]);
        self.section.share_of(name, plain);
        Ok(())
    }
}

fn failed(error: FabricError) -> BenchError {
    BenchError::System(error.to_string())
}
