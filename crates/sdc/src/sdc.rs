//! The software defined cache inside the LLC's sets (paper, §2.2.2).
//!
//! ```text
//! tag of an SDC line    1 (extension) │ process │ family         same tag: one family, ≤ 2^m lines
//! beside it             sub-tags 8 × 8 bits │ valid 8 │ sequence 8 │ reference 8
//! a value of n slots    at a multiple of n: sequence 1 … 1 0, sub-tag spread over its slots
//! ```
//!
//! LRU is the cache's own: an SDC line is a line among others. Each step compares the tags of one
//! set and looks at no more than a family's 8 lines.

use overbank::prefetch::prefetch;

use crate::{
    Level, Refused, SdcShape, SlotView, WayView,
    address::{Widths, hash64shift},
    cache::{Cache, EMPTY, EXTENSION},
    counters::SdcCounters,
    shape::LINE,
};

/// 8-byte slots of a line.
pub const SLOTS: usize = 8;

/// State of an SDC line. Bit i and byte i are slot i's.
#[derive(Clone, Copy, Default)]
struct Line {
    sub_tags: u64,
    valid: u8,
    sequence: u8,
    reference: u8,
}

/// What an operation looks for.
struct Wanted {
    tag: u64,
    set: usize,
    slot: usize,
    /// Byte i: the i-th slot's bits of the sub-tag.
    sub_tags: u64,
}

/// Records which key inserted a value. For counters only.
#[derive(Clone, Copy, Default)]
struct Owner {
    key: u64,
    /// The other key whose value its insert cleared; its own key if it cleared none.
    cleared: u64,
}

/// Values that an operation cleared.
struct Cleared {
    values: u64,
    /// The owner of the last one that was another key's.
    other: Option<Owner>,
}

/// Lines of one family.
struct Family {
    at: [usize; SLOTS],
    len: usize,
}

pub(crate) struct Sdc {
    widths: Widths,
    sub_tag_bits: u32,
    family_max: usize,
    lines: Vec<Line>,
    words: Vec<u64>,
    /// By the first slot of a value.
    owners: Vec<Owner>,
    /// Values that the last hit compared.
    pub hit_compared: usize,
}

fn mask(at: usize, slots: usize) -> u8 {
    (((1u32 << slots) - 1) << at) as u8
}

/// Returns the low n bytes of a word, n from 1 to 8.
fn low_bytes(n: usize) -> u64 {
    u64::MAX >> (64 - 8 * n)
}

impl Line {
    /// Returns the slots of the value that begins at a slot; 0 if none does.
    #[inline]
    fn size(&self, at: usize) -> usize {
        let begins = self.valid & !(self.sequence << 1);
        if begins >> at & 1 == 0 {
            return 0;
        }
        (self.sequence >> at).trailing_ones() as usize + 1
    }

    #[inline]
    fn equal(&self, at: usize, slots: usize, sub_tags: u64) -> bool {
        ((self.sub_tags >> (8 * at)) ^ sub_tags) & low_bytes(slots) == 0
    }

    fn clear(&mut self, at: usize, slots: usize) {
        let gone = !mask(at, slots);
        self.valid &= gone;
        self.sequence &= gone;
        self.reference &= gone;
    }

    fn values(&self) -> u64 {
        u64::from((self.valid & !(self.sequence << 1)).count_ones())
    }
}

impl Sdc {
    /// Returns SDC without values. Fails if it cannot be built.
    pub fn new(llc: &Level, shape: &SdcShape) -> Result<Sdc, Refused> {
        let lines = (llc.bytes / LINE) as usize;
        Ok(Sdc {
            widths: Widths::new(llc, shape)?,
            sub_tag_bits: shape.sub_tag_bits,
            family_max: shape.family as usize,
            lines: vec![Line::default(); lines],
            words: vec![0; lines * SLOTS],
            owners: vec![Owner::default(); lines * SLOTS],
            hit_compared: 0,
        })
    }

    /// Returns whether SDC has processes of this number.
    pub fn serves(&self, process: u8) -> bool {
        u32::from(process) >> self.widths.process_bits == 0
    }

