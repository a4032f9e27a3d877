//! Elements of requests beside their rules: each is done, refused, or one of those that
//! docs/gateway.md lists as taken without effect.

use super::*;
use CauseValue as C;

const MODIFIED: T = T::UsageReportWithinSessionModificationResponse;

fn bytes(kind: T, bytes: &[u8]) -> Ie {
    Ie::new(kind, bytes.to_vec())
}

fn stamp(stamp: u32) -> Ie {
    bytes(T::RecoveryTimeStamp, &stamp.to_be_bytes())
}

fn other_node() -> Ie {
    NodeId::new_fqdn("smf.example").to_ie()
}

/// A scene with a session that has URRs 1 and 2.
fn measured() -> (Scene, u64) {
    let mut scene = Scene::new();
    let mut ies = usual(choose(), ue(1));
    ies.extend([urr(1, 1000), urr(2, 1000)]);
    let (seid, _) = scene.establish(&ies).expect("accepted");
    (scene, seid)
}

#[test]
fn all_urrs_report_when_they_are_asked() {
    let (mut scene, seid) = measured();
    // DROBU too: there are no buffered packets to drop.
    for flags in [4, 5] {
        let (cause, answer) = scene.modify(seid, &[byte(T::PfcpsmReqFlags, flags)]);
        assert_eq!(cause, C::RequestAccepted);
        let reports: Vec<Vec<Ie>> = answer
            .iter()
            .filter(|ie| ie.ie_type == MODIFIED)
            .map(|ie| group(ie).expect("a group"))
            .collect();
        let of = |kind: T| {
            reports.iter().map(move |parts| find(parts, kind).expect("an element").payload.clone())
        };
        assert!(of(T::UrrId).eq([vec![0, 0, 0, 1], vec![0, 0, 0, 2]]), "{answer:?}");
        assert!(of(T::UsageReportTrigger).eq([[0x80, 0, 0], [0x80, 0, 0]]));
    }
    let (_, answer) = scene.modify(seid, &[byte(T::PfcpsmReqFlags, 1)]);
    assert_eq!(find(&answer, MODIFIED), None);
}

#[test]
fn an_establishment_is_refused_for_what_is_not_supported() {
    let far_out = |far: &dyn Fn() -> Ie| {
        let mut ies = usual(choose(), ue(3));
        ies[5] = far();
        ies
    };
    let more = |ie: Ie| [usual(choose(), ue(3)), vec![ie]].concat();
    let pdn_type = |value: u8| {
        let mut ies = usual(choose(), ue(3));
        ies[7] = byte(T::PdnType, value);
        ies
    };
    let downlink = |pdi: &[Ie], of_pdr: &[Ie]| {
        let mut ies = usual(choose(), ue(3));
        ies[2] = pdr(T::CreatePdr, 1, 1, 1, pdi, of_pdr);
        ies
    };
    // Every packet, but of a type of service.
    let mut filter =
        rs_pfcp::ie::sdf_filter::SdfFilter::new("permit out ip from any to assigned").to_ie();
    filter.payload[0] |= 2;
    filter.payload.extend([0x10, 0xff]);
    let mut indicated = to_gnb(0x77);
    indicated.payload[1] |= 1;
    let another_qfi = Ie::new_grouped(
        T::CreateQer,
        vec![QerId::new(2).to_ie(), byte(T::GateStatus, 0), byte(T::Qfi, 8)],
    );
    let two = [QerId::new(1).to_ie(), QerId::new(2).to_ie()];
    let cases: Vec<(&str, Vec<Ie>, C, Option<T>)> = vec![
        ("IPv4", pdn_type(1), C::RequestAccepted, None),
        ("IPv4v6", pdn_type(3), C::RequestAccepted, None),
        ("non-IP", pdn_type(4), C::ServiceNotSupported, Some(T::PdnType)),
        ("Ethernet", pdn_type(5), C::ServiceNotSupported, Some(T::PdnType)),
        ("no type of PDN", pdn_type(0), C::ServiceNotSupported, Some(T::PdnType)),
        ("restoration", more(byte(T::PfcpseReqFlags, 1)), C::RequestAccepted, None),
        (
            "paused charging",
            more(byte(T::PfcpseReqFlags, 2)),
            C::ServiceNotSupported,
            Some(T::PfcpseReqFlags),
        ),
        (
            "a flag of the second octet",
            more(bytes(T::PfcpseReqFlags, &[0, 1])),
            C::ServiceNotSupported,
            Some(T::PfcpseReqFlags),
        ),
        ("this run of the node", more(stamp(1)), C::RequestAccepted, None),
        ("another run", more(stamp(2)), C::NoEstablishedPfcpAssociation, None),
        (
            "inactivity of the user plane",
            more(bytes(T::UserPlaneInactivityTimer, &[0, 0, 0, 9])),
            C::ServiceNotSupported,
            Some(T::UserPlaneInactivityTimer),
        ),
        (
            "a tunnel for uplink packets (N9)",
            far_out(&|| far(T::CreateFar, 2, 2, Some(1), &[to_gnb(0x77)])),
            C::ServiceNotSupported,
            Some(T::OuterHeaderCreation),
        ),
        (
            "tunneled downlink packets",
            downlink(&[ue(3)], &[QerId::new(1).to_ie(), byte(T::OuterHeaderRemoval, 0)]),
            C::ServiceNotSupported,
            Some(T::OuterHeaderRemoval),
        ),
        (
            "a filter of types of service",
            downlink(&[ue(3), filter], &[]),
            C::ServiceNotSupported,
            Some(T::SdfFilter),
        ),
        (
            "an outer header with an indication",
            {
                let mut ies = usual(choose(), ue(3));
                ies[4] = far(T::CreateFar, 1, 2, Some(0), &[indicated]);
                ies
            },
            C::ServiceNotSupported,
            Some(T::OuterHeaderCreation),
        ),
        (
            "two QFIs",
            [downlink(&[ue(3)], &two), vec![another_qfi]].concat(),
            C::ServiceNotSupported,
            Some(T::Qfi),
        ),
    ];
    for (what, ies, cause, ie) in cases {
        let mut scene = Scene::new();
        let (found, answer) = match scene.establish(&ies) {
            Ok((_, answer)) => (C::RequestAccepted, answer),
            Err(refused) => refused,
        };
        assert_eq!((found, offending(&answer)), (cause, ie.map(|ie| ie as u16)), "{what}");
        assert_eq!(scene.store.len(), usize::from(cause == C::RequestAccepted), "{what}");
    }
}

