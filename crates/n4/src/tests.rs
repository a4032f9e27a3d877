//! An SMF speaks to the gateway: what it sets up, what it may not, and any bytes.

mod clustered;
mod dissect;
mod elements;
mod sequences;
mod usage;

use crate::message::{elements, emit, find, group, parse};
use crate::{Alone, Out, Settings, Speaker};
use overbank_gateway::prefix::{Prefix, Prefixes};
use overbank_gateway::session::{Gate, Key, Session};
use overbank_gateway::sessions::{Addresses, Origin, REST_MS, SessionReader, Sessions};
use overbank_gateway::slab::Direction;
use overbank_gateway::teid::{Secret, TeidCheck};
use proptest::prelude::*;
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::f_teid::{Fteid, FteidBuilder};
use rs_pfcp::ie::far_id::FarId;
use rs_pfcp::ie::fseid::Fseid;
use rs_pfcp::ie::node_id::NodeId;
use rs_pfcp::ie::outer_header_creation::OuterHeaderCreation;
use rs_pfcp::ie::pdr_id::PdrId;
use rs_pfcp::ie::qer_id::QerId;
use rs_pfcp::ie::ue_ip_address::UeIpAddress;
use rs_pfcp::ie::urr_id::UrrId;
use rs_pfcp::ie::{Ie, IeType as T};
use rs_pfcp::message::MsgType as M;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const SMF: &str = "10.0.0.9:8805";
const GNB: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

fn smf() -> SocketAddr {
    SMF.parse().expect("an address")
}

struct Scene {
    speaker: Speaker,
    store: Sessions,
    readers: Vec<SessionReader>,
    now_ms: u64,
    sequence: u32,
    sent: Vec<Out>,
}

impl Scene {
    /// A gateway with an association.
    fn new() -> Scene {
        let mut scene = Scene::alone();
        assert_eq!(scene.associate(1), Ok(()));
        scene
    }

    fn alone() -> Scene {
        Scene::sealed(None)
    }

    /// A gateway whose TEIDs carry the check of a secret.
    fn sealed(secret: Option<Secret>) -> Scene {
        let pools = ["10.45.0.0/24", "2001:db8:45::/56"].map(|text| Prefix::parse(text).unwrap());
        let n3 = ["192.0.2.1", "2001:db8::1"].map(|text| text.parse::<IpAddr>().unwrap());
        let teids = TeidCheck::new(secret, &n3);
        let addresses = Addresses { n3: n3.into(), pools: pools.into_iter().collect(), teids };
        let (store, readers) = Sessions::new(300, addresses, 1, 7).expect("memory");
        let settings = Settings {
            node: [10, 0, 0, 5].into(),
            started_s: 77,
            peers: Prefixes::default(),
            seed: 3,
        };
        let speaker = Speaker::new(settings, None);
        Scene { speaker, store, readers, now_ms: 1_000, sequence: 0, sent: Vec::new() }
    }

    fn raw(&mut self, bytes: &[u8]) -> Vec<Out> {
        let mut out = Vec::new();
        let mut store = Alone { sessions: &mut self.store, now_ms: self.now_ms };
        self.speaker.receive(bytes, smf(), self.now_ms, &mut store, &mut out);
        out
    }

    /// Sends a request; its answer: SEID, cause and elements.
    fn ask(
        &mut self,
        kind: M,
        seid: Option<u64>,
        ies: &[Ie],
    ) -> (Option<u64>, CauseValue, Vec<Ie>) {
        self.sequence += 1;
        let out = self.raw(&emit(kind, seid, self.sequence, ies));
        let (answers, others): (Vec<Out>, Vec<Out>) =
            out.into_iter().partition(|out| matches!(out, Out::Send { .. }));
        self.sent = others;
        let [Out::Send { to, bytes }] = &answers[..] else { panic!("one answer: {answers:?}") };
        assert_eq!(*to, smf());
        let answer = parse(bytes).expect("a message");
        assert_eq!((answer.kind as u8, answer.sequence), (kind as u8 + 1, self.sequence));
        let ies = answer.ies.expect("elements");
        let cause = find(&ies, T::Cause).map_or(0, |ie| ie.payload[0]);
        // The library reads it as a message of its type, too; refusals have no F-SEID, which it
        // demands and the standard does not.
        if cause <= CauseValue::RequestAccepted as u8 {
            rs_pfcp::message::parse(bytes).expect("a whole message");
        }
        (answer.seid, CauseValue::from(cause), ies)
    }

    fn associate(&mut self, recovery: u32) -> Result<(), CauseValue> {
        let ies = [node(), Ie::new(T::RecoveryTimeStamp, recovery.to_be_bytes().to_vec())];
        match self.ask(M::AssociationSetupRequest, None, &ies).1 {
            CauseValue::RequestAccepted => Ok(()),
            cause => Err(cause),
        }
    }

    /// Establishes; our SEID and the answer.
    fn establish(&mut self, ies: &[Ie]) -> Result<(u64, Vec<Ie>), (CauseValue, Vec<Ie>)> {
        let (seid, cause, answer) = self.ask(M::SessionEstablishmentRequest, Some(0), ies);
        if cause != CauseValue::RequestAccepted {
            return Err((cause, answer));
        }
        assert_eq!(seid, Some(0xc0de), "the control plane's SEID");
        let ours = Fseid::unmarshal(&find(&answer, T::Fseid).expect("F-SEID").payload);
        Ok((ours.expect("an F-SEID").seid.0, answer))
    }

    fn modify(&mut self, seid: u64, ies: &[Ie]) -> (CauseValue, Vec<Ie>) {
        let (to, cause, answer) = self.ask(M::SessionModificationRequest, Some(seid), ies);
        assert!(cause != CauseValue::RequestAccepted || to == Some(0xc0de));
        (cause, answer)
    }

    fn session(&self, seid: u64) -> Session {
        self.store.get(seid).expect("a session").session
    }
}

fn node() -> Ie {
    NodeId::new_ipv4([10, 0, 0, 9].into()).to_ie()
}

