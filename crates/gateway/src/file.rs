//! Sessions as a file: CSV with a header line.
//!
//! ```text
//! id,n3,teid,peer,peer_teid,qfi,ipv4,ipv6,gate,rate_up,rate_down
//! 1,192.0.2.1,0x101,198.51.100.7,0x2001,9,10.45.0.2,2001:db8:45:1::/64,open,50M,200M
//! ```
//!
//! Columns come in any order; `qfi`, `gate`, the rates, and one of `ipv4` and `ipv6` may be left
//! out, as a column or as an empty field. Numbers are decimal, or hexadecimal after `0x`. A rate is
//! in bits a second, with `k`, `M` or `G` for thousands, millions and thousands of millions. Empty
//! lines and lines that begin with `#` are skipped. Every error is found, with its line.

use crate::session::{Gate, Prefix64, Session};
use crate::sessions::Refusal;
use overbank_declare::settings::{Location, Problem, Problems, SettingValue, read_at_most};
use std::fmt::Display;
use std::net::Ipv6Addr;
use std::path::Path;
use std::str::FromStr;

/// Cap of a file of sessions.
const FILE_BYTES_MAX: u64 = 2 << 30;
/// Errors of a file that are shown; more are counted.
pub const ERRORS_MAX: usize = 20;

/// Every column, in the order of written files.
pub const COLUMNS: [&str; 11] = [
    "id",
    "n3",
    "teid",
    "peer",
    "peer_teid",
    "qfi",
    "ipv4",
    "ipv6",
    "gate",
    "rate_up",
    "rate_down",
];
/// Columns that a file must have.
const REQUIRED: usize = 5;

/// Reads a file of sessions, with the line of each.
///
/// # Errors
/// Returns its errors, at most [`ERRORS_MAX`] by line and the number of the others.
pub fn read(path: &Path) -> Result<Vec<(usize, Session)>, Problems> {
    let name = path.display().to_string();
    let one = |what: String| Problems(vec![Problem { location: Location::InText, what }]);
    let bytes = read_at_most(path, FILE_BYTES_MAX, "2 GiB");
    let bytes = bytes.map_err(|e| one(format!("{name}: cannot read the sessions: {e}")))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| one(format!("{name}: not UTF-8 text; must be sessions as CSV")))?;
    parse(&text).map_err(|refusals| problems(&name, &refusals))
}

/// Returns the errors of a file as problems, at most [`ERRORS_MAX`] of them and the number of the
/// others.
pub fn problems(file: &str, refusals: &[Refusal]) -> Problems {
    let mut sorted: Vec<&Refusal> = refusals.iter().collect();
    sorted.sort_by_key(|refusal| refusal.line);
    let shown = sorted.iter().take(ERRORS_MAX);
    let mut texts: Vec<String> =
        shown.map(|refusal| format!("{file}:{}: {}", refusal.line, refusal.what)).collect();
    if sorted.len() > ERRORS_MAX {
        texts.push(format!("{file}: {} more errors", sorted.len() - ERRORS_MAX));
    }
    let problem = |what| Problem { location: Location::InText, what };
    Problems(texts.into_iter().map(problem).collect())
}

/// Reads the text of a file.
///
/// # Errors
/// Returns every error, by line.
pub fn parse(text: &str) -> Result<Vec<(usize, Session)>, Vec<Refusal>> {
    let lines = (1..).zip(text.lines().map(str::trim));
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let Some((line, header)) = lines.next() else {
        let what = format!("no header line; must be {}", COLUMNS.join(","));
        return Err(vec![Refusal { line: 1, what }]);
    };
    let columns = columns(header).map_err(|what| vec![Refusal { line, what }])?;
    let (mut sessions, mut refusals) = (Vec::new(), Vec::new());
    for (line, text) in lines {
        match session(text, &columns) {
            Ok(session) => sessions.push((line, session)),
            Err(what) => refusals.push(Refusal { line, what }),
        }
    }
    if refusals.is_empty() { Ok(sessions) } else { Err(refusals) }
}

/// Returns the position in [`COLUMNS`] of each column of a header.
fn columns(header: &str) -> Result<Vec<usize>, String> {
    let mut found = Vec::new();
    for name in header.split(',').map(str::trim) {
        let column = COLUMNS.iter().position(|known| *known == name);
        let column = column
            .ok_or_else(|| format!("unknown column {name:?}; known: {}", COLUMNS.join(", ")))?;
        if found.contains(&column) {
            return Err(format!("column {name} comes twice"));
        }
        found.push(column);
    }
    match COLUMNS[..REQUIRED].iter().enumerate().find(|(column, _)| !found.contains(column)) {
        Some((_, name)) => Err(format!("column {name} is missing")),
        None => Ok(found),
    }
}

/// Reads a line.
fn session(line: &str, columns: &[usize]) -> Result<Session, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    if fields.len() != columns.len() {
        return Err(format!("{} fields; must be {}, as the header", fields.len(), columns.len()));
    }
    let at = |column| columns.iter().position(|found| *found == column);
    from_fields(|column| at(column).map_or("", |at| fields[at]))
}

