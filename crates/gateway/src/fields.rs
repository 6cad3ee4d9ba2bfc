//! The fields of a request, taken out one by one into the types they must have. An error names the path of what is wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use crate::error::ApiError;
use crate::json::{FromJson, Json, Mismatch};

/// Members of an object, known or not: clients send many that mean nothing here, but never this many.
const MAX_FIELDS: usize = 256;
/// No field has a longer name.
const MAX_NAME_BYTES: usize = 64;

/// The members of an object, as text that is parsed when it is taken. Those that are not taken are ignored.
pub(crate) struct Fields<'a>(BTreeMap<String, Json<'a>>);

impl<'a> Fields<'a> {
    /// Of two members with one name the last counts.
    pub(crate) fn of(json: Json<'a>) -> Result<Self, Mismatch> {
        let mut fields = BTreeMap::new();
        json.each_member(|name, value| {
            if name.text().len() > MAX_NAME_BYTES {
                return Ok(());
            }
            fields.insert(String::from_json(name)?, value);
            match fields.len() {
                ..=MAX_FIELDS => Ok(()),
                _ => Err(Mismatch::new(format!("an object here has at most {MAX_FIELDS} fields"))),
            }
        })?;
        Ok(Self(fields))
    }

    /// `null` is the same as absent.
    pub(crate) fn take_json(&mut self, name: &str) -> Option<Json<'a>> {
        self.0.remove(name).filter(|json| !json.is_null())
    }

    pub(crate) fn take<T: FromJson>(&mut self, name: &str) -> Result<Option<T>, ApiError> {
        let taken = self.take_json(name).map(T::from_json).transpose();
        taken.map_err(|mismatch| mismatch.at(name))
    }

    /// Whether it is there, and not `null`.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|json| !json.is_null())
    }

    pub(crate) fn require_json(&mut self, name: &str) -> Result<Json<'a>, ApiError> {
        self.take_json(name).ok_or_else(|| ApiError::invalid(name, format!("{name} is missing")))
    }

    pub(crate) fn require<T: FromJson>(&mut self, name: &str) -> Result<T, ApiError> {
        T::from_json(self.require_json(name)?).map_err(|mismatch| mismatch.at(name))
    }

    /// For requests whose fields are all known: what was not taken is a mistake.
    pub(crate) fn refuse_rest(&self) -> Result<(), ApiError> {
        match self.0.keys().next() {
            Some(name) => Err(ApiError::invalid(name, format!("{name}: there is no such field here"))),
            None => Ok(()),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields<'_> {
        Fields::of(Json::parse(text).unwrap()).unwrap()
    }

    #[test]
    fn null_is_absent_and_the_last_of_two_counts() {
        let mut fields = fields(r#"{"a": null, "b": 2, "b": 1, "\u0063": 3}"#);
        assert!(!fields.has("a") && fields.has("b"));
        assert_eq!(fields.take::<i64>("a"), Ok(None));
        assert_eq!(fields.take::<i64>("b"), Ok(Some(1)));
        assert_eq!(fields.take::<i64>("c"), Ok(Some(3)), "a name may be written with escapes");
        assert_eq!(fields.require::<i64>("a").unwrap_err().message, "a is missing");
    }

    #[test]
    fn errors_name_the_field() {
        let body = format!(r#"{{"t": "{}", "p": 0, "n": 7}}"#, "x".repeat(99));
        let mut fields = fields(&body);
        let error = fields.take::<f64>("t").unwrap_err();
        assert_eq!(
            (error.message.as_str(), error.param.as_deref()),
            ("t: expected a number, found a string", Some("t"))
        );
        let error = fields.number("p", Interval::Above(0.0, 1.0)).unwrap_err();
        assert_eq!(error.message, "p must be above 0 and at most 1, not 0");
        assert_eq!(fields.integer("n", 1..=5).unwrap_err().message, "n must be between 1 and 5, not 7");
    }

    #[test]
    fn the_number_of_fields_is_bounded() {
        let body =
            |count: usize| format!("{{{}}}", (0..count).map(|at| format!("\"{at}\":0")).collect::<Vec<_>>().join(","));
        assert!(Fields::of(Json::parse(&body(MAX_FIELDS)).unwrap()).is_ok());
        assert!(Fields::of(Json::parse(&body(MAX_FIELDS + 1)).unwrap()).is_err());
        assert_eq!(fields(&format!(r#"{{"{}": 0}}"#, "x".repeat(1000))).0.len(), 0, "no field has such a name");
    }
}