fn fseid() -> Ie {
    Ie::new(T::Fseid, Fseid::new(0xc0deu64, Some([10, 0, 0, 9].into()), None).marshal())
}

fn byte(kind: T, value: u8) -> Ie {
    Ie::new(kind, vec![value])
}

/// A PDR of a side (0 access, 1 core) with more elements of its PDI and of itself.
fn pdr(kind: T, id: u16, side: u8, far: u32, pdi: &[Ie], more: &[Ie]) -> Ie {
    let mut inside = vec![byte(T::SourceInterface, side)];
    inside.extend_from_slice(pdi);
    let mut parts = vec![
        PdrId::new(id).to_ie(),
        Ie::new(T::Precedence, 100u32.to_be_bytes().to_vec()),
        Ie::new_grouped(T::Pdi, inside),
        FarId::new(far).to_ie(),
    ];
    if side == 0 {
        parts.push(byte(T::OuterHeaderRemoval, 0));
    }
    parts.extend_from_slice(more);
    Ie::new_grouped(kind, parts)
}

fn far(kind: T, id: u32, action: u8, to: Option<u8>, more: &[Ie]) -> Ie {
    let mut parts = vec![FarId::new(id).to_ie(), byte(T::ApplyAction, action)];
    if let Some(to) = to {
        let mut inside = vec![byte(T::DestinationInterface, to)];
        inside.extend_from_slice(more);
        let group = if kind == T::CreateFar {
            T::ForwardingParameters
        } else {
            T::UpdateForwardingParameters
        };
        parts.push(Ie::new_grouped(group, inside));
    }
    Ie::new_grouped(kind, parts)
}

fn to_gnb(teid: u32) -> Ie {
    OuterHeaderCreation::gtpu_ipv4(teid, GNB).to_ie()
}

fn qer(kind: T, id: u32, gates: u8, mbr: [u8; 2]) -> Ie {
    let rate = |kilobits: u8| [0, 0, 0, 0, kilobits];
    let mbr = [rate(mbr[0]), rate(mbr[1])].concat();
    let parts = vec![
        QerId::new(id).to_ie(),
        byte(T::GateStatus, gates),
        Ie::new(T::Mbr, mbr),
        byte(T::Qfi, 9),
    ];
    Ie::new_grouped(kind, parts)
}

fn urr(id: u32, threshold: u64) -> Ie {
    let parts = vec![
        UrrId::new(id).to_ie(),
        byte(T::MeasurementMethod, 2),
        Ie::new(T::ReportingTriggers, vec![2, 0, 0]),
        Ie::new(T::VolumeThreshold, [vec![1], threshold.to_be_bytes().to_vec()].concat()),
    ];
    Ie::new_grouped(T::CreateUrr, parts)
}

fn choose() -> Ie {
    FteidBuilder::new().choose_ipv4().build().expect("an F-TEID").to_ie()
}

fn given(teid: u32) -> Ie {
    Fteid::ipv4(teid, [192, 0, 2, 1].into()).to_ie()
}

fn ue(last: u8) -> Ie {
    UeIpAddress::new(Some([10, 45, 0, last].into()), None).to_ie()
}

fn ue_choose() -> Ie {
    // CHV4 and CHV6.
    byte(T::UeIpAddress, 0x30)
}

/// An establishment as an SMF sends it before the gNB is known.
fn usual(tunnel: Ie, ue: Ie) -> Vec<Ie> {
    vec![
        node(),
        fseid(),
        pdr(T::CreatePdr, 1, 1, 1, &[ue], &[QerId::new(1).to_ie()]),
        pdr(T::CreatePdr, 2, 0, 2, &[tunnel, byte(T::Qfi, 9)], &[QerId::new(1).to_ie()]),
        far(T::CreateFar, 1, 4, None, &[]),
        far(T::CreateFar, 2, 2, Some(1), &[]),
        qer(T::CreateQer, 1, 0, [100, 200]),
        byte(T::PdnType, 1),
    ]
}

fn offending(ies: &[Ie]) -> Option<u16> {
    let ie = find(ies, T::OffendingIe)?;
    Some(u16::from_be_bytes([ie.payload[0], ie.payload[1]]))
}

#[test]
fn a_session_lives_as_an_smf_has_it() {
    let mut scene = Scene::new();
    let (seid, answer) = scene.establish(&usual(choose(), ue_choose())).expect("accepted");
    // What was chosen is said, and is the session's.
    let created: Vec<Vec<Ie>> = answer
        .iter()
        .filter(|ie| ie.ie_type == T::CreatedPdr)
        .map(|ie| group(ie).expect("a group"))
        .collect();
    assert_eq!(created.len(), 2);
    let session = scene.session(seid);
    let said = UeIpAddress::unmarshal(&find(&created[0], T::UeIpAddress).unwrap().payload).unwrap();
    assert_eq!(said.ipv4_address, session.ipv4);
    assert_eq!(said.ipv6_address, session.ipv6.map(|prefix| prefix.address()));
    let said = Fteid::unmarshal(&find(&created[1], T::Fteid).unwrap().payload).unwrap();
    assert_eq!(said.ipv4_address.map(IpAddr::from), Some(session.n3));
    assert_eq!(*said.teid, session.teid);
    assert_eq!((session.gate, session.qfi), (Gate::Uplink, Some(9)));
    assert_eq!((session.rate_up, session.rate_down), (Some(100_000), Some(200_000)));
    assert_eq!(scene.speaker.totals().buffering, 1);
    // The gNB is known.
    let update = far(T::UpdateFar, 1, 2, Some(0), &[to_gnb(0x77)]);
    assert_eq!(scene.modify(seid, &[update]).0, CauseValue::RequestAccepted);
    let session = scene.session(seid);
    assert_eq!((session.gate, session.peer, session.peer_teid), (Gate::Open, GNB.into(), 0x77));
    assert_eq!(scene.sent, []);
    // A handover, with an End Marker to the old tunnel.
    let update = far(T::UpdateFar, 1, 2, Some(0), &[to_gnb(0x78), byte(T::PfcpsmReqFlags, 2)]);
    assert_eq!(scene.modify(seid, &[update]).0, CauseValue::RequestAccepted);
    let marker = Out::EndMarker { n3: session.n3, peer: GNB.into(), teid: 0x77 };
    assert_eq!(scene.sent, [marker]);
    // Gates and rates.
    let update = qer(T::UpdateQer, 1, 1, [0, 50]);
    assert_eq!(scene.modify(seid, &[update]).0, CauseValue::RequestAccepted);
    let session = scene.session(seid);
    assert_eq!((session.gate, session.rate_down), (Gate::Closed, Some(50_000)));
    // The end.
    let (to, cause, _) = scene.ask(M::SessionDeletionRequest, Some(seid), &[]);
    assert_eq!((to, cause), (Some(0xc0de), CauseValue::RequestAccepted));
    assert!(scene.store.is_empty());
    let (to, cause, _) = scene.ask(M::SessionDeletionRequest, Some(seid), &[]);
    assert_eq!((to, cause), (Some(0), CauseValue::SessionContextNotFound));
}

