//! The writer's side of the table: learns, moves, ages, flushes, makes room.
//!
//! ```text
//!   Reports of each worker ── hear() ─▶ learn, move, refresh ─┐
//!   clock ─────────────────── tick() ─▶ a slice of the table ─┼─▶ fib::Writer ─▶ readers
//!   port down ───────── set_up(false) ─▶ all of its entries ──┘
//! ```
//!
//! **Time** is counted in epochs; an ageing time has [`AGE_EPOCHS`]. An entry holds the epoch of
//! its last report; a worker reports a station with its first frame of an epoch. In each epoch the
//! writer scans the table once, a bounded slice at each tick, and removes entries older than
//! [`AGE_EPOCHS`]. So a silent station is removed after the ageing time, and at most a fifth later.
//!
//! An epoch ends only after a full scan, however late the ticks are; hence 64 epochs are enough to
//! distinguish old from new. If a scan takes longer than an ageing time, at most one ageing time of
//! epochs passes at once: an address reported since the last scan stays until the next one.
//!
//! **Bounds.** At most [`Limits::entries_max`] stations are learnt. In a full table:
//! - A new station of a port below its *share* (half of the table, divided by the ports) evicts one
//!   of the largest port. Of a sample, the station that was silent longest goes.
//! - Any other new station evicts one of the same or the largest port that was silent for
//!   [`IDLE_EPOCHS`] epochs. If the sample has none, the new station is refused and its frames are
//!   flooded.
//!
//! So invented addresses evict no station in use, except those by which a port exceeds what the
//! shares of the others leave.
//!
//! **A port that goes down** loses all its learnt stations, and learns none until it is up. A large
//! table is scanned in slices. Insertions may move entries meanwhile; the port's count of entries
//! shows when none is left.

use super::MacTotals;
use super::learn::Reports;
use super::station::{EPOCHS, Epoch, News, STATION_PORTS_MAX, Sighting, Station};
use crate::settings::StationSettings;
use overbank::fib::{Config, FibError, Full, MacVlan, Reader, Writer};
use overbank::memory::{HugePages, Pages};
use overbank_declare::settings::Table as _;

/// Epochs of an ageing time.
pub const AGE_EPOCHS: u16 = 8;
/// Epochs after which a station is not in use.
pub const IDLE_EPOCHS: u16 = 2;
/// Limit of epochs that pass at once, so that a jump alone ages out no address.
const JUMP_MAX: u64 = AGE_EPOCHS as u64;
/// Limit of buckets scanned in one tick: 8 MiB.
const SLICE_MAX: usize = 1 << 17;
/// Buckets sampled for a station to evict.
const SAMPLE: usize = 64;

// An entry that insertions moved out of the way of a slice, twice in a row, is still old.
const _: () = assert!(AGE_EPOCHS as u64 + 3 * JUMP_MAX < EPOCHS as u64);

/// The bounds of learning, and of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most learnt stations.
    pub entries_max: usize,
    /// The pages that the table shall lie on.
    pub pages: Pages,
    /// Seconds after which a silent station is forgotten.
    pub age_s: u32,
    /// Most reports of new and moved stations that a worker makes in a second, for each port.
    pub learn_per_s: u32,
    /// Most reports that wait for the writer, for each worker and kind.
    pub queue: usize,
}

impl Default for Limits {
    /// Returns the defaults of the settings.
    fn default() -> Self {
        let settings = StationSettings::defaults();
        settings.expect("every setting of the table has a default that is right").limits()
    }
}

/// A station for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Address and VLAN; 0 without a tag.
    pub key: MacVlan,
    /// Place of its port.
    pub port: u16,
    /// Whether it was configured.
    pub is_static: bool,
    /// Seconds since its last report, in whole epochs; 0 if it is static.
    pub silent_s: u32,
}

/// An entry that cannot be configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaticError {
    /// The address is a group, or zero.
    #[error("{0}: must be a unicast MAC address")]
    Address(MacVlan),
    /// There is no such port.
    #[error("{0}: its port is not configured")]
    Port(MacVlan),
    /// The address is configured already.
    #[error("{0} is given twice")]
    Twice(MacVlan),
    /// The table is full.
    #[error("no room for {0}: {1}")]
    Full(MacVlan, Full),
}

