//! A request as a router sees it: token ids, with every default decided.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use baton_core::{GenerateRequest, TokenId};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

/// Which attempt of this process something belongs to. Two deployments number their requests alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttemptKey(u64);

impl AttemptKey {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// One attempt at a request for continuations of one prompt.
#[pyclass(frozen)]
pub(crate) struct Request {
    pub(crate) key: AttemptKey,
    pub(crate) request: GenerateRequest,
    prompt: PyOnceLock<Py<PyList>>,
}

impl Request {
    pub(crate) fn new(request: GenerateRequest, key: AttemptKey) -> Self {
        Self { key, request, prompt: PyOnceLock::new() }
    }
}

#[pymethods]
impl Request {
    /// The same in all attempts.
    #[getter]
    fn id(&self) -> String {
        format!("cmpl-{}", self.request.id)
    }

    /// 0, and one more each time that the request goes on elsewhere.
    #[getter]
    fn attempt(&self) -> u32 {
        self.request.attempt.0
    }

    #[getter]
    fn prompt(&self, py: Python<'_>) -> PyResult<Py<PyList>> {
        let list = || PyList::new(py, self.request.prompt.iter().map(|token| token.0)).map(Bound::unbind);
        Ok(self.prompt.get_or_try_init(py, list)?.clone_ref(py))
    }

    #[getter]
    fn prompt_tokens(&self) -> usize {
        self.request.prompt.len()
    }

    /// Tokens that the client has from earlier attempts, of all choices.
    #[getter]
    fn generated_tokens(&self) -> usize {
        self.request.outputs.iter().map(Vec::len).sum()
    }

    /// The number of continuations.
    #[getter]
    fn n(&self) -> usize {
        self.request.outputs.len()
    }

    /// Of each continuation, those of earlier attempts included.
    #[getter]
    fn max_tokens(&self) -> u32 {
        self.request.limits.max_tokens
    }

    #[getter]
    fn temperature(&self) -> f32 {
        self.request.sampling.temperature
    }

    #[getter]
    fn top_p(&self) -> f32 {
        self.request.sampling.top_p
    }

    #[getter]
    fn presence_penalty(&self) -> f32 {
        self.request.sampling.presence_penalty
    }

    #[getter]
    fn frequency_penalty(&self) -> f32 {
        self.request.sampling.frequency_penalty
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.request.sampling.seed
    }

    #[getter]
    fn logit_bias(&self) -> BTreeMap<u32, f32> {
        self.request.sampling.logit_bias.iter().map(|&(token, bias)| (token.0, bias)).collect()
    }

    #[getter]
    fn logprobs(&self) -> Option<u32> {
        self.request.logprobs
    }

    /// The engine that generates computes all of the prompt: nothing of it can come from a prefix cache or another engine.
    #[getter]
    fn needs_whole_prompt(&self) -> bool {
        self.request.needs_whole_prompt()
    }

    /// This request with other values. Never more tokens than the client is waiting for.
    #[pyo3(signature = (*, prompt=None, max_tokens=None, temperature=None, top_p=None, presence_penalty=None,
        frequency_penalty=None, seed=None, logit_bias=None))]
    #[expect(clippy::too_many_arguments, reason = "they are the names of a request's fields")]
    fn replace(
        &self,
        prompt: Option<Vec<u32>>,
        max_tokens: Option<u32>,
        temperature: Option<f32>,
        top_p: Option<f32>,
        presence_penalty: Option<f32>,
        frequency_penalty: Option<f32>,
        seed: Option<u64>,
        logit_bias: Option<BTreeMap<u32, f32>>,
    ) -> PyResult<Self> {
        let mut request = self.request.clone();
        if let Some(prompt) = prompt {
            if prompt.is_empty() {
                return Err(PyValueError::new_err("a prompt has at least one token"));
            }
            request.prompt = prompt.into_iter().map(TokenId).collect::<Arc<[_]>>();
        }
        let limits = &mut request.limits;
        // Each choice that goes on has at least one token more.
        let fewest = request.outputs.iter().map(Vec::len).max().unwrap_or_default() as u32 + 1;
        limits.max_tokens = max_tokens.unwrap_or(u32::MAX).max(fewest).min(limits.max_tokens);
        limits.min_tokens = limits.min_tokens.min(limits.max_tokens);
        let sampling = &mut request.sampling;
        replace(&mut sampling.temperature, temperature);
        replace(&mut sampling.top_p, top_p);
        replace(&mut sampling.presence_penalty, presence_penalty);
        replace(&mut sampling.frequency_penalty, frequency_penalty);
        replace(&mut sampling.seed, seed);
        let ascending =
            |bias: BTreeMap<u32, f32>| bias.into_iter().map(|(token, bias)| (TokenId(token), bias)).collect();
        replace(&mut sampling.logit_bias, logit_bias.map(ascending));
        check("temperature", sampling.temperature, 0.0..=f32::MAX)?;
        check("top_p", sampling.top_p, 0.0..=1.0)?;
        check("presence_penalty", sampling.presence_penalty, -2.0..=2.0)?;
        check("frequency_penalty", sampling.frequency_penalty, -2.0..=2.0)?;
        Ok(Self::new(request, self.key))
    }

    fn __repr__(&self) -> String {
        let (id, attempt, tokens) = (self.id(), self.attempt(), self.prompt_tokens());
        format!("<baton.Request {id}, attempt {attempt}, {tokens} prompt tokens>")
    }
}

fn check(name: &str, value: f32, allowed: RangeInclusive<f32>) -> PyResult<()> {
    match allowed.contains(&value) {
        true => Ok(()),
        false => Err(PyValueError::new_err(format!("{name} is {value}"))),
    }
}

fn replace<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}