/// Cores such as open5gs add PDRs for their router advertisements: from the terminal to the
/// control plane, by a filter, and back. They change nothing, and share the tunnel.
#[test]
fn packets_of_the_control_plane_are_taken_without_effect() {
    let mut scene = Scene::new();
    let mut ies = usual(choose(), ue(3));
    let filter =
        rs_pfcp::ie::sdf_filter::SdfFilter::new("permit out 58 from ff02::2/128 to assigned");
    ies.push(pdr(T::CreatePdr, 3, 0, 3, &[choose(), filter.to_ie()], &[]));
    ies.push(pdr(T::CreatePdr, 4, 3, 4, &[choose()], &[byte(T::OuterHeaderRemoval, 0)]));
    ies.push(far(T::CreateFar, 3, 2, Some(3), &[to_gnb(0x500)]));
    ies.push(far(T::CreateFar, 4, 2, Some(0), &[]));
    let (seid, answer) = scene.establish(&ies).expect("accepted");
    let session = scene.session(seid);
    assert_eq!((session.gate, session.ipv4), (Gate::Uplink, Some([10, 45, 0, 3].into())));
    let tunnels = answer.iter().filter(|ie| ie.ie_type == T::CreatedPdr).filter_map(|ie| {
        let parts = group(ie).expect("a group");
        find(&parts, T::Fteid).map(|ie| *Fteid::unmarshal(&ie.payload).expect("an F-TEID").teid)
    });
    assert_eq!(tunnels.collect::<Vec<_>>(), [session.teid; 3]);
    // The gNB is known, as ever.
    let update = far(T::UpdateFar, 1, 2, Some(0), &[to_gnb(0x77)]);
    assert_eq!(scene.modify(seid, &[update]).0, CauseValue::RequestAccepted);
    assert_eq!(scene.session(seid).gate, Gate::Open);
    // A filter elsewhere is refused.
    let back = far(T::UpdateFar, 3, 2, Some(1), &[]);
    let (cause, answer) = scene.modify(seid, &[back]);
    assert_ne!(cause, CauseValue::RequestAccepted, "{answer:?}");
}

/// With a secret, chosen TEIDs carry its check, of either family, and given ones must.
#[test]
fn chosen_teids_are_sealed() {
    let secret = Secret::new([7; 16]);
    let mut scene = Scene::sealed(Some(secret));
    assert_eq!(scene.associate(1), Ok(()));
    let check = scene.store.addresses().teids.clone();
    let six = FteidBuilder::new().choose_ipv6().build().expect("an F-TEID").to_ie();
    for n in 1..=100 {
        let (wanted, number) = if n % 2 == 0 { (choose(), 0) } else { (six.clone(), 1) };
        let (seid, answer) = scene.establish(&usual(wanted, ue(n))).expect("accepted");
        let session = scene.session(seid);
        assert!(check.admits(number, session.teid), "{:#x}", session.teid);
        assert_eq!(usize::from(session.n3.is_ipv6()), usize::from(number));
        // The SMF gets the whole TEID.
        let bytes = session.teid.to_be_bytes();
        let created = find(&answer, T::CreatedPdr).expect("what was chosen");
        assert!(created.payload.windows(4).any(|window| window == bytes), "{created:?}");
    }
    let sealed = check.teid(0, 0x12_3456);
    let (cause, _) =
        scene.establish(&usual(given(sealed ^ 1 << 24), ue(101))).expect_err("no check");
    assert_eq!(cause, CauseValue::RuleCreationModificationFailure);
    assert!(scene.establish(&usual(given(sealed), ue(101))).is_ok());
}

#[test]
fn a_repeated_request_changes_nothing() {
    let mut scene = Scene::new();
    let request = emit(M::SessionEstablishmentRequest, Some(0), 900, &usual(choose(), ue(2)));
    let first = scene.raw(&request);
    assert_eq!(scene.raw(&request), first);
    assert_eq!((scene.store.len(), scene.speaker.totals().repeated), (1, 1));
    // After a while it is another one, and so is other content under the same number.
    let other = emit(M::SessionEstablishmentRequest, Some(0), 900, &usual(choose(), ue(3)));
    assert_ne!(scene.raw(&other), first);
    assert_eq!((scene.store.len(), scene.speaker.totals().repeated), (2, 1));
    scene.now_ms += 30_000;
    scene.raw(&other);
    assert_eq!((scene.store.len(), scene.speaker.totals().repeated), (2, 1));
    assert_eq!(scene.speaker.totals().refused, 1);
    // Another sequence number is another request, for a taken address.
    let (cause, _) = scene.establish(&usual(choose(), ue(2))).expect_err("taken");
    assert_eq!(cause, CauseValue::RuleCreationModificationFailure);
}

