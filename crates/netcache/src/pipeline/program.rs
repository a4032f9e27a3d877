//! What happens to each message (algorithm 1, and the stamps that it lacks).
//!
//! | message | key cached | otherwise |
//! |---|---|---|
//! | GET | answered if valid; else counted, forwarded | counted, forwarded |
//! | PUT, DELETE | invalidated, stamped, forwarded | forwarded without a stamp |
//! | FENCE | invalidated, answered with the stamp | answered: absent |
//! | UPDATE | stored if its stamp is the last one; answered | answered: absent |
//! | from the device alone (ADOPT …) | dropped | dropped |
//! | to the controller (HELLO …) | handed over | handed over |
//! | answers of servers | forwarded | forwarded |

use super::arrays::{Arrays, Length, Status, WRITES_MAX};
use super::counts::Counts;
use super::stages::{AtStatus, AtUpdate, AtValue};
use crate::Protocol;
use crate::entry::Entry;
use crate::slots::{PASS, UNIT, VALUE_MAX, passes_of};
use overbank::fib::Reader;
use overbank::sketch;
use overbank_wire::netcache::{FLAG_ABSENT, FLAG_BYPASS, Key, Message, Op, Stamp, Status as Said};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Messages of a burst at most.
pub const BURST_MAX: usize = sketch::BURST_MAX;

overbank_reasons::reasons! {
    /// Why a message of the protocol is dropped.
    pub enum Unread {
        WrongPort = "wrong_port", "update or fence that came in by another port than the server's";
        Forged = "forged", "message of the device or its controller that came in by a port";
        Busy = "busy", "update of a key that another update is storing";
    }
}

/// A message and the port that it came in by.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    pub message: Message<'a>,
    pub port: u16,
}

impl Packet<'_> {
    /// A place for one.
    pub const NONE: Packet<'static> = Packet { message: Message::new(Op::Get, 0, 0, 0), port: 0 };
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes where it was going, as it is.
    Forward,
    /// Likewise, as this operation and with this stamp.
    Mark(Op, Stamp),
    /// It is answered by the port that it came in by.
    Answer {
        op: Op,
        flags: u8,
        status: Said,
        stamp: Stamp,
        /// Bytes of the value, in the burst's room for this message.
        len: u16,
    },
    /// It is for the controller.
    Control,
    Drop(Unread),
}

/// A worker's part of the device.
pub struct Pipeline {
    lookup: Reader<Key, u64>,
    arrays: Arc<Arrays>,
    hits: Counts,
    sketch: sketch::Counter,
    seed: u64,
    protocol: Protocol,
    passes: u64,
}

impl Pipeline {
    /// Returns a worker's part. `seed`: of the sketch's hash, unknown to strangers.
    pub fn new(
        lookup: Reader<Key, u64>,
        arrays: Arc<Arrays>,
        hits: Counts,
        sketch: sketch::Counter,
        seed: u64,
    ) -> Pipeline {
        let protocol = Protocol::Stamps;
        Pipeline { lookup, arrays, hits, sketch, seed, protocol, passes: 0 }
    }

    /// Returns the same with another protocol.
    #[must_use]
    pub fn following(self, protocol: Protocol) -> Pipeline {
        Pipeline { protocol, ..self }
    }

    /// Returns how many passes there were beyond the first of a message: for values longer than
    /// [`PASS`].
    pub fn passes(&self) -> u64 {
        self.passes
    }

    /// Takes the epoch that the controller wants, as each burst does. A worker without messages
    /// calls it now and then: epochs wait for all workers.
    pub fn attend(&mut self) {
        self.sketch.attend();
    }

