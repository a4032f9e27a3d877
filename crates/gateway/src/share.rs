//! How much of the fabric packets of no session may take.
//!
//! The partition table answers anything for an unknown key, so most packets of no session cross
//! the fabric before a node can tell. That node sends a note back to where they came in, and there
//! the sources that send them are throttled:
//!
//! ```text
//!   ingress ── packet of no session ──▶ node: in no table, dropped
//!      ▲                                 │
//!      └──── note: its source and key ───┘
//! ```
//!
//! - Nothing is throttled while packets of no session are at most the share of what an ingress
//!   forwards, or fewer than 10,000/s.
//! - Else, a *source* (an IPv4 /24 or an IPv6 /48) is throttled if more than the share of its
//!   packets were of no session in the last window of 50 ms. A source without a note is never
//!   throttled; beyond [`SOURCES`] of them, all others count as one.
//! - A throttled source keeps the rate of its valid packets, and the share more. Packets of
//!   *proven* keys always pass: one of the key crossed 64 ms ago or earlier, and no note came back.
//!   The rest of the rate is for other keys, and proves them; it grows fast while nearly all of
//!   those are valid.
//!
//! So a key of a throttled source loses packets until one of them has passed among those of no
//! session. From the third window on, packets of no session take at most the share, or 10,000/s,
//! and 80/s more for each throttled source. While keys are being proven, they take the place of
//! packets that are valid and not proven yet.
//!
//! Workers share all of this without locks: a packet may count in the window beside its own. Cost
//! for a forwarded packet: one read; while too many are of no session, the line of its source; if
//! that is throttled, the line of its key. Panics: none.

use crate::prefix::Prefix;
use overbank::hash::mix;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use zerocopy::FromZeros;

/// Sources that are distinguished.
pub const SOURCES: usize = SETS * WAYS;
const SETS: usize = 128;
/// Places of a set of sources or keys: a key's set is a cache line.
const WAYS: usize = 8;
/// Keys of throttled sources that are distinguished.
const KEYS: usize = 1 << 18;

const WINDOW_MS: u64 = 50;
/// How long sources stay judged without packets or notes.
const MEMORY_MS: u64 = 1000;
/// Packets of no session in a window that need no judgement: of all sources, and of one.
const FEW: u32 = (10_000 * WINDOW_MS / 1000) as u32;
const FEW_OF_ONE: u32 = 4;
/// A source's rate of valid packets falls by this part of a window.
const FADE: u32 = 64;

/// Growth of what passes of a throttled source from window to window while nearly all is valid.
const MORE: u32 = 4;

/// Budget of a source that is not throttled, and the largest one of others.
const FREE: u32 = u32::MAX;
const BUDGET_MAX: u32 = 1 << 30;
/// Source of a place that is being claimed.
const CLAIMED: u64 = u64::MAX;

/// Where a packet is from: a family, and the bits of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source(pub(crate) u64);

pub(crate) const V4: u64 = 1 << 56;
pub(crate) const V6: u64 = 2 << 56;

impl Source {
    /// Returns the source of an Ethernet frame with an IP packet.
    #[inline]
    pub fn of(frame: &[u8]) -> Option<Source> {
        match frame.get(12..14)? {
            [0x08, 0x00] => {
                let [a, b, c] = *frame.get(26..)?.first_chunk()?;
                Some(Source(V4 | u64::from(u32::from_be_bytes([0, a, b, c]))))
            }
            [0x86, 0xdd] => {
                let [a, b, c, d, e, f] = *frame.get(22..)?.first_chunk()?;
                Some(Source(V6 | u64::from_be_bytes([0, 0, a, b, c, d, e, f])))
            }
            _ => None,
        }
    }

    /// Returns the source of such bits; `None`: no frame has it.
    pub(crate) fn from_bits(bits: u64) -> Option<Source> {
        let is_one = bits & !0xff_ffff == V4 || bits & !0xffff_ffff_ffff == V6;
        is_one.then_some(Source(bits))
    }

    pub fn prefix(self) -> Prefix {
        if self.0 & V6 == 0 {
            Prefix::of(Ipv4Addr::from_bits((self.0 as u32) << 8).into(), 24)
        } else {
            Prefix::of(Ipv6Addr::from_bits(u128::from(self.0) << 80).into(), 48)
        }
    }
}

