//! Key specifications of Redis 7.0: where a command's keys begin, how they go on, and what happens
//! to them. As text, one word: `ACCESS:BEGIN:FIND`, such as `r:1:range/-1/1/0` for all arguments.
//!
//! | part | forms |
//! |---|---|
//! | access | `r` read, `w` written or removed, `rw` both, `-` no key at all |
//! | | then `v`: the access depends on arguments; `i`: there may be keys beyond these |
//! | begin | index `1`; `WORD@INDEX`, behind a word at that index or later; `?` |
//! | find | `range/LAST/STEP/LIMIT`, `keynum/NUMBER/FIRST/STEP`, `?` |

use std::fmt;

/// What a request does to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// Value or existence is read.
    Read,
    /// The key is written or removed, whatever it held.
    Write,
    /// The key is read and may be written.
    Both,
}

impl Access {
    /// Returns whether the key may change.
    pub fn writes(self) -> bool {
        self != Access::Read
    }
}

/// Where the keys of a specification begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    Index(i32),
    /// Behind this word, at this index or later; from the end if negative.
    Keyword(String, i32),
    Unknown,
}

/// How the keys go on from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// To `last`, counted from the first key, or from the end if negative; to one `limit`th of
    /// the rest, if that is above 1.
    Range {
        last: i32,
        step: i32,
        limit: i32,
    },
    /// As many as the argument at `number` says, from `first`, both counted from the begin.
    Number {
        number: i32,
        first: i32,
        step: i32,
    },
    Unknown,
}

/// One key specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    pub access: Access,
    /// The arguments are hashed to a slot, but are no keys: a channel.
    pub is_no_key: bool,
    /// The access depends on the arguments.
    pub is_variable: bool,
    /// There may be keys beyond these.
    pub is_incomplete: bool,
    pub begin: Begin,
    pub find: Find,
}

impl Spec {
    /// Returns that of first key, last key and step, as Redis before 7.0 reports them.
    pub fn legacy(first: i32, last: i32, step: i32, access: Access) -> Spec {
        let last = if last < 0 { last } else { last.saturating_sub(first) };
        let (begin, find) = (Begin::Index(first), Find::Range { last, step, limit: 0 });
        let (is_no_key, is_variable, is_incomplete) = (false, false, false);
        Spec { access, is_no_key, is_variable, is_incomplete, begin, find }
    }

    /// Reads the text of a specification.
    pub fn read(text: &str) -> Option<Spec> {
        let mut parts = text.splitn(3, ':');
        let (letters, begin, find) = (parts.next()?, parts.next()?, parts.next()?);
        let has = |letter| letters.contains(letter);
        let access = match (has('r'), has('w')) {
            (true, false) => Access::Read,
            (false, true) => Access::Write,
            _ => Access::Both,
        };
        let begin = match begin.split_once('@') {
            _ if begin == "?" => Begin::Unknown,
            Some((word, from)) => Begin::Keyword(word.to_owned(), from.parse().ok()?),
            None => Begin::Index(begin.parse().ok()?),
        };
        let find = match find.split_once('/') {
            _ if find == "?" => Find::Unknown,
            Some((form, numbers)) => {
                let numbers: Vec<i32> =
                    numbers.split('/').map(str::parse).collect::<Result<_, _>>().ok()?;
                match (form, &numbers[..]) {
                    ("range", &[last, step, limit]) => Find::Range { last, step, limit },
                    ("keynum", &[number, first, step]) => Find::Number { number, first, step },
                    _ => return None,
                }
            }
            None => return None,
        };
        let (is_no_key, is_variable, is_incomplete) = (has('-'), has('v'), has('i'));
        Some(Spec { access, is_no_key, is_variable, is_incomplete, begin, find })
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.access {
            _ if self.is_no_key => "-",
            Access::Read => "r",
            Access::Write => "w",
            Access::Both => "rw",
        })?;
        f.write_str(if self.is_variable { "v" } else { "" })?;
        f.write_str(if self.is_incomplete { "i" } else { "" })?;
        match &self.begin {
            Begin::Index(index) => write!(f, ":{index}"),
            Begin::Keyword(word, from) => write!(f, ":{word}@{from}"),
            Begin::Unknown => f.write_str(":?"),
        }?;
        match self.find {
            Find::Range { last, step, limit } => write!(f, ":range/{last}/{step}/{limit}"),
            Find::Number { number, first, step } => write!(f, ":keynum/{number}/{first}/{step}"),
            Find::Unknown => f.write_str(":?"),
        }
    }
}
