//! Requests in any order, with elements changed here and there: each has one answer, the same if it
//! comes again. A refused one changes nothing, and the speaker knows the sessions of the store.

use super::*;

/// Changes an element, or one inside it.
fn change(ies: &mut Vec<Ie>, [at, inside, how, byte]: [u8; 4]) {
    if ies.is_empty() {
        return;
    }
    let at = usize::from(at) % ies.len();
    let kind = ies[at].ie_type;
    let mut parts = group(&ies[at]).unwrap_or_default();
    if inside % 4 > 0 && !parts.is_empty() {
        change(&mut parts, [inside / 4, byte, how, byte]);
        ies[at] = Ie::new_grouped(kind, parts);
        return;
    }
    match how % 5 {
        0 => drop(ies.remove(at)),
        1 => ies[at] = Ie::new(kind, Vec::new()),
        2 => ies.insert(at, ies[at].clone()),
        3 => ies[at].payload.iter_mut().take(1).for_each(|first| *first ^= byte),
        _ => ies[at].payload.push(byte),
    }
}

fn tunnel(n: u8) -> Ie {
    if n.is_multiple_of(2) { choose() } else { given(u32::from(n % 8)) }
}

fn terminal(n: u8) -> Ie {
    if n.is_multiple_of(2) { ue_choose() } else { ue(n % 8) }
}

/// A request: its type, its SEID and its elements.
fn request([what, a, b, c]: [u8; 4], seids: &[u64]) -> (M, Option<u64>, Vec<Ie>) {
    let seid = Some(*seids.get(usize::from(a) % seids.len().max(1)).unwrap_or(&1));
    let stamp = || Ie::new(T::RecoveryTimeStamp, vec![0, 0, 0, 1 + u8::from(c > 200)]);
    match what % 8 {
        0 => (M::AssociationSetupRequest, None, vec![node(), stamp()]),
        1 => (M::HeartbeatRequest, None, vec![stamp()]),
        2..5 => {
            let mut ies = usual(tunnel(a), terminal(b));
            ies[3] = pdr(
                T::CreatePdr,
                2,
                0,
                2,
                &[tunnel(a), terminal(c)][..1 + usize::from(c % 2)],
                &[],
            );
            ies.extend((c % 4 == 0).then(|| urr(65_535, 1000)));
            (M::SessionEstablishmentRequest, Some(0), ies)
        }
        5 | 6 => {
            let all = [
                far(T::UpdateFar, 1, 2, Some(0), &[to_gnb(c.into()), byte(T::PfcpsmReqFlags, 2)]),
                pdr(T::UpdatePdr, 2, 0, 2, &[tunnel(c)], &[]),
                pdr(T::UpdatePdr, 1, 1, 1, &[terminal(c)], &[]),
                urr(65_535, 1000),
                Ie::new_grouped(T::QueryUrr, vec![UrrId::new(65_535).to_ie()]),
                Ie::new_grouped(T::RemovePdr, vec![PdrId::new(1 + u16::from(c % 2)).to_ie()]),
            ];
            let chosen = all.into_iter().enumerate().filter(|(bit, _)| b >> bit & 1 != 0);
            (M::SessionModificationRequest, seid, chosen.map(|(_, ie)| ie).collect())
        }
        _ => (M::SessionDeletionRequest, seid, Vec::new()),
    }
}

impl Scene {
    /// Returns the sessions of the store, which the speaker knows, too.
    fn listed(&self) -> Vec<Session> {
        let mut all: Vec<Session> = self.store.iter().map(|listed| listed.session).collect();
        all.sort_unstable_by_key(|session| session.id);
        assert_eq!(self.speaker.totals().sessions, all.len() as u64);
        for session in &all {
            assert!(session.keys().all(|key| self.store.owner_of(key) == Some(session.id)));
        }
        all
    }

    /// Sends a request twice; returns the SEID of a new session.
    fn twice(&mut self, (kind, seid, ies): (M, Option<u64>, Vec<Ie>)) -> Option<u64> {
        self.sequence += 1;
        let bytes = emit(kind, seid, self.sequence, &ies);
        let before = self.listed();
        let is_answer = |out: &Out| matches!(out, Out::Send { .. });
        let answers: Vec<Out> = self.raw(&bytes).into_iter().filter(is_answer).collect();
        let after = self.listed();
        assert_eq!(self.raw(&bytes), answers);
        assert_eq!(self.listed(), after);
        let [Out::Send { to, bytes }] = &answers[..] else { panic!("one answer: {answers:?}") };
        assert_eq!(*to, smf());
        let answer = parse(bytes).expect("a message");
        assert_eq!((answer.kind as u8, answer.sequence), (kind as u8 + 1, self.sequence));
        let ies = answer.ies.expect("elements");
        if find(&ies, T::Cause).is_some_and(|cause| cause.payload != [1]) {
            assert_eq!(after, before, "{ies:?}");
        }
        let new = after.iter().find(|session| before.iter().all(|of| of.id != session.id))?;
        said(&ies, new);
        Some(new.id)
    }
}

/// What an answer says was chosen is the session's.
fn said(ies: &[Ie], session: &Session) {
    for created in ies.iter().filter(|ie| ie.ie_type == T::CreatedPdr) {
        let parts = group(created).expect("a group");
        if let Some(ie) = find(&parts, T::Fteid) {
            assert_eq!(*Fteid::unmarshal(&ie.payload).expect("an F-TEID").teid, session.teid);
        }
        if let Some(ie) = find(&parts, T::UeIpAddress) {
            let address = UeIpAddress::unmarshal(&ie.payload).expect("an address");
            assert!(address.ipv4_address.is_none_or(|v4| Some(v4) == session.ipv4));
            let v6 = session.ipv6.map(|prefix| prefix.address());
            assert!(address.ipv6_address.is_none_or(|address| Some(address) == v6));
        }
    }
}

proptest! {
    #[test]
    fn any_sequence_is_answered_and_leaves_nothing(
        steps in prop::collection::vec((any::<[u8; 4]>(), any::<Option<[u8; 4]>>()), 1..16),
    ) {
        let (mut scene, mut seids) = (Scene::new(), Vec::new());
        for (step, changed) in steps {
            let mut request = request(step, &seids);
            if let Some(changed) = changed {
                change(&mut request.2, changed);
            }
            seids.extend(scene.twice(request));
        }
        for session in scene.listed() {
            let (_, cause, _) = scene.ask(M::SessionDeletionRequest, Some(session.id), &[]);
            prop_assert_eq!(cause, CauseValue::RequestAccepted);
        }
        prop_assert_eq!((scene.listed().len(), scene.speaker.totals().buffering), (0, 0));
    }
}