/// Reads a line with every column.
pub(crate) fn whole_line(line: &str) -> Result<Session, String> {
    session(line, &std::array::from_fn::<_, { COLUMNS.len() }, _>(|column| column))
}

/// Reads a session; `text` has the field of each of the [`COLUMNS`], empty if there is none.
pub(crate) fn from_fields<'a>(text: impl Fn(usize) -> &'a str) -> Result<Session, String> {
    let field = |name: &'static str| {
        let column = COLUMNS.iter().position(|column| *column == name);
        Field { name, text: column.map_or("", &text) }
    };
    let session = Session {
        id: field("id").required(number)?,
        n3: field("n3").required(address)?,
        teid: field("teid").required(number)?,
        peer: field("peer").required(address)?,
        peer_teid: field("peer_teid").required(number)?,
        qfi: field("qfi").optional(number)?,
        ipv4: field("ipv4").optional(address)?,
        ipv6: field("ipv6").optional(prefix)?,
        gate: field("gate").optional(|text| Gate::read(text, &None))?.unwrap_or(Gate::Open),
        rate_up: field("rate_up").optional(rate)?,
        rate_down: field("rate_down").optional(rate)?,
    };
    session.check().map_err(|invalid| invalid.to_string())?;
    Ok(session)
}

/// A field of a line; empty if there is none.
struct Field<'a> {
    name: &'static str,
    text: &'a str,
}

impl<'a> Field<'a> {
    fn optional<T>(
        &self,
        read: impl FnOnce(&'a str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        if self.text.is_empty() {
            return Ok(None);
        }
        read(self.text).map(Some).map_err(|what| format!("{}: {what}", self.name))
    }

    fn required<T>(&self, read: impl FnOnce(&'a str) -> Result<T, String>) -> Result<T, String> {
        self.optional(read)?.ok_or_else(|| format!("{} is missing", self.name))
    }
}

/// Reads a decimal or hexadecimal number.
pub(crate) fn number<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let digits = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    let plain = !digits.0.starts_with('+');
    let number = u64::from_str_radix(digits.0, digits.1).ok().filter(|_| plain);
    let bits = 8 * size_of::<T>();
    let wrong = || format!("{text:?}: must be a number of {bits} bits, such as 257 or 0x101");
    number.and_then(|number| T::try_from(number).ok()).ok_or_else(wrong)
}

fn address<T: FromStr>(text: &str) -> Result<T, String> {
    let v4_only = size_of::<T>() == 4;
    let such_as = if v4_only { "an IPv4 address, such as 10.45.0.2" } else { "an IP address" };
    text.parse().map_err(|_| format!("{text:?}: must be {such_as}"))
}

pub(crate) fn prefix(text: &str) -> Result<Prefix64, String> {
    let wrong = || format!("{text:?}: must be an IPv6 prefix, such as 2001:db8:45:1::/64");
    let address = text.strip_suffix("/64").ok_or_else(wrong)?;
    let address: Ipv6Addr = address.parse().map_err(|_| wrong())?;
    let prefix = Prefix64::of(address);
    if prefix.address() == address { Ok(prefix) } else { Err(wrong()) }
}

fn rate(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?}: must be bits a second, such as 50M, 1G or 128000");
    let (digits, unit) =
        match text.split_at(text.len() - text.chars().last().map_or(0, char::len_utf8)) {
            (digits, "k") => (digits, 1_000),
            (digits, "M") => (digits, 1_000_000),
            (digits, "G") => (digits, 1_000_000_000),
            _ => (text, 1),
        };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(unit).filter(|_| !digits.starts_with('+')).ok_or_else(wrong)
}

/// Returns the header of a written file.
pub fn header() -> String {
    COLUMNS.join(",")
}

/// Returns a session as a line.
pub fn line(session: &Session) -> String {
    fields(session).join(",")
}

