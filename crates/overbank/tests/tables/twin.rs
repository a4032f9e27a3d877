//! The flow cache against a naive twin: every geometry, policy and layout, on every instruction set
//! that the machine has, must agree slot by slot after every operation.
//!
//! The twin is vectors of options and plain loops. It draws from the same generator in the same
//! order, so that even random evictions are foretold. Tables are tiny and fingerprints few, so that
//! everything collides all the time.

use overbank::cache::*;
use overbank::hash::{Hash64, mix};
use overbank::isa::Isa;
use overbank::random::Pcg32;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

/// Keys of a test, and the hashes that make them collide.
const KEYS: usize = 96;

#[derive(Clone, Debug)]
struct Twin {
    choices: usize,
    slots: usize,
    cuckoo: bool,
    buckets: usize,
    policy: PolicyKind,
    table: Vec<Vec<Option<(u16, u32)>>>,
    last_was_hit: Vec<bool>,
    countdown: u32,
    /// Half-bubble: which of a bucket's slots bubble in this burst; none while there is room.
    bubbling: std::ops::Range<usize>,
    /// Half-bubble: hits until it orders again, and lookups, hits and low hits since a verdict.
    rest: usize,
    seen: [usize; 3],
    /// How often it went to rest, and was woken by what it saw.
    rests: [u32; 2],
    pcg: Pcg32,
    counters: Counters,
}

impl Twin {
    fn new(design: Design, buckets: usize, seed: u64) -> Self {
        let numbers: Vec<usize> =
            design.geometry().name().split('-').skip(1).map(|n| n.parse().unwrap()).collect();
        let (choices, slots) = if let [h, m] = numbers[..] { (h, m) } else { (1, numbers[0]) };
        let cuckoo = design.geometry().name().starts_with("cuckoo");
        let buffer = if cuckoo { 0 } else { choices - 1 };
        let mut pcg = Pcg32::new(seed, 54);
        let countdown = match design.policy() {
            PolicyKind::Pblru { every } => 1 + pcg.below(2 * every - 1),
            PolicyKind::HalfBubble => 1 + pcg.below(31),
            _ => 0,
        };
        Self {
            choices,
            slots,
            cuckoo,
            buckets,
            policy: design.policy(),
            table: vec![vec![None; slots]; buckets + buffer],
            last_was_hit: vec![false; buckets],
            countdown,
            bubbling: 0..0,
            rest: 0,
            seen: [0; 3],
            rests: [0; 2],
            pcg,
            counters: Counters::default(),
        }
    }

    fn fingerprint(hash: u64) -> u16 {
        if hash.is_multiple_of(65536) { 1 } else { (hash % 65536) as u16 }
    }

    /// Candidate slots as (bucket, index), in order.
    fn candidates(&self, hash: u64) -> Vec<(usize, usize)> {
        let n = self.buckets as u128;
        let home = (u128::from(hash >> 32) * n / (1 << 32)) as usize;
        let stirred = u128::from(hash.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32);
        let mut others: Vec<usize> = (0..self.buckets).filter(|&b| b != home).collect();
        let buckets = match (self.cuckoo, self.choices) {
            (true, _) => vec![home, others.swap_remove((stirred * (n - 1) / (1 << 32)) as usize)],
            (false, h) => (home..home + h).collect(),
        };
        buckets.into_iter().flat_map(|b| (0..self.slots).map(move |i| (b, i))).collect()
    }

    fn at(&self, (bucket, index): (usize, usize)) -> Option<(u16, u32)> {
        self.table[bucket][index]
    }

    /// Numbers of the candidate slots with the hash's fingerprint.
    fn matches(&self, hash: u64) -> Vec<usize> {
        let fp = Self::fingerprint(hash);
        let all = self.candidates(hash);
        (0..all.len()).filter(|&c| self.at(all[c]).is_some_and(|entry| entry.0 == fp)).collect()
    }

    /// What a probe tells: in cuckoo-lite with room, the second bucket's only where the
    /// first has none.
    fn probed(&self, hash: u64) -> Vec<usize> {
        let mut all = self.matches(hash);
        let fifths =
            [(4, 2), (8, 3), (16, 4)].iter().find(|f| f.0 == self.slots).map_or(0, |f| f.1);
        let roomy = self.cuckoo && self.len() <= self.buckets * self.slots * fifths / 5;
        if roomy && all.first().is_some_and(|&c| c < self.slots) {
            all.retain(|&c| c < self.slots);
        }
        all
    }

