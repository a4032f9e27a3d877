use super::*;
use crate::consts::port;
use crate::oxm::OxmField;

fn decode(version: Version, bytes: &[u8]) -> Result<Vec<Action>, BadAction> {
    let mut r = Reader::new(bytes, 0, "actions", BadAction::BadLen.into());
    Action::decode_list(&mut r, version).map_err(|error| match error.code {
        ErrorCode::BadAction(code) => code,
        other => panic!("{other}"),
    })
}

#[test]
fn every_fault_has_its_code() {
    let nicira = |subtype: u8, rest: &[u8]| {
        let len = 10 + rest.len() as u8;
        [&[0xff, 0xff, 0, len, 0, 0, 0x23, 0x20, 0, subtype][..], rest].concat()
    };
    for (bytes, code) in [
        (vec![0, 0], BadAction::BadLen),
        (vec![0, 18, 0, 0, 0, 0, 0, 0], BadAction::BadLen),
        (vec![0, 18, 0, 4], BadAction::BadLen),
        (vec![0, 18, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0], BadAction::BadLen),
        (vec![0, 18, 0, 16, 0, 0, 0, 0], BadAction::BadLen),
        (vec![0, 11, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0], BadAction::BadLen),
        (vec![0, 11, 0, 4], BadAction::BadLen),
        // pop_vlan of 16 bytes, output of 8.
        ([&[0, 18, 0, 16][..], &[0; 12]].concat(), BadAction::BadLen),
        (vec![0, 0, 0, 8, 0, 0, 0, 1], BadAction::BadLen),
        (vec![0, 99, 0, 8, 0, 0, 0, 0], BadAction::BadType),
        // An action of 1.0.
        (vec![0, 1, 0, 8, 0, 0, 0, 0], BadAction::BadType),
        // set_field: in_port, an unknown field, a VLAN that is too wide, a length that is wrong.
        (
            [&[0, 25, 0, 16, 0x80, 0, 0, 4, 0, 0, 0, 1][..], &[0; 4]].concat(),
            BadAction::BadSetArgument,
        ),
        ([&[0, 25, 0, 16, 0x12, 0, 0, 4, 0, 0, 0, 1][..], &[0; 4]].concat(), BadAction::BadSetType),
        (
            [&[0, 25, 0, 16, 0x80, 0, 0x0c, 2, 0x20, 0][..], &[0; 6]].concat(),
            BadAction::BadSetArgument,
        ),
        ([&[0, 25, 0, 16, 0x80, 0, 0x0c, 3, 0, 0, 0][..], &[0; 5]].concat(), BadAction::BadSetLen),
        ([&[0, 25, 0, 16, 0x80, 0, 0x0c, 99, 0, 0, 0][..], &[0; 5]].concat(), BadAction::BadSetLen),
        // More padding than up to the next multiple of 8.
        ([&[0, 25, 0, 24, 0x80, 0, 0x0c, 2, 0, 1][..], &[0; 14]].concat(), BadAction::BadLen),
        // reg_load: of a register, past the end of a field, too large a value, to a read-only
        // field.
        (nicira(7, &[0, 31, 0, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1]), BadAction::BadSetType),
        (nicira(7, &[0, 0x50, 0, 0, 0x1e, 2, 0, 0, 0, 0, 0, 0, 0, 1]), BadAction::BadSetLen),
        (nicira(7, &[0, 3, 0, 0, 0x1e, 2, 0, 0, 0, 0, 0, 0, 0, 16]), BadAction::BadSetArgument),
        (nicira(7, &[0, 15, 0, 0, 0x06, 2, 0, 0, 0, 0, 0, 0, 8, 0]), BadAction::BadSetArgument),
        // An extension without its number, a resubmit that is too short.
        (vec![0xff, 0xff, 0, 8, 0, 0, 0x23, 0x20], BadAction::BadLen),
    ] {
        assert_eq!(decode(Version::V13, &bytes), Err(code), "{bytes:02x?}");
    }
}

