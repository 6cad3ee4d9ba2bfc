//! JSON as the client wrote it. Nothing is built from it but what a field needs: lists and objects are walked through,
//! and what no field needs is skipped without an allocation.

use std::fmt;

use serde::de::{Deserializer as _, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::ApiError;

/// Longer strings and numbers are not repeated in error messages.
const MAX_QUOTED_BYTES: usize = 64;

/// The text of one value. Its grammar has been checked; a number may be too large, and an escape may name no character.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Json<'a>(&'a RawValue);

impl<'a> Json<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text).map(Self)
    }

    pub(crate) fn text(self) -> &'a str {
        self.0.get()
    }

    pub(crate) fn is_null(self) -> bool {
        self.text() == "null"
    }

    pub(crate) fn is_string(self) -> bool {
        self.text().starts_with('"')
    }

    pub(crate) fn is_list(self) -> bool {
        self.text().starts_with('[')
    }

    pub(crate) fn is_object(self) -> bool {
        self.text().starts_with('{')
    }

    /// A list or an object with nothing in it.
    pub(crate) fn is_empty(self) -> bool {
        let inner = self.text().strip_prefix(['[', '{']).and_then(|text| text.strip_suffix([']', '}']));
        inner.is_some_and(|inner| inner.trim().is_empty())
    }

    pub(crate) fn first_item(self) -> Option<Self> {
        let mut first = None;
        let stopped = self.each_item(usize::MAX, |_, item| {
            first = Some(item);
            Err(Mismatch::new("one is enough"))
        });
        stopped.err().and(first)
    }

    /// Calls `each` with every item of a list, until one is wrong. A list of more than `most` items is wrong, too.
    pub(crate) fn each_item(
        self,
        most: usize,
        mut each: impl FnMut(usize, Json<'a>) -> Result<(), Mismatch>,
    ) -> Result<(), Mismatch> {
        if !self.is_list() {
            return Err(self.expected("a list"));
        }
        let mut wrong = None;
        let items = Items(|at, item| {
            let checked = match at < most {
                true => each(at, item).map_err(|mismatch| mismatch.inside(format_args!("[{at}]"))),
                false => Err(Mismatch::new(format!("the list has more than {most} items"))),
            };
            checked.map_err(|mismatch| wrong = Some(mismatch)).is_ok()
        });
        let walked = serde_json::Deserializer::from_str(self.text()).deserialize_seq(items);
        wrong.map_or_else(|| walked.map_err(|error| Mismatch::invalid(&error)), Err)
    }

    /// Calls `each` with every name, as it is written, and value of an object, until one is wrong.
    pub(crate) fn each_member(
        self,
        mut each: impl FnMut(Json<'a>, Json<'a>) -> Result<(), Mismatch>,
    ) -> Result<(), Mismatch> {
        if !self.is_object() {
            return Err(self.expected("an object"));
        }
        let mut wrong = None;
        let members = Members(|name, value| each(name, value).map_err(|mismatch| wrong = Some(mismatch)).is_ok());
        let walked = serde_json::Deserializer::from_str(self.text()).deserialize_map(members);
        wrong.map_or_else(|| walked.map_err(|error| Mismatch::invalid(&error)), Err)
    }

    pub(crate) fn list<T: FromJson>(self, most: usize) -> Result<Vec<T>, Mismatch> {
        let mut items = Vec::new();
        self.each_item(most, |_, item| {
            items.push(T::from_json(item)?);
            Ok(())
        })?;
        Ok(items)
    }

    pub(crate) fn expected(self, what: &str) -> Mismatch {
        Mismatch::new(format!("expected {what}, found {}", self.describe()))
    }

    /// As it is written or, where that is long, only its beginning.
    pub(crate) fn short(self) -> &'a str {
        let text = self.text();
        &text[..text.floor_char_boundary(MAX_QUOTED_BYTES)]
    }

    /// Short enough for an error message, whatever the client sent.
    fn describe(self) -> String {
        let text = self.text();
        let short = text.len() <= MAX_QUOTED_BYTES;
        match text.as_bytes().first() {
            Some(b'[') => "a list".to_owned(),
            Some(b'{') => "an object".to_owned(),
            Some(b'"') if short => format!("the string {text}"),
            Some(b'"') => "a string".to_owned(),
            Some(b'-' | b'0'..=b'9') if short => format!("the number {text}"),
            Some(b'-' | b'0'..=b'9') => "a number".to_owned(),
            _ => text.to_owned(),
        }
    }
}

/// Walks through a list, as long as the callback returns true.
struct Items<F>(F);

impl<'de, F: FnMut(usize, Json<'de>) -> bool> Visitor<'de> for Items<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let mut at = 0;
        while let Some(item) = items.next_element::<&RawValue>()? {
            if !self.0(at, Json(item)) {
                return Err(A::Error::custom("stopped"));
            }
            at += 1;
        }
        Ok(())
    }
}