    /// Verified lookup, without its effects: the slot and value, and how many were refused.
    fn find(&self, hash: u64, verify: &dyn Fn(u32) -> bool) -> (Option<(usize, u32)>, u64) {
        self.find_among(self.matches(hash), hash, verify)
    }

    fn find_among(
        &self,
        matches: Vec<usize>,
        hash: u64,
        verify: &dyn Fn(u32) -> bool,
    ) -> (Option<(usize, u32)>, u64) {
        let all = self.candidates(hash);
        let mut refused = 0;
        for c in matches {
            let value = self.at(all[c]).unwrap().1;
            if verify(value) {
                return (Some((c, value)), refused);
            }
            refused += 1;
        }
        (None, refused)
    }

    fn report(&mut self, hash: u64, hit: Option<usize>) {
        self.counters.lookups += 1;
        let Some(c) = hit else { return };
        self.counters.hits += 1;
        let (bucket, index) = self.candidates(hash)[c];
        let promote = match self.policy {
            PolicyKind::Random => false,
            PolicyKind::Bubble => true,
            PolicyKind::DcBubble => {
                self.last_was_hit[bucket] = true;
                true
            }
            PolicyKind::Pblru { every } => {
                self.countdown -= 1;
                let now = self.countdown == 0;
                if now {
                    self.countdown = 1 + self.pcg.below(2 * every - 1);
                }
                now
            }
            PolicyKind::HalfBubble => self.bubbling.contains(&index),
            other => panic!("{other:?} has no twin"),
        };
        let still = self.at((bucket, index)).is_some_and(|e| e.0 == Self::fingerprint(hash));
        if promote && still && index > 0 {
            self.table[bucket].swap(index, index - 1);
        }
    }

    /// Fewer than one slot in 24 is empty (buffer buckets help to fill, but do not count as slots).
    fn crowded(&self) -> bool {
        let capacity = self.buckets * self.slots;
        self.len() >= capacity - capacity / 24
    }

    /// Prepares the reports of a burst with these hits.
    fn start_burst(&mut self, found: &[Option<usize>]) {
        if self.policy != PolicyKind::HalfBubble {
            return;
        }
        self.bubbling = 0..0;
        if !self.crowded() {
            return;
        }
        self.countdown -= 1;
        let all = self.countdown == 0;
        if all {
            self.countdown = 1 + self.pcg.below(31);
        }
        let hits: Vec<usize> = found.iter().flatten().map(|c| c % self.slots).collect();
        if self.rest > 0 {
            self.rest = self.rest.saturating_sub(hits.len());
            if self.rest == 0 {
                self.seen = [0; 3];
            }
            if !all {
                return;
            }
        }
        self.bubbling = if all { 1..self.slots } else { self.slots / 2..self.slots };
        let low = hits.iter().filter(|&&index| index >= self.slots / 2).count();
        let now = [found.len(), hits.len(), low];
        self.seen = std::array::from_fn(|i| self.seen[i] + now[i]);
    }

    /// After the reports of a burst.
    fn end_burst(&mut self) {
        // Nothing was judged unless something could bubble.
        if self.policy != PolicyKind::HalfBubble || self.bubbling.is_empty() {
            return;
        }
        let capacity = self.buckets * self.slots;
        let [lookups, hits, low] = self.seen;
        if hits < if self.rest == 0 { capacity } else { (capacity / 8).max(1) } {
            return;
        }
        let low = low as f64 / hits.max(1) as f64;
        let misses = (lookups - hits) as f64 / lookups.max(1) as f64;
        if self.rest == 0 && (low >= 15.0 / 32.0 || misses < 0.01) {
            self.rest = capacity * 16;
            self.rests[0] += 1;
        } else if self.rest > 0 && low < 27.0 / 64.0 && misses >= 0.01 {
            self.rest = 0;
            self.rests[1] += 1;
        }
        self.seen = [0; 3];
    }