/// Sequence numbers may begin anew: the answers after that are kept as long as any.
#[test]
fn a_restart_makes_no_answer_older() {
    let mut scene = Scene::new();
    let update = |n: u32, more: &[Ie]| {
        emit(M::AssociationUpdateRequest, None, n, &[&[node()], more].concat())
    };
    for n in 1..4000 {
        scene.raw(&update(n, &[]));
    }
    let other = [byte(T::CpFunctionFeatures, 1)];
    for n in 1..1000 {
        scene.raw(&update(n, &other));
    }
    scene.raw(&update(500, &other));
    assert_eq!(scene.speaker.totals().repeated, 1);
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let mut scene = Scene::new();
    let (seid, _) = scene.establish(&usual(given(0x99), ue(1))).expect("accepted");
    let before = scene.session(seid);
    let with = |change: &dyn Fn(&mut Vec<Ie>)| {
        let mut ies = usual(choose(), ue(3));
        change(&mut ies);
        ies
    };
    use CauseValue as C;
    let failure = C::RuleCreationModificationFailure;
    let none = |kind: T| with(&move |ies| ies.retain(|ie| ie.ie_type != kind));
    let cases: Vec<(&str, Vec<Ie>, C, Option<T>)> = vec![
        ("no node", none(T::NodeId), C::MandatoryIeMissing, Some(T::NodeId)),
        ("no F-SEID", none(T::Fseid), C::MandatoryIeMissing, Some(T::Fseid)),
        ("no PDR", none(T::CreatePdr), C::MandatoryIeMissing, Some(T::CreatePdr)),
        ("#4179: no FAR at all", none(T::CreateFar), C::MandatoryIeMissing, Some(T::CreateFar)),
        ("#4179: the FAR of a PDR is missing", with(&|ies| drop(ies.remove(5))), failure, None),
        ("the QER of a PDR is missing", none(T::CreateQer), failure, None),
        (
            "#4179: a PDR without a FAR",
            with(&|ies| {
                let parts = group(&ies[3]).expect("a group");
                let parts = parts.into_iter().filter(|ie| ie.ie_type != T::FarId).collect();
                ies[3] = Ie::new_grouped(T::CreatePdr, parts);
            }),
            failure,
            None,
        ),
        (
            "#4218: an unknown interface to send to",
            with(&|ies| ies[5] = far(T::CreateFar, 2, 2, Some(9), &[])),
            C::MandatoryIeIncorrect,
            Some(T::DestinationInterface),
        ),
        (
            "#4169: URR 65535 of a PDR does not exist",
            with(&|ies| {
                let more = [QerId::new(1).to_ie(), UrrId::new(65_535).to_ie()];
                ies[3] = pdr(T::CreatePdr, 2, 0, 2, &[choose()], &more);
            }),
            failure,
            None,
        ),
        (
            "another node",
            with(&|ies| ies[0] = NodeId::new_fqdn("smf").to_ie()),
            C::NoEstablishedPfcpAssociation,
            None,
        ),
        (
            "#4218: an unknown interface",
            with(&|ies| ies[3] = pdr(T::CreatePdr, 2, 9, 2, &[choose()], &[])),
            C::ServiceNotSupported,
            Some(T::SourceInterface),
        ),
        ("#4762: the TEID of another session", usual(given(0x99), ue(3)), failure, None),
        ("#4767: the address of another session", usual(choose(), ue(1)), failure, None),
        ("a TEID of 0", usual(given(0), ue(3)), failure, None),
        (
            "an address outside the pools",
            usual(choose(), UeIpAddress::new(Some([10, 99, 0, 1].into()), None).to_ie()),
            failure,
            None,
        ),
        (
            "an F-TEID of another machine",
            usual(Fteid::ipv4(5, [192, 0, 2, 2].into()).to_ie(), ue(3)),
            failure,
            None,
        ),
        (
            "a filter",
            with(&|ies| {
                let filter =
                    rs_pfcp::ie::sdf_filter::SdfFilter::new("permit out 17 from any to any");
                ies[2] = pdr(T::CreatePdr, 1, 1, 1, &[ue(3), filter.to_ie()], &[]);
            }),
            C::ServiceNotSupported,
            Some(T::SdfFilter),
        ),
        (
            "two PDRs of a side",
            with(&|ies| ies.push(pdr(T::CreatePdr, 3, 1, 1, &[ue(4)], &[]))),
            failure,
            None,
        ),
        (
            "an address of each direction",
            with(&|ies| ies[3] = pdr(T::CreatePdr, 2, 0, 2, &[choose(), ue(4)], &[])),
            failure,
            Some(T::UeIpAddress),
        ),
        (
            "a number twice",
            with(&|ies| ies.push(pdr(T::CreatePdr, 1, 1, 1, &[ue(4)], &[]))),
            failure,
            Some(T::CreatePdr),
        ),
        (
            "duplication",
            with(&|ies| ies[4] = far(T::CreateFar, 1, 0x12, None, &[])),
            C::ServiceNotSupported,
            Some(T::ApplyAction),
        ),
        (
            "no action",
            with(&|ies| ies[4] = far(T::CreateFar, 1, 0, None, &[])),
            C::MandatoryIeIncorrect,
            Some(T::ApplyAction),
        ),
        (
            "a peer's TEID of 0",
            with(&|ies| ies[4] = far(T::CreateFar, 1, 2, Some(0), &[to_gnb(0)])),
            C::MandatoryIeIncorrect,
            Some(T::OuterHeaderCreation),
        ),
        (
            "no tunnel for downlink packets",
            with(&|ies| ies[4] = far(T::CreateFar, 1, 2, Some(0), &[])),
            failure,
            Some(T::OuterHeaderCreation),
        ),
        (
            "#4169: URR 65535, measuring durations",
            with(&|ies| {
                let parts = vec![
                    UrrId::new(65535).to_ie(),
                    byte(T::MeasurementMethod, 1),
                    Ie::new(T::ReportingTriggers, vec![2, 0, 0]),
                ];
                ies.push(Ie::new_grouped(T::CreateUrr, parts));
            }),
            C::ServiceNotSupported,
            Some(T::MeasurementMethod),
        ),
        (
            "#4169: a rule without a number",
            with(&|ies| {
                ies.push(Ie::new_grouped(T::CreateUrr, vec![byte(T::MeasurementMethod, 2)]));
            }),
            C::MandatoryIeMissing,
            Some(T::UrrId),
        ),
        (
            "seventeen rules",
            with(&|ies| {
                ies.extend((10..27).map(|id| far(T::CreateFar, id, 1, None, &[])));
            }),
            C::NoResourcesAvailable,
            Some(T::CreateFar),
        ),
        (
            "a traffic endpoint",
            with(&|ies| ies.push(byte(T::CreateTrafficEndpoint, 1))),
            C::ServiceNotSupported,
            Some(T::CreateTrafficEndpoint),
        ),
        (
            "a broken F-TEID",
            usual(byte(T::Fteid, 1), ue(3)),
            C::MandatoryIeIncorrect,
            Some(T::Fteid),
        ),
    ];
    for (what, ies, cause, ie) in cases {
        let (found, answer) = scene.establish(&ies).expect_err(what);
        assert_eq!(found, cause, "{what}");
        if let Some(ie) = ie {
            assert_eq!(offending(&answer), Some(ie as u16), "{what}");
        }
        assert_eq!((scene.store.len(), scene.session(seid)), (1, before), "{what}");
    }
    // Modifications are as a whole, too: an element after the rules is broken.
    let update = [far(T::UpdateFar, 1, 2, Some(0), &[to_gnb(0x77)]), byte(T::Fseid, 2)];
    let (cause, answer) = scene.modify(seid, &update);
    assert_eq!((cause, offending(&answer)), (C::MandatoryIeIncorrect, Some(T::Fseid as u16)));
    assert_eq!(scene.session(seid), before);
    let update = [
        far(T::UpdateFar, 1, 2, Some(0), &[to_gnb(0x77)]),
        far(T::UpdateFar, 55, 2, Some(0), &[to_gnb(0x77)]),
    ];
    let (cause, answer) = scene.modify(seid, &update);
    assert_eq!(cause, failure);
    assert!(find(&answer, T::FailedRuleId).is_some());
    let remove = Ie::new_grouped(T::RemovePdr, vec![PdrId::new(2).to_ie()]);
    assert_eq!(scene.modify(seid, &[remove]).0, C::ConditionalIeMissing);
    assert_eq!(scene.session(seid), before);
    assert_eq!(scene.modify(12345, &[]).0, C::SessionContextNotFound);
}