#[derive(Clone, Copy)]
struct Port {
    learnt: usize,
    up: bool,
    /// Its learnt entries are on their way out.
    flushing: bool,
}

/// The table and its only writer; see the module.
pub struct Stations {
    writer: Writer<MacVlan, u16>,
    pages: HugePages,
    limits: Limits,
    ports: Box<[Port]>,
    learnt: usize,
    fixed: usize,
    epoch: Epoch,
    /// The epoch, counted from the start.
    number: u64,
    epoch_ms: u64,
    /// Bucket that the next slice begins with, and how many are to come in this epoch.
    cursor: usize,
    left: usize,
    sliced_ms: u64,
    slice_max: usize,
    /// Bucket that the next sample begins with.
    sample: usize,
    /// Keys of a slice that go; kept for its memory.
    gone: Vec<MacVlan>,
    counters: MacTotals,
}

/// Whether an address can be that of a station.
fn is_station(key: MacVlan) -> bool {
    let mac = key.mac();
    mac[0] & 1 == 0 && mac != [0; 6]
}

impl Stations {
    /// Returns the table that these bounds ask for.
    fn config(limits: Limits, fixed: usize) -> Config {
        Config::entries(limits.entries_max.saturating_add(fixed)).pages(limits.pages)
    }

    /// Bytes of the table that these bounds ask for.
    pub fn bytes_of(limits: Limits, fixed: usize) -> usize {
        Self::config(limits, fixed).bytes::<MacVlan, u16>()
    }

    /// Returns an empty table for this many ports, all of them up, with room for `fixed` static
    /// entries beside the learnt ones. Of more than [`STATION_PORTS_MAX`] ports the rest is not
    /// learnt of.
    ///
    /// # Errors
    /// There is no memory for it, or not on such pages.
    pub fn new(
        limits: Limits,
        ports: usize,
        fixed: usize,
        seed: u64,
    ) -> Result<Stations, FibError> {
        let writer = Writer::new(&Self::config(limits, fixed).seed(seed))?;
        let port = Port { learnt: 0, up: true, flushing: false };
        let epoch_ms = u64::from(limits.age_s.max(1)) * 1000 / u64::from(AGE_EPOCHS);
        Ok(Stations {
            left: writer.buckets(),
            pages: writer.reader().huge_pages(),
            writer,
            limits,
            ports: vec![port; ports.min(STATION_PORTS_MAX)].into(),
            learnt: 0,
            fixed: 0,
            epoch: Epoch::default(),
            number: 0,
            epoch_ms,
            cursor: 0,
            sliced_ms: 0,
            slice_max: SLICE_MAX,
            sample: 0,
            gone: Vec::new(),
            counters: MacTotals::default(),
        })
    }

    /// Returns the state that the workers read.
    pub fn reader(&self) -> Reader<MacVlan, u16> {
        self.writer.reader()
    }

    /// Returns the current epoch, for the workers.
    pub fn epoch(&self) -> Epoch {
        self.epoch.clone()
    }

