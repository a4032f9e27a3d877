//! Messages that a switch must refuse, and with which error.

use crate::common::{decode, unhex};
use overbank_openflow::*;

fn code(version: Version, text: &str) -> ErrorCode {
    let bytes = unhex(text);
    match decode(version, &bytes) {
        Ok(message) => panic!("{text} was read: {message:?}"),
        Err(error) => error.code,
    }
}

#[test]
fn requests_that_are_wrong_as_a_whole() {
    let (v13, v14, v15) = (Version::V13, Version::V14, Version::V15);
    for (version, text, expected) in [
        // Unknown types, or types of other versions.
        (v13, "04 63 0008 00000001", BadRequest::BadType),
        (v13, "04 1e 0018 00000001 00000001 00000000 0000000000000000", BadRequest::BadType),
        (v13, "04 21 0010 00000001 00000001 0000 0000", BadRequest::BadType),
        (v14, "05 16 0010 00000001 00000003 00000000", BadRequest::BadType),
        // Another version.
        (v14, "04 14 0008 00000001", BadRequest::BadVersion),
        // Bodies that are too short or too long.
        (v13, "04 14 0010 00000001 0000000000000000", BadRequest::BadLen),
        (v13, "04 09 000a 00000001 0000", BadRequest::BadLen),
        (v13, "04 09 000e 00000001 0000 0080 0000", BadRequest::BadLen),
        (v13, "04 18 0014 00000001 00000001 00000000 00000000", BadRequest::BadLen),
        (v13, "04 04 000c 00000001 00002320", BadRequest::BadLen),
        (v13, "04 0e 0010 00000001 0000000000000000", BadRequest::BadLen),
        (v13, "04 12 000c 00000001 0001 0000", BadRequest::BadLen),
        (v13, "04 12 0018 00000001 0000 0000 00000000 0000000000000000", BadRequest::BadLen),
        (v13, "04 12 0010 00000001 0077 0000 00000000", BadRequest::BadMultipart),
        // A packet-out of 1.5: no ingress port, and a field of the packet.
        (v15, "06 0d 0018 00000001 ffffffff 0000 0000 0001 0004 00000000", BadRequest::BadPort),
        (
            v15,
            "06 0d 0028 00000001 ffffffff 0000 0000 0001 0012 80000004 00000001 80000a02 0800 \
             000000000000 0000000000000000",
            BadRequest::PipelineFieldsOnly,
        ),
    ] {
        assert_eq!(code(version, text), expected.into(), "{text}");
    }
}

/// A flow-mod with these bytes for command and flags, this match and these instructions.
fn flow_mod(command: u8, flags: u16, matching: &str, instructions: &str) -> String {
    let body = format!(
        "{:032x} 00 {command:02x} 0000 0000 0064 ffffffff ffffffff ffffffff {flags:04x} 0000 \
         {matching} {instructions}",
        0
    );
    let length = 8 + unhex(&body).len();
    format!("04 0e {length:04x} 00000001 {body}")
}