/// Walks through an object, as long as the callback returns true.
struct Members<F>(F);

impl<'de, F: FnMut(Json<'de>, Json<'de>) -> bool> Visitor<'de> for Members<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        while let Some((name, value)) = members.next_entry::<&RawValue, &RawValue>()? {
            if !self.0(Json(name), Json(value)) {
                return Err(A::Error::custom("stopped"));
            }
        }
        Ok(())
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

    fn invalid(error: &serde_json::Error) -> Self {
        Self::new(format!("not valid JSON: {error}"))
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

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

pub(crate) trait FromJson: Sized {
    fn from_json(json: Json<'_>) -> Result<Self, Mismatch>;
}

impl FromJson for bool {
    fn from_json(json: Json<'_>) -> Result<Self, Mismatch> {
        json.text().parse().map_err(|_| json.expected("true or false"))
    }
}

impl FromJson for i64 {
    fn from_json(json: Json<'_>) -> Result<Self, Mismatch> {
        json.text().parse().map_err(|_| json.expected("an integer"))
    }
}

impl FromJson for f64 {
    fn from_json(json: Json<'_>) -> Result<Self, Mismatch> {
        // JSON's grammar for numbers is a part of Rust's, which also has words for infinity.
        let number = json.text().parse::<Self>().map_err(|_| json.expected("a number"))?;
        if number.is_finite() { Ok(number) } else { Err(Mismatch::new("the number is too large")) }
    }
}

impl FromJson for String {
    fn from_json(json: Json<'_>) -> Result<Self, Mismatch> {
        if !json.is_string() {
            return Err(json.expected("a string"));
        }
        serde_json::from_str(json.text()).map_err(|error| Mismatch::invalid(&error))
    }
}

/// For error messages: as it would be quoted, or only its beginning.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED_BYTES) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json<'_> {
        Json::parse(text).unwrap()
    }

    #[test]
    fn scalars_are_parsed_as_in_json() {
        assert_eq!(i64::from_json(json("-5")).unwrap(), -5);
        assert_eq!(f64::from_json(json("1e2")).unwrap(), 100.0);
        assert!(bool::from_json(json("true")).unwrap());
        assert_eq!(String::from_json(json(r#""a\u0062\n""#)).unwrap(), "ab\n");
        for (text, found) in [
            ("1.0", "the number 1.0"),
            ("1e3", "the number 1e3"),
            ("18446744073709551615", "the number 18446744073709551615"),
            ("\"1\"", "the string \"1\""),
            ("null", "null"),
            ("[1]", "a list"),
            ("{}", "an object"),
        ] {
            assert_eq!(i64::from_json(json(text)).unwrap_err().message, format!("expected an integer, found {found}"));
        }
        for text in ["1e999", "-1e999", &"9".repeat(400)] {
            assert!(f64::from_json(json(text)).is_err(), "{text}");
        }
        let error = String::from_json(json(r#""\ud800""#)).unwrap_err();
        assert!(error.message.contains("not valid JSON"), "{error:?}");
    }

    #[test]
    fn lists_are_bounded_and_errors_know_their_place() {
        assert_eq!(json("[1, 2,3]").list::<i64>(3).unwrap(), [1, 2, 3]);
        assert_eq!(json("[1,2,3]").list::<i64>(2).unwrap_err().message, "the list has more than 2 items");
        let error = json("[1,\"x\"]").list::<i64>(9).unwrap_err().inside("[7]");
        assert_eq!(error.at("a").message, "a[7][1]: expected an integer, found the string \"x\"");
        assert_eq!(json("7").list::<i64>(9).unwrap_err().message, "expected a list, found the number 7");
        assert_eq!(json("[[], 1]").first_item().unwrap().text(), "[]");
        assert!(json("[]").first_item().is_none() && json("{}").first_item().is_none());
    }

    #[test]
    fn nothing_is_too_deep_to_be_skipped() {
        let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        assert!(json(&deep).first_item().is_some_and(|inner| inner.text().len() == deep.len() - 2));
        for (text, empty) in [("[]", true), ("{ }", true), ("[ \n]", true), ("[0]", false), ("0", false)] {
            assert_eq!(json(text).is_empty(), empty, "{text}");
        }
    }

    #[test]
    fn messages_stay_short() {
        let long = format!("\"{}\"", "x".repeat(1 << 20));
        assert_eq!(json(&long).expected("a number").message, "expected a number, found a string");
        assert_eq!(quoted("a\"b"), "\"a\\\"b\"");
        assert!(quoted(&"é".repeat(1000)).len() < 200);
    }
}
