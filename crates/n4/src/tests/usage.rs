//! URRs beside a naive count: each packet counts for the URRs that a PDR of its direction names.

use super::*;
use std::collections::BTreeMap;

const URRS: u32 = 4;
const MODIFIED: T = T::UsageReportWithinSessionModificationResponse;
const DELETED: T = T::UsageReportWithinSessionDeletionResponse;
const REPORTED: T = T::UsageReportWithinSessionReportRequest;

/// What a report says: its trigger, and volumes and packets of both directions.
type Said = BTreeMap<u32, (Vec<u8>, [u64; 4])>;

/// The reports of a message by their URRs.
fn reports(ies: &[Ie], kind: T) -> Said {
    let mut said = Said::new();
    for ie in ies.iter().filter(|ie| ie.ie_type == kind) {
        let parts = group(ie).expect("a group");
        let of = |kind| find(&parts, kind).expect("an element").payload.clone();
        let id = u32::from_be_bytes(of(T::UrrId).try_into().expect("4 bytes"));
        let volume = of(T::VolumeMeasurement);
        let numbers: Vec<u64> =
            volume[1..].chunks(8).map(|n| u64::from_be_bytes(n.try_into().unwrap())).collect();
        let [bytes, up, down, packets, up_packets, down_packets] = numbers[..] else {
            panic!("six numbers")
        };
        assert_eq!((bytes, packets), (up + down, up_packets + down_packets));
        let numbers = [up, down, up_packets, down_packets];
        assert_eq!(said.insert(id, (of(T::UsageReportTrigger), numbers)), None);
    }
    said
}

fn uses(urrs: &[u32]) -> Vec<Ie> {
    let urrs = urrs.iter().map(|&id| UrrId::new(id).to_ie());
    std::iter::once(QerId::new(1).to_ie()).chain(urrs).collect()
}

/// An establishment whose downlink and uplink PDRs name these URRs.
fn naming(down: &[u32], up: &[u32]) -> Vec<Ie> {
    let mut ies = usual(choose(), ue(1));
    ies[2] = pdr(T::CreatePdr, 1, 1, 1, &[ue(1)], &uses(down));
    ies[3] = pdr(T::CreatePdr, 2, 0, 2, &[choose()], &uses(up));
    ies
}

fn count(scene: &mut Scene, direction: Direction, bytes: usize) {
    // The first session has slot 0.
    scene.readers[0].tally().passed(0, direction, bytes);
}

fn remove(kind: T, id: Ie) -> Ie {
    Ie::new_grouped(kind, vec![id])
}

fn query(id: u32) -> Ie {
    remove(T::QueryUrr, UrrId::new(id).to_ie())
}

#[test]
fn a_urr_counts_the_directions_of_the_pdrs_that_name_it() {
    let mut scene = Scene::new();
    let mut ies = naming(&[2, 3], &[1, 3]);
    ies.extend((1..=URRS).map(|id| urr(id, 1000)));
    let (seid, _) = scene.establish(&ies).expect("accepted");
    count(&mut scene, Direction::Up, 900);
    count(&mut scene, Direction::Down, 500);
    let mut out = Vec::new();
    let mut store = Alone { sessions: &mut scene.store, now_ms: scene.now_ms };
    scene.speaker.tick(scene.now_ms, &mut store, &mut out);
    let [Out::Send { bytes, .. }] = &out[..] else { panic!("one report: {out:?}") };
    let ies = parse(bytes).expect("a message").ies.expect("elements");
    let said = |trigger: &[u8], numbers| (trigger.to_vec(), numbers);
    assert_eq!(reports(&ies, REPORTED), [(3, said(&[2, 0, 0], [900, 500, 1, 1]))].into());
    let (cause, answer) = scene.modify(seid, &[1, 2, 3, 4].map(query));
    assert_eq!(cause, CauseValue::RequestAccepted);
    let asked = |numbers| said(&[0x80, 0, 0], numbers);
    let wanted = [
        (1, asked([900, 0, 1, 0])),
        (2, asked([0, 500, 0, 1])),
        (3, asked([0; 4])),
        (4, asked([0; 4])),
    ];
    assert_eq!(reports(&answer, MODIFIED), wanted.into());
    // Now PDRs of the other direction.
    let swap = [
        pdr(T::UpdatePdr, 1, 1, 1, &[ue(1)], &uses(&[1])),
        pdr(T::UpdatePdr, 2, 0, 2, &[], &uses(&[2])),
    ];
    count(&mut scene, Direction::Up, 10);
    let (cause, answer) = scene.modify(seid, &swap);
    assert_eq!(cause, CauseValue::RequestAccepted);
    // The last PDR of URR 3 is gone: it ends (TERMR).
    assert_eq!(reports(&answer, MODIFIED), [(3, said(&[0, 8, 0], [10, 0, 1, 0]))].into());
    count(&mut scene, Direction::Up, 20);
    count(&mut scene, Direction::Down, 30);
    let (_, cause, answer) = scene.ask(M::SessionDeletionRequest, Some(seid), &[]);
    assert_eq!(cause, CauseValue::RequestAccepted);
    let end = |numbers| said(&[0, 8, 0], numbers);
    let wanted =
        [(1, end([10, 30, 1, 1])), (2, end([20, 0, 1, 0])), (3, end([0; 4])), (4, end([0; 4]))];
    assert_eq!(reports(&answer, DELETED), wanted.into());
}

