//! Any text as what the program prints in which real indexes run on the machine of the SDC paper,
//! and a real point of which single values were replaced: refused by one line, or all that is shown
//! of it can be made.
//!
//! Input: a text that begins as JSON does; else edits after a byte: which value (2 bytes), by what
//! (1 byte), its bits (8 bytes).
#![no_main]

use libfuzzer_sys::fuzz_target;
use overbank_products::sdc::page;
use overbank_products::sdc::point::{LevelHeat, Outcome};
use overbank_products::sdc::{Plan, compare, gains};
use serde_json::Value;
use std::sync::LazyLock;

/// What no figure is.
const NEVER: [&str; 3] = ["NaN", "inf", "-inf"];

/// A point with all that one can have.
static POINT: LazyLock<Value> = LazyLock::new(|| {
    let text = include_bytes!("../seeds/sdc_point/point");
    let mut point = Outcome::read(text).expect("a point");
    point.heat = vec![7; 128];
    let level =
        LevelHeat { what: "level 0".to_owned(), lines: 9, accesses: 80, few: 3, hottest: 20 };
    point.levels = vec![level];
    serde_json::to_value(point).expect("JSON")
});

fuzz_target!(|data: &[u8]| {
    let Some((first, edits)) = data.split_first() else { return };
    if *first == b'{' {
        return seen(data);
    }
    let mut point = POINT.clone();
    for edit in edits.chunks_exact(11) {
        let [low, high, what, bits @ ..] = edit else { return };
        let bits = u64::from_le_bytes(bits.try_into().expect("8 bytes"));
        let mut values = Vec::new();
        gather(&mut point, &mut values);
        let at = usize::from(u16::from_le_bytes([*low, *high])) % values.len();
        replace(values.swap_remove(at), *what, bits);
    }
    seen(point.to_string().as_bytes());
});

/// Collects all values that have no others; of an array of numbers, the array.
fn gather<'a>(value: &'a mut Value, into: &mut Vec<&'a mut Value>) {
    let is_whole = match &*value {
        Value::Object(_) => false,
        Value::Array(all) => all.iter().all(Value::is_number),
        _ => true,
    };
    match value {
        value if is_whole => into.push(value),
        Value::Object(all) => all.values_mut().for_each(|value| gather(value, into)),
        Value::Array(all) => all.iter_mut().for_each(|value| gather(value, into)),
        _ => {}
    }
}

fn replace(value: &mut Value, what: u8, bits: u64) {
    if let Value::Array(all) = value {
        let at = bits as usize % (all.len() + 1);
        return match what % 2 {
            0 => all.truncate(at),
            _ => all.iter_mut().skip(at).for_each(|n| *n = bits.into()),
        };
    }
    *value = match what % 6 {
        0 => bits.into(),
        1 => (bits % 64).into(),
        // Not finite: null.
        2 => f64::from_bits(bits).into(),
        3 => String::from_utf8_lossy(&bits.to_le_bytes()).into_owned().into(),
        4 => bits.is_multiple_of(2).into(),
        _ => (bits as i64 >> (bits % 64)).into(),
    };
}

fn seen(text: &[u8]) {
    let point = match Outcome::read(text) {
        Ok(point) => point,
        Err(error) => return assert!(!error.is_empty()),
    };
    // A number may be another one, by its last bit, after each reading.
    let json = serde_json::to_vec(&point).expect("it was read from JSON");
    let again = Outcome::read(&json).expect("it was read before");
    assert_eq!(again.counters, point.counters);
    let (index, system) = (point.index.clone(), point.system.clone());
    let names = [&index, &system, &point.placement, &point.keys, &point.false_hit];
    let levels = point.levels.iter().map(|level| &level.what);
    let is_named =
        names.into_iter().chain(levels).any(|name| NEVER.iter().any(|no| name.contains(no)));
    let mut regular: Outcome = serde_json::from_value(POINT.clone()).expect("a point");
    (regular.index, regular.system) = (index.clone(), "regular".to_owned());
    let plan = Plan { index, system, ..Plan::default() };
    let found = compare(&plan, point, Some(regular)).expect("of the plan");
    let gains = found.gain.as_ref().map(gains).expect("beside the regular machine");
    assert!(gains.iter().all(|(_, gain)| gain.is_finite()));
    let page = page::page(&found, "command");
    assert!(page.starts_with("<!DOCTYPE html>") && !page.contains("<script"));
    assert!(is_named || !NEVER.iter().any(|no| page.contains(&format!(">{no}"))));
}