#[test]
fn a_change_or_deletion_is_refused_for_what_is_not_supported() {
    let (mut scene, seid) = measured();
    let before = scene.session(seid);
    let marker = |flags: u8| {
        let more = [to_gnb(0x77), byte(T::PfcpsmReqFlags, flags)];
        far(T::UpdateFar, 1, 2, Some(0), &more)
    };
    let unsupported = C::ServiceNotSupported;
    for (what, ie, offends) in [
        ("an End Marker of all FARs", byte(T::PfcpsmReqFlags, 2), T::PfcpsmReqFlags),
        ("paused charging", byte(T::PfcpsmReqFlags, 8), T::PfcpsmReqFlags),
        ("usage of a FAR", marker(6), T::PfcpsmReqFlags),
        ("another node", other_node(), T::NodeId),
        ("a query by reference", bytes(T::QueryUrrReference, &[0; 4]), T::QueryUrrReference),
    ] {
        let (cause, answer) = scene.modify(seid, &[ie]);
        assert_eq!((cause, offending(&answer)), (unsupported, Some(offends as u16)), "{what}");
        assert_eq!(scene.session(seid), before, "{what}");
    }
    assert_eq!(scene.modify(seid, &[node()]).0, C::RequestAccepted);
    for ie in [other_node(), byte(T::TlContainer, 1)] {
        let kind = ie.ie_type;
        let (_, cause, answer) = scene.ask(M::SessionDeletionRequest, Some(seid), &[ie]);
        assert_eq!((cause, offending(&answer)), (unsupported, Some(kind as u16)));
        assert_eq!(scene.session(seid), before);
    }
    let (_, cause, _) = scene.ask(M::SessionDeletionRequest, Some(seid), &[node()]);
    assert_eq!((cause, scene.store.len()), (C::RequestAccepted, 0));
}

/// Reports go where the last F-SEID of the control plane says.
#[test]
fn a_control_plane_may_move() {
    let (mut scene, seid) = measured();
    let update = far(T::UpdateFar, 1, 2, Some(0), &[to_gnb(0x77)]);
    let fseid = Fseid::new(0xc0deu64, Some([10, 0, 0, 10].into()), None).marshal();
    let fseid = Ie::new(T::Fseid, fseid);
    assert_eq!(scene.modify(seid, &[update, fseid]).0, C::RequestAccepted);
    let mut out = Vec::new();
    scene.speaker.error_indication(GNB.into(), 0x77, 0, &mut out);
    let [Out::Send { to, .. }] = &out[..] else { panic!("one report: {out:?}") };
    assert_eq!(to.to_string(), "10.0.0.10:8805");
}

#[test]
fn an_association_is_refused_for_what_is_not_supported() {
    let mut scene = Scene::alone();
    let set_up = M::AssociationSetupRequest;
    let ies = [node(), stamp(1), bytes(T::PfcpasReqFlags, &[1])];
    let (_, cause, answer) = scene.ask(set_up, None, &ies);
    assert_eq!((cause, scene.speaker.totals().associations), (C::ServiceNotSupported, 0));
    assert_eq!(offending(&answer), Some(T::PfcpasReqFlags as u16));
    let ies = [node(), stamp(1), byte(T::CpFunctionFeatures, 0), byte(T::SmfSetId, 0)];
    assert_eq!(scene.ask(set_up, None, &ies).1, C::RequestAccepted);
}