/// A rule that goes reports what it has counted; one made anew under its number starts from there.
#[test]
fn a_urr_that_is_removed_reports() {
    let mut scene = Scene::new();
    let mut ies = naming(&[1], &[1]);
    ies.push(urr(1, 1 << 40));
    let (seid, _) = scene.establish(&ies).expect("accepted");
    count(&mut scene, Direction::Up, 700);
    let rule = remove(T::RemoveUrr, UrrId::new(1).to_ie());
    let (cause, answer) = scene.modify(seid, &[rule, urr(1, 1 << 40)]);
    assert_eq!(cause, CauseValue::RequestAccepted);
    assert_eq!(reports(&answer, MODIFIED), [(1, (vec![0, 8, 0], [700, 0, 1, 0]))].into());
    count(&mut scene, Direction::Down, 60);
    let (_, _, answer) = scene.ask(M::SessionDeletionRequest, Some(seid), &[]);
    assert_eq!(reports(&answer, DELETED), [(1, (vec![0, 8, 0], [0, 60, 0, 1]))].into());
}

/// Packets of the control plane share the tunnel, and are not counted apart.
#[test]
fn a_urr_for_packets_of_the_control_plane_alone_is_refused() {
    let mut scene = Scene::new();
    let control = |urrs: &[u32]| {
        let mut ies = naming(&[1], &[1]);
        ies.extend((1..=2).map(|id| urr(id, 1000)));
        ies.push(pdr(T::CreatePdr, 3, 0, 3, &[choose()], &uses(urrs)));
        ies.push(far(T::CreateFar, 3, 2, Some(3), &[]));
        ies
    };
    let (cause, answer) = scene.establish(&control(&[1, 2])).expect_err("not counted apart");
    assert_eq!(cause, CauseValue::ServiceNotSupported);
    assert_eq!(offending(&answer), Some(T::UrrId as u16));
    assert!(find(&answer, T::FailedRuleId).is_some());
    assert!(scene.establish(&control(&[1])).is_ok());
}

/// The URRs of the bits of a number.
fn named(bits: u8) -> Vec<u32> {
    (1..=URRS).filter(|id| bits >> id & 1 != 0).collect()
}

proptest! {
    #[test]
    fn usage_is_that_of_a_naive_count(
        steps in prop::collection::vec((0u8..8, any::<u8>(), any::<u16>()), 0..40),
    ) {
        let mut scene = Scene::new();
        let mut ies = naming(&[], &[]);
        ies.extend((1..=URRS).map(|id| urr(id, 1 << 40)));
        let (seid, _) = scene.establish(&ies).expect("accepted");
        // Downlink and uplink: the URRs that are named.
        let mut names = [vec![], vec![]];
        let mut naive = BTreeMap::from_iter((1..=URRS).map(|id| (id, [0u64; 4])));
        let mut got = naive.clone();
        let add = |to: &mut BTreeMap<u32, [u64; 4]>, said: Said| {
            for (id, (_, more)) in said {
                to.get_mut(&id).expect("a URR").iter_mut().zip(more).for_each(|(n, by)| *n += by);
            }
        };
        for (what, bits, bytes) in steps {
            let mut change = match what {
                0..=2 => {
                    let (up, direction) = match what {
                        0 => (false, Direction::Down),
                        _ => (true, Direction::Up),
                    };
                    count(&mut scene, direction, bytes.into());
                    for id in &names[usize::from(up)] {
                        let of = naive.get_mut(id).expect("a URR");
                        of[usize::from(!up)] += u64::from(bytes);
                        of[2 + usize::from(!up)] += 1;
                    }
                    continue;
                }
                3 | 4 => {
                    names[0] = named(bits);
                    vec![
                        remove(T::RemovePdr, PdrId::new(1).to_ie()),
                        pdr(T::CreatePdr, 1, 1, 1, &[ue(1)], &uses(&names[0])),
                    ]
                }
                5 | 6 if !named(bits).is_empty() => {
                    names[1] = named(bits);
                    vec![pdr(T::UpdatePdr, 2, 0, 2, &[], &uses(&names[1]))]
                }
                _ => Vec::new(),
            };
            if bytes % 4 == 0 {
                change.extend(named(bits / 2).into_iter().map(query));
            }
            let (cause, answer) = scene.modify(seid, &change);
            prop_assert_eq!(cause, CauseValue::RequestAccepted);
            add(&mut got, reports(&answer, MODIFIED));
        }
        let (_, _, answer) = scene.ask(M::SessionDeletionRequest, Some(seid), &[]);
        add(&mut got, reports(&answer, DELETED));
        prop_assert_eq!(got, naive);
    }
}
