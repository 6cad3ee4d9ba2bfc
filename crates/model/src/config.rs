//! A JSON object whose fields are read one by one, each with its type, its bounds and an error that names it.

use serde_json::{Map, Value};

use crate::ModelError;

/// The largest size: sizes are sent as u32, and the product of two of them must fit a usize.
const MAX_SIZE: u64 = i32::MAX as u64;

/// A configuration file, or an object inside one. `null` counts as absent, as it does in transformers.
#[derive(Clone, Debug)]
pub struct Config {
    file: String,
    /// "rope_scaling." for the fields of an inner object.
    prefix: String,
    fields: Map<String, Value>,
}

impl Config {
    pub(crate) fn parse(file: &str, bytes: &[u8]) -> Result<Self, ModelError> {
        let value = serde_json::from_slice(bytes).map_err(|source| ModelError::Json { file: file.into(), source })?;
        match value {
            Value::Object(fields) => Ok(Self::new(file, fields)),
            other => Err(ModelError::File {
                file: file.into(),
                problem: format!("expected an object, got {}", shown(&other)),
            }),
        }
    }

    pub(crate) fn new(file: &str, fields: Map<String, Value>) -> Self {
        Self { file: file.into(), prefix: String::new(), fields }
    }

    /// The fields whose names begin with `prefix` and a dot.
    pub(crate) fn under(&self, prefix: &str) -> Self {
        let prefix = format!("{prefix}.");
        let under = self
            .fields
            .iter()
            .filter_map(|(name, value)| Some((name.strip_prefix(&prefix)?.to_owned(), value.clone())));
        Self { file: self.file.clone(), fields: under.collect(), prefix: format!("{}{prefix}", self.prefix) }
    }

    pub fn get(&self, field: &str) -> Option<&Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    pub fn object(&self, field: &str) -> Result<Option<Self>, ModelError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Self {
                file: self.file.clone(),
                prefix: format!("{}{field}.", self.prefix),
                fields: fields.clone(),
            })),
            found => Err(self.wrong(field, "an object", found)),
        }
    }

    pub fn text(&self, field: &str) -> Result<Option<&str>, ModelError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            found => Err(self.wrong(field, "a string", found)),
        }
    }

    pub fn optional_flag(&self, field: &str) -> Result<Option<bool>, ModelError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            found => Err(self.wrong(field, "true or false", found)),
        }
    }

    pub fn flag(&self, field: &str, default: bool) -> Result<bool, ModelError> {
        Ok(self.optional_flag(field)?.unwrap_or(default))
    }

    /// An integer from 1 to 2³¹ − 1.
    pub fn size(&self, field: &str) -> Result<Option<usize>, ModelError> {
        match self.get(field) {
            None => Ok(None),
            found @ Some(value) => match value.as_u64() {
                Some(0) | None => Err(self.wrong(field, "a positive integer", found)),
                Some(size) if size > MAX_SIZE => Err(self.wrong(field, &format!("at most {MAX_SIZE}"), found)),
                Some(size) => Ok(Some(size as usize)),
            },
        }
    }

    pub fn required_size(&self, field: &str) -> Result<usize, ModelError> {
        self.size(field)?.ok_or_else(|| self.wrong(field, "a positive integer", None))
    }

    /// A number that an f32 can hold and that `accepts` allows; `expected` describes it in errors.
    pub fn number(
        &self,
        field: &str,
        expected: &str,
        accepts: impl Fn(f64) -> bool,
    ) -> Result<Option<f64>, ModelError> {
        match self.get(field) {
            None => Ok(None),
            found @ Some(value) => match value.as_f64() {
                Some(number) if (number as f32).is_finite() && accepts(number) => Ok(Some(number)),
                _ => Err(self.wrong(field, expected, found)),
            },
        }
    }

    pub fn positive(&self, field: &str) -> Result<Option<f64>, ModelError> {
        self.number(field, "a positive number", |number| number > 0.0)
    }

    pub fn required_positive(&self, field: &str) -> Result<f64, ModelError> {
        self.positive(field)?.ok_or_else(|| self.wrong(field, "a positive number", None))
    }

    pub(crate) fn wrong(&self, field: &str, expected: &str, found: Option<&Value>) -> ModelError {
        let found = found.map_or_else(|| "nothing".to_owned(), shown);
        self.refuse(field, format!("expected {expected}, got {found}"))
    }

    pub fn refuse(&self, field: &str, problem: impl Into<String>) -> ModelError {
        ModelError::Field { file: self.file.clone(), field: format!("{}{field}", self.prefix), problem: problem.into() }
    }
}

/// A value as it is in the file, shortened.
fn shown(value: &Value) -> String {
    const MAX_CHARS: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> Config {
        Config::parse("config.json", json.as_bytes()).unwrap()
    }

    #[test]
    fn errors_name_file_and_field() {
        let config = config(
            r#"{"heads": "six", "zero": 0, "minus": -1, "half": 0.5, "huge": 2147483648, "list": [1],
                "rope_scaling": {"factor": "8"}}"#,
        );
        let errors = [
            (config.size("heads").unwrap_err(), r#"heads: expected a positive integer, got "six""#),
            (config.required_size("none").unwrap_err(), "none: expected a positive integer, got nothing"),
            (config.size("zero").unwrap_err(), "zero: expected a positive integer, got 0"),
            (config.size("minus").unwrap_err(), "minus: expected a positive integer, got -1"),
            (config.size("half").unwrap_err(), "half: expected a positive integer, got 0.5"),
            (config.size("huge").unwrap_err(), "huge: expected at most 2147483647, got 2147483648"),
            (config.object("list").unwrap_err(), "list: expected an object, got [1]"),
            (config.flag("zero", true).unwrap_err(), "zero: expected true or false, got 0"),
            (config.text("zero").unwrap_err(), "zero: expected a string, got 0"),
            (
                config.object("rope_scaling").unwrap().unwrap().required_positive("factor").unwrap_err(),
                r#"rope_scaling.factor: expected a positive number, got "8""#,
            ),
        ];
        for (error, message) in errors {
            assert_eq!(error.to_string(), format!("config.json: {message}"));
        }
    }

    #[test]
    fn null_is_absent() {
        let config = config(r#"{"head_dim": null}"#);
        assert_eq!(config.size("head_dim").unwrap(), None);
        assert!(config.flag("head_dim", true).unwrap());
    }

    #[test]
    fn broken_json_names_the_file() {
        for (json, message) in
            [("[1]", "config.json: expected an object, got [1]"), ("{", "config.json: not valid JSON")]
        {
            let error = Config::parse("config.json", json.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
