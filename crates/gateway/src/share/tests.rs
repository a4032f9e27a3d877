use super::*;
use overbank::random::Pcg32;
use proptest::prelude::*;
use std::collections::{HashSet, VecDeque};

const PERCENT: u32 = 10;
/// Time from a packet of no session to its note.
const NOTE_MS: u64 = 2;

/// Packets of a source in a millisecond: of sessions, by key, and of none.
#[derive(Clone, Copy)]
struct Traffic {
    source: Source,
    valid: u32,
    /// Keys of the valid ones.
    keys: u32,
    unknown: u32,
}

/// Packets that came in, and those of them that were forwarded.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    valid: [u32; 2],
    unknown: [u32; 2],
}

/// An ingress, and nodes that send notes.
struct Rig {
    share: UnknownShare,
    now_ms: u64,
    random: Pcg32,
    /// When they arrive.
    notes: VecDeque<(u64, Source, u64)>,
}

fn v4(n: u32) -> Source {
    Source(V4 | u64::from(n))
}

impl Rig {
    fn new() -> Rig {
        let (share, random) = (UnknownShare::new(3), Pcg32::new(4, 5));
        Rig { share, now_ms: 10, random, notes: VecDeque::new() }
    }

    /// Returns what passed of each source.
    fn run(&mut self, ms: u64, all: &[Traffic]) -> Vec<Passed> {
        let mut passed = vec![Passed::default(); all.len()];
        for _ in 0..ms {
            self.now_ms += 1;
            let now_ms = self.now_ms;
            while let Some(&(at, source, key)) = self.notes.front()
                && at <= now_ms
            {
                self.share.note(source, key, now_ms);
                self.notes.pop_front();
            }
            for (traffic, passed) in all.iter().zip(&mut passed) {
                self.share.offer(traffic.valid + traffic.unknown, PERCENT, now_ms);
                // In any order.
                let (mut valid, mut unknown) = (traffic.valid, traffic.unknown);
                while valid + unknown > 0 {
                    if self.random.below(valid + unknown) < valid {
                        valid -= 1;
                        let key = u64::from(self.random.below(traffic.keys)) << 32 | 1;
                        count(&mut passed.valid, self.packet(traffic.source, mix(key)));
                    } else {
                        unknown -= 1;
                        let key = mix(u64::from(self.random.draw()) << 16 | 2);
                        let is_sent = self.packet(traffic.source, key);
                        count(&mut passed.unknown, is_sent);
                        if is_sent {
                            self.notes.push_back((now_ms + NOTE_MS, traffic.source, key));
                        }
                    }
                }
            }
        }
        passed
    }

    fn packet(&self, source: Source, key: u64) -> bool {
        let exceeded = self.share.is_exceeded(self.now_ms);
        !exceeded || self.share.admit(source, key, PERCENT, self.now_ms)
    }
}

fn count([all, sent]: &mut [u32; 2], is_sent: bool) {
    *all += 1;
    *sent += u32::from(is_sent);
}

fn lost([all, sent]: [u32; 2]) -> u32 {
    all - sent
}

#[test]
fn a_share_passes_and_so_do_few() {
    let mut rig = Rig::new();
    let few = Traffic { source: v4(1), valid: 0, keys: 1, unknown: 9 };
    let passed = rig.run(3000, &[few]);
    assert_eq!(passed[0].unknown, [27_000; 2]);
    let share = Traffic { source: v4(1), valid: 271, keys: 100, unknown: 30 };
    let passed = rig.run(3000, &[share]);
    assert_eq!((lost(passed[0].unknown), lost(passed[0].valid)), (0, 0));
    let more = Traffic { unknown: 40, ..share };
    assert!(lost(rig.run(3000, &[more])[0].unknown) > 0);
}

#[test]
fn a_flood_takes_its_share_and_no_packet_of_other_sources() {
    let mut rig = Rig::new();
    let good = |n| Traffic { source: v4(n), valid: 20, keys: 50, unknown: 0 };
    let flood = Traffic { source: v4(99), valid: 0, keys: 1, unknown: 1000 };
    // Some packets of no session come from anywhere.
    let stale = Traffic { source: v4(98), valid: 20, keys: 50, unknown: 1 };
    let mut all: Vec<Traffic> = (0..10).map(good).collect();
    all.extend([flood, stale]);
    let early = rig.run(2 * WINDOW_MS + 10, &all);
    let late = rig.run(3000, &all);
    for passed in early[..10].iter().chain(&late[..10]) {
        assert_eq!(lost(passed.valid), 0);
    }
    assert_eq!((lost(late[11].valid), lost(late[11].unknown)), (0, 0), "less than the share");
    let sent = late[10].unknown[1];
    assert!((1..=80 * 3 + 8).contains(&sent), "{sent} of 3 million");
    assert_eq!(rig.share.throttled(rig.now_ms).collect::<Vec<_>>(), [v4(99).prefix()]);
    // It ends, and its source may send again.
    all[10] = Traffic { valid: 100, keys: 500, ..good(99) };
    let after = rig.run(1000, &all);
    assert!(lost(after[10].valid) < 50_000, "half a second: {:?}", after[10]);
    assert_eq!(lost(rig.run(1000, &all)[10].valid), 0);
    assert_eq!(rig.share.throttled(rig.now_ms).count(), 0);
}

