use super::*;

fn reader(bytes: &[u8]) -> Reader<'_> {
    Reader::new(bytes, 0, "match", BadMatch::BadLen.into())
}

/// Returns a match of these fields, as it stands on the wire.
fn wire(fields: &[&[u8]]) -> Vec<u8> {
    let fields = fields.concat();
    let len = fields.len() as u16 + 4;
    let mut bytes = [&[0, 1][..], &len.to_be_bytes(), &fields].concat();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn decode(fields: &[&[u8]]) -> Result<Vec<Oxm>, BadMatch> {
    let bytes = wire(fields);
    let mut r = reader(&bytes);
    let decoded = OxmMatch::decode(&mut r);
    match decoded {
        Ok(matching) => {
            assert_eq!(r.left(), 0);
            Ok(matching.fields)
        }
        Err(DecodeError { code: ErrorCode::BadMatch(code), .. }) => Err(code),
        Err(other) => panic!("{other}"),
    }
}

const ETH_TYPE_IP: &[u8] = &[0x80, 0, 0x0a, 2, 8, 0];
const ETH_TYPE_IP6: &[u8] = &[0x80, 0, 0x0a, 2, 0x86, 0xdd];
const IP_PROTO_TCP: &[u8] = &[0x80, 0, 0x14, 1, 6];
const IP_PROTO_ICMP6: &[u8] = &[0x80, 0, 0x14, 1, 58];
const TCP_DST: &[u8] = &[0x80, 0, 0x1c, 2, 0, 80];
const VLAN_5: &[u8] = &[0x80, 0, 0x0c, 2, 0x10, 5];
const VLAN_PCP: &[u8] = &[0x80, 0, 0x0e, 1, 3];

#[test]
fn fields_with_and_without_masks() {
    let source = [0x80, 0, 0x17, 8, 10, 1, 0, 0, 255, 255, 0, 0];
    assert_eq!(
        decode(&[ETH_TYPE_IP, IP_PROTO_TCP, &source, TCP_DST]),
        Ok(vec![
            Oxm::exact(OxmField::EthType, 0x0800),
            Oxm::exact(OxmField::IpProto, 6),
            Oxm::masked(OxmField::Ipv4Src, 0x0a01_0000, 0xffff_0000),
            Oxm::exact(OxmField::TcpDst, 80),
        ])
    );
    assert_eq!(decode(&[]), Ok(vec![]));
    // All ones are no mask.
    let exact = [0x80, 0, 0x0d, 4, 0x10, 5, 0x1f, 0xff];
    assert_eq!(decode(&[&exact]), decode(&[VLAN_5]));
}

#[test]
fn names_of_nxm_mean_the_same_fields() {
    let nxm_eth_type = [0, 0, 0x06, 2, 8, 0];
    let nxm_src = [0, 0, 0x0f, 8, 10, 1, 0, 0, 255, 255, 0, 0];
    let oxm_src = [0x80, 0, 0x17, 8, 10, 1, 0, 0, 255, 255, 0, 0];
    assert_eq!(decode(&[&nxm_eth_type, &nxm_src]), decode(&[ETH_TYPE_IP, &oxm_src]));
    let ttl = [0, 1, 0x3a, 1, 64];
    assert_eq!(decode(&[ETH_TYPE_IP, &ttl]).unwrap()[1], Oxm::exact(OxmField::NxIpTtl, 64));
    let frag = [0, 1, 0x35, 2, 0, 2];
    assert_eq!(decode(&[ETH_TYPE_IP, &frag]).unwrap()[1], Oxm::masked(OxmField::NxIpFrag, 0, 2));
}

#[test]
fn tcp_flags_before_1_5_are_an_extension_of_the_onf() {
    let flags = [0xff, 0xff, 0x55, 8, 0x4f, 0x4e, 0x46, 0, 0, 2, 0, 0x12];
    let fields = decode(&[ETH_TYPE_IP, IP_PROTO_TCP, &flags]).unwrap();
    assert_eq!(fields[2], Oxm::masked(OxmField::TcpFlags, 2, 0x12));
    let (mut old, mut new) = (Vec::new(), Vec::new());
    fields[2].encode(Version::V14, &mut old);
    fields[2].encode(Version::V15, &mut new);
    assert_eq!(old, flags);
    assert_eq!(new, [0x80, 0, 0x55, 4, 0, 2, 0, 0x12]);
    let other = [0xff, 0xff, 0x54, 6, 0, 0, 0x23, 0x20, 0, 2];
    assert_eq!(decode(&[ETH_TYPE_IP, IP_PROTO_TCP, &other]), Err(BadMatch::BadField));
}

#[test]
fn every_fault_has_its_code() {
    for (fields, code) in [
        (vec![&[0x80, 0, 0x50, 1, 0][..]], BadMatch::BadField),
        (vec![&[0x12, 0x34, 0, 4, 0, 0, 0, 0]], BadMatch::BadField),
        (vec![&[0x80, 0, 0x0a, 3, 8, 0, 0]], BadMatch::BadLen),
        (vec![&[0x80, 0, 0x0a, 1, 8]], BadMatch::BadLen),
        (vec![&[0x80, 0, 0x0a, 9, 8, 0]], BadMatch::BadLen),
        (vec![&[0x80, 0, 0x0a]], BadMatch::BadLen),
        (vec![&[0x80, 0, 0x0b, 4, 8, 0, 0xff, 0]], BadMatch::BadMask),
        (vec![&[0x80, 0, 0x0c, 2, 0x20, 5]], BadMatch::BadValue),
        (vec![&[0x80, 0, 0x0c, 2, 0, 5]], BadMatch::BadValue),
        (vec![ETH_TYPE_IP, &[0x80, 0, 0x10, 1, 0x40]], BadMatch::BadValue),
        (vec![&[0x80, 0, 0x0d, 4, 0x10, 5, 0x10, 0]], BadMatch::BadWildcards),
        (vec![ETH_TYPE_IP, ETH_TYPE_IP], BadMatch::DupField),
        (vec![ETH_TYPE_IP, &[0, 0, 6, 2, 8, 0]], BadMatch::DupField),
        (vec![TCP_DST], BadMatch::BadPrereq),
        (vec![ETH_TYPE_IP, TCP_DST, IP_PROTO_TCP], BadMatch::BadPrereq),
        (vec![VLAN_PCP], BadMatch::BadPrereq),
        (vec![&[0x80, 0, 0x0c, 2, 0, 0], VLAN_PCP], BadMatch::BadPrereq),
        (vec![VLAN_PCP, VLAN_5], BadMatch::BadPrereq),
        (vec![ETH_TYPE_IP6, &[0x80, 0, 0x16, 4, 1, 2, 3, 4]], BadMatch::BadPrereq),
        (vec![ETH_TYPE_IP, IP_PROTO_ICMP6, &[0x80, 0, 0x3a, 1, 135]], BadMatch::BadPrereq),
    ] {
        assert_eq!(decode(&fields), Err(code), "{fields:02x?}");
    }
    assert!(decode(&[VLAN_5, VLAN_PCP]).is_ok());
    let any_vlan = [0x80, 0, 0x0d, 4, 0x10, 0, 0x10, 0];
    assert!(decode(&[&any_vlan, VLAN_PCP]).is_ok());
}

#[test]
fn match_headers_are_checked() {
    for (bytes, code) in [
        (&[0, 0, 0, 88, 0, 0, 0, 0][..], BadMatch::BadType),
        (&[0, 1, 0, 3, 0, 0, 0, 0], BadMatch::BadLen),
        (&[0, 1, 0, 9, 0, 0, 0, 0], BadMatch::BadLen),
        (&[0, 1, 0], BadMatch::BadLen),
    ] {
        let error = OxmMatch::decode(&mut reader(bytes)).unwrap_err();
        assert_eq!(error.code, code.into(), "{bytes:02x?}: {error}");
    }
}
