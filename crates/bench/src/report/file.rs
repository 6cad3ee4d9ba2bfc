//! A result as a file.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::record::Record;
use crate::series::Series;
use crate::summary::Summary;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunFile {
    pub(crate) format: String,
    pub(crate) label: String,
    pub(crate) started_unix_s: u64,
    pub(crate) server: ServerCard,
    /// What was sent, in words.
    pub(crate) settings: Vec<(String, String)>,
    /// What to know before believing the numbers.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    /// Found by search: the highest rate that meets the objectives, of which this is the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) goodput_rate: Option<f64>,
    /// Of all processes of the server during the whole run, where it was started for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server_cpu_s: Option<f64>,
    pub(crate) summary: Summary,
    pub(crate) series: Series,
    /// In the order of their intended times; warm-up included.
    pub(crate) records: Vec<Record>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ServerCard {
    pub(crate) url: String,
    pub(crate) model: Option<String>,
    pub(crate) route: String,
    pub(crate) prompts: String,
    /// Else lengths are what was requested and what was counted in chunks.
    pub(crate) counts_tokens: bool,
    pub(crate) ignores_eos: bool,
}

impl RunFile {
    pub(crate) fn server_cpu_ms_per_request(&self) -> Option<f64> {
        let requests = self.records.iter().filter(|record| record.is_complete()).count();
        self.server_cpu_s.map(|cpu_s| cpu_s * 1e3 / requests.max(1) as f64)
    }

    pub(crate) const FORMAT: &'static str = "baton-bench/1";

    pub(crate) fn save(&self, path: &Path) -> Result<(), BenchError> {
        let json = serde_json::to_vec(self).map_err(|error| BenchError::file(path, error))?;
        std::fs::write(path, json).map_err(|error| BenchError::file(path, error))
    }

    pub(crate) fn load(path: &Path) -> Result<Self, BenchError> {
        let json = std::fs::read(path).map_err(|error| BenchError::file(path, error))?;
        let file: Self = serde_json::from_slice(&json)
            .map_err(|error| BenchError::file(path, format!("not a result of baton bench: {error}")))?;
        if file.format == Self::FORMAT {
            return Ok(file);
        }
        Err(BenchError::file(path, format!("is of format {}, this version reads {}", file.format, Self::FORMAT)))
    }
}