/// What was counted of a source, or of all, in a window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// Packets that were forwarded.
    sent: u32,
    /// Of them, those of proven keys, and of other keys; neither is counted before the source is
    /// throttled.
    proven: u32,
    tried: u32,
    /// Packets that came of keys that were not proven.
    fresh: u32,
    /// Packets of no session, by notes.
    unknown: u32,
    /// Packets that were not forwarded.
    denied: u32,
    len_ms: u64,
}

impl Window {
    /// Whether more than the share is of no session. Of what is not forwarded, nothing is known:
    /// it counts as such.
    fn exceeds(&self, percent: u32, few: u32) -> bool {
        let bad = self.unknown.saturating_add(self.denied);
        let all = self.sent.saturating_add(self.denied);
        let few = u64::from(few) * self.len_ms / WINDOW_MS;
        u64::from(bad) > few && u64::from(bad) * 100 > u64::from(percent) * u64::from(all)
    }

    /// Whether more than the share of those with keys that were not proven is of no session.
    fn trials_exceed(&self, percent: u32) -> bool {
        u64::from(self.unknown) * 100 > u64::from(percent) * u64::from(self.tried)
    }
}

/// The counts and the judgement of a source, or of all.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Place {
    source: AtomicU64,
    /// When the window ends.
    ends_ms: AtomicU64,
    sent: AtomicU32,
    proven: AtomicU32,
    unknown: AtomicU32,
    denied: AtomicU32,
    /// Packets of keys that are not proven, and those of them that were forwarded.
    fresh: AtomicU32,
    tried: AtomicU32,
    /// How many will come in this window, as far as is known, and most that are forwarded.
    demand: AtomicU32,
    budget: AtomicU32,
    /// Valid packets of a window, as far as is known.
    valid: AtomicU32,
}

impl Place {
    fn new() -> Place {
        Place { budget: AtomicU32::new(FREE), ..Place::default() }
    }

    /// Begins anew, unthrottled.
    fn reset(&self, now_ms: u64) {
        let Place { sent, proven, unknown, denied, fresh, tried, valid, .. } = self;
        let counts = [sent, proven, unknown, denied, fresh, tried, valid];
        counts.into_iter().for_each(|count| count.store(0, Relaxed));
        self.budget.store(FREE, Relaxed);
        self.ends_ms.store(now_ms + WINDOW_MS, Relaxed);
    }

    /// Whether nothing was sent or noted for so long that it is of the past.
    fn is_past(&self, now_ms: u64) -> bool {
        now_ms > self.ends_ms.load(Relaxed) + MEMORY_MS
    }

    /// Returns a window that is over; one worker gets it.
    fn close(&self, now_ms: u64) -> Option<Window> {
        let ends_ms = self.ends_ms.load(Relaxed);
        if now_ms < ends_ms {
            return None;
        }
        let next_ms = now_ms + WINDOW_MS;
        self.ends_ms.compare_exchange(ends_ms, next_ms, Relaxed, Relaxed).ok()?;
        if now_ms > ends_ms + MEMORY_MS {
            self.reset(now_ms);
            return None;
        }
        let take = |count: &AtomicU32| count.swap(0, Relaxed);
        Some(Window {
            sent: take(&self.sent),
            proven: take(&self.proven),
            tried: take(&self.tried),
            fresh: take(&self.fresh),
            unknown: take(&self.unknown),
            denied: take(&self.denied),
            len_ms: now_ms - ends_ms + WINDOW_MS,
        })
    }

    /// Judges a source if its window is over.
    fn judge(&self, percent: u32, now_ms: u64) {
        let Some(window) = self.close(now_ms) else { return };
        let valid = u64::from(window.sent.saturating_sub(window.unknown));
        let before = self.valid.load(Relaxed);
        let valid = (valid * WINDOW_MS / window.len_ms) as u32;
        let valid = valid.max(before - before.div_ceil(FADE));
        self.valid.store(valid, Relaxed);
        let budget = if window.exceeds(percent, FEW_OF_ONE) {
            let rate = (u64::from(valid) * u64::from(100 + percent) / 100).min(BUDGET_MAX.into());
            let left = (rate as u32).saturating_sub(window.proven);
            // Nearly all new keys were valid: more of them may be.
            let more =
                if window.trials_exceed(percent) { 0 } else { window.tried.saturating_mul(MORE) };
            left.max(more).clamp(FEW_OF_ONE, BUDGET_MAX)
        } else {
            FREE
        };
        let was_free = self.budget.load(Relaxed) == FREE;
        self.demand.store(if was_free { window.sent } else { window.fresh }, Relaxed);
        self.budget.store(budget, Relaxed);
    }