    fn wanted(&self, process: u8, key: u64) -> Wanted {
        let place = self.widths.place(key);
        let (bits, segment) = (self.sub_tag_bits, u64::from(place.segment));
        let all = hash64shift(key) << self.widths.segment_bits | segment;
        let one = (1 << bits) - 1;
        let sub_tags =
            (0..SLOTS as u32).fold(0, |bytes, i| bytes | (all >> (i * bits) & one) << (8 * i));
        Wanted {
            tag: EXTENSION | u64::from(process) << 32 | u64::from(place.family),
            set: place.set as usize,
            slot: place.slot as usize,
            sub_tags,
        }
    }

    /// As [`Cache::ask`], for the set and the lines that it may have.
    #[inline]
    fn ask(&self, cache: &Cache, wanted: &Wanted) {
        let set = wanted.set as u64;
        cache.ask(set);
        let lines = cache.set(set).step_by(LINE as usize / size_of::<Line>());
        lines.for_each(|at| prefetch(&self.lines[at]));
    }

    fn family(&self, cache: &Cache, wanted: &Wanted) -> Family {
        let mut family = Family { at: [0; SLOTS], len: 0 };
        for at in cache.set(wanted.set as u64) {
            if cache.tag(at) == wanted.tag && family.len < SLOTS {
                family.at[family.len] = at;
                family.len += 1;
            }
        }
        family
    }

    /// Looks up a value of 1, 2, 4 or 8 words, and writes it to `value`. Returns its first slot,
    /// counted over all lines.
    pub fn lookup(
        &mut self,
        cache: &mut Cache,
        counters: &mut SdcCounters,
        process: u8,
        key: u64,
        value: &mut [u64],
    ) -> Option<usize> {
        let wanted = self.wanted(process, key);
        self.ask(cache, &wanted);
        let slots = value.len();
        let first = wanted.slot & !(slots - 1);
        let (mut compared, mut found) = (0, None);
        for &at in self.family(cache, &wanted).lines() {
            let line = &self.lines[at];
            if line.size(first) == slots {
                compared += 1;
                if line.equal(first, slots, wanted.sub_tags) {
                    // The only one: an insert clears its equals.
                    found = Some(at);
                }
            }
        }
        counters.compared[compared] += 1;
        let Some(at) = found else {
            counters.compared_others[compared] += 1;
            return None;
        };
        counters.hits += 1;
        self.hit_compared = compared;
        let from = at * SLOTS + first;
        value.copy_from_slice(&self.words[from..from + slots]);
        self.lines[at].reference |= mask(first, slots);
        cache.touch(at);
        Some(from)
    }

    /// Inserts a value of 1, 2, 4 or 8 words. Returns its first slot, counted over all lines, and
    /// the tag of the line that gave way to a new line of the family ([`EMPTY`] if none did).
    pub fn insert(
        &mut self,
        cache: &mut Cache,
        counters: &mut SdcCounters,
        process: u8,
        key: u64,
        value: &[u64],
    ) -> (usize, u64) {
        let wanted = self.wanted(process, key);
        let slots = value.len();
        let first = wanted.slot & !(slots - 1);
        let mut family = self.family(cache, &wanted);
        let cleared = self.clear_equal(&family, &wanted, key);
        counters.evicted.equal += cleared.values;
        counters.thrown_out += u64::from(cleared.other.is_some());
        if cleared.other.is_some_and(|of| of.cleared == key) {
            counters.thrown_back += 1;
            counters.thrown_back_compared[self.hit_compared] += 1;
        }
        // With one slot a line, a value needs all of the line.
        let room = if self.widths.slot_bits == 0 { u8::MAX } else { mask(first, slots) };

        let full = family.len >= self.family_max;
        let lines = family.coldest_first(cache);
        let mut gone = EMPTY;
        let at = if let Some(&at) = lines.iter().find(|&&at| self.lines[at].valid & room == 0) {
            counters.placed_free += 1;
            at
        } else {
            let victim = cache.victim(cache.set(wanted.set as u64));
            if full || cache.tag(victim) == wanted.tag {
                counters.placed_clock += 1;
                let at = self.clock(lines, room).unwrap_or(victim);
                self.make_room(at, room, counters);
                at
            } else {
                counters.placed_line += 1;
                gone = cache.replace(victim, wanted.tag);
                counters.lines_taken += u64::from(gone & EXTENSION == 0);
                self.line_gone(victim, gone, counters);
                victim
            }
        };

        let from = at * SLOTS + first;
        self.words[from..from + slots].copy_from_slice(value);
        self.owners[from] = Owner { key, cleared: cleared.other.map_or(key, |of| of.key) };
        let (line, bytes) = (&mut self.lines[at], low_bytes(slots));
        line.valid |= mask(first, slots);
        line.sequence |= mask(first, slots - 1);
        line.sub_tags &= !(bytes << (8 * first));
        line.sub_tags |= (wanted.sub_tags & bytes) << (8 * first);
        cache.touch(at);
        (from, gone)
    }