    /// Of a burst; `probes` if it went through a probe by hand.
    fn lookup_burst(&mut self, burst: &[(u64, u32)], probes: bool) -> Vec<Option<u32>> {
        let found: Vec<_> = burst
            .iter()
            .map(|&(hash, key)| {
                let matches = if probes { self.probed(hash) } else { self.matches(hash) };
                self.find_among(matches, hash, &|value| belongs(value, key))
            })
            .collect();
        let slots: Vec<_> = found.iter().map(|(hit, _)| hit.map(|(c, _)| c)).collect();
        self.start_burst(&slots);
        for ((&(hash, _), &slot), (_, refused)) in burst.iter().zip(&slots).zip(&found) {
            self.counters.false_positives += refused;
            self.report(hash, slot);
        }
        self.end_burst();
        found.into_iter().map(|(hit, _)| hit.map(|(_, value)| value)).collect()
    }

    fn insert(&mut self, hash: u64, value: u32) -> Inserted {
        self.counters.inserts += 1;
        let all = self.candidates(hash);
        let new = Some((Self::fingerprint(hash), value));
        let home = all[0].0;
        let outcome = if let Some(&c) = self.matches(hash).first() {
            self.counters.replacements += 1;
            let (bucket, index) = all[c];
            let (_, value) = self.table[bucket][index].unwrap();
            self.table[bucket][index] = new;
            Inserted::Replaced { value }
        } else if let Some(&(bucket, index)) = all.iter().find(|&&slot| self.at(slot).is_none()) {
            self.table[bucket][index] = new;
            Inserted::Fresh
        } else {
            self.counters.evictions += 1;
            let lost = if self.policy == PolicyKind::DcBubble {
                let bucket = &mut self.table[home];
                let lost =
                    bucket.remove(if self.last_was_hit[home] { bucket.len() - 1 } else { 0 });
                bucket.push(new);
                lost
            } else {
                let (bucket, index) = match self.policy {
                    PolicyKind::Random => all[self.pcg.below(all.len() as u32) as usize],
                    PolicyKind::HalfBubble if !self.crowded() || self.rest > 0 => {
                        all[self.pcg.below(all.len() as u32) as usize]
                    }
                    _ => {
                        let choice = self.pcg.below(self.choices as u32) as usize;
                        all[choice * self.slots + self.slots - 1]
                    }
                };
                std::mem::replace(&mut self.table[bucket][index], new)
            };
            let (fingerprint, value) = lost.unwrap();
            Inserted::Evicted {
                fingerprint: Fingerprint::of(Hash64::new(fingerprint.into())),
                value,
            }
        };
        self.last_was_hit.get_mut(home).into_iter().for_each(|bit| *bit = false);
        outcome
    }

    fn remove(&mut self, hash: u64, verify: &dyn Fn(u32) -> bool) -> Option<u32> {
        let (c, value) = self.find(hash, verify).0?;
        let (bucket, index) = self.candidates(hash)[c];
        self.table[bucket][index] = None;
        self.counters.removals += 1;
        Some(value)
    }

    fn sweep(&mut self, start: usize, count: usize, keep: &dyn Fn(u16, u32) -> bool) -> usize {
        let slots = self.table.iter_mut().skip(start).take(count).flatten();
        let gone: Vec<_> = slots.filter(|slot| slot.is_some_and(|(f, v)| !keep(f, v))).collect();
        let removed = gone.len();
        gone.into_iter().for_each(|slot| *slot = None);
        self.counters.removals += removed as u64;
        removed
    }

    fn len(&self) -> usize {
        self.table.iter().flatten().flatten().count()
    }
}

/// Values carry the number of their key in the low bits.
fn belongs(value: u32, key: u32) -> bool {
    value % 128 == key
}

#[derive(Clone, Debug)]
enum Op {
    Insert(usize, u32),
    Lookup(usize),
    /// Through `lookup_batch`: any length.
    Batch(Vec<usize>),
    /// Through `probe_batch`, `resolve` and `commit`: a burst.
    Burst(Vec<usize>),
    Unverified(usize),
    Remove(usize),
    Retain(u32),
    Sweep(usize, usize, u32),
    Clear,
}

fn operation() -> impl Strategy<Value = Op> {
    let key = 0..KEYS;
    prop_oneof![
        40 => (key.clone(), 0..400u32).prop_map(|(k, v)| Op::Insert(k, v)),
        10 => key.clone().prop_map(Op::Lookup),
        10 => prop::collection::vec(key.clone(), 0..80).prop_map(Op::Batch),
        20 => prop::collection::vec(key.clone(), 0..=BURST).prop_map(Op::Burst),
        3 => key.clone().prop_map(Op::Unverified),
        10 => key.prop_map(Op::Remove),
        2 => (2..9u32).prop_map(Op::Retain),
        4 => (0..12usize, 0..4usize, 2..4u32).prop_map(|(s, n, d)| Op::Sweep(s, n, d)),
        1 => Just(Op::Clear),
    ]
}

