//! Parameters of a request: each known, each once.

use super::{Fault, PAGE_MAX};
use crate::file;
use axum::http::Uri;
use percent_encoding::percent_decode_str;

#[derive(Debug)]
pub(super) struct Query(Vec<(&'static str, String)>);

impl Query {
    /// Reads the parameters of a request.
    pub(super) fn of(uri: &Uri, known: &[&'static str]) -> Result<Query, Fault> {
        let mut found = Vec::new();
        for part in uri.query().unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let unknown = || {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Fault::bad(format!("unknown parameter {name:?}; known: {known}"))
            };
            let name = *known.iter().find(|known| **known == name).ok_or_else(unknown)?;
            let value = percent_decode_str(value).decode_utf8();
            let value = value.map_err(|_| Fault::bad(format!("{name}: must be UTF-8 text")))?;
            if found.iter().any(|(other, _)| *other == name) {
                return Err(Fault::bad(format!("parameter {name} comes twice")));
            }
            found.push((name, value.into_owned()));
        }
        Ok(Query(found))
    }

    /// Reads a value, if it is given.
    pub(super) fn get<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Fault> {
        let value = self.0.iter().find(|(known, _)| *known == name);
        let wrong = |what| Fault::bad(format!("{name}: {what}"));
        value.map(|(_, value)| read(value).map_err(wrong)).transpose()
    }

    /// Reads `true` or `false`; without it: false.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Fault> {
        let read = |text: &str| match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(format!("{text:?}: must be true or false")),
        };
        Ok(self.get(name, read)?.unwrap_or(false))
    }
}

/// Reads how many entries a page may have.
pub(super) fn page_size(text: &str) -> Result<usize, String> {
    let most = file::number(text).ok().and_then(|n: u64| usize::try_from(n).ok());
    let most = most.filter(|most| (1..=PAGE_MAX).contains(most));
    most.ok_or_else(|| format!("{text:?}: must be from 1 to {PAGE_MAX}"))
}