/// #4423: each element in turn, and each element of its groups, is of length 0.
#[test]
fn elements_of_length_0_change_nothing() {
    let mut scene = Scene::new();
    let mut ies = usual(choose(), ue(1));
    ies.push(urr(4, 1000));
    let mut refused = 0;
    let mut ask = |ies: &[Ie], kind: T| {
        scene.sequence += 1;
        let request = emit(M::SessionEstablishmentRequest, Some(0), scene.sequence, ies);
        let [Out::Send { bytes, .. }] = &scene.raw(&request)[..] else { panic!("one answer") };
        let answer = parse(bytes).expect("a message").ies.expect("elements");
        let cause = CauseValue::from(find(&answer, T::Cause).expect("a cause").payload[0]);
        assert_eq!((cause, offending(&answer)), (CauseValue::InvalidLength, Some(kind as u16)));
        assert!(scene.store.is_empty(), "{kind:?}");
        refused += 1;
    };
    let empty = |ie: &Ie| Ie::new(ie.ie_type, Vec::new());
    for (at, ie) in ies.iter().enumerate() {
        let mut with = ies.clone();
        with[at] = empty(ie);
        ask(&with, ie.ie_type);
        for (inner, part) in group(ie).unwrap_or_default().iter().enumerate() {
            let mut parts = group(ie).expect("a group");
            parts[inner] = empty(part);
            with[at] = Ie::new_grouped(ie.ie_type, parts);
            ask(&with, part.ie_type);
        }
    }
    assert_eq!(refused, 33);
}

/// #4762, #4767: nor does a later request take a TEID or an address that another session has.
#[test]
fn a_modification_takes_no_key_of_another_session() {
    let mut scene = Scene::new();
    let (first, _) = scene.establish(&usual(given(0x99), ue(1))).expect("accepted");
    let (second, _) = scene.establish(&usual(given(0x9a), ue(2))).expect("accepted");
    let before = [first, second].map(|seid| scene.session(seid));
    for (what, update) in [
        ("a TEID", pdr(T::UpdatePdr, 2, 0, 2, &[given(0x99)], &[])),
        ("an address", pdr(T::UpdatePdr, 1, 1, 1, &[ue(1)], &[])),
    ] {
        let (cause, _) = scene.modify(second, &[update]);
        assert_eq!(cause, CauseValue::RuleCreationModificationFailure, "{what}");
        assert_eq!([first, second].map(|seid| scene.session(seid)), before, "{what}");
    }
}

/// #4169: a URR may have any number.
#[test]
fn a_urr_may_be_number_65535() {
    let mut scene = Scene::new();
    let mut ies = usual(choose(), ue(1));
    ies.push(urr(65_535, 1000));
    ies[3] = pdr(T::CreatePdr, 2, 0, 2, &[choose()], &[UrrId::new(65_535).to_ie()]);
    let (seid, _) = scene.establish(&ies).expect("accepted");
    let (_, cause, answer) = scene.ask(M::SessionDeletionRequest, Some(seid), &[]);
    assert_eq!(cause, CauseValue::RequestAccepted);
    let kind = T::UsageReportWithinSessionDeletionResponse;
    assert_eq!(measured(&answer, kind), (0, vec![0; 6]));
}