/// Hashes of few fingerprints (0 and 1 among them, which are the same) and any buckets.
fn hashes(seed: u64) -> Vec<u64> {
    let fingerprints = [0u64, 1, 0x0100, 0x8000, 0xffff, 0x7fff, 0x1234, 0x00ff];
    (0..KEYS as u64)
        .map(|key| {
            let random = mix(seed ^ key << 32);
            // Many fingerprints too, or wide buckets would never fill.
            let low =
                if key % 4 != 0 { random & 0xffff } else { fingerprints[key as usize / 4 % 8] };
            random & !0xffff | low
        })
        .collect()
}

fn agree<G: Geometry, P: Policy<G>, L: Layout>(config: &Config, buckets: usize, ops: &[Op]) {
    let seed = 0x5eed;
    for isa in Isa::available() {
        let config = config.clone().seed(seed).isa(Some(isa));
        let mut cache = FlowCache::<G, P, L>::new(&config).unwrap();
        let mut twin = Twin::new(cache.design(), buckets, seed);
        let hashes = hashes(buckets as u64);
        assert_eq!((cache.buckets(), cache.isa()), (buckets, isa));
        for op in ops {
            step(&mut cache, &mut twin, &hashes, op);
            let context = || format!("{} {isa} {:?} after {op:?}", cache.design(), L::KIND);
            for (bucket, slots) in twin.table.iter().enumerate() {
                for (slot, &entry) in slots.iter().enumerate() {
                    let found = cache.peek(bucket, slot).map(|(fp, value)| (fp.get(), value));
                    assert_eq!(found, entry, "{bucket}/{slot}: {}", context());
                }
            }
            let listed = cache.iter().map(|(fingerprint, value)| (fingerprint.get(), value));
            assert!(listed.eq(twin.table.iter().flatten().flatten().copied()), "{}", context());
            assert_eq!(cache.len(), twin.len(), "{}", context());
            assert_eq!(*cache.counters(), twin.counters, "{}", context());
        }
        assert_eq!(cache.peek(twin.table.len(), 0), None);
        if ops.len() >= LONG {
            let Counters { hits, false_positives, replacements, evictions, removals, .. } =
                *cache.counters();
            let seen = [hits, false_positives, replacements, evictions, removals];
            assert!(seen.iter().all(|&n| n > 20), "{}: {:?}", cache.design(), cache.counters());
            let rested = twin.rests.iter().all(|&n| n > 0);
            assert!(rested || twin.policy != PolicyKind::HalfBubble, "{}", cache.design());
        }
    }
}

/// Operations of a run in which everything must have happened at least once.
const LONG: usize = 3000;

/// The same operations every time: proptest's strategies with its fixed seed.
fn long_run() -> Vec<Op> {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    // Inserts get the upper hand, so that the widest table fills between two clears.
    let op = prop_oneof![operation(), (0..KEYS, 0..400u32).prop_map(|(k, v)| Op::Insert(k, v))];
    (0..LONG).map(|_| op.new_tree(&mut runner).expect("no filter").current()).collect()
}