    /// Returns the number of stations, static ones included.
    pub fn len(&self) -> usize {
        self.learnt + self.fixed
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stations that were configured.
    pub fn fixed(&self) -> usize {
        self.fixed
    }

    /// Returns the bounds.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the counts so far.
    pub fn counters(&self) -> MacTotals {
        self.counters
    }

    /// Bytes of the table.
    pub fn bytes(&self) -> usize {
        self.writer.reader().bytes()
    }

    /// Returns the pages that the table lay on when it was made. The kernel may give others later,
    /// and to ask it takes long for a large table.
    pub fn pages(&self) -> HugePages {
        self.pages
    }

    fn get(&self, key: MacVlan) -> Option<Station> {
        self.writer.get(key).map(Station::from_bits)
    }

    /// Puts a static entry.
    ///
    /// # Errors
    /// It makes no sense, or there is no room.
    pub fn add_static(&mut self, key: MacVlan, port: u16) -> Result<(), StaticError> {
        if !is_station(key) {
            return Err(StaticError::Address(key));
        }
        if usize::from(port) >= self.ports.len() {
            return Err(StaticError::Port(key));
        }
        match self.get(key) {
            Some(station) if station.is_static() => return Err(StaticError::Twice(key)),
            Some(_) => self.remove(key),
            None => {}
        }
        let inserted = self.writer.insert(key, Station::fixed(port).bits());
        inserted.map_err(|full| StaticError::Full(key, full))?;
        self.fixed += 1;
        Ok(())
    }

    /// Takes what a worker has to tell.
    pub fn hear(&mut self, reports: &Reports) {
        // First those that are known; and no more than there were, though others come meanwhile.
        for queue in [&reports.life, &reports.news] {
            for _ in 0..queue.len() {
                let Some(sighting) = queue.pop() else { break };
                self.learn(sighting);
            }
        }
    }

    /// Learns from a frame of a station.
    pub fn learn(&mut self, sighting: Sighting) {
        let Sighting { key, port, news } = sighting;
        let Some(of) = self.ports.get(usize::from(port)) else { return };
        if !is_station(key) || !of.up || of.flushing || self.limits.entries_max == 0 {
            return;
        }
        let now = Station::learnt(port, self.epoch.now());
        match self.get(key) {
            None if news == News::Silent => {} // It went meanwhile; the next frame is news.
            None => self.add(key, now),
            Some(known) if known.is_static() || known == now => {}
            Some(known) if known.port() == port => {
                self.counters.refreshed += 1;
                self.writer.update(key, now.bits());
            }
            // It moved after somebody saw it here.
            Some(_) if news == News::Silent => {}
            Some(known) => {
                self.counters.moved += 1;
                self.writer.update(key, now.bits());
                self.count(known.port(), -1);
                self.count(port, 1);
            }
        }
    }

    fn add(&mut self, key: MacVlan, station: Station) {
        let port = station.port();
        if self.learnt >= self.limits.entries_max && !self.make_room(port) {
            self.counters.refused += 1;
            return;
        }
        // Full before its time, by the luck of the hash function.
        let inserted = self.writer.insert(key, station.bits()).is_ok()
            || (self.make_room(port) && self.writer.insert(key, station.bits()).is_ok());
        if !inserted {
            self.counters.refused += 1;
            return;
        }
        self.count(port, 1);
        self.counters.learned += 1;
    }

    fn count(&mut self, port: u16, by: isize) {
        self.learnt = self.learnt.saturating_add_signed(by);
        if let Some(port) = self.ports.get_mut(usize::from(port)) {
            port.learnt = port.learnt.saturating_add_signed(by);
            port.flushing &= port.learnt != 0;
        }
    }

    /// Removes a learnt entry.
    fn remove(&mut self, key: MacVlan) {
        if let Some(station) = self.writer.remove(key).map(Station::from_bits) {
            self.count(station.port(), -1);
        }
    }

    /// Stations that every port is sure of.
    pub fn share(&self) -> usize {
        self.limits.entries_max / (2 * self.ports.len().max(1))
    }

    /// Forgets one station, so that `port` can have a new one; see the module.
    fn make_room(&mut self, port: u16) -> bool {
        let ports = self.ports.iter().enumerate();
        let largest = ports.max_by_key(|(_, port)| port.learnt).map_or(0, |(i, _)| i as u16);
        let needy = port != largest
            && self.ports.get(usize::from(port)).is_some_and(|p| p.learnt < self.share());
        let (now, all) = (self.epoch.now(), self.writer.buckets());
        let end = self.sample + SAMPLE;
        // The sample goes round; in a small table it is the table.
        let wrapped = (end.saturating_sub(all)).min(self.sample);
        let sample = self.writer.iter_in(self.sample..end).chain(self.writer.iter_in(0..wrapped));
        let victim = sample
            .filter_map(|(key, bits)| {
                let station = Station::from_bits(bits);
                let silent = station.epochs_silent(now);
                let of = station.port();
                let may = if needy {
                    of == largest
                } else {
                    silent >= IDLE_EPOCHS && (of == port || of == largest)
                };
                (may && !station.is_static()).then_some((silent, key))
            })
            .max_by_key(|(silent, _)| *silent)
            .map(|(_, key)| key);
        self.sample = if end >= all { wrapped } else { end };
        let Some(key) = victim else { return false };
        self.remove(key);
        self.counters.evicted += 1;
        true
    }

    /// Takes note of a port that went up or down. One that goes down loses its learnt stations.
    pub fn set_up(&mut self, port: usize, up: bool) {
        let Some(of) = self.ports.get_mut(port) else { return };
        of.up = up;
        if !up && of.learnt != 0 {
            of.flushing = true;
            self.slice(self.slice_max);
        }
    }

    /// Whether entries of a port that went are still there.
    fn is_flushing(&self) -> bool {
        self.ports.iter().any(|port| port.flushing)
    }

    /// Does what is due; to be called every now and then. Returns when it wants to be called again,
    /// in milliseconds, if that is soon.
    pub fn tick(&mut self, now_ms: u64) -> Option<u64> {
        let since = now_ms.saturating_sub(self.sliced_ms);
        self.sliced_ms = now_ms;
        if self.is_flushing() {
            self.slice(self.slice_max);
        } else if self.left != 0 {
            // All of it in half of an epoch.
            let share = self.writer.buckets() as u64 * since / (self.epoch_ms / 2).max(1);
            let slice = usize::try_from(share + 1).unwrap_or(usize::MAX);
            self.slice(slice.min(self.left));
        }
        let behind = (now_ms / self.epoch_ms).saturating_sub(self.number);
        if self.left == 0 && behind > 0 {
            self.number += behind.min(JUMP_MAX);
            self.epoch.set((self.number % u64::from(EPOCHS)) as u16);
            self.left = self.writer.buckets();
        }
        self.is_flushing().then_some(1)
    }

    /// Goes through the next buckets, and around.
    fn slice(&mut self, buckets: usize) {
        let all = self.writer.buckets();
        let count = buckets.min(self.slice_max).min(all);
        let end = self.cursor + count;
        let wrapped = end.saturating_sub(all);
        let mut gone = std::mem::take(&mut self.gone);
        let now = self.epoch.now();
        let entries = self.writer.iter_in(self.cursor..end).chain(self.writer.iter_in(0..wrapped));
        for (key, bits) in entries {
            let station = Station::from_bits(bits);
            if station.is_static() {
                continue;
            }
            let flushing = self.ports.get(usize::from(station.port())).is_some_and(|p| p.flushing);
            let old = station.epochs_silent(now) > AGE_EPOCHS;
            if flushing || old {
                gone.push(key);
                self.counters.flushed += u64::from(flushing);
                self.counters.aged += u64::from(old && !flushing);
            }
        }
        for key in gone.drain(..) {
            self.remove(key);
        }
        self.gone = gone;
        self.cursor = if end >= all { wrapped } else { end };
        self.left = self.left.saturating_sub(count);
    }

    /// Returns the length of an epoch, in milliseconds.
    pub fn epoch_ms(&self) -> u64 {
        self.epoch_ms
    }

    /// Returns the stations of a bounded number of buckets, from bucket `from` on; gives where the
    /// next ones begin, or `None` at the end of the table.
    pub fn page(&self, from: usize, mut each: impl FnMut(Entry)) -> Option<usize> {
        let end = from.saturating_add(self.slice_max / 8);
        for (key, bits) in self.writer.iter_in(from..end) {
            each(self.entry(key, Station::from_bits(bits)));
        }
        (end < self.writer.buckets()).then_some(end)
    }

    /// Returns the station of this key.
    pub fn find(&self, key: MacVlan) -> Option<Entry> {
        self.get(key).map(|station| self.entry(key, station))
    }

    fn entry(&self, key: MacVlan, station: Station) -> Entry {
        let silent = if station.is_static() { 0 } else { station.epochs_silent(self.epoch.now()) };
        let silent_s = u64::from(silent) * self.epoch_ms / 1000;
        Entry {
            key,
            port: station.port(),
            is_static: station.is_static(),
            silent_s: u32::try_from(silent_s).unwrap_or(u32::MAX),
        }
    }

    /// Returns up to `most` stations that `wanted` takes, and how many it takes altogether, in the
    /// order of the table. Reads all of it.
    pub fn list(&self, most: usize, wanted: impl Fn(&Entry) -> bool) -> (Vec<Entry>, usize) {
        let (mut list, mut count, mut from) = (Vec::new(), 0, Some(0));
        while let Some(bucket) = from {
            from = self.page(bucket, |entry| {
                if wanted(&entry) {
                    count += 1;
                    if list.len() < most {
                        list.push(entry);
                    }
                }
            });
        }
        (list, count)
    }
}

#[cfg(test)]
mod tests;