    /// Whether one more packet of a key that is not proven may pass: the budget is for packets of
    /// the whole window, drawn by lot, or those would have it that come first.
    fn draws(&self, budget: u32, seed: u64) -> bool {
        let nth = self.fresh.fetch_add(1, Relaxed);
        let lot = mix(seed ^ u64::from(nth)) >> 32;
        let drawn = (lot * u64::from(self.demand.load(Relaxed))) >> 32 < u64::from(budget);
        let passes = drawn && self.tried.load(Relaxed) < budget;
        if passes {
            self.tried.fetch_add(1, Relaxed);
        }
        passes
    }
}

/// Keys of throttled sources: those on trial, and those that are proven.
///
/// ```text
///   word: 47 bits of the key's hash | proven | 16 bits: when it began, or crossed last, in 16 ms
/// ```
struct Keys(Box<[AtomicU64]>);

const UNIT_MS: u64 = 16;
const PROVEN: u64 = 1 << 16;
/// Age of a trial without a note.
const TRIAL: u16 = (64 / UNIT_MS) as u16;
/// Age at which another key may take the place.
const TRIED: u16 = (1000 / UNIT_MS) as u16;
const UNUSED: u16 = (10_000 / UNIT_MS) as u16;

impl Keys {
    fn set(&self, hash: u64) -> &[AtomicU64] {
        let at = hash as usize % (KEYS / WAYS) * WAYS;
        self.0.get(at..at + WAYS).unwrap_or_default()
    }

    /// Returns the tag of a key: the bits of its hash that do not choose the set, and some that do.
    const fn tag(hash: u64) -> u64 {
        hash & !(PROVEN << 1).wrapping_sub(1)
    }

    const fn is(word: u64, tag: u64) -> bool {
        word & !(PROVEN << 1).wrapping_sub(1) == tag && word != 0
    }

    /// Whether a key is proven now.
    fn prove(&self, hash: u64, now_ms: u64) -> bool {
        let (tag, now) = (Keys::tag(hash), (now_ms / UNIT_MS) as u16);
        for slot in self.set(hash) {
            let word = slot.load(Relaxed);
            if !Keys::is(word, tag) {
                continue;
            }
            let age = now.wrapping_sub(word as u16);
            let proven = word & PROVEN != 0 || age >= TRIAL;
            if proven && (age > 0 || word & PROVEN == 0) {
                let used = tag | PROVEN | u64::from(now);
                // A note may just have come.
                let _ = slot.compare_exchange(word, used, Relaxed, Relaxed);
            }
            return proven;
        }
        false
    }

    /// Puts a key on trial, if it is not and there is room.
    fn try_out(&self, hash: u64, now_ms: u64) {
        let (tag, now) = (Keys::tag(hash), (now_ms / UNIT_MS) as u16);
        let set = self.set(hash);
        if set.iter().any(|slot| Keys::is(slot.load(Relaxed), tag)) {
            return;
        }
        let is_free = |word: u64| {
            let most = if word & PROVEN != 0 { UNUSED } else { TRIED };
            word == 0 || now.wrapping_sub(word as u16) > most
        };
        if let Some(slot) = set.iter().find(|slot| is_free(slot.load(Relaxed))) {
            slot.store(tag | u64::from(now), Relaxed);
        }
    }

    /// Forgets a key: a note says that no session has it.
    fn refute(&self, hash: u64) {
        let tag = Keys::tag(hash);
        for slot in self.set(hash) {
            if Keys::is(slot.load(Relaxed), tag) {
                slot.store(0, Relaxed);
            }
        }
    }
}

/// What an ingress knows of packets of no session; see the module.
pub struct UnknownShare {
    all: Place,
    /// Until when sources are judged.
    until_ms: AtomicU64,
    places: Box<[Place]>,
    /// Sources without a place, and until when there are any.
    rest: Place,
    rest_until_ms: AtomicU64,
    keys: Keys,
    seed: u64,
}

impl UnknownShare {
    /// `seed` varies the hash function.
    pub fn new(seed: u64) -> UnknownShare {
        // Zeroed memory of the system takes none until it is used. Without it, no key is proven.
        let keys = <[AtomicU64]>::new_box_zeroed_with_elems(KEYS).unwrap_or_default();
        UnknownShare {
            all: Place::new(),
            until_ms: AtomicU64::new(0),
            places: (0..SOURCES).map(|_| Place::new()).collect(),
            rest: Place::new(),
            rest_until_ms: AtomicU64::new(0),
            keys: Keys(keys),
            seed,
        }
    }