#[test]
fn valid_packets_of_a_flooding_source_come_through() {
    let mut rig = Rig::new();
    let mixed = Traffic { source: v4(1), valid: 200, keys: 2000, unknown: 1000 };
    rig.run(2 * WINDOW_MS + 10, &[mixed]);
    // Each key sends 100 packets a second.
    let mut seconds = Vec::new();
    for _ in 0..5 {
        let (mut valid, mut unknown) = (0, 0);
        for _ in 0..20 {
            let passed = rig.run(WINDOW_MS, &[mixed])[0];
            valid += lost(passed.valid);
            unknown += passed.unknown[1];
            let sent = passed.valid[1] + passed.unknown[1];
            // Parts of two windows.
            assert!(sent <= 200 * 50 * 13 / 10, "{sent} in a window");
        }
        seconds.push((valid, unknown));
    }
    // Of 200,000 a second.
    let (first, second, last) = (seconds[0], seconds[1], seconds[4]);
    println!("lost, and forwarded of no session, by second: {seconds:?}");
    assert!(first.0 < 60_000 && second.0 < 2_000 && last.0 < 400, "{seconds:?}");
    assert!(last.1 < 200_000 * 11 / 100, "{seconds:?}");
}

#[test]
fn more_sources_than_places_are_one() {
    let mut rig = Rig::new();
    let good = Traffic { source: v4(1), valid: 200, keys: 1000, unknown: 0 };
    let mut next = 1000;
    let (mut sent, mut valid) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        let spoofed =
            (0..1000).map(|n| Traffic { source: v4(next + n), valid: 0, keys: 1, unknown: 1 });
        let mut all: Vec<Traffic> = spoofed.collect();
        next += 1000;
        all.push(good);
        // Twenty milliseconds: each source has a place for longer.
        let passed = rig.run(20, &all);
        sent.push(passed[..1000].iter().map(|p| p.unknown[1]).sum::<u32>());
        valid.push(lost(passed[1000].valid));
    }
    let (early, late): (u32, u32) = (sent[..5].iter().sum(), sent[50..].iter().sum());
    assert!(early > 50_000, "the first windows judge nothing: {sent:?}");
    // Of a million in a second.
    assert!(late < 200_000 * 15 / 100, "{late} {sent:?}");
    let late: u32 = valid[50..].iter().sum();
    assert!(late < 200_000 / 20, "{late} {valid:?}");
}

#[test]
fn a_source_is_that_of_the_frame() {
    let mut frame = [0u8; 60];
    assert_eq!(Source::of(&frame), None);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[26..30].copy_from_slice(&[198, 51, 100, 7]);
    let four = Source::of(&frame).expect("IPv4");
    assert_eq!(four.prefix().to_string(), "198.51.100.0/24");
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    frame[22..30].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 7, 0, 9]);
    let six = Source::of(&frame).expect("IPv6");
    assert_eq!(six.prefix().to_string(), "2001:db8:7::/48");
    for source in [four, six] {
        assert_eq!(Source::from_bits(source.0), Some(source));
        assert!((0..14).all(|len| Source::of(&frame[..len]).is_none()));
    }
    assert_eq!([0, CLAIMED, V4 | 1 << 24, V6 | 1 << 48].map(Source::from_bits), [None; 4]);
}

proptest! {
    /// Whatever is noted of others: a source without a note passes.
    #[test]
    fn a_source_without_a_note_is_never_throttled(
        steps in prop::collection::vec((0u64..40, 0u32..6, 0u64..20, 1u32..2000), 1..300),
    ) {
        let share = UnknownShare::new(1);
        let (mut now_ms, mut noted, mut denied) = (0, HashSet::new(), 0);
        for (wait, source, key, count) in steps {
            now_ms += wait;
            share.offer(count, PERCENT, now_ms);
            for _ in 0..count {
                let is_sent = !share.is_exceeded(now_ms)
                    || share.admit(v4(source), mix(key), PERCENT, now_ms);
                prop_assert!(is_sent || noted.contains(&source));
                denied += u32::from(!is_sent);
                // Keys of even sources have sessions.
                if is_sent && source % 2 == 1 {
                    share.note(v4(source), mix(key), now_ms);
                    noted.insert(source);
                }
            }
            prop_assert!(denied == 0 || !noted.is_empty());
        }
    }
}