    /// Clears values of any size with the key's sub-tag. Returns whether there were any.
    pub fn invalidate(
        &mut self,
        cache: &Cache,
        counters: &mut SdcCounters,
        process: u8,
        key: u64,
    ) -> bool {
        let wanted = self.wanted(process, key);
        let cleared = self.clear_equal(&self.family(cache, &wanted), &wanted, key).values;
        counters.evicted.invalidated += cleared;
        cleared > 0
    }

    /// Forgets what a line held whose tag was replaced; nothing if it was not SDC's.
    #[inline]
    pub fn line_gone(&mut self, at: usize, tag: u64, counters: &mut SdcCounters) {
        if tag & EXTENSION != 0 && tag != EMPTY {
            counters.evicted.line += self.lines[at].values();
            self.lines[at] = Line::default();
        }
    }

    /// Clears values of every size with an equal sub-tag.
    fn clear_equal(&mut self, family: &Family, wanted: &Wanted, key: u64) -> Cleared {
        let mut cleared = Cleared { values: 0, other: None };
        for &at in family.lines() {
            for slots in [1, 2, 4, 8] {
                let (line, first) = (&mut self.lines[at], wanted.slot & !(slots - 1));
                if line.size(first) == slots && line.equal(first, slots, wanted.sub_tags) {
                    line.clear(first, slots);
                    cleared.values += 1;
                    let owner = self.owners[at * SLOTS + first];
                    cleared.other = Some(owner).filter(|of| of.key != key).or(cleared.other);
                }
            }
        }
        cleared
    }

    /// Returns the first of these lines none of whose slots in `room` was referenced; clears the
    /// reference bits of those before it. `None` without lines.
    fn clock(&mut self, lines: &[usize], room: u8) -> Option<usize> {
        // In the second round all bits are cleared.
        lines.iter().chain(lines).copied().find(|&at| {
            let line = &mut self.lines[at];
            let referenced = line.reference & room != 0;
            line.reference &= !room;
            !referenced
        })
    }

    /// Clears all values that overlap with `room`.
    fn make_room(&mut self, at: usize, room: u8, counters: &mut SdcCounters) {
        let line = &mut self.lines[at];
        for first in 0..SLOTS {
            let slots = line.size(first);
            let value = mask(first, slots);
            if value & room != 0 {
                let whole = value & !room == 0;
                counters.evicted.clock += u64::from(whole);
                counters.evicted.overwritten += u64::from(!whole);
                line.clear(first, slots);
            }
        }
    }

    /// Returns what an SDC line with this tag holds.
    pub fn view(&self, at: usize, tag: u64) -> WayView {
        let line = &self.lines[at];
        let slot = |i: usize| SlotView {
            valid: line.valid >> i & 1 == 1,
            sequence: line.sequence >> i & 1 == 1,
            reference: line.reference >> i & 1 == 1,
            sub_tag: (line.sub_tags >> (8 * i)) as u8,
        };
        WayView::Sdc {
            process: (tag >> 32) as u8,
            family: tag as u32,
            slots: std::array::from_fn(slot),
        }
    }
}

impl Family {
    fn lines(&self) -> &[usize] {
        &self.at[..self.len]
    }

    /// Sorts the lines, the least recently used one first.
    fn coldest_first(&mut self, cache: &Cache) -> &[usize] {
        let lines = &mut self.at[..self.len];
        lines.sort_unstable_by_key(|&at| cache.stamp(at));
        lines
    }
}