    /// Whether sources are judged.
    #[inline]
    pub fn is_exceeded(&self, now_ms: u64) -> bool {
        now_ms < self.until_ms.load(Relaxed)
    }

    /// Counts packets that are about to be forwarded.
    #[inline]
    pub fn offer(&self, packets: u32, percent: u32, now_ms: u64) {
        if percent >= 100 || packets == 0 {
            return;
        }
        if let Some(window) = self.all.close(now_ms) {
            // Those that were denied had been offered.
            let sent = window.sent.saturating_sub(window.denied);
            if (Window { sent, ..window }).exceeds(percent, FEW) {
                self.until_ms.store(now_ms + MEMORY_MS, Relaxed);
            }
        }
        self.all.sent.fetch_add(packets, Relaxed);
    }

    fn set(&self, source: Source) -> &[Place] {
        let at = (mix(source.0 ^ self.seed) >> 32) as usize % SETS * WAYS;
        self.places.get(at..at + WAYS).unwrap_or_default()
    }

    fn find(&self, source: Source) -> Option<&Place> {
        self.set(source).iter().find(|place| place.source.load(Acquire) == source.0)
    }

    /// Whether sources without a place have had notes.
    fn has_rest(&self, now_ms: u64) -> bool {
        now_ms < self.rest_until_ms.load(Relaxed)
    }

    /// Whether a packet of this source and key may be forwarded. Cold while nothing is exceeded:
    /// ask [`UnknownShare::is_exceeded`] first.
    pub fn admit(&self, source: Source, key: u64, percent: u32, now_ms: u64) -> bool {
        let place = match self.find(source) {
            Some(place) => place,
            None if self.has_rest(now_ms) => &self.rest,
            None => return true,
        };
        place.judge(percent, now_ms);
        let budget = place.budget.load(Relaxed);
        if budget != FREE {
            if self.keys.prove(key, now_ms) {
                place.proven.fetch_add(1, Relaxed);
            } else if place.draws(budget, self.seed) {
                self.keys.try_out(key, now_ms);
            } else {
                place.denied.fetch_add(1, Relaxed);
                self.all.denied.fetch_add(1, Relaxed);
                return false;
            }
        }
        place.sent.fetch_add(1, Relaxed);
        true
    }

    /// Takes from a note: a packet of this source was of no session, by this key.
    #[cold]
    pub fn note(&self, source: Source, key: u64, now_ms: u64) {
        self.all.unknown.fetch_add(1, Relaxed);
        self.keys.refute(key);
        if !self.is_exceeded(now_ms) {
            return;
        }
        // While some have none, no other gets a place: its first window would be unjudged.
        let claim = || if self.has_rest(now_ms) { None } else { self.claim(source, now_ms) };
        let place = self.find(source).or_else(claim).unwrap_or_else(|| {
            if !self.has_rest(now_ms) {
                self.rest.reset(now_ms);
            }
            self.rest_until_ms.store(now_ms + MEMORY_MS, Relaxed);
            &self.rest
        });
        place.unknown.fetch_add(1, Relaxed);
    }

    /// Returns a place for a source that has none, if there is one.
    fn claim(&self, source: Source, now_ms: u64) -> Option<&Place> {
        self.set(source).iter().find(|place| {
            let before = place.source.load(Relaxed);
            let is_free = before != CLAIMED && (before == 0 || place.is_past(now_ms));
            let claims =
                || place.source.compare_exchange(before, CLAIMED, Acquire, Relaxed).is_ok();
            let claimed = is_free && claims();
            if claimed {
                place.reset(now_ms);
                // After the reset: no packet of this source meets what was judged of another.
                place.source.store(source.0, Release);
            }
            claimed
        })
    }

    /// Iterates over the sources that are throttled.
    pub fn throttled(&self, now_ms: u64) -> impl Iterator<Item = Prefix> {
        let is_throttled =
            move |place: &&Place| place.budget.load(Relaxed) != FREE && !place.is_past(now_ms);
        let exceeded = self.is_exceeded(now_ms);
        let places = self.places.iter().filter(move |_| exceeded).filter(is_throttled);
        let sources = places.map(|place| place.source.load(Acquire));
        sources.filter(|source| ![0, CLAIMED].contains(source)).map(|s| Source(s).prefix())
    }
}

#[cfg(test)]
mod tests;
