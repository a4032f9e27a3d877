//! Files of keys: one number a line, or 8 bytes each.

use std::fmt;

/// Most broken lines that are shown; the others are counted.
pub const SHOWN_MAX: usize = 20;
/// Most characters shown of a line.
const QUOTED_MAX: usize = 40;

/// Why a file has no keys to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeysError {
    /// Lines that are no numbers: their number, and the first ones with what is wrong.
    Lines {
        total: usize,
        shown: Vec<(usize, String)>,
    },
    /// A length that is no multiple of 8.
    Length(usize),
    Empty,
}

impl fmt::Display for KeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeysError::Lines { total, shown } => {
                let lines = if *total == 1 { "line is" } else { "lines are" };
                write!(f, "{total} {lines} no key; must be a number from 0 to 2^64 - 1:")?;
                shown.iter().try_for_each(|(line, what)| write!(f, "\n  line {line}: {what}"))?;
                match total - shown.len() {
                    0 => Ok(()),
                    more => write!(f, "\n  and {more} more"),
                }
            }
            KeysError::Length(bytes) => {
                write!(f, "{bytes} bytes; must be a multiple of 8, little-endian numbers")
            }
            KeysError::Empty => {
                f.write_str("no keys; must have one number a line, or 8 bytes a key (--binary)")
            }
        }
    }
}

impl std::error::Error for KeysError {}

/// Reads one key a line, decimal or hexadecimal (`0x…`). Skips empty lines and those that begin
/// with `#`.
///
/// # Errors
/// Lines that are no keys, all of them; or no keys.
pub fn text(bytes: &[u8]) -> Result<Vec<u64>, KeysError> {
    let (mut keys, mut total, mut shown) = (Vec::new(), 0, Vec::new());
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        match key(line) {
            Ok(key) => keys.push(key),
            Err(what) => {
                total += 1;
                if shown.len() < SHOWN_MAX {
                    shown.push((number + 1, what));
                }
            }
        }
    }
    match total {
        0 if keys.is_empty() => Err(KeysError::Empty),
        0 => Ok(keys),
        total => Err(KeysError::Lines { total, shown }),
    }
}

fn key(line: &[u8]) -> Result<u64, String> {
    let text = String::from_utf8_lossy(line);
    let (digits, radix) = text.strip_prefix("0x").map_or((&*text, 10), |digits| (digits, 16));
    let is_number = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    let quoted = || {
        let shown: String = text.chars().take(QUOTED_MAX).collect();
        let more = if text.chars().count() > QUOTED_MAX { "…" } else { "" };
        format!("{shown:?}{more}")
    };
    if !is_number {
        return Err(format!("{} is no number", quoted()));
    }
    u64::from_str_radix(digits, radix).map_err(|_| format!("{} is too large", quoted()))
}

/// Reads keys of 8 bytes, little-endian.
///
/// # Errors
/// A length that is no multiple of 8, or no keys.
pub fn binary(bytes: &[u8]) -> Result<Vec<u64>, KeysError> {
    match bytes.as_chunks::<8>() {
        (_, [_, ..]) => Err(KeysError::Length(bytes.len())),
        ([], []) => Err(KeysError::Empty),
        (keys, []) => Ok(keys.iter().map(|key| u64::from_le_bytes(*key)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbers() {
        let keys = text(b"# keys\n1\r\n 0xff \n\n18446744073709551615\n7").expect("keys");
        assert_eq!(keys, [1, 255, u64::MAX, 7]);
        assert_eq!(text(b"\n# nothing\n"), Err(KeysError::Empty));
    }

    #[test]
    fn every_broken_line_is_named() {
        let error = text(b"1\nx\n-2\n+3\n18446744073709551616\n0x\n\xff\n4").expect_err("broken");
        let shown = "6 lines are no key; must be a number from 0 to 2^64 - 1:\
                     \n  line 2: \"x\" is no number\n  line 3: \"-2\" is no number\
                     \n  line 4: \"+3\" is no number\
                     \n  line 5: \"18446744073709551616\" is too large\
                     \n  line 6: \"0x\" is no number\n  line 7: \"\u{fffd}\" is no number";
        assert_eq!(error.to_string(), shown);
        let many = text("a\n".repeat(100).as_bytes()).expect_err("broken").to_string();
        assert_eq!(many.lines().count(), 1 + SHOWN_MAX + 1);
        assert!(many.ends_with("and 80 more"), "{many}");
        let long = text("y".repeat(1000).as_bytes()).expect_err("broken").to_string();
        assert!(long.ends_with("yy\"… is no number") && long.len() < 200, "{long}");
    }

    proptest::proptest! {
        /// Any bytes are keys or an error with a bounded text.
        #[test]
        fn any_file_is_read(bytes: Vec<u8>, lines in "[0-9x\\-\n\r #a-f]{0,200}") {
            for file in [&bytes[..], lines.as_bytes()] {
                let shown = text(file).map_or_else(|error| error.to_string(), |_| String::new());
                assert!(shown.len() < 100 + SHOWN_MAX * (QUOTED_MAX * 10 + 60), "{}", shown.len());
                assert_eq!(binary(file).is_ok(), !file.is_empty() && file.len() % 8 == 0);
            }
        }
    }

    #[test]
    fn eight_bytes_are_a_key() {
        assert_eq!(binary(&[1, 0, 0, 0, 0, 0, 0, 2]), Ok(vec![1 | 2 << 56]));
        assert_eq!(binary(&[0; 9]), Err(KeysError::Length(9)));
        assert_eq!(binary(&[]), Err(KeysError::Empty));
    }
}