    /// Decides on [`BURST_MAX`] messages at most, in their order. Sets a verdict for each, and the
    /// values of answers in `values`. Bit `n` of the result says that message `n` is a GET whose
    /// key became hot: it is reported to the controller.
    ///
    /// Ignores messages for which there is no verdict or no room.
    pub fn burst(
        &mut self,
        packets: &[Packet<'_>],
        verdicts: &mut [Verdict],
        values: &mut [[u8; VALUE_MAX]],
    ) -> u64 {
        let count = packets.len().min(verdicts.len()).min(values.len()).min(BURST_MAX);
        let (mut keys, mut words) = ([0; BURST_MAX], [0; BURST_MAX]);
        for (key, packet) in keys.iter_mut().zip(&packets[..count]) {
            *key = packet.message.key;
        }
        let cached = self.lookup.lookup_batch(&keys[..count], &mut words[..count]);
        for word in words.iter().take(count) {
            let entry = Entry::unpack(*word);
            self.arrays.prefetch(entry.item, entry.place);
        }
        self.sketch.attend();
        let (mut asked, mut hashes, mut misses) = ([0; BURST_MAX], [0; BURST_MAX], 0);
        for (nth, packet) in packets[..count].iter().enumerate() {
            let entry = (cached >> nth & 1 == 1).then(|| Entry::unpack(words[nth]));
            verdicts[nth] = self.one(packet, entry, &mut values[nth]);
            let is_get = packet.message.op == Op::Get && packet.message.flags & FLAG_BYPASS == 0;
            if is_get && verdicts[nth] == Verdict::Forward {
                asked[misses] = nth;
                let key = packet.message.key.to_le_bytes();
                hashes[misses] = xxh3_128_with_seed(&key, self.seed);
                misses += 1;
            }
        }
        let hot = self.sketch.count_batch(&hashes[..misses]);
        let hot = (0..misses).filter(|miss| hot >> miss & 1 == 1);
        hot.fold(0, |reported, miss| reported | 1 << asked[miss])
    }

    /// Returns a device whose state the model of the protocol sets and reads.
    #[cfg(all(test, not(feature = "loom")))]
    pub(crate) fn of_one_item(table: &super::Table) -> Pipeline {
        let settings = sketch::Settings { threshold: u16::MAX, sample_log2: 0 };
        let sketch = sketch::Config { counters_log2: 2, bloom_log2: 6 }.build(1, settings);
        let (counts, _) = Counts::new(1);
        Pipeline::new(table.reader(), table.arrays(), counts, sketch.expect("memory").0, 1)
    }

    #[cfg(all(test, not(feature = "loom")))]
    pub(crate) fn set(
        &mut self,
        entry: Entry,
        (boot, status): (u32, Status),
        (length, value): (Length, &[u8]),
    ) {
        self.arrays.begin(boot);
        self.arrays.set(entry.item, status, length);
        self.arrays.store(entry.place, value);
    }

    #[cfg(all(test, not(feature = "loom")))]
    pub(crate) fn of(&self, entry: Entry) -> (Status, Length, u8) {
        let mut room = [0; PASS];
        self.arrays.load(entry.place, &mut room);
        (self.arrays.status(entry.item), self.arrays.length(entry.item), room[0])
    }

    #[inline(always)]
    pub(crate) fn one(
        &mut self,
        packet: &Packet<'_>,
        entry: Option<Entry>,
        room: &mut [u8; VALUE_MAX],
    ) -> Verdict {
        let message = &packet.message;
        match message.op {
            Op::Get if message.flags & FLAG_BYPASS == 0 => self.get(entry, room),
            Op::Put | Op::PutCached => self.write(message, entry, [Op::Put, Op::PutCached]),
            Op::Delete | Op::DeleteCached => {
                self.write(message, entry, [Op::Delete, Op::DeleteCached])
            }
            Op::Fence => self.fence(packet.port, entry),
            Op::Update => self.update(packet, entry),
            Op::UpdateOk | Op::FenceOk | Op::Adopt | Op::Evicted | Op::Resume => {
                Verdict::Drop(Unread::Forged)
            }
            Op::Adopted | Op::Hello | Op::Refresh => Verdict::Control,
            Op::Get | Op::GetOk | Op::NotFound | Op::WriteOk | Op::Error => Verdict::Forward,
        }
    }

    #[inline(always)]
    fn get(&mut self, entry: Option<Entry>, room: &mut [u8; VALUE_MAX]) -> Verdict {
        let Some(entry) = entry else { return Verdict::Forward };
        let (status, at) = AtStatus::begin(&self.arrays, entry).read();
        if !status.is_valid() {
            return Verdict::Forward;
        }
        let (length, at) = at.read();
        self.passes += passes_of(length.bytes.into()) as u64 - 1;
        if !load(at, length.bytes.into(), room) {
            return Verdict::Forward;
        }
        if self.sketch.sample() {
            self.hits.add(entry.item, self.sketch.epoch());
        }
        let (op, len) = if length.absent { (Op::NotFound, 0) } else { (Op::GetOk, length.bytes) };
        answer(op, Said::Ok, status.stamp(self.arrays.boot()), len)
    }

    #[inline(always)]
    fn write(&self, message: &Message<'_>, entry: Option<Entry>, [op, cached]: [Op; 2]) -> Verdict {
        match entry.map(|entry| AtStatus::begin(&self.arrays, entry).write()) {
            Some(status) if has_key(status) => {
                Verdict::Mark(cached, status.stamp(self.arrays.boot()))
            }
            // A stamp that is not ours must not reach a server.
            _ if message.op != op || message.stamp != Stamp::NONE => Verdict::Mark(op, Stamp::NONE),
            _ => Verdict::Forward,
        }
    }

    #[inline(always)]
    fn fence(&self, port: u16, entry: Option<Entry>) -> Verdict {
        let Some(entry) = entry else { return absent(Op::FenceOk) };
        if port != entry.port {
            return Verdict::Drop(Unread::WrongPort);
        }
        let status = AtStatus::begin(&self.arrays, entry).write();
        if !has_key(status) {
            return absent(Op::FenceOk);
        }
        answer(Op::FenceOk, Said::Ok, status.stamp(self.arrays.boot()), 0)
    }

    #[inline(always)]
    fn update(&mut self, packet: &Packet<'_>, entry: Option<Entry>) -> Verdict {
        let Some(entry) = entry else { return absent(Op::UpdateOk) };
        if packet.port != entry.port {
            return Verdict::Drop(Unread::WrongPort);
        }
        let Message { value, stamp, flags, .. } = packet.message;
        let (status, at) = AtStatus::begin(&self.arrays, entry).read();
        if !has_key(status) {
            return absent(Op::UpdateOk);
        }
        let now = status.stamp(self.arrays.boot());
        let is_last = stamp == now && status.writes() < WRITES_MAX;
        if self.protocol == Protocol::Stamps && !is_last {
            return answer(Op::UpdateOk, Said::Stale, now, 0);
        }
        // A repeated one: it has been stored. The paper's device stores what comes; with several
        // workers, a get at that time may return parts of two values.
        if self.protocol == Protocol::Stamps && status.is_valid() {
            return answer(Op::UpdateOk, Said::Ok, now, 0);
        }
        let room = usize::from(entry.place.units) * UNIT;
        if value.len() > room {
            return answer(Op::UpdateOk, Said::TooLong, now, 0);
        }
        let absent = flags & FLAG_ABSENT != 0;
        let value = if absent { &[] } else { value };
        // The room is less than 2 KiB.
        let length = Length { bytes: value.len() as u16, absent };
        let Some(at) = at.set(length) else { return Verdict::Drop(Unread::Busy) };
        self.passes += passes_of(value.len()) as u64 - 1;
        let said = if store(at, value) { Said::Ok } else { Said::Stale };
        answer(Op::UpdateOk, said, now, 0)
    }
}

/// Reads a value of this length; returns false if what was read is of no use.
#[inline(always)]
fn load(mut at: AtValue<'_>, bytes: usize, room: &mut [u8; VALUE_MAX]) -> bool {
    let (last, before) = (bytes.saturating_sub(1) / PASS, room.as_chunks_mut::<PASS>().0);
    for room in before.iter_mut().take(last) {
        match at.pass(room) {
            Some(next) => at = next,
            None => return false,
        }
    }
    before.get_mut(last).is_some_and(|room| at.read(room))
}

/// Stores a value; returns false if a write has passed.
#[inline(always)]
fn store(mut at: AtUpdate<'_>, value: &[u8]) -> bool {
    let mut rest = value;
    while let Some((first, after)) = rest.split_at_checked(PASS)
        && !after.is_empty()
    {
        match at.pass(first) {
            Some(next) => (at, rest) = (next, after),
            None => return false,
        }
    }
    at.write(rest)
}

/// Whether an item still belongs to a key: workers may see its entry for a moment after that.
const fn has_key(status: Status) -> bool {
    status.install() != 0
}

const fn answer(op: Op, status: Said, stamp: Stamp, len: u16) -> Verdict {
    let flags = if matches!(op, Op::NotFound) { FLAG_ABSENT } else { 0 };
    Verdict::Answer { op, flags, status, stamp, len }
}

const fn absent(op: Op) -> Verdict {
    answer(op, Said::Absent, Stamp::NONE, 0)
}