#[test]
fn associations_come_first_and_a_restart_ends_sessions() {
    let mut scene = Scene::alone();
    let (cause, _) = scene.establish(&usual(choose(), ue(1))).expect_err("no association");
    assert_eq!(cause, CauseValue::NoEstablishedPfcpAssociation);
    assert_eq!(scene.associate(1), Ok(()));
    let (seid, _) = scene.establish(&usual(choose(), ue(1))).expect("accepted");
    let heartbeat = |stamp: u32| [Ie::new(T::RecoveryTimeStamp, stamp.to_be_bytes().to_vec())];
    let (_, _, ies) = scene.ask(M::HeartbeatRequest, None, &heartbeat(1));
    assert_eq!(find(&ies, T::RecoveryTimeStamp).expect("ours").payload, 77u32.to_be_bytes());
    assert_eq!(scene.store.len(), 1);
    // Of a longer stamp, the first four octets count; a shorter one is none.
    for stamp in [&[0, 0, 0, 1, 7][..], &[9]] {
        scene.ask(M::HeartbeatRequest, None, &[Ie::new(T::RecoveryTimeStamp, stamp.to_vec())]);
        assert_eq!(scene.store.len(), 1);
    }
    // What is kept of an association is short.
    let long = NodeId::new_fqdn(&"smf.".repeat(70)).to_ie();
    for ies in [[node(), byte(T::RecoveryTimeStamp, 9)], [long, heartbeat(1)[0].clone()]] {
        let (_, cause, _) = scene.ask(M::AssociationSetupRequest, None, &ies);
        assert_eq!((cause, scene.store.len()), (CauseValue::MandatoryIeIncorrect, 1));
    }
    // Another peer does not reach the session.
    let mut out = Vec::new();
    let stranger = "10.0.0.8:8805".parse().expect("an address");
    let bytes = emit(M::SessionDeletionRequest, Some(seid), 1, &[]);
    scene.speaker.receive(
        &bytes,
        stranger,
        0,
        &mut Alone { sessions: &mut scene.store, now_ms: 0 },
        &mut out,
    );
    assert_eq!(scene.store.len(), 1);
    scene.ask(M::HeartbeatRequest, None, &heartbeat(2));
    assert_eq!((scene.store.len(), scene.speaker.totals().associations), (0, 0));
    // Its keys rest; then they can be had again.
    assert_eq!(scene.associate(2), Ok(()));
    assert!(scene.establish(&usual(choose(), ue(1))).is_err());
    scene.now_ms += REST_MS;
    scene.store.tick(scene.now_ms);
    assert!(scene.establish(&usual(choose(), ue(1))).is_ok());
    let (_, cause, _) = scene.ask(M::AssociationReleaseRequest, None, &[node()]);
    assert_eq!((cause, scene.store.len()), (CauseValue::RequestAccepted, 0));
    // Versions and requests that we do not have.
    let mut bytes = emit(M::HeartbeatRequest, None, 5, &[]);
    bytes[0] = 0x40;
    let [Out::Send { bytes, .. }] = &scene.raw(&bytes)[..] else { panic!("one answer") };
    assert_eq!(bytes[1], M::VersionNotSupportedResponse as u8);
    let (_, cause, _) = scene.ask(M::PfdManagementRequest, None, &[]);
    assert_eq!(cause, CauseValue::ServiceNotSupported);
}

#[test]
fn heartbeats_find_a_control_plane_that_is_silent_or_has_restarted() {
    let mut scene = Scene::new();
    // Another node at the same address.
    let other = NodeId::new_fqdn("smf.example").to_ie();
    let stamp = |stamp: u32| Ie::new(T::RecoveryTimeStamp, stamp.to_be_bytes().to_vec());
    scene.ask(M::AssociationSetupRequest, None, &[other, stamp(1)]);
    scene.establish(&usual(choose(), ue(1))).expect("accepted");
    let beats = |scene: &mut Scene, wait_ms: u64| {
        scene.now_ms += wait_ms;
        let mut out = Vec::new();
        let mut store = Alone { sessions: &mut scene.store, now_ms: scene.now_ms };
        scene.speaker.tick(scene.now_ms, &mut store, &mut out);
        let sent = out.into_iter().map(|out| {
            let Out::Send { to, bytes } = out else { panic!("a datagram") };
            assert_eq!((to, bytes[1]), (smf(), M::HeartbeatRequest as u8));
            let beat = parse(&bytes).expect("a message");
            let ies = beat.ies.expect("elements");
            assert_eq!(find(&ies, T::RecoveryTimeStamp).expect("ours").payload, [0, 0, 0, 77]);
            beat.sequence
        });
        sent.collect::<Vec<u32>>()
    };
    const NO_BEAT: [u32; 0] = [];
    let answer = |scene: &mut Scene, sequence: u32, stamp: Ie| {
        assert_eq!(scene.raw(&emit(M::HeartbeatResponse, None, sequence, &[stamp])), []);
    };
    assert_eq!(beats(&mut scene, 0), NO_BEAT);
    assert_eq!(beats(&mut scene, 59_999), NO_BEAT);
    let [first] = beats(&mut scene, 1)[..] else { panic!("one for both") };
    for _ in 0..3 {
        assert_eq!(beats(&mut scene, 2_999), NO_BEAT);
        assert_eq!(beats(&mut scene, 1), [first]);
    }
    assert_eq!((beats(&mut scene, 3_000), scene.speaker.totals().silent), (vec![], 1));
    let [second] = beats(&mut scene, 60_000)[..] else { panic!("it goes on") };
    // An answer to an earlier one, and one from elsewhere, are none.
    let garbage = scene.speaker.totals().garbage;
    answer(&mut scene, first, stamp(2));
    assert_eq!((scene.store.len(), scene.speaker.totals().garbage), (1, garbage + 1));
    answer(&mut scene, second, stamp(1));
    assert_eq!((scene.store.len(), scene.speaker.totals().silent), (1, 0));
    answer(&mut scene, second, stamp(2));
    assert_eq!(scene.store.len(), 1);
    let [third] = beats(&mut scene, 60_000)[..] else { panic!("the next one") };
    // Two nodes are there: it says nothing about which one has restarted. A setup does.
    answer(&mut scene, third, stamp(2));
    assert_eq!((scene.store.len(), scene.speaker.totals().associations), (1, 2));
    let other = NodeId::new_fqdn("smf.example").to_ie();
    let (_, cause, _) = scene.ask(M::AssociationReleaseRequest, None, &[other]);
    assert_eq!((cause, scene.store.len()), (CauseValue::RequestAccepted, 1));
    let [fourth] = beats(&mut scene, 60_000)[..] else { panic!("the next one") };
    answer(&mut scene, fourth, stamp(2));
    assert_eq!((scene.store.len(), scene.speaker.totals().associations), (0, 0));
    assert_eq!(beats(&mut scene, 600_000), NO_BEAT);
}

