//! Any text as a document that our programs read: a record of a measurement, which is drawn, the
//! counters of a status document, or a list of stations. Each reads back from what it is written
//! as, or is an error of one line.
//!
//! Input: which of them (1 byte), the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overbank_declare::counters::Counters;
use overbank_kit::report::{markdown, outcomes};
use overbank_kit::results::Outcome;
use overbank_ofctl::RuleTotals;
use overbank_runtime::totals::{DropCounts, PortTotals, WorkerTotals};
use overbank_stations::listing::Listing;
use overbank_switch::drop::DropReason;
use serde::Serialize;
use serde::de::DeserializeOwned;

fuzz_target!(|data: &[u8]| {
    let Some((&what, rest)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    match what % 6 {
        0 | 1 => record(text),
        2 => counters::<PortTotals>(text),
        3 => counters::<RuleTotals>(text),
        4 => counters::<WorkerTotals>(text),
        _ => {
            round::<DropCounts<DropReason>>(text);
            round::<Listing>(text);
        }
    }
});

fn record(text: &str) {
    let outcome = match Outcome::parse(text) {
        Ok(outcome) => outcome,
        Err(error) => return check(&error.to_string()),
    };
    let json = outcome.json();
    let again = Outcome::parse(&json).unwrap_or_else(|error| panic!("{error}: {json}"));
    assert_eq!(again.json(), json);
    let outcomes = [outcome];
    assert!(markdown::page(&outcomes).contains('#'));
    assert!(outcomes::page(&outcomes).starts_with("<!DOCTYPE html>"));
}

/// Counters that are shown nowhere are not written.
fn counters<C: Counters + Serialize + DeserializeOwned>(text: &str) {
    if let Some(again) = round::<C>(text) {
        let words = again.words();
        assert_eq!(words.len(), C::WORDS);
        assert_eq!(C::from_words(&words).words(), words);
    }
}

/// Reads, writes and reads again.
fn round<T: Serialize + DeserializeOwned>(text: &str) -> Option<T> {
    match serde_json::from_str::<T>(text) {
        Ok(read) => {
            let json = serde_json::to_string(&read).expect("it was read from JSON");
            let again: T = serde_json::from_str(&json).unwrap_or_else(|e| panic!("{e}: {json}"));
            assert_eq!(serde_json::to_string(&again).expect("as before"), json);
            Some(again)
        }
        Err(error) => {
            check(&error.to_string());
            None
        }
    }
}

fn check(message: &str) {
    assert!(!message.is_empty() && !message.contains(char::is_control), "{message:?}");
}
