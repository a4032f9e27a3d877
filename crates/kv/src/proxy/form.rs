//! Forms of cached reads: what tells requests of one key apart.
//!
//! ```text
//!   normalised   number of the command │ for each argument behind the key: length 4 │ bytes
//! ```

use super::commands::{Command, Null, is_word};
use overbank_wire::resp::{self, Request};

/// Longest normalised form, in bytes.
const FORM_MAX: usize = 1024;
/// Longest key that is cached, in bytes.
pub const KEY_MAX: usize = 8 << 10;

/// Numbers of commands as forms without arguments.
const NUMBERS: [u8; 256] = {
    let mut numbers = [0; 256];
    let mut number = 0;
    while number < numbers.len() {
        numbers[number] = number as u8;
        number += 1;
    }
    numbers
};

/// A form of requests of one key, to ask the server by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    pub db: u32,
    pub normalised: Box<[u8]>,
    /// The whole request.
    pub request: Box<[u8]>,
    /// How RESP2 writes an absent value.
    pub null: resp::Null,
}

/// Returns the normalised form of a request of one key, built in `scratch` if it is long. `None`:
/// it is not cached.
#[inline]
pub fn normalise<'a>(
    command: &Command,
    request: &Request<'_>,
    scratch: &'a mut Vec<u8>,
) -> Option<&'a [u8]> {
    let number = command.number()?;
    if request.len() == 2 {
        return NUMBERS.get(usize::from(number)).map(std::slice::from_ref);
    }
    scratch.clear();
    scratch.push(number);
    for argument in request.args().skip(2) {
        // RESP3 has pairs where RESP2 has one list.
        if is_word(argument, "withscores") {
            return None;
        }
        let length = u32::try_from(argument.len()).ok()?;
        scratch.extend_from_slice(&length.to_le_bytes());
        scratch.extend_from_slice(argument);
        if scratch.len() > FORM_MAX {
            return None;
        }
    }
    Some(scratch)
}

impl Form {
    /// Returns the one form of an item of memcached.
    pub fn item() -> Form {
        let (normalised, request) = (Box::default(), Box::default());
        Form { db: 0, normalised, request, null: resp::Null::Bulk }
    }

    /// Returns the form of a request of one key.
    pub fn new(
        db: u32,
        normalised: &[u8],
        null: Null,
        args: impl Iterator<Item = impl AsRef<[u8]>>,
    ) -> Form {
        let args: Vec<_> = args.collect();
        let mut request = Vec::new();
        resp::command(&args, &mut request);
        let null = match null {
            Null::Array => resp::Null::Array,
            Null::Bulk | Null::Never => resp::Null::Bulk,
        };
        Form { db, normalised: normalised.into(), request: request.into(), null }
    }
}
