//! Messages: known bytes, the naive reader, truncation, and hostile bytes.

use super::*;
use crate::testing::gtpu::{Naive, NaiveBody, containers, messages, mutated, read};
use proptest::prelude::*;

fn bytes(hex: &str) -> Vec<u8> {
    let hex: String = hex.split_whitespace().collect();
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

/// The inner packets of the fixtures: 10.45.0.2 to 192.0.2.80, and 2001:db8:45::2 to 2001:db8::80.
const INNER4: &str = "45000020000100004011ae4d0a2d0002c0000250 13880035000c5ad361626364";
const INNER6: &str = "60000000000c114020010db800450000000000000000000220010db8000000000000000000000080 \
                      13880035000ccb1961626364";

fn fixture(header: &str, expected: Naive) {
    let inner = match &expected.body {
        NaiveBody::GPdu(packet) if packet[0] >> 4 == 4 => INNER4,
        NaiveBody::GPdu(_) => INNER6,
        _ => "",
    };
    let payload = bytes(&[header, inner].concat());
    let message = Message::parse(&payload).unwrap_or_else(|error| panic!("{header}: {error:?}"));
    assert_eq!(Naive::from(&message), expected, "{header}");
    assert_eq!(read(&payload).as_ref(), Ok(&expected), "{header}");
    let mut room = [0; 2048];
    if let Some(len) = message.emit(&mut room) {
        // Private extensions are not kept.
        assert_eq!(read(&room[..len]), Ok(expected), "{header}");
    }
}

fn plain(teid: u32, body: NaiveBody) -> Naive {
    Naive {
        teid,
        sequence: None,
        n_pdu: None,
        extensions: vec![],
        session: None,
        udp_port: None,
        body,
    }
}

/// What `scapy.contrib.gtp` 2.8 writes.
#[test]
fn messages_of_scapy() {
    let (v4, v6) = (NaiveBody::GPdu(bytes(INNER4)), NaiveBody::GPdu(bytes(INNER6)));
    let session = |container: Container, header: &str, body: &NaiveBody| Naive {
        extensions: vec![(0x85, bytes(header))],
        session: Some(container),
        ..plain(1, body.clone())
    };
    // GTP_U_Header(gtp_type=255, teid=0x11223344)
    fixture("30 ff 0020 11223344", plain(0x1122_3344, v4.clone()));
    // .. S=1, seq=0x0102
    let numbered = Naive { sequence: Some(0x0102), ..plain(0x1122_3344, v4.clone()) };
    fixture("32 ff 0024 11223344 0102 00 00", numbered);
    // .. PN=1, npdu=7
    let n_pdu = Naive { n_pdu: Some(7), ..plain(0x1122_3344, v6.clone()) };
    fixture("31 ff 0038 11223344 0000 07 00", n_pdu);
    // .. GTPPDUSessionContainer(type=0, QFI=9, RQI=1)
    let down = Downlink { qfi: 9, rqi: true, ..Downlink::default() };
    let expected = session(Container::Downlink(down), "0049", &v4);
    fixture("34 ff 0028 00000001 0000 00 85 01 0049 00", expected);
    // .. (type=0, QFI=9, PPP=1, PPI=5, QMP=1, dlSendTime=.., SNP=1, dlQFISeqNum=0x0a0b0c)
    let down = Downlink {
        qfi: 9,
        ppi: Some(5),
        sent: Some(0x0102_0304_0506_0708),
        sequence: Some(0x000a_0b0c),
        ..Downlink::default()
    };
    let content = "0c 89 a0 0102030405060708 0a0b0c";
    let expected = session(Container::Downlink(down), content, &v4);
    fixture(&format!("34 ff 0034 00000001 0000 00 85 04 {content} 00"), expected);
    // .. (type=1, QFI=63)
    let up = Uplink { qfi: 63, ..Uplink::default() };
    fixture(
        "34 ff 003c 00000001 0000 00 85 01 103f 00",
        session(Container::Uplink(up), "103f", &v6),
    );
    // .. (type=1, QFI=5, all flags, dlSendTimeRpt=1, .., N3N9DelayRslt=7)
    let up = Uplink {
        qfi: 5,
        monitoring: Some([1, 2, 3]),
        dl_delay: Some(4),
        ul_delay: Some(5),
        sequence: Some(6),
        n3_n9_delay: Some(7),
        pdcp_delay: None,
    };
    let content = "1f 85 0000000000000001 0000000000000002 0000000000000003 00000004 00000005 \
                   000006 00000007 00";
    let expected = session(Container::Uplink(up), content, &v4);
    fixture(&format!("34 ff 0050 00000001 0000 00 85 0b {content} 00"), expected);

    let numbered = |sequence, body| Naive { sequence: Some(sequence), ..plain(0, body) };
    fixture("32 01 0004 00000000 1234 00 00", numbered(0x1234, NaiveBody::EchoRequest));
    let response = |counter| NaiveBody::EchoResponse(Some(counter));
    fixture("32 02 0006 00000000 1234 00 00 0e00", numbered(0x1234, response(0)));
    fixture("32 02 000d 00000000 1234 00 00 0e03 ff0004 00000178", numbered(0x1234, response(3)));
    let error = || NaiveBody::ErrorIndication(0xdead_beef, [192, 0, 2, 1].into());
    fixture("32 1a 0010 00000000 0000 00 00 10deadbeef 850004c0000201", numbered(0, error()));
    let with_port = Naive {
        extensions: vec![(0x40, bytes("c350"))],
        udp_port: Some(50_000),
        ..numbered(0, error())
    };
    fixture("36 1a 0014 00000000 0000 00 40 01c35000 10deadbeef 850004c0000201", with_port);
    fixture("30 fe 0000 00000055", plain(0x55, NaiveBody::EndMarker));
    // Not known to scapy: section 7.2.3 and 8.5 of the standard, one byte of length.
    let kinds = NaiveBody::SupportedExtensions(vec![0x40, 0x85]);
    fixture("32 1f 0008 00000000 0001 00 00 8d 02 4085", numbered(1, kinds));
}

#[test]
fn every_reason_by_name() {
    for (reason, hex) in [
        (Refused::ShortHeader, "30 ff 0000 000000"),
        (Refused::Version, "50 ff 0000 00000001"),
        (Refused::Version, "20 ff 0000 00000001"),
        (Refused::Length, "30 ff 0001 00000001"),
        (Refused::Length, "32 ff 0003 00000001 000000"),
        (Refused::ShortExtension, "34 ff 0004 00000001 0000 00 85"),
        (Refused::ShortExtension, "34 ff 0008 00000001 0000 00 85 02 0009 00"),
        // The datagram goes on, but the message ends.
        (Refused::ShortExtension, "34 ff 0007 00000001 0000 00 85 01 0009 00"),
        (Refused::EmptyExtension, "34 ff 0008 00000001 0000 00 20 00 0009 00"),
        (Refused::UnknownExtension, "34 ff 0008 00000001 0000 00 84 01 0009 00"),
        (Refused::UnknownExtension, "34 ff 0008 00000001 0000 00 c0 01 0009 00"),
        (Refused::RepeatedContainer, "34 ff 000c 00000001 0000 00 85 01 0009 85 01 0009 00"),
        (Refused::BrokenContainer, "34 ff 0008 00000001 0000 00 85 01 2009 00"),
        (Refused::BrokenContainer, "34 ff 0008 00000001 0000 00 85 01 0809 00"),
        (Refused::UnknownMessage, "30 fd 0000 00000001"),
        (Refused::BrokenElement, "32 02 0005 00000000 0000 00 00 0e"),
        (Refused::BrokenElement, "32 02 0006 00000000 0000 00 00 0f00"),
        (Refused::BrokenElement, "32 02 0008 00000000 0000 00 00 ff000478"),
        (Refused::BrokenElement, "32 1a 000c 00000000 0000 00 00 10deadbeef 850000"),
        (Refused::MissingElement, "32 1a 0009 00000000 0000 00 00 10deadbeef"),
        (Refused::MissingElement, "32 1f 0004 00000000 0000 00 00"),
    ] {
        assert_eq!(Message::parse(&bytes(hex)), Err(reason), "{hex}");
        assert_eq!(read(&bytes(hex)), Err(reason), "{hex}");
    }
    let nine = format!("34 ff 0028 00000001 0000 00 20 {} 01 0000 00", "01 0000 20".repeat(8));
    assert_eq!(Message::parse(&bytes(&nine)), Err(Refused::TooManyExtensions));
    let eight = format!("34 ff 0024 00000001 0000 00 20 {} 01 0000 00", "01 0000 20".repeat(7));
    assert_eq!(Message::parse(&bytes(&eight)).map(|m| m.extensions.iter().count()), Ok(8));
}

#[test]
fn what_does_not_fit_is_not_written() {
    let kinds = [0; 256];
    let list = Message { body: Body::SupportedExtensions(&kinds), ..Message::echo_request(1) };
    assert_eq!(list.emit(&mut [0; 1000]), None);
    let mut room = vec![7; 70_000];
    assert_eq!(Message::g_pdu(1, &[0; 65_536]).emit(&mut room), None);
    assert_eq!(Message::g_pdu(1, &[0; 65_535]).emit(&mut room[8..]), Some(65_543));
    assert!(room[..8].iter().all(|&byte| byte == 7));
    assert_eq!(Message::echo_request(1).emit(&mut [0; 11]), None);
    let long = Extension { kind: 1, content: &[0; 1019] };
    assert_eq!(Extensions::write(&[long], &mut [0; 2000]), Err(Refused::TooLong));
    let unknown = Extension { kind: 0x84, content: &[] };
    assert_eq!(Extensions::write(&[unknown], &mut [0; 8]), Err(Refused::UnknownExtension));
    let end = Extension { kind: 0, content: &[] };
    assert!(Extensions::write(&[end], &mut [0; 8]).is_ok_and(|chain| chain.is_empty()));
}

#[test]
fn answers_are_what_the_standard_asks_for() {
    let peer = IpAddr::from([192, 0, 2, 1]);
    for (message, hex) in [
        (Message::echo_request(0x1234), "32 01 0004 00000000 1234 00 00"),
        (Message::echo_response(0x1234), "32 02 0006 00000000 1234 00 00 0e00"),
        (
            Message::error_indication(0xdead_beef, peer),
            "32 1a 0010 00000000 0000 00 00 10deadbeef 850004c0000201",
        ),
        (Message::end_marker(0x55), "30 fe 0000 00000055"),
        (Message::supported_extensions(1), "32 1f 0008 00000000 0001 00 00 8d 02 4085"),
    ] {
        let mut room = [0xaa; 64];
        let len = message.emit(&mut room).unwrap();
        assert_eq!(room[..len], bytes(hex));
    }
}

/// Builds the message that a naive one describes, and gives it to `check`.
fn with_message(naive: &Naive, check: impl FnOnce(Message<'_>)) {
    let headers: Vec<Extension<'_>> =
        naive.extensions.iter().map(|(kind, content)| Extension { kind: *kind, content }).collect();
    let mut room = [0; 2048];
    let extensions = Extensions::write(&headers, &mut room).unwrap();
    let body = match &naive.body {
        NaiveBody::GPdu(packet) => Body::GPdu(packet),
        NaiveBody::EchoRequest => Body::EchoRequest,
        NaiveBody::EchoResponse(recovery) => Body::EchoResponse { recovery: *recovery },
        NaiveBody::ErrorIndication(teid, peer) => {
            Body::ErrorIndication { teid: *teid, peer: *peer }
        }
        NaiveBody::EndMarker => Body::EndMarker,
        NaiveBody::SupportedExtensions(kinds) => Body::SupportedExtensions(kinds),
    };
    let Naive { teid, sequence, n_pdu, .. } = *naive;
    check(Message { teid, sequence, n_pdu, extensions, body });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn messages_are_written_and_read(naive in messages()) {
        with_message(&naive, |message| {
            let mut room = vec![0xaa; 4096];
            let len = message.emit(&mut room).unwrap();
            assert_eq!(len, message.emit_len());
            assert_eq!(&room[..len], naive.write(false));
            assert!(room[len..].iter().all(|&byte| byte == 0xaa));
            assert_eq!(Message::parse(&room[..len]), Ok(message));
            // What follows the message does not count.
            assert_eq!(Message::parse(&room), Ok(message));
            assert_eq!(message.emit(&mut room[..len - 1]), None);
        });
    }

    #[test]
    fn spare_bits_and_absent_fields_are_not_evaluated(naive in messages()) {
        let payload = naive.write(true);
        let message = Message::parse(&payload);
        prop_assert_eq!(message.map(|message| Naive::from(&message)), Ok(naive));
    }

    #[test]
    fn every_truncation_is_refused(naive in messages()) {
        let payload = naive.write(false);
        for len in 0..payload.len() {
            let reason = if len < 8 { Refused::ShortHeader } else { Refused::Length };
            prop_assert_eq!(Message::parse(&payload[..len]), Err(reason));
        }
    }

    /// The same with the length field cut as well: lengths inside the message are checked.
    #[test]
    fn every_shorter_message_is_read_as_the_naive_reader_does(naive in messages()) {
        let mut payload = naive.write(false);
        for len in (8..payload.len()).rev() {
            payload[2..4].copy_from_slice(&((len - 8) as u16).to_be_bytes());
            for bytes in [&payload[..], &payload[..len]] {
                let message = Message::parse(bytes).map(|message| Naive::from(&message));
                prop_assert_eq!(message, read(bytes));
            }
        }
    }

    #[test]
    fn hostile_bytes_are_read_as_the_naive_reader_does(
        payload in prop_oneof![4 => mutated(), 1 => prop::collection::vec(any::<u8>(), 0..100)],
    ) {
        let message = Message::parse(&payload);
        prop_assert_eq!(message.map(|message| Naive::from(&message)), read(&payload));
        if let Ok(message) = message {
            let mut room = vec![0; payload.len()];
            // Elements that are skipped or repeated are not written.
            let len = message.emit(&mut room).unwrap();
            prop_assert_eq!(Message::parse(&room[..len]), Ok(message));
        }
    }

    #[test]
    fn containers_alone_are_chains(container in containers()) {
        let mut room = [0xaa; Container::HEADER_LEN_MAX];
        let chain = container.write(&mut room);
        prop_assert_eq!(chain.session(), Some(container));
        prop_assert_eq!(chain.qfi(), Some(container.qfi()));
        prop_assert_eq!(chain.bytes().len() % 4, 0);
        let mut content = [0; Container::LEN_MAX];
        let len = container.write_content(&mut content);
        let mut general = [0; Container::HEADER_LEN_MAX];
        let header = Extension { kind: kind::PDU_SESSION, content: &content[..len] };
        prop_assert_eq!(Extensions::write(&[header], &mut general), Ok(chain));
    }
}
