//! Reads and writes counters as JSON: an object with a field for each.
//!
//! A counter by reason is an object by reason, without zeros. Reading ignores unknown fields and
//! takes 0 for missing ones, so documents of older and newer services are readable. Both work below
//! `#[serde(flatten)]`, with several tables in one object too. A field that two tables declare by
//! reason has the reasons of both.

use super::{Counters, Shown};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// Writes counters as an object.
///
/// # Errors
/// Returns those of the serializer.
pub fn serialize<C: Counters, S: Serializer>(counters: &C, to: S) -> Result<S::Ok, S::Error> {
    let words = counters.words();
    let mut words = words.as_slice();
    let mut map = to.serialize_map(None)?;
    for counter in C::TABLE {
        let (own, rest) = words.split_at(counter.len);
        words = rest;
        match counter.reason {
            _ if counter.shown == Shown::Nowhere => {}
            None => map.serialize_entry(counter.name, &own[0])?,
            Some(name) => {
                let reasons = own.iter().enumerate().filter(|(_, n)| **n != 0);
                let reasons: BTreeMap<&str, u64> = reasons.map(|(i, n)| (name(i), *n)).collect();
                map.serialize_entry(counter.name, &reasons)?;
            }
        }
    }
    map.end()
}

/// Reads counters from an object.
///
/// # Errors
/// Fails if the input is not an object of numbers.
pub fn deserialize<'de, C: Counters, D: Deserializer<'de>>(from: D) -> Result<C, D::Error> {
    from.deserialize_map(Fields(PhantomData))
}

struct Fields<C>(PhantomData<C>);

impl<'de, C: Counters> Visitor<'de> for Fields<C> {
    type Value = C;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of counters")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<C, A::Error> {
        let mut fields: BTreeMap<String, Value> = BTreeMap::new();
        while let Some((name, value)) = map.next_entry()? {
            fields.insert(name, value);
        }
        let mut words = Vec::with_capacity(C::WORDS);
        for counter in C::TABLE {
            let value = fields.get(counter.name).unwrap_or(&Value::Null);
            let number = |value: &Value| match value {
                Value::Null => Ok(0),
                value => value.as_u64().ok_or_else(|| {
                    serde::de::Error::custom(format!("{}: {value} is not a count", counter.name))
                }),
            };
            match counter.reason {
                None => words.push(number(value)?),
                Some(name) => {
                    for index in 0..counter.len {
                        words.push(number(value.get(name(index)).unwrap_or(&Value::Null))?);
                    }
                }
            }
        }
        Ok(C::from_words(&words))
    }
}