#[test]
fn flow_mods_that_are_wrong_in_a_part() {
    const ALL: &str = "0001 0004 00000000";
    for (text, expected) in [
        (flow_mod(5, 0, ALL, ""), FlowModFailed::BadCommand.into()),
        (flow_mod(0, 0x20, ALL, ""), FlowModFailed::BadFlags.into()),
        (flow_mod(0, 0, "0000 0004 00000000", ""), BadMatch::BadType.into()),
        (flow_mod(0, 0, "0001 0044 00000000", ""), BadMatch::BadLen.into()),
        (flow_mod(0, 0, "0001 000a 80001c02 0050 000000000000", ""), BadMatch::BadPrereq.into()),
        (flow_mod(0, 0, ALL, "0001"), BadInstruction::BadLen.into()),
        (flow_mod(0, 0, ALL, "0001 0004"), BadInstruction::BadLen.into()),
        (flow_mod(0, 0, ALL, "0001 0010 01000000"), BadInstruction::BadLen.into()),
        (flow_mod(0, 0, ALL, "0001 0010 01000000 0000000000000000"), BadInstruction::BadLen.into()),
        (flow_mod(0, 0, ALL, "0055 0008 00000000"), BadInstruction::UnknownInst.into()),
        (
            flow_mod(0, 0, ALL, "0005000800000000 0005000800000000"),
            BadInstruction::UnsupInst.into(),
        ),
        (flow_mod(0, 0, ALL, "0004 0010 00000000 0063 0008 00000000"), BadAction::BadType.into()),
        (flow_mod(0, 0, ALL, "0004 0010 00000000 0012 0018 00000000"), BadAction::BadLen.into()),
    ] {
        assert_eq!(code(Version::V13, &text), expected, "{text}");
    }
    let error = decode(Version::V13, &unhex(&flow_mod(5, 0, ALL, ""))).unwrap_err();
    assert_eq!((error.what, error.offset), ("flow-mod", 8 + 17));
    let said =
        "flow-mod has an unknown command, at byte 25 (FlowModFailed BadCommand: unknown command)";
    assert_eq!(error.to_string(), said);
}

#[test]
fn other_changes_that_are_wrong() {
    let (v13, v14, v15) = (Version::V13, Version::V14, Version::V15);
    let port_mod = "00000003 00000000 616263646566 0000 00000000";
    for (version, text, expected) in [
        (
            v13,
            "04 18 0018 00000001 00000004 00000000 0000000000000000".to_owned(),
            RoleRequestFailed::BadRole.into(),
        ),
        (
            v13,
            "04 0f 0010 00000001 0003 00 00 00000001".to_owned(),
            GroupModFailed::BadCommand.into(),
        ),
        (
            v15,
            "06 0f 0018 00000001 0000 00 00 00000001 0008 0000 00000000".to_owned(),
            GroupModFailed::BadBucket.into(),
        ),
        (
            v13,
            "04 1d 0010 00000001 0003 0001 00000001".to_owned(),
            MeterModFailed::BadCommand.into(),
        ),
        (
            v13,
            format!("04 10 0028 00000001 {port_mod} 00000002 00000000 00000000"),
            PortModFailed::BadConfig.into(),
        ),
        (
            v14,
            format!("05 10 0028 00000001 {port_mod} 00000001 0007 0008 00000000"),
            BadProperty::BadType.into(),
        ),
        (
            v14,
            format!("05 10 0028 00000001 {port_mod} 00000001 ffff 0008 00000000"),
            BadProperty::BadExperimenter.into(),
        ),
        (v14, "05 1c 0010 00000001 0063 0008 00000001".to_owned(), BadProperty::BadType.into()),
        (v14, "05 1c 000c 00000001 0001 0003".to_owned(), BadProperty::BadLen.into()),
        (
            v14,
            "05 1c 0018 00000001 0001 0008 00000001 0001 0008 00000001".to_owned(),
            BadProperty::DupType.into(),
        ),
        (
            v14,
            "05 22 0018 00000001 00000001 0000 0000 05 14 0008 00000002".to_owned(),
            BundleFailed::MsgBadXid.into(),
        ),
        (
            v14,
            "05 22 0018 00000001 00000001 0000 0000 05 14 0010 00000001".to_owned(),
            BundleFailed::MsgBadLen.into(),
        ),
        (
            v14,
            "05 12 0028 00000001 0010 0000 00000000 00000001 ffffffff ffffffff 0001 ff 03 \
             0001 0004 00000000"
                .to_owned(),
            FlowMonitorFailed::BadCommand.into(),
        ),
    ] {
        assert_eq!(code(version, &text), expected, "{text}");
    }
}

#[test]
fn an_error_quotes_the_start_of_its_request() {
    let request = vec![4; 200];
    let error = ErrorMessage::new(BadRequest::IsSlave, &request);
    assert_eq!(error.data, request[..64]);
    assert_eq!(error.code.to_wire(), (1, 10));
    assert_eq!(ErrorMessage::new(BadRequest::IsSlave, &[1, 2]).data, [1, 2]);
}
