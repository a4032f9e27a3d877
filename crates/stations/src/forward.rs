//! Bursts of frames through the forwarding table.
//!
//! ```text
//!   ≤ 32 frames ─▶ addresses, VLAN ─▶ one lookup_batch: destinations, sources ─▶ output, flood
//!                  (wire::bridge)     (overbank::fib, two prefetch rounds)       or drop, in order
//! ```
//!
//! If the table is large and no source is looked up, the lines of the next 32 frames are prefetched
//! meanwhile.
//!
//! A frame costs its own first line and the lines of two lookups, all of a burst's in flight
//! together. No lock, no wait, no allocation. News about a source goes to the [`Sink`]; the table
//! is only read. So frames of the same burst do not see each other's news.
//!
//! Paper: *Data Structure Engineering*, section 3.5 and 3.7.2 (as many lookups in a batch as there
//! are packets, no waiting for more).

use super::{Address, Epoch, Heard, Sighting, Station};
use arrayvec::ArrayVec;
use overbank::fib::{BURST_MAX, MacVlan, Reader};
use overbank::prefetch::l2_bytes;
use overbank_wire::bridge::Header;
use std::mem;

/// Frames of one lookup, whose destinations and sources are one batch of the table.
const BURST: usize = BURST_MAX / 2;
// A bit for each in `Sink::admit`.
const _: () = assert!(BURST <= u32::BITS as usize);

overbank_reasons::reasons! {
    /// Why a frame leaves by no port, in the order in which reasons are looked for.
    pub enum DropReason {
        Truncated = "truncated_ethernet", "frame shorter than an Ethernet header";
        BadSource = "bad_source", "the source is a group address or zero";
        StaticElsewhere = "static_elsewhere", "the source is a static address of another port";
        Reserved = "reserved_address",
            "the destination is one of 01:80:c2:00:00:0x, which are not forwarded";
        SamePort = "same_port", "the destination is behind the ingress port";
        Isolated = "isolated", "both ports are isolated";
        NoPort = "no_port", "no other port could send the frame";
    }
}

/// What a port may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// It talks to ports that are not isolated, and to no other.
    pub isolated: bool,
    /// It gets flooded frames.
    pub flood: bool,
}

impl Default for Role {
    /// Returns a port that is not isolated and gets flooded frames.
    fn default() -> Role {
        Role { isolated: false, flood: true }
    }
}

/// Where frames go. `index` counts the frames of one call of [`Forwarder::forward`]; each of them
/// is output once at least, or dropped once.
pub trait Sink<K = MacVlan> {
    /// Sends a frame by a port.
    fn output(&mut self, index: usize, port: u16, frame: &[u8]);

    /// Drops a frame.
    fn drop(&mut self, index: usize, reason: DropReason);

    /// Announces a frame that will leave by all ports that it may: its destination is a group or
    /// unknown.
    fn flooded(&mut self, _index: usize) {}

    /// Takes news about a source that the table does not have, before its frame leaves.
    fn saw(&mut self, _sighting: Sighting<K>) {}

    /// Whether frames are offered to [`Sink::admit`].
    const ADMITS: bool = false;

    /// Takes frames for itself, before any frame of a chunk leaves. Bit `i` of `may` says that the
    /// source of frame `first + i` may send; the frames are those from number `first` on. Returns
    /// the ones of `may` that go on: the others are the sink's, to be output or dropped.
    fn admit(&mut self, _first: usize, _frames: &[&[u8]], may: u32) -> u32 {
        may
    }
}

/// The headers of a chunk of frames, in their order.
type Headers = ArrayVec<Option<Header>, BURST>;
/// What is looked up for them: the destinations, then the sources if they are.
type Keys<K> = ArrayVec<K, { 2 * BURST }>;

/// Reads a chunk of frames; `headers` and `keys` are empty.
#[inline(always)]
fn read<K: Address>(frames: &[&[u8]], sources: bool, headers: &mut Headers, keys: &mut Keys<K>) {
    for frame in frames {
        let header = Header::of(frame);
        // The lookup of a frame that has no addresses is wasted, and no other shifts its place.
        keys.push(header.map_or(K::of([0; 6], 0), |h| K::of(h.dst, h.vlan)));
        headers.push(header);
    }
    if sources {
        for header in headers.iter() {
            keys.push(header.map_or(K::of([0; 6], 0), |h| K::of(h.src, h.vlan)));
        }
    }
}

/// What the table said about a chunk.
struct Answers<'a, K> {
    epoch: Option<u16>,
    headers: &'a Headers,
    keys: &'a Keys<K>,
    found: u64,
    values: &'a [u16; 2 * BURST],
}