#[test]
fn meters_and_masks_belong_to_1_5() {
    let meter = [0, 29, 0, 8, 0, 0, 0, 7];
    assert_eq!(decode(Version::V15, &meter), Ok(vec![Action::Meter(7)]));
    assert_eq!(decode(Version::V14, &meter), Err(BadAction::BadType));
    let mut out = Vec::new();
    assert!(Action::Meter(7).encode(Version::V14, &mut out).is_err());

    let masked = [&[0, 25, 0, 16, 0x80, 0, 0x0d, 4, 0x10, 0, 0x10, 0][..], &[0; 4]].concat();
    let set = Action::SetField(Oxm::masked(OxmField::VlanVid, 0x1000, 0x1000));
    assert_eq!(decode(Version::V15, &masked), Ok(vec![set.clone()]));
    assert_eq!(decode(Version::V14, &masked), Err(BadAction::BadSetArgument));
    // Before 1.5 it is written in another way, and read back.
    let mut out = Vec::new();
    set.encode(Version::V14, &mut out).unwrap();
    assert_eq!(decode(Version::V14, &out), Ok(vec![set]));
}

#[test]
fn ports_of_nicira_have_16_bits() {
    for (in_port, short) in [
        (None, [0xff, 0xf8]),
        (Some(9), [0, 9]),
        (Some(0xfeff), [0xfe, 0xff]),
        (Some(port::LOCAL), [0xff, 0xfe]),
        (Some(port::CONTROLLER), [0xff, 0xfd]),
    ] {
        let action = Action::Resubmit { in_port, table: Some(2) };
        let mut out = Vec::new();
        action.encode(Version::V13, &mut out).unwrap();
        assert_eq!(out[10..12], short);
        assert_eq!(decode(Version::V13, &out), Ok(vec![action]));
    }
    let far = Action::Resubmit { in_port: Some(0x1_0000), table: None };
    assert!(far.encode(Version::V13, &mut Vec::new()).is_err());
    // The older form has no table.
    let old = [0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 1, 0, 5, 7, 0, 0, 0];
    let action = Action::Resubmit { in_port: Some(5), table: None };
    assert_eq!(decode(Version::V13, &old), Ok(vec![action]));
}

#[test]
fn other_extensions_keep_their_bytes() {
    let note = [0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 8, 1, 2, 3, 4, 5, 6];
    let actions = decode(Version::V13, &note).unwrap();
    assert_eq!(actions[0].nx_subtype(), Some(8));
    let mut out = Vec::new();
    Action::encode_list(&actions, Version::V13, &mut out).unwrap();
    assert_eq!(out, note);
    let other = Action::Experimenter { experimenter: 5, data: vec![0, 8] };
    assert_eq!(other.nx_subtype(), None);
}

#[test]
fn some_bits_of_a_field_without_masks_are_loaded() {
    // Bits 3 to 14 of arp_op.
    let load = [
        &[0xff, 0xff, 0, 24, 0, 0, 0x23, 0x20, 0, 7, 0, 0xcb, 0, 0, 0x1e, 2][..],
        &[0, 0, 0, 0, 0, 0, 0, 2],
    ]
    .concat();
    let set = Action::SetField(Oxm::masked(OxmField::ArpOp, 16, 0x7ff8));
    for version in Version::ALL {
        assert_eq!(decode(version, &load), Ok(vec![set.clone()]));
        let mut out = Vec::new();
        set.encode(version, &mut out).unwrap();
        assert_eq!(out, load);
    }
    let runs = Action::SetField(Oxm::masked(OxmField::ArpOp, 0x8001, 0xc003));
    let mut out = Vec::new();
    runs.encode(Version::V15, &mut out).unwrap();
    let parts = [(1, 3), (0x8000, 0xc000)]
        .map(|(value, mask)| Action::SetField(Oxm::masked(OxmField::ArpOp, value, mask)));
    assert_eq!(decode(Version::V15, &out).unwrap(), parts);
}