fn step<G: Geometry, P: Policy<G>, L: Layout>(
    cache: &mut FlowCache<G, P, L>,
    twin: &mut Twin,
    hashes: &[u64],
    op: &Op,
) {
    let pairs =
        |keys: &[usize]| keys.iter().map(|&k| (hashes[k], k as u32)).collect::<Vec<(u64, u32)>>();
    match op {
        Op::Insert(key, extra) => {
            let value = *key as u32 + 128 * extra;
            let narrow = L::Value::try_from(value).ok().expect("51,295 fits in 16 bits");
            assert_eq!(
                cache.insert(Hash64::new(hashes[*key]), narrow),
                twin.insert(hashes[*key], value)
            );
        }
        Op::Lookup(key) => {
            let got = cache.get(Hash64::new(hashes[*key]), |value| belongs(value, *key as u32));
            let found =
                cache.lookup(Hash64::new(hashes[*key]), |value| belongs(value, *key as u32));
            assert_eq!(got, found);
            assert_eq!(vec![found], twin.lookup_burst(&pairs(&[*key]), false));
        }
        Op::Batch(keys) => {
            let hashes: Vec<u64> = keys.iter().map(|&k| hashes[k]).collect();
            let mut found = vec![Some(7); keys.len()];
            cache.lookup_batch(
                Hash64::slice(&hashes),
                |i, value| belongs(value, keys[i] as u32),
                &mut found,
            );
            let bursts = keys.chunks(BURST);
            let expected: Vec<_> =
                bursts.flat_map(|b| twin.lookup_burst(&pairs(b), false)).collect();
            assert_eq!(found, expected);
        }
        Op::Burst(keys) => burst(cache, twin, &pairs(keys)),
        Op::Unverified(key) => {
            let (hit, _) = twin.find(hashes[*key], &|_| true);
            twin.start_burst(&[hit.map(|(c, _)| c)]);
            twin.report(hashes[*key], hit.map(|(c, _)| c));
            twin.end_burst();
            let found = cache.lookup_unverified(Hash64::new(hashes[*key]));
            assert_eq!(found, hit.map(|(_, value)| Unverified(value)));
        }
        Op::Remove(key) => {
            let verify = |value| belongs(value, *key as u32);
            let removed = cache.remove(Hash64::new(hashes[*key]), verify);
            assert_eq!(removed, twin.remove(hashes[*key], &verify));
        }
        Op::Retain(divisor) => {
            let keep = |fp: u16, value: u32| !(u32::from(fp) + value).is_multiple_of(*divisor);
            let ours = |fp: Fingerprint, value: u32| keep(fp.get(), value);
            assert_eq!(cache.retain(ours), twin.sweep(0, usize::MAX, &keep));
        }
        Op::Sweep(start, count, divisor) => {
            let keep = |_: u16, value: u32| !value.is_multiple_of(*divisor);
            let removed = twin.sweep(*start, *count, &keep);
            let next = if start + count < twin.table.len() { start + count } else { 0 };
            let ours = |fp: Fingerprint, value: u32| keep(fp.get(), value);
            assert_eq!(cache.sweep(*start, *count, ours), Swept { removed, next });
        }
        Op::Clear => {
            cache.clear();
            twin.sweep(0, usize::MAX, &|_, _| false);
            twin.last_was_hit.fill(false);
        }
    }
}

/// A burst by hand, through the interface that hides the types.
fn burst(cache: &mut dyn DynCache, twin: &mut Twin, keys: &[(u64, u32)]) {
    let hashes: Vec<u64> = keys.iter().map(|&(hash, _)| hash).collect();
    let mut probes = Probes::new();
    // As the next burst of none, with another next one, and alone: the answer is the same.
    let next: Vec<u64> = hashes.iter().rev().map(|hash| !hash).cycle().take(40).collect();
    cache.probe_batch_ahead(&[], Hash64::slice(&hashes), &mut probes);
    assert!(probes.is_empty() && probes.matched().is_empty());
    cache.probe_batch_ahead(Hash64::slice(&hashes), Hash64::slice(&next), &mut probes);
    let ahead = probes.clone();
    cache.probe_batch(Hash64::slice(&hashes), &mut probes);
    assert_eq!((ahead.len(), probes.len()), (keys.len(), keys.len()));
    assert_eq!((ahead.matched(), ahead.values()), (probes.matched(), probes.values()));
    let (mut by_hand, mut hit, mut refused) = (probes.clone(), 0u32, 0);
    for (i, &(hash, key)) in keys.iter().enumerate() {
        let matches = twin.probed(hash);
        let slots = |probes: &Probes| probes.slots(i).map(|slot| usize::from(slot.get())).collect();
        let [found, found_ahead]: [Vec<usize>; 2] = [slots(&probes), slots(&ahead)];
        assert_eq!((&found, &found_ahead), (&matches, &matches), "{}", cache.design());
        assert_eq!(probes.matched().contains(i), !matches.is_empty());
        if let Some(&first) = matches.first() {
            let slot = twin.candidates(hash)[first];
            assert_eq!(Some(probes.values()[i]), twin.at(slot).map(|entry| entry.1));
        }
        for slot in probes.slots(i) {
            let value = cache.candidate(Hash64::new(hash), slot);
            if belongs(value, key) {
                by_hand.replace(i, Some((slot, value)));
                hit |= 1 << i;
                break;
            }
            refused += 1;
        }
    }
    assert_eq!(u64::from(probes.matched().bits()) >> keys.len(), 0);
    let right = by_hand;
    let mut by_hand = right.first_matches(Mask::new(hit));
    by_hand.refuse(refused);
    // Each way to decide gives the same report.
    let is_right = |i: usize, value: u32| belongs(value, keys[i].1);
    let mut asked = Vec::new();
    let (matched, mut branchless) = (probes.matched(), probes.clone());
    let hits = probes.resolve(&*cache, Hash64::slice(&hashes), |i, value| {
        asked.push(i);
        is_right(i, value)
    });
    let of = |hits: &Hits| (hits.len(), hits.found(), hits.missed(), hits.refused());
    assert_eq!(of(&hits), of(&by_hand));
    assert!(asked[..matched.len()].iter().copied().eq(matched));
    assert!(asked.iter().all(|&i| matched.contains(i)));
    let branchless = branchless.resolve_branchless(&*cache, Hash64::slice(&hashes), is_right);
    assert_eq!(format!("{branchless:?}"), format!("{hits:?}"));
    cache.commit(Hash64::slice(&hashes), &hits);
    // The right match is the first one now.
    for i in hits.found() {
        assert_eq!(probes.slots(i).next(), right.slots(i).next());
        assert_eq!(probes.values()[i], right.values()[i]);
    }
    twin.lookup_burst(keys, true);
}