/// One worker's forwarding; see the module.
///
/// ```
/// use overbank::fib::{Config, MacAddr, Writer};
/// use overbank_stations::Station;
/// use overbank_stations::forward::{DropReason, Forwarder, Role, Sink};
///
/// // A table of addresses, filled beforehand.
/// let mut fib = Writer::<MacAddr, u16>::new(&Config::entries(1000))?;
/// fib.insert(MacAddr::from([2, 0, 0, 0, 0, 7]), Station::fixed(1).bits())?;
///
/// /// Counts frames by port.
/// #[derive(Default)]
/// struct Counts { sent: [u64; 2], dropped: u64 }
///
/// impl Sink<MacAddr> for Counts {
///     fn output(&mut self, _index: usize, port: u16, _frame: &[u8]) {
///         self.sent[usize::from(port)] += 1;
///     }
///     fn drop(&mut self, _index: usize, _reason: DropReason) {
///         self.dropped += 1;
///     }
/// }
///
/// // Two ports, and no learning: sources are not looked up.
/// let mut forwarder = Forwarder::new(fib.reader(), &[Role::default(); 2]);
/// let frame: &[u8] = &[2, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 1, 8, 0];
/// let mut counts = Counts::default();
/// forwarder.forward(0, &[frame; 32], &mut counts);
/// assert_eq!((counts.sent, counts.dropped), ([0, 32], 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Forwarder<K = MacVlan> {
    reader: Reader<K, u16>,
    roles: Vec<Role>,
    /// Where a flooded frame goes: the ports of ingress `i` are `flooded[starts[i]..starts[i +
    /// 1]]`.
    flooded: Vec<u16>,
    starts: Vec<usize>,
    learning: Option<Epoch>,
    /// The table exceeds the CPU's L2.
    large_table: bool,
}

impl<K: Address> Forwarder<K> {
    /// Forwards between these ports by the entries of the table, and learns nothing.
    pub fn new(reader: Reader<K, u16>, roles: &[Role]) -> Forwarder<K> {
        let mut forwarder = Forwarder {
            large_table: reader.bytes() > l2_bytes(),
            reader,
            roles: Vec::new(),
            flooded: Vec::new(),
            starts: Vec::new(),
            learning: None,
        };
        forwarder.set_roles(roles);
        forwarder
    }

    /// Returns the same, with sources looked up and reported.
    #[must_use]
    pub fn learning(mut self, epoch: Epoch) -> Forwarder<K> {
        self.learning = Some(epoch);
        self
    }

    /// Sets other roles, or other ports. Allocates: not for the packet path.
    ///
    /// # Panics
    /// If the ports do not fit into 16 bits.
    pub fn set_roles(&mut self, roles: &[Role]) {
        assert!(roles.len() <= 1 << 16, "a port has 16 bits in the table");
        self.roles = roles.to_vec();
        self.flooded.clear();
        self.starts.clear();
        self.starts.push(0);
        for (ingress, from) in roles.iter().enumerate() {
            let gets = |(egress, to): (usize, &Role)| {
                let allowed = to.flood && egress != ingress && !(from.isolated && to.isolated);
                allowed.then_some(egress as u16)
            };
            self.flooded.extend(roles.iter().enumerate().filter_map(gets));
            self.starts.push(self.flooded.len());
        }
    }

    /// Returns the table.
    pub fn reader(&self) -> &Reader<K, u16> {
        &self.reader
    }

    /// Prefetches the lines that a burst forwarded soon will need: a caller that has the next burst
    /// before this one is forwarded hides one more wait for memory.
    #[inline]
    pub fn prefetch(&self, burst: &[&[u8]]) {
        for header in burst.iter().filter_map(|frame| Header::of(frame)) {
            self.reader.prefetch(&[K::of(header.dst, header.vlan)]);
            if self.learning.is_some() {
                self.reader.prefetch(&[K::of(header.src, header.vlan)]);
            }
        }
    }

    /// Forwards the frames that came in on port `ingress`, in their order; any number, 32 at a
    /// time.
    ///
    /// Without learning, in a table that exceeds the CPU's L2, the lookup of 32 destinations
    /// prefetches the lines of the next 32: a caller that has more hands them over in one call, and
    /// needs no [`Forwarder::prefetch`]. With learning, 32 frames are 64 keys, whose lines are as
    /// many as a core waits for at a time: prefetching more made calls of 128 frames slower.
    #[inline]
    pub fn forward<S: Sink<K>>(&self, ingress: u16, burst: &[&[u8]], sink: &mut S) {
        if burst.len() > BURST && self.large_table && self.learning.is_none() {
            return self.forward_ahead(ingress, burst, sink);
        }
        for (i, frames) in burst.chunks(BURST).enumerate() {
            self.chunk(ingress, i * BURST, frames, sink);
        }
    }