/// A heartbeat has no Node ID. Nodes with their own stamps behind one address, with one port or
/// with several, are not taken for restarts of each other, whatever order datagrams come in.
#[test]
fn nodes_at_one_address_leave_each_other_alone() {
    let stamp = |stamp: u32| Ie::new(T::RecoveryTimeStamp, stamp.to_be_bytes().to_vec());
    let other = || NodeId::new_fqdn("smf.example").to_ie();
    for ports in [[8805, 8805], [8805, 9000], [9000, 8805]] {
        let mut scene = Scene::alone();
        let mut say = |kind: M, port: u16, ies: &[Ie]| {
            scene.sequence += 1;
            let (bytes, from) = (emit(kind, None, scene.sequence, ies), (smf().ip(), port).into());
            let mut store = Alone { sessions: &mut scene.store, now_ms: scene.now_ms };
            scene.speaker.receive(&bytes, from, scene.now_ms, &mut store, &mut Vec::new());
            scene.speaker.totals().associations
        };
        assert_eq!(say(M::AssociationSetupRequest, ports[0], &[node(), stamp(10)]), 1);
        // The other node lives before it has an association, and after.
        if ports[0] != ports[1] {
            assert_eq!(say(M::HeartbeatRequest, ports[1], &[stamp(20)]), 1);
        }
        assert_eq!(say(M::AssociationSetupRequest, ports[1], &[other(), stamp(20)]), 2);
        for (port, of) in [(ports[1], 20), (ports[0], 10), (ports[1], 20), (ports[0], 10)] {
            assert_eq!(say(M::HeartbeatRequest, port, &[stamp(of)]), 2, "{ports:?}");
        }
        // A late heartbeat of an earlier run is no restart.
        for port in ports {
            assert_eq!(say(M::HeartbeatRequest, port, &[stamp(9)]), 2, "{ports:?}");
        }
        // With a port each, a restart is seen; it ends the sessions of its node.
        let left = if ports[0] == ports[1] { 2 } else { 1 };
        assert_eq!(say(M::HeartbeatRequest, ports[1], &[stamp(21)]), left, "{ports:?}");
        assert_eq!(say(M::HeartbeatRequest, ports[0], &[stamp(10)]), left, "{ports:?}");
    }
}

/// An association's setup decides for its own node.
#[test]
fn a_setup_ends_the_sessions_of_its_node_alone() {
    let mut scene = Scene::new();
    let stamp = |stamp: u32| Ie::new(T::RecoveryTimeStamp, stamp.to_be_bytes().to_vec());
    let other = NodeId::new_fqdn("smf.example").to_ie();
    scene.ask(M::AssociationSetupRequest, None, &[other.clone(), stamp(2)]);
    let (first, _) = scene.establish(&usual(choose(), ue(1))).expect("accepted");
    let mut ies = usual(choose(), ue(2));
    ies[0] = other.clone();
    let (second, _) = scene.establish(&ies).expect("accepted");
    scene.ask(M::AssociationSetupRequest, None, &[other, stamp(3)]);
    assert!(scene.store.get(first).is_some() && scene.store.get(second).is_none());
    assert_eq!(scene.associate(2), Ok(()));
    assert_eq!((scene.store.len(), scene.speaker.totals().associations), (0, 2));
}

/// Volumes and packets of a report: total, up, down.
fn measured(ies: &[Ie], kind: T) -> (u32, Vec<u64>) {
    let parts = group(find(ies, kind).expect("a report")).expect("a group");
    let sequence = find(&parts, T::UrSeqn).expect("UR-SEQN").payload.clone();
    let volume = &find(&parts, T::VolumeMeasurement).expect("volumes").payload;
    let numbers = volume[1..].chunks(8).map(|n| u64::from_be_bytes(n.try_into().unwrap()));
    (u32::from_be_bytes(sequence.try_into().expect("4 bytes")), numbers.collect())
}

