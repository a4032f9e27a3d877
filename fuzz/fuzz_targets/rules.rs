//! Parses any text as rules: they read back from their own text, or errors have a place in the
//! text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overbank_switch::parse::{
    ERRORS_KEPT_MAX, RULES_MAX, parse_replay_rules, parse_rule, parse_rules,
};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    match parse_rules(&text) {
        Ok(rules) => {
            // Replay accepts a subset of a live switch's syntax, so only valid text is read again.
            if let Ok(replayed) = parse_replay_rules(&text) {
                assert!(!replayed.iter().any(|rule| rule.needs_a_live_switch()));
                assert_eq!(replayed, rules, "a live switch reads it alike");
            }
            assert!(rules.len() <= RULES_MAX.min(text.lines().count()));
            for rule in rules {
                let shown = rule.to_string();
                match parse_rule(&shown) {
                    Ok(again) => assert_eq!(again, rule, "read back from {shown:?}"),
                    Err(errors) => panic!("{shown:?} does not read back: {errors}"),
                }
            }
        }
        Err(errors) => {
            assert!(errors.total() > 0 && errors.kept().len() <= ERRORS_KEPT_MAX);
            let lines = text.split('\n').count();
            for error in errors.kept() {
                assert!(error.line >= 1 && error.line as usize <= lines, "{error}");
                assert!(!error.to_string().contains(char::is_control), "{error:?}");
            }
        }
    }
});