    fn chunk<S: Sink<K>>(&self, ingress: u16, first: usize, frames: &[&[u8]], sink: &mut S) {
        let (mut headers, mut keys) = (Headers::new(), Keys::new());
        let epoch = self.learning.as_ref().map(Epoch::now);
        read(frames, epoch.is_some(), &mut headers, &mut keys);
        let mut values = [0; 2 * BURST];
        let found = self.reader.lookup_batch(&keys, &mut values);
        let answers = Answers { epoch, headers: &headers, keys: &keys, found, values: &values };
        self.send_all(ingress, first, frames, answers, sink);
    }

    /// Forwards as [`Forwarder::forward`] does, more than one chunk, without looking sources up.
    #[inline(never)]
    fn forward_ahead<S: Sink<K>>(&self, ingress: u16, burst: &[&[u8]], sink: &mut S) {
        let mut chunks = [const { (Headers::new_const(), Keys::new_const()) }; 2];
        let [this, next] = &mut chunks;
        let (mut this, mut next) = (this, next);
        let mut upcoming = burst.chunks(BURST);
        // No chunk left: no frames, so nothing to look ahead to.
        read(upcoming.next().unwrap_or_default(), false, &mut next.0, &mut next.1);
        self.reader.prefetch(&next.1);
        for (i, frames) in burst.chunks(BURST).enumerate() {
            mem::swap(&mut this, &mut next);
            next.0.clear();
            next.1.clear();
            read(upcoming.next().unwrap_or_default(), false, &mut next.0, &mut next.1);
            let (headers, keys) = (&this.0, &this.1);
            let mut values = [0; 2 * BURST];
            let found = self.reader.lookup_batch_ahead(keys, &mut values, &next.1);
            let answers = Answers { epoch: None, headers, keys, found, values: &values };
            self.send_all(ingress, i * BURST, frames, answers, sink);
        }
    }

    /// Sends a chunk of frames where the answers to its keys say.
    #[inline(always)]
    fn send_all<S: Sink<K>>(
        &self,
        ingress: u16,
        first: usize,
        frames: &[&[u8]],
        Answers { epoch, headers, keys, found, values }: Answers<'_, K>,
        sink: &mut S,
    ) {
        let station = |i: usize| (found >> i & 1 == 1).then_some(Station::from_bits(values[i]));
        let heard = |i: usize, header: &Option<Header>| match (header, epoch) {
            (None, _) => Err(DropReason::Truncated),
            (Some(header), _) if !header.from_station() => Err(DropReason::BadSource),
            (_, None) => Ok(Heard::Known),
            (_, Some(epoch)) => match Station::heard(station(frames.len() + i), ingress, epoch) {
                Heard::Elsewhere => Err(DropReason::StaticElsewhere),
                heard => Ok(heard),
            },
        };
        let mut go = u32::MAX;
        if S::ADMITS {
            let each = headers.iter().enumerate();
            let may = each.fold(0, |may, (i, h)| may | u32::from(heard(i, h).is_ok()) << i);
            go = sink.admit(first, frames, may);
        }
        for (i, (frame, header)) in frames.iter().zip(headers).enumerate() {
            let done = heard(i, header).and_then(|heard| {
                if let Heard::News(news) = heard {
                    sink.saw(Sighting { key: keys[frames.len() + i], port: ingress, news });
                }
                if S::ADMITS && go >> i & 1 == 0 {
                    return Ok(());
                }
                let header = header.as_ref().ok_or(DropReason::Truncated)?;
                self.send(ingress, first + i, frame, header, station(i), sink)
            });
            if let Err(reason) = done {
                sink.drop(first + i, reason);
            }
        }
    }

    #[inline]
    fn send<S: Sink<K>>(
        &self,
        ingress: u16,
        index: usize,
        frame: &[u8],
        header: &Header,
        station: Option<Station>,
        sink: &mut S,
    ) -> Result<(), DropReason> {
        match station {
            Some(station) if !header.to_group() => {
                let port = station.port();
                let Some(to) = self.roles.get(usize::from(port)) else {
                    return Err(DropReason::NoPort);
                };
                if port == ingress {
                    return Err(DropReason::SamePort);
                }
                let isolated = self.roles.get(usize::from(ingress)).is_some_and(|r| r.isolated);
                if to.isolated && isolated {
                    return Err(DropReason::Isolated);
                }
                sink.output(index, port, frame);
                Ok(())
            }
            _ if header.to_reserved() => Err(DropReason::Reserved),
            _ => self.flood(ingress, index, frame, sink),
        }
    }

    #[inline(never)]
    fn flood<S: Sink<K>>(
        &self,
        ingress: u16,
        index: usize,
        frame: &[u8],
        sink: &mut S,
    ) -> Result<(), DropReason> {
        let at = usize::from(ingress);
        let (Some(&start), Some(&end)) = (self.starts.get(at), self.starts.get(at + 1)) else {
            return Err(DropReason::NoPort);
        };
        if start == end {
            return Err(DropReason::NoPort);
        }
        sink.flooded(index);
        for &port in &self.flooded[start..end] {
            sink.output(index, port, frame);
        }
        Ok(())
    }
}
