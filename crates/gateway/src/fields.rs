//! The fields of a request, taken out one by one into the types they must have. An error names the path of what is wrong.

use std::fmt;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::error::ApiError;

/// Fields that nobody takes are ignored: clients send many that mean nothing here.
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    pub(crate) fn new(fields: Map<String, Value>) -> Self {
        Self(fields)
    }

    /// `null` is the same as absent.
    pub(crate) fn take<T: FromJson>(&mut self, name: &str) -> Result<Option<T>, ApiError> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => T::from_json(value).map(Some).map_err(|mismatch| mismatch.at(name)),
        }
    }

    /// `null` is as good as absent, as everywhere.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !value.is_null())
    }

    pub(crate) fn require<T: FromJson>(&mut self, name: &str) -> Result<T, ApiError> {
        self.take(name)?.ok_or_else(|| ApiError::invalid(name, format!("{name} is missing")))
    }

    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, ApiError> {
        Ok(self.take(name)?.unwrap_or(false))
    }

    pub(crate) fn integer(&mut self, name: &str, range: RangeInclusive<i64>) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.take::<i64>(name)? else { return Ok(None) };
        if range.contains(&value) {
            return Ok(Some(value));
        }
        let (low, high) = range.into_inner();
        Err(ApiError::invalid(name, format!("{name} must be between {low} and {high}, not {value}")))
    }

    pub(crate) fn number(&mut self, name: &str, interval: Interval) -> Result<Option<f32>, ApiError> {
        let Some(value) = self.take::<f64>(name)? else { return Ok(None) };
        if interval.contains(value) {
            return Ok(Some(value as f32));
        }
        Err(ApiError::invalid(name, format!("{name} must be {interval}, not {value}")))
    }
}

/// Which numbers a field may have.
#[derive(Clone, Copy)]
pub(crate) enum Interval {
    /// `[low, high]`
    Closed(f64, f64),
    /// `(low, high]`
    Above(f64, f64),
}

impl Interval {
    pub(crate) fn contains(self, value: f64) -> bool {
        match self {
            Self::Closed(low, high) => (low..=high).contains(&value),
            Self::Above(low, high) => low < value && value <= high,
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(low, high) => write!(f, "between {low} and {high}"),
            Self::Above(low, high) => write!(f, "above {low} and at most {high}"),
        }
    }
}

/// A value that is not what it should be, and where in the field it is.
#[derive(Debug)]
pub(crate) struct Mismatch {
    /// Below the field: `[2].type`
    path: String,
    message: String,
}

impl Mismatch {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { path: String::new(), message: message.into() }
    }

    fn expected(what: &str, found: &Value) -> Self {
        Self::new(format!("expected {what}, found {}", describe(found)))
    }

    #[must_use]
    pub(crate) fn inside(mut self, step: impl fmt::Display) -> Self {
        self.path.insert_str(0, &step.to_string());
        self
    }

    pub(crate) fn at(self, field: &str) -> ApiError {
        ApiError::invalid(field, format!("{field}{}: {}", self.path, self.message))
    }
}

/// Short enough for an error message, whatever the client sent.
fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => format!("the number {value}"),
        Value::String(value) if value.chars().count() <= 40 => format!("the string {value:?}"),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

pub(crate) trait FromJson: Sized {
    fn from_json(value: Value) -> Result<Self, Mismatch>;
}

impl FromJson for Value {
    fn from_json(value: Value) -> Result<Self, Mismatch> {
        Ok(value)
    }
}

impl FromJson for bool {
    fn from_json(value: Value) -> Result<Self, Mismatch> {
        value.as_bool().ok_or_else(|| Mismatch::expected("true or false", &value))
    }
}

impl FromJson for i64 {
    fn from_json(value: Value) -> Result<Self, Mismatch> {
        value.as_i64().ok_or_else(|| Mismatch::expected("an integer", &value))
    }
}

impl FromJson for f64 {
    fn from_json(value: Value) -> Result<Self, Mismatch> {
        value.as_f64().ok_or_else(|| Mismatch::expected("a number", &value))
    }
}

impl FromJson for String {
    fn from_json(value: Value) -> Result<Self, Mismatch> {
        match value {
            Value::String(text) => Ok(text),
            other => Err(Mismatch::expected("a string", &other)),
        }
    }
}

impl FromJson for Map<String, Value> {
    fn from_json(value: Value) -> Result<Self, Mismatch> {
        match value {
            Value::Object(fields) => Ok(fields),
            other => Err(Mismatch::expected("an object", &other)),
        }
    }
}

impl<T: FromJson> FromJson for Vec<T> {
    fn from_json(value: Value) -> Result<Self, Mismatch> {
        let Value::Array(items) = value else { return Err(Mismatch::expected("a list", &value)) };
        let items = items.into_iter().enumerate();
        items.map(|(at, item)| T::from_json(item).map_err(|mismatch| mismatch.inside(format_args!("[{at}]")))).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Fields {
        Fields::new(value.as_object().unwrap().clone())
    }

    #[test]
    fn null_is_absent() {
        let mut fields = fields(json!({"a": null, "b": 1}));
        assert_eq!(fields.take::<i64>("a"), Ok(None));
        assert_eq!(fields.take::<i64>("b"), Ok(Some(1)));
        assert_eq!(fields.require::<i64>("a").unwrap_err().message, "a is missing");
    }

    #[test]
    fn errors_name_the_path() {
        let mut fields = fields(json!({"a": [[1], [2, "x"]], "t": "x".repeat(99), "p": 0, "n": 7}));
        let error = fields.take::<Vec<Vec<i64>>>("a").unwrap_err();
        assert_eq!(error.message, "a[1][1]: expected an integer, found the string \"x\"");
        assert_eq!(error.param.as_deref(), Some("a"));
        assert_eq!(fields.take::<f64>("t").unwrap_err().message, "t: expected a number, found a string");
        let error = fields.number("p", Interval::Above(0.0, 1.0)).unwrap_err();
        assert_eq!(error.message, "p must be above 0 and at most 1, not 0");
        assert_eq!(fields.integer("n", 1..=5).unwrap_err().message, "n must be between 1 and 5, not 7");
    }
}