#[test]
fn usage_is_reported_at_the_threshold_on_query_and_at_the_end() {
    let mut scene = Scene::new();
    let mut ies = usual(choose(), ue(1));
    ies.push(urr(4, 1000));
    let named = [QerId::new(1).to_ie(), UrrId::new(4).to_ie()];
    ies[2] = pdr(T::CreatePdr, 1, 1, 1, &[ue(1)], &named);
    ies[3] = pdr(T::CreatePdr, 2, 0, 2, &[choose()], &named);
    let (seid, _) = scene.establish(&ies).expect("accepted");
    let count = |scene: &mut Scene, up: usize, down: usize| {
        // The first session has slot 0.
        let value = 0;
        let tally = scene.readers[0].tally();
        tally.passed(value, Direction::Up, up);
        tally.passed(value, Direction::Down, down);
    };
    let tick = |scene: &mut Scene| {
        let mut out = Vec::new();
        let mut store = Alone { sessions: &mut scene.store, now_ms: scene.now_ms };
        scene.speaker.tick(scene.now_ms, &mut store, &mut out);
        out
    };
    count(&mut scene, 300, 500);
    assert_eq!(tick(&mut scene), []);
    // However often rules come and go, a session is looked at once.
    let remove = Ie::new_grouped(T::RemoveUrr, vec![UrrId::new(5).to_ie()]);
    for _ in 0..5 {
        assert_eq!(scene.modify(seid, &[urr(5, 1 << 40)]).0, CauseValue::RequestAccepted);
        assert_eq!(
            scene.modify(seid, std::slice::from_ref(&remove)).0,
            CauseValue::RequestAccepted
        );
    }
    assert_eq!(scene.speaker.watched(), 1);
    let query = Ie::new_grouped(T::QueryUrr, vec![UrrId::new(4).to_ie()]);
    let (_, answer) = scene.modify(seid, &[query]);
    let kind = T::UsageReportWithinSessionModificationResponse;
    assert_eq!(measured(&answer, kind), (0, vec![800, 300, 500, 2, 1, 1]));
    count(&mut scene, 400, 600);
    let out = tick(&mut scene);
    let [Out::Send { to, bytes }] = &out[..] else { panic!("a report: {out:?}") };
    assert_eq!(*to, smf());
    let report = parse(bytes).expect("a message");
    assert_eq!((report.kind, report.seid), (M::SessionReportRequest, Some(0xc0de)));
    let kind = T::UsageReportWithinSessionReportRequest;
    let ies = report.ies.expect("elements");
    assert_eq!(measured(&ies, kind), (1, vec![1000, 400, 600, 2, 1, 1]));
    // Again until it is answered.
    assert_eq!(tick(&mut scene), []);
    scene.now_ms += 3_000;
    assert_eq!(tick(&mut scene), out);
    let accepted = Ie::new(T::Cause, vec![1]);
    let answer = emit(M::SessionReportResponse, Some(seid), report.sequence, &[accepted]);
    assert_eq!(scene.raw(&answer), []);
    scene.now_ms += 30_000;
    assert_eq!(tick(&mut scene), []);
    count(&mut scene, 1, 0);
    let anew = [Ie::new_grouped(T::RemoveUrr, vec![UrrId::new(4).to_ie()]), urr(4, 1000)];
    let before = scene.store.get(seid).expect("a session").counts;
    for _ in 0..3 {
        assert_eq!(scene.modify(seid, &anew).0, CauseValue::RequestAccepted);
    }
    assert_eq!((scene.speaker.watched(), before.uplink.packets), (1, 3));
    count(&mut scene, 1, 0);
    let (_, _, answer) = scene.ask(M::SessionDeletionRequest, Some(seid), &[]);
    let kind = T::UsageReportWithinSessionDeletionResponse;
    // A rule made anew counts from there.
    assert_eq!(measured(&answer, kind).0, 0);
    assert_eq!(measured(&answer, kind).1[0], 1);
}

#[test]
fn an_error_indication_is_reported_once_for_its_tunnel() {
    let mut scene = Scene::new();
    let mut ies = usual(choose(), ue(1));
    ies[4] = far(T::CreateFar, 1, 2, Some(0), &[to_gnb(0x77)]);
    let (seid, _) = scene.establish(&ies).expect("accepted");
    let mut out = Vec::new();
    scene.speaker.error_indication(GNB.into(), 0x78, 0, &mut out);
    assert_eq!(out, []);
    for now_ms in [0, 1, 9_999] {
        scene.speaker.error_indication(GNB.into(), 0x77, now_ms, &mut out);
    }
    let [Out::Send { bytes, .. }] = &out[..] else { panic!("one report: {out:?}") };
    let report = parse(bytes).expect("a message");
    let ies = report.ies.expect("elements");
    assert_eq!(find(&ies, T::ReportType).expect("a type").payload, [4]);
    // The control plane knows nothing of the session: it goes.
    let unknown = Ie::new(T::Cause, vec![CauseValue::SessionContextNotFound as u8]);
    let answer = emit(M::SessionReportResponse, Some(seid), report.sequence, &[unknown]);
    assert_eq!(scene.raw(&answer), []);
    assert!(scene.store.is_empty());
}

#[test]
fn the_widest_pool_has_prefixes() {
    let mut scene = Scene::new();
    let pools = [Prefix::parse("::/0").expect("a prefix")].into_iter().collect();
    scene.store.reload(pools, None, 0).expect("no sessions");
    for _ in 0..50 {
        let ies = usual(choose(), byte(T::UeIpAddress, 0x20));
        let (seid, _) = scene.establish(&ies).expect("accepted");
        assert!(scene.session(seid).ipv6.is_some());
    }
}

#[test]
fn pools_are_used_up_and_then_refused() {
    let mut scene = Scene::new();
    let mut got = std::collections::BTreeSet::new();
    let refused = loop {
        match scene.establish(&usual(choose(), byte(T::UeIpAddress, 0x10))) {
            Ok((seid, _)) => {
                let address = scene.session(seid).ipv4.expect("an address");
                assert!(got.insert(address), "{address} twice");
            }
            Err((cause, _)) => break cause,
        }
    };
    // All of a /24 but its first and last.
    assert_eq!((got.len(), refused), (254, CauseValue::AllDynamicAddressesOccupied));
    // Sessions of others are not touched, nor their keys given away.
    let all = scene.store.len();
    let by_hand = Session { id: 1, ..scene.session(scene.store.iter().next().unwrap().session.id) };
    assert!(scene.store.add(by_hand, Origin::Request, 0).is_err());
    assert_eq!(scene.store.len(), all);
    assert!(scene.store.owner_of(Key::Ipv4([10, 45, 0, 255].into())).is_none());
}

proptest! {
    #[test]
    fn any_bytes_are_answered_or_dropped(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        cuts in prop::collection::vec((any::<u16>(), any::<u8>()), 0..6),
        kind in 50u8..56,
    ) {
        let mut scene = Scene::new();
        let _ = scene.raw(&bytes);
        let (seid, _) = scene.establish(&usual(choose(), ue(1))).expect("accepted");
        let before = scene.session(seid);
        // A valid message with some bytes changed.
        let ies = usual(choose(), ue(3));
        let mut bytes = emit(M::SessionModificationRequest, Some(seid), 9_000, &ies);
        bytes[1] = kind;
        for (at, to) in cuts {
            let at = usize::from(at) % bytes.len();
            bytes[at] = to;
        }
        let _ = scene.raw(&bytes);
        let _ = elements(&bytes);
        prop_assert!(scene.store.len() <= 2);
        if let Some(listed) = scene.store.get(seid) {
            prop_assert_eq!(listed.session.id, before.id);
            prop_assert_eq!(listed.session.check(), Ok(()));
        }
    }
}
