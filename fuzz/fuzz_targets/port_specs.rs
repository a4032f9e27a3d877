//! Parses any text as a port: one that reads back from its own text, or an error of one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overbank_ports::PortSpec;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    match text.parse::<PortSpec>() {
        Ok(spec) => {
            assert!(spec.name().contains(':'));
            let shown = spec.to_string();
            match shown.parse::<PortSpec>() {
                Ok(again) => assert_eq!(again, spec, "read back from {shown:?}"),
                Err(error) => panic!("{shown:?} does not read back: {error}"),
            }
        }
        Err(error) => {
            let message = error.to_string();
            assert!(!message.is_empty() && !message.contains(char::is_control), "{message:?}");
        }
    }
});
