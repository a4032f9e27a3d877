//! tshark dissects what the speaker sends, and must find no fault in it.

use super::*;
use etherparse::PacketBuilder;
use overbank_testing::capture::{self, FAULTS, tshark};

/// Sends a request; its answer is kept.
fn keep(sent: &mut Vec<Out>, scene: &mut Scene, kind: M, seid: Option<u64>, ies: &[Ie]) {
    scene.sequence += 1;
    let request = emit(kind, seid, scene.sequence, ies);
    sent.extend(scene.raw(&request));
}

/// A session's life with reports.
fn accepted(scene: &mut Scene, sent: &mut Vec<Out>) {
    let stamp = Ie::new(T::RecoveryTimeStamp, 1u32.to_be_bytes().to_vec());
    keep(sent, scene, M::HeartbeatRequest, None, std::slice::from_ref(&stamp));
    keep(sent, scene, M::AssociationSetupRequest, None, &[node(), stamp]);
    keep(sent, scene, M::AssociationUpdateRequest, None, &[node()]);
    let mut ies = usual(choose(), ue_choose());
    ies.push(urr(4, 1000));
    let named = [QerId::new(1).to_ie(), UrrId::new(4).to_ie()];
    ies[3] = pdr(T::CreatePdr, 2, 0, 2, &[choose()], &named);
    keep(sent, scene, M::SessionEstablishmentRequest, Some(0), &ies);
    let seid = scene.store.iter().next().expect("a session").session.id;
    let update = far(T::UpdateFar, 1, 2, Some(0), &[to_gnb(0x77)]);
    let query = Ie::new_grouped(T::QueryUrr, vec![UrrId::new(4).to_ie()]);
    keep(sent, scene, M::SessionModificationRequest, Some(seid), &[update, query]);
    scene.readers[0].tally().passed(0, Direction::Up, 2000);
    scene.speaker.tick(
        scene.now_ms,
        &mut Alone { sessions: &mut scene.store, now_ms: scene.now_ms },
        sent,
    );
    scene.speaker.error_indication(GNB.into(), 0x77, scene.now_ms, sent);
    keep(sent, scene, M::SessionDeletionRequest, Some(seid), &[]);
    // A heartbeat.
    scene.now_ms += 60_000;
    let mut store = Alone { sessions: &mut scene.store, now_ms: scene.now_ms };
    scene.speaker.tick(scene.now_ms, &mut store, sent);
}

/// A refusal of each kind.
fn refused(scene: &mut Scene, sent: &mut Vec<Out>) {
    keep(sent, scene, M::SessionEstablishmentRequest, Some(0), &usual(given(0x99), ue(9)));
    let establish = M::SessionEstablishmentRequest;
    let mut no_far = usual(choose(), ue(3));
    no_far.remove(5);
    let mut no_node = usual(choose(), ue(3));
    no_node.remove(0);
    let mut unknown_interface = usual(choose(), ue(3));
    unknown_interface[3] = pdr(T::CreatePdr, 2, 9, 2, &[choose()], &[]);
    let taken = [usual(given(0x99), ue(3)), usual(choose(), ue(9))];
    for ies in taken.into_iter().chain([no_far, no_node, unknown_interface]) {
        keep(sent, scene, establish, Some(0), &ies);
    }
    keep(sent, scene, M::SessionDeletionRequest, Some(12_345), &[]);
    keep(sent, scene, M::PfdManagementRequest, None, &[]);
    let mut version = emit(M::HeartbeatRequest, None, 5, &[]);
    version[0] = 0x40;
    sent.extend(scene.raw(&version));
    keep(sent, scene, M::AssociationReleaseRequest, None, &[node()]);
    keep(sent, scene, establish, Some(0), &usual(choose(), ue(1)));
}

#[test]
fn tshark_finds_no_fault_in_what_is_sent() {
    let (mut scene, mut sent) = (Scene::alone(), Vec::new());
    accepted(&mut scene, &mut sent);
    refused(&mut scene, &mut sent);
    let frame = |bytes: &[u8]| {
        let mut frame = Vec::new();
        let ends = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 5], [10, 0, 0, 9], 64);
        ends.udp(8805, 8805).write(&mut frame, bytes).expect("written");
        frame
    };
    let frames: Vec<Vec<u8>> = sent
        .iter()
        .filter_map(|out| match out {
            Out::Send { bytes, .. } => Some(frame(bytes)),
            Out::EndMarker { .. } => None,
        })
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("n4.pcap");
    capture::write(&path, frames.iter().map(Vec::as_slice)).expect("written");
    assert_eq!(tshark(&path, FAULTS, &[]), [""; 0]);
    assert_eq!(tshark(&path, "pfcp", &["pfcp.msg_type"]).len(), frames.len());
    let count = |filter: &str| tshark(&path, filter, &["frame.number"]).len();
    assert_eq!(count("pfcp.cause == 1"), 7);
    assert_eq!(count("pfcp.cause >= 64"), 8);
    assert_eq!(count("pfcp.msg_type == 56"), 4, "reports, and again with the heartbeat");
    assert_eq!(count("pfcp.msg_type == 1"), 1, "heartbeats");
    assert_eq!(count("pfcp.msg_type == 11"), 1, "version");
}
