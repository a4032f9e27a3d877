//! Bodies of requests: bounded text, and the fields of a session.

use super::Fault;
use crate::file::{self, COLUMNS};
use crate::session::Session;
use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use std::fmt;
use std::time::Duration;

/// Longest time for a body to arrive.
const ARRIVAL_MAX: Duration = Duration::from_secs(60);

/// Reads a body of at most `max` bytes.
pub(super) async fn text(body: Body, max: usize) -> Result<String, Fault> {
    let too_long = || {
        let what = format!("the body is too long; must be at most {max} bytes");
        Fault::new(StatusCode::PAYLOAD_TOO_LARGE, what)
    };
    // Of a length that is announced, nothing is read.
    if body.size_hint().lower() > max as u64 {
        return Err(too_long());
    }
    let whole = tokio::time::timeout(ARRIVAL_MAX, Limited::new(body, max).collect()).await;
    let late = |_| Fault::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in 60 s");
    let bytes = whole.map_err(late)?.map_err(|error| match error.is::<LengthLimitError>() {
        true => too_long(),
        false => Fault::bad(format!("the body did not arrive whole: {error}")),
    })?;
    let text = String::from_utf8(bytes.to_bytes().into());
    text.map_err(|_| Fault::bad("the body is not UTF-8 text"))
}

/// The fields of a session as text, each known, each once. A null is an empty text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fields([Option<String>; COLUMNS.len()]);

impl Fields {
    /// Reads a JSON object of strings and numbers.
    pub(super) fn parse(text: &str) -> Result<Fields, Fault> {
        serde_json::from_str(text).map_err(|error| Fault::bad(format!("the body: {error}")))
    }

    /// Returns a new session.
    pub(super) fn session(&self) -> Result<Session, Fault> {
        let text = |column: usize| self.0[column].as_deref().unwrap_or_default();
        file::from_fields(text).map_err(Fault::bad)
    }

    /// Returns a session with these fields changed.
    pub(super) fn applied_to(&self, before: &Session) -> Result<Session, Fault> {
        let fields = file::fields(before);
        let text = |column: usize| self.0[column].as_deref().unwrap_or(&fields[column]);
        let after = file::from_fields(text).map_err(Fault::bad)?;
        if after.id != before.id {
            let what = "id: cannot change; remove the session and add another";
            return Err(Fault::bad(what));
        }
        Ok(after)
    }
}

/// A value of a field, as text.
struct Value(String);

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
        struct AsText;
        impl Visitor<'_> for AsText {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a whole number or null")
            }

            fn visit_str<E>(self, text: &str) -> Result<Value, E> {
                Ok(Value(text.to_owned()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
                Ok(Value(number.to_string()))
            }

            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value(String::new()))
            }
        }
        from.deserialize_any(AsText)
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Fields, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with the fields of a session")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Fields::default();
                while let Some(name) = map.next_key::<String>()? {
                    let column = COLUMNS.iter().position(|known| *known == name);
                    let known = COLUMNS.join(", ");
                    let unknown =
                        || A::Error::custom(format!("unknown field {name:?}; known: {known}"));
                    let field = &mut fields.0[column.ok_or_else(unknown)?];
                    if field.is_some() {
                        return Err(A::Error::custom(format!("field {name} comes twice")));
                    }
                    *field = Some(map.next_value::<Value>()?.0);
                }
                Ok(fields)
            }
        }
        from.deserialize_map(Object)
    }
}