/// Both layouts, and the promotion probabilities 1, 1/2 and 1/16.
fn agree_policies<G: Geometry>(buckets: usize, ops: &[Op]) {
    let config = Config::buckets(buckets);
    agree::<G, Random, Fp16V16>(&config, buckets, ops);
    agree::<G, Random, Fp16V32>(&config, buckets, ops);
    agree::<G, BubbleLru, Fp16V16>(&config, buckets, ops);
    agree::<G, BubbleLru, Fp16V32>(&config, buckets, ops);
    agree::<G, Pblru, Fp16V16>(&config.clone().promote_every(2), buckets, ops);
    agree::<G, Pblru, Fp16V32>(&config.clone().promote_every(1), buckets, ops);
    agree::<G, HalfBubble, Fp16V16>(&config, buckets, ops);
    agree::<G, HalfBubble, Fp16V32>(&config, buckets, ops);
    agree::<G, Pblru, Fp16V16>(&config.promote_every(16), buckets, ops);
}

fn agree_dc_bubble<const M: usize>(buckets: usize, ops: &[Op])
where
    SetAssoc<M>: Geometry,
{
    let config = Config::buckets(buckets);
    agree::<SetAssoc<M>, DcBubble, Fp16V16>(&config, buckets, ops);
    agree::<SetAssoc<M>, DcBubble, Fp16V32>(&config, buckets, ops);
}

macro_rules! twins {
    ($($name:ident: $buckets:expr, [$($check:expr),+];)+) => {
        mod everything_happens {
            use super::*;
            $(
                #[test]
                fn $name() {
                    let ops = long_run();
                    $($check($buckets.start + 1, &ops);)+
                }
            )+
        }

        proptest! {
            #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
            $(
                #[test]
                fn $name(
                    buckets in $buckets,
                    ops in prop::collection::vec(operation(), 1..120),
                ) {
                    $($check(buckets, &ops);)+
                }
            )+
        }
    };
}

// Buckets in such numbers that the 96 keys overfill the table now and then.
twins! {
    set_4: 1..8usize, [agree_policies::<SetAssoc<4>>, agree_dc_bubble::<4>];
    set_8: 1..6usize, [agree_policies::<SetAssoc<8>>, agree_dc_bubble::<8>];
    set_16: 1..4usize, [agree_policies::<SetAssoc<16>>, agree_dc_bubble::<16>];
    cuckoo_2_4: 2..8usize, [agree_policies::<Cuckoo<2, 4>>];
    cuckoo_2_8: 2..6usize, [agree_policies::<Cuckoo<2, 8>>];
    cuckoo_2_16: 2..4usize, [agree_policies::<Cuckoo<2, 16>>];
    blp_2_4: 1..8usize, [agree_policies::<Blp<2, 4>>];
    blp_2_8: 1..5usize, [agree_policies::<Blp<2, 8>>];
    blp_2_16: 1..3usize, [agree_policies::<Blp<2, 16>>];
    blp_4_4: 1..8usize, [agree_policies::<Blp<4, 4>>];
}