/// Returns the fields of a session, as in [`COLUMNS`].
pub(crate) fn fields(session: &Session) -> [String; COLUMNS.len()] {
    fn or_empty<T: Display>(value: Option<T>) -> String {
        value.map_or(String::new(), |value| value.to_string())
    }
    let &Session { id, n3, teid, peer, peer_teid, .. } = session;
    [
        id.to_string(),
        n3.to_string(),
        format!("{teid:#x}"),
        peer.to_string(),
        format!("{peer_teid:#x}"),
        or_empty(session.qfi),
        or_empty(session.ipv4),
        or_empty(session.ipv6),
        session.gate.name().to_owned(),
        or_empty(session.rate_up),
        or_empty(session.rate_down),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::session as nth;
    use proptest::prelude::*;

    const HEADER: &str = "id,n3,teid,peer,peer_teid,qfi,ipv4,ipv6,gate,rate_up,rate_down";

    #[test]
    fn a_line_is_a_session() {
        let line =
            "7, 192.0.2.1 ,0x7,198.51.100.7,0x1007,9,10.45.0.7,2001:db8:45:7::/64,downlink,,1M";
        let expected = Session { gate: Gate::Downlink, rate_down: Some(1_000_000), ..nth(7) };
        let text = format!("# comment\n\n{HEADER}\r\n{line}\n");
        assert_eq!(parse(&text), Ok(vec![(4, expected)]));
        let text = "ipv4,peer_teid,id,n3,teid,peer\n10.45.0.7,4103,7,192.0.2.1,7,198.51.100.7";
        let expected = Session { qfi: None, ipv6: None, ..nth(7) };
        assert_eq!(parse(text), Ok(vec![(2, expected)]));
    }

    #[test]
    fn every_error_has_its_line() {
        for (header, what) in [
            ("", "no header line; must be id,n3,teid,"),
            ("id,n3,teid,peer", "column peer_teid is missing"),
            ("id,n3,teid,peer,peer_teid,id", "column id comes twice"),
            ("id,imsi", "unknown column \"imsi\"; known: id, n3,"),
        ] {
            let refusals = parse(header).expect_err(header);
            assert!(refusals[0].what.starts_with(what), "{refusals:?}");
        }
        let lines = [
            ("1,192.0.2.1,1,198.51.100.7", "4 fields; must be 11, as the header"),
            ("x,192.0.2.1,1,198.51.100.7,1,,10.45.0.1,,,,", "id: \"x\": must be a number of 64"),
            (",192.0.2.1,1,198.51.100.7,1,,10.45.0.1,,,,", "id is missing"),
            ("1,192.0.2,1,198.51.100.7,1,,10.45.0.1,,,,", "n3: \"192.0.2\": must be an IP address"),
            (
                "1,192.0.2.1,0x100000000,198.51.100.7,1,,10.45.0.1,,,,",
                "teid: \"0x100000000\": must",
            ),
            ("1,192.0.2.1,0,198.51.100.7,1,,10.45.0.1,,,,", "teid: must not be 0"),
            ("1,192.0.2.1,1,::1,1,,10.45.0.1,,,,", "peer: must be of the same family as n3"),
            ("1,192.0.2.1,1,198.51.100.7,1,64,10.45.0.1,,,,", "qfi: must be a number from 0 to 63"),
            ("1,192.0.2.1,1,198.51.100.7,1,,::1,,,,", "ipv4: \"::1\": must be an IPv4 address"),
            ("1,192.0.2.1,1,198.51.100.7,1,,,,,,", "ipv4: a session needs an IPv4 address or"),
            ("1,192.0.2.1,1,198.51.100.7,1,,,2001:db8::/48,,,", "ipv6: \"2001:db8::/48\": must be"),
            ("1,192.0.2.1,1,198.51.100.7,1,,,2001:db8::1/64,,,", "ipv6: \"2001:db8::1/64\": must"),
            (
                "1,192.0.2.1,1,198.51.100.7,1,,10.45.0.1,,ajar,,",
                "gate: \"ajar\": must be one of open",
            ),
            ("1,192.0.2.1,1,198.51.100.7,1,,10.45.0.1,,,fast,", "rate_up: \"fast\": must be bits"),
            ("1,192.0.2.1,1,198.51.100.7,1,,10.45.0.1,,,1,", "rate_up: must be from 1000"),
            ("1,192.0.2.1,1,198.51.100.7,1,,10.45.0.1,,,99999999999999999999M,", "rate_up: \"9"),
        ];
        let text: Vec<&str> = [HEADER].into_iter().chain(lines.map(|(line, _)| line)).collect();
        let refusals = parse(&text.join("\n")).expect_err("all are wrong");
        assert_eq!(refusals.len(), lines.len());
        for (at, (refusal, (line, what))) in refusals.iter().zip(lines).enumerate() {
            assert_eq!(refusal.line, at + 2, "{line}");
            assert!(refusal.what.starts_with(what), "{line}: {}", refusal.what);
        }
    }

    #[test]
    fn twenty_errors_are_shown() {
        let all: Vec<Refusal> =
            (1..=25).rev().map(|line| Refusal { line, what: "wrong".to_owned() }).collect();
        let shown: Vec<String> = problems("a.csv", &all).0.iter().map(|p| p.to_string()).collect();
        assert_eq!(shown.len(), 21);
        assert_eq!((&*shown[0], &*shown[20]), ("a.csv:1: wrong", "a.csv: 5 more errors"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(n in 1u16.., qfi in prop::option::of(0u8..64), gate in 0usize..4,
            rate in prop::option::of(1000u64..1 << 39), which in 0..3)
        {
            let whole = nth(n);
            let session = Session {
                qfi,
                gate: Gate::ALL[gate].0,
                rate_up: rate,
                ipv4: whole.ipv4.filter(|_| which != 1),
                ipv6: whole.ipv6.filter(|_| which != 2),
                ..whole
            };
            let text = format!("{}\n{}\n", header(), line(&session));
            prop_assert_eq!(parse(&text), Ok(vec![(2, session)]));
        }

        #[test]
        fn no_text_panics(text in "[a-f0-9x,:/.\n kMG+-]{0,200}") {
            let _ = parse(&format!("{HEADER}\n{text}"));
            let _ = parse(&text);
        }
    }
}
