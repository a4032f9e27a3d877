//! Messages: a header and elements; refusals with their cause.

use rs_pfcp::error::PfcpError;
use rs_pfcp::ie::cause::{Cause, CauseValue};
use rs_pfcp::ie::failed_rule_id::FailedRuleId;
use rs_pfcp::ie::{Ie, IeIterator, IeType};
use rs_pfcp::message::MsgType;
use rs_pfcp::message::header::Header;

/// Most elements of a message, and of a group.
const IES_MAX: usize = 256;
/// Longest message that is sent: no fragments on any path.
const VERSION: u8 = 1;

/// A request is refused; nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why} (cause {})", *.cause as u8)]
pub struct Refusal {
    /// Cause of the answer.
    pub cause: CauseValue,
    /// Type of the element at fault.
    pub offending: Option<u16>,
    /// Rule at fault.
    pub rule: Option<FailedRuleId>,
    /// What is wrong.
    pub why: String,
}

impl Refusal {
    pub(crate) fn new(cause: CauseValue, why: impl Into<String>) -> Refusal {
        Refusal { cause, offending: None, rule: None, why: why.into() }
    }

    pub(crate) fn missing(ie: IeType) -> Refusal {
        let why = format!("{ie:?} is missing");
        Refusal::new(CauseValue::MandatoryIeMissing, why).at(ie as u16)
    }

    pub(crate) fn unsupported(ie: &Ie) -> Refusal {
        let why = format!("{:?} (type {}) is not supported", ie.ie_type, ie.raw_type());
        Refusal::new(CauseValue::ServiceNotSupported, why).at(ie.raw_type())
    }

    pub(crate) fn at(mut self, ie: u16) -> Refusal {
        self.offending = self.offending.or(Some(ie));
        self
    }

    pub(crate) fn of(mut self, rule: FailedRuleId) -> Refusal {
        self.rule = self.rule.or(Some(rule));
        self
    }
}

/// Reads an element.
pub(crate) fn read<T>(
    ie: &Ie,
    from: impl FnOnce(&[u8]) -> Result<T, PfcpError>,
) -> Result<T, Refusal> {
    from(&ie.payload).map_err(|error| {
        Refusal::new(CauseValue::MandatoryIeIncorrect, error.to_string()).at(ie.raw_type())
    })
}

/// Splits bytes into elements.
pub(crate) fn elements(bytes: &[u8]) -> Result<Vec<Ie>, Refusal> {
    let mut ies = Vec::new();
    let mut at = 0;
    for ie in IeIterator::new(bytes) {
        let kind = bytes.get(at..at + 2).map_or(0, |kind| u16::from_be_bytes([kind[0], kind[1]]));
        let ie = ie
            .map_err(|error| Refusal::new(CauseValue::InvalidLength, error.to_string()).at(kind))?;
        at += usize::from(ie.len());
        if ies.len() == IES_MAX {
            let why = format!("more than {IES_MAX} elements");
            return Err(Refusal::new(CauseValue::InvalidLength, why));
        }
        ies.push(ie);
    }
    Ok(ies)
}

/// Elements of a group.
pub(crate) fn group(ie: &Ie) -> Result<Vec<Ie>, Refusal> {
    elements(&ie.payload)
}

/// Returns the first element of a type.
pub(crate) fn find(ies: &[Ie], kind: IeType) -> Option<&Ie> {
    ies.iter().find(|ie| ie.ie_type == kind)
}

/// The same; it must be there.
pub(crate) fn need(ies: &[Ie], kind: IeType) -> Result<&Ie, Refusal> {
    find(ies, kind).ok_or_else(|| Refusal::missing(kind))
}

/// Reads flags: those known, and no others.
pub(crate) fn flags(ie: &Ie, known: u8) -> Result<u8, Refusal> {
    match ie.payload.split_first() {
        Some((&flags, more)) if flags & !known == 0 && more.iter().all(|octet| *octet == 0) => {
            Ok(flags)
        }
        _ => Err(Refusal::unsupported(ie)),
    }
}

/// Returns whether the standard does not define an element: it is skipped.
pub(crate) fn is_foreign(ie: &Ie) -> bool {
    ie.is_vendor_specific() || ie.ie_type == IeType::Unknown
}

/// A message that was received.
pub(crate) struct Received {
    pub(crate) kind: MsgType,
    pub(crate) seid: Option<u64>,
    pub(crate) sequence: u32,
    /// The elements, or what is wrong with them.
    pub(crate) ies: Result<Vec<Ie>, Refusal>,
}

/// Why a datagram gets no answer of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// No message; nothing is answered.
    Garbage,
    /// Of another version; the sequence number.
    Version(u32),
}

/// Reads a datagram.
pub(crate) fn parse(bytes: &[u8]) -> Result<Received, Unreadable> {
    let header = Header::unmarshal(bytes).map_err(|_| Unreadable::Garbage)?;
    let sequence = *header.sequence_number;
    if header.version != VERSION {
        return Err(Unreadable::Version(sequence));
    }
    let end = 4 + usize::from(header.length);
    let start = if header.has_seid { 16 } else { 8 };
    let body = bytes.get(start..end).ok_or(Unreadable::Garbage)?;
    Ok(Received {
        kind: header.message_type,
        seid: header.has_seid.then_some(header.seid.0),
        sequence,
        ies: elements(body),
    })
}

/// Writes a message.
pub(crate) fn emit(kind: MsgType, seid: Option<u64>, sequence: u32, ies: &[Ie]) -> Vec<u8> {
    let header = Header::new(kind, seid.is_some(), seid.unwrap_or(0), sequence);
    let mut bytes = header.marshal();
    ies.iter().for_each(|ie| ie.marshal_into(&mut bytes));
    // The answers here have a bounded number of short elements.
    let len = (bytes.len() - 4).min(usize::from(u16::MAX)) as u16;
    bytes[2..4].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// Writes the elements of an answer's result.
pub(crate) fn result(refused: Option<&Refusal>) -> Vec<Ie> {
    let cause = refused.map_or(CauseValue::RequestAccepted, |refusal| refusal.cause);
    let mut ies = vec![Ie::new(IeType::Cause, Cause::new(cause).marshal().to_vec())];
    let Some(refusal) = refused else { return ies };
    if let Some(offending) = refusal.offending {
        ies.push(Ie::new(IeType::OffendingIe, offending.to_be_bytes().to_vec()));
    }
    ies.extend(refusal.rule.as_ref().map(FailedRuleId::to_ie));
    ies
}
