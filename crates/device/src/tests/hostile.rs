//! Frames that contradict themselves, in great numbers.

use super::rig::{BOOT, DEVICE, Fate, Rig, end, framed};
use overbank_wire::netcache::{Message, Op, PORT};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;

/// Malformed frames between two whole updates.
const BETWEEN: u64 = 50;

/// Every frame has a fate, and no update that is not whole gets into the cache.
/// `OVERBANK_MALFORMED_FRAMES` sets the number (`cargo xtask test device-full`).
#[test]
fn malformed_frames_change_no_value() {
    const KEY: u128 = 7;
    let frames = std::env::var("OVERBANK_MALFORMED_FRAMES").ok();
    let frames = frames.map_or(1_000_000, |text| text.parse::<u64>().expect("a number"));
    let mut fates = BTreeMap::<&str, u64>::new();
    let mut rig = Rig::new(u16::MAX, 64);
    rig.table.install(KEY, 1, 128).expect("room");
    let (server, client) = (end(1, true, PORT), end(2, true, 999));
    let mut random = Pcg64Mcg::seed_from_u64(5);
    let get = framed(&Message::new(Op::Get, 2, 2, KEY), &client, &server, 0);
    let put = framed(&Message::new(Op::Put, 2, 3, KEY), &client, &server, 0);
    let update = |rig: &Rig, value: &[u8]| {
        let stamp = rig.table.status(KEY).expect("it is cached").stamp(BOOT);
        let update = Message { stamp, value, ..Message::new(Op::Update, 1, 1, KEY) };
        framed(&update, &server, &end(DEVICE, true, PORT), 0)
    };
    let answered = |rig: &mut Rig| match &rig.pass(2, std::slice::from_ref(&get))[0] {
        Fate::Sent(sent) if sent[0].0 == 2 => Some(sent[0].1.clone()),
        _ => None,
    };
    for round in 0..frames.div_ceil(BETWEEN) {
        let value = [round as u8; 100];
        let whole = update(&rig, &value);
        for _ in 0..BETWEEN {
            let mut frame = [&whole, &get][random.random_range(0..2)].clone();
            // A bit beyond the Ethernet addresses: the checksum finds it wherever it is. More of
            // them may undo each other.
            let bit = random.random_range(12 * 8..8 * frame.len());
            frame[bit / 8] ^= 1 << (bit % 8);
            let fate = match &rig.pass(1, &[frame])[0] {
                Fate::Sent(_) => "sent",
                Fate::Dropped(reason) => reason,
                Fate::Control => "control",
            };
            *fates.entry(fate).or_default() += 1;
            if let Some(answer) = answered(&mut rig) {
                assert_eq!(answer[answer.len() - 100..], value);
            }
        }
        let whole = update(&rig, &value);
        rig.pass(1, &[whole]);
        let answer = answered(&mut rig).expect("the value is whole");
        assert_eq!(answer[answer.len() - 100..], value);
        rig.pass(2, std::slice::from_ref(&put));
        assert_eq!(answered(&mut rig), None);
    }
    println!("{fates:?}");
    assert_eq!(fates.values().sum::<u64>(), BETWEEN * frames.div_ceil(BETWEEN));
}

/// Reports and messages wait up to their bound; the rest is counted or dropped by name.
#[test]
fn floods_are_bounded() {
    let mut rig = Rig::new(1, 16);
    let server = end(1, true, PORT);
    rig.pass(1, &[framed(&Message::new(Op::GetOk, 1, 1, 1), &server, &end(2, true, 999), 0)]);
    let gets: Vec<Vec<u8>> = (0..1000)
        .map(|key| framed(&Message::new(Op::Get, 2, 2, key), &end(2, true, 999), &server, 0))
        .collect();
    let fates = rig.pass(2, &gets);
    assert!(fates.iter().all(|fate| matches!(fate, Fate::Sent(sent) if sent.len() == 1)));
    let totals = rig.device.counted();
    assert_eq!((rig.news.hot.len(), totals.kv_reports), (16, 16));
    // The filter takes a key for another one now and then.
    assert!(totals.kv_reports_lost > 950, "{totals:?}");
    let hello = framed(&Message::new(Op::Hello, 0, 1, 0), &server, &end(DEVICE, true, PORT), 0);
    let fates = rig.pass(1, &vec![hello; 50]);
    let kept = fates.iter().filter(|fate| **fate == Fate::Control).count();
    let lost = fates.iter().filter(|fate| **fate == Fate::Dropped("control_queue_full")).count();
    assert_eq!((kept, lost), (16, 34));
}
