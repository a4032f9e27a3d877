//! Where the keys of a request are. Errs on one side only: an argument may be reported as a written
//! key although Redis refuses the request or reads another one, and never the other way round.

use super::spec::{Access, Begin, Find, Spec};
use overbank_wire::resp::Request;

/// What is known of a request's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keys {
    /// Each key has been reported.
    Known,
    /// Each key that may be written has been reported; others are read.
    WritesKnown,
    /// Keys that have not been reported may be written.
    Unknown,
}

/// How the keys of a command are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// By its specifications.
    Specs,
    /// Likewise, and the key is read only if GET is among the arguments.
    Set,
    /// Likewise, and the key is written only if an argument is SET or INCRBY.
    Bitfield,
    /// Those of XREAD and XREADGROUP, behind STREAMS.
    Streams(Access),
}

/// Specifications instead of the server's, which are marked incomplete.
pub const SPECS: &[(&str, &[&str])] = &[
    ("sort", &["r:1:range/0/1/0", "w:STORE@2:range/0/1/0", "r:BY@2:?", "r:GET@2:?"]),
    ("sort_ro", &["r:1:range/0/1/0", "r:BY@2:?", "r:GET@2:?"]),
    ("migrate", &["rw:3:range/0/1/0", "rw:KEYS@6:range/-1/1/0"]),
];

/// Rules of commands whose access or place of keys no specification gives.
pub const RULES: &[(&str, Rule)] = &[
    ("set", Rule::Set),
    ("bitfield", Rule::Bitfield),
    ("xread", Rule::Streams(Access::Read)),
    // Specified as a read, but the group's state is part of the value.
    ("xreadgroup", Rule::Streams(Access::Both)),
];

/// Returns whether an argument is this word, in any case. As in Redis, a zero byte ends it.
pub fn is_word(arg: &[u8], word: &str) -> bool {
    let is_equal = |arg: &[u8]| arg.eq_ignore_ascii_case(word.as_bytes());
    match arg.get(word.len()) {
        None => is_equal(arg),
        Some(0) => is_equal(&arg[..word.len()]),
        Some(_) => false,
    }
}

/// Returns whether an argument behind the index `from` is one of these words.
pub fn has_word(request: &Request<'_>, from: usize, words: &[&str]) -> bool {
    let is_one = |arg| words.iter().any(|word| is_word(arg, word));
    (from..request.len()).filter_map(|index| request.arg(index)).any(is_one)
}

/// Returns a number as Redis reads it: no blanks, no plus sign, no zeros before it.
pub fn number(arg: &[u8]) -> Option<i64> {
    let number: i64 = str::from_utf8(arg).ok()?.parse().ok()?;
    let digits = arg.strip_prefix(b"-").unwrap_or(arg);
    let is_plain = digits[0].is_ascii_digit() && (digits[0] != b'0' || arg.len() == 1);
    is_plain.then_some(number)
}

impl Rule {
    /// Reports the index of each key and what happens to it.
    pub fn keys(
        self,
        specs: &[Spec],
        is_read_only: bool,
        request: &Request<'_>,
        mut report: impl FnMut(usize, Access),
    ) -> Keys {
        let variable = match self {
            Rule::Streams(access) => {
                streams(request).for_each(|index| report(index, access));
                return Keys::Known;
            }
            Rule::Set if has_word(request, 3, &["get"]) => Access::Both,
            Rule::Set => Access::Write,
            Rule::Bitfield if is_bitfield_read(request) => Access::Read,
            Rule::Specs if is_read_only => Access::Read,
            Rule::Bitfield | Rule::Specs => Access::Both,
        };
        let mut keys = Keys::Known;
        for spec in specs.iter().filter(|spec| !spec.is_no_key) {
            let access = if spec.is_variable { variable } else { spec.access };
            let is_known = spec.indices(request, |index| report(index, access));
            if !is_known || spec.is_incomplete {
                keys = keys.max(if access.writes() { Keys::Unknown } else { Keys::WritesKnown });
            }
        }
        keys
    }
}

impl Spec {
    /// Reports the index of each key; returns whether these are all.
    fn indices(&self, request: &Request<'_>, mut report: impl FnMut(usize)) -> bool {
        let index = |begin: i32| usize::try_from(begin).unwrap_or(usize::MAX);
        match &self.begin {
            Begin::Unknown => false,
            Begin::Index(begin) => self.find(request, index(*begin), &mut report),
            Begin::Keyword(word, from) => {
                // Those from the end are looked for everywhere.
                let from = usize::try_from(*from).unwrap_or(1);
                let is_keyword =
                    |index: &usize| request.arg(*index).is_some_and(|a| is_word(a, word));
                let mut begins = (from..request.len()).filter(is_keyword).map(|index| index + 1);
                // Of `STORE a STORE b` Redis writes `b`, though its own specification names `a`:
                // all are reported. Keys that go on to the end include those of later words.
                if matches!(self.find, Find::Range { last: 0, .. }) {
                    begins.all(|begin| self.find(request, begin, &mut report))
                } else {
                    begins.next().is_none_or(|begin| self.find(request, begin, &mut report))
                }
            }
        }
    }

    /// Reports the index of each key from `begin` on. Those beyond the last argument do not exist.
    fn find(&self, request: &Request<'_>, begin: usize, report: &mut impl FnMut(usize)) -> bool {
        let len = request.len() as i64;
        let begin = i64::try_from(begin).unwrap_or(i64::MAX).min(len);
        let (first, end, step) = match self.find {
            Find::Unknown => return false,
            Find::Range { last, step, limit } => {
                let end = match (last, limit) {
                    (0.., _) => begin + i64::from(last) + 1,
                    (_, 2..) => begin + (len - begin) / i64::from(limit) + i64::from(last) + 1,
                    _ => len + i64::from(last) + 1,
                };
                (begin, end, step)
            }
            Find::Number { number: at, first, step } => {
                let at = usize::try_from(begin + i64::from(at)).ok();
                let Some(count @ 0..) = at.and_then(|at| request.arg(at)).and_then(number) else {
                    return false;
                };
                let first = begin + i64::from(first);
                (first, count.saturating_mul(step.into()).saturating_add(first), step)
            }
        };
        let range = usize::try_from(first.max(0)).ok().zip(usize::try_from(end.min(len)).ok());
        if let Some((first, end)) = range {
            (first..end).step_by(usize::try_from(step).unwrap_or(1).max(1)).for_each(report);
        }
        true
    }
}

/// Returns the indices of the keys of XREAD or XREADGROUP. Options come in any order before
/// STREAMS, and a group may have that name. Redis refuses what has none.
fn streams(request: &Request<'_>) -> std::ops::Range<usize> {
    let mut at = 1;
    while let Some(arg) = request.arg(at) {
        at += 1;
        if is_word(arg, "streams") {
            return at..at + (request.len() - at).div_ceil(2);
        }
        let is_value = is_word(arg, "block") || is_word(arg, "count");
        at += if is_word(arg, "group") { 2 } else { usize::from(is_value) };
    }
    0..0
}

/// Returns whether all operations of a BITFIELD are reads.
fn is_bitfield_read(request: &Request<'_>) -> bool {
    !has_word(request, 2, &["set", "incrby"])
}
