//! A worker's engine: the Ethernet switch's [`Forwarder`], and the [`Pipeline`] for messages.
//!
//! ```text
//!   ≤ 32 frames ─▶ lookup of both addresses ─▶ admit: messages ─▶ one burst of the pipeline
//!                  (stations::forward)           │                   │ answers leave
//!                                                └─ those that go on ┴▶ sent as in a switch
//! ```
//!
//! - Sources are checked and learnt for all frames, also for those that the device keeps.
//! - Frames of a flow keep their order. Answers of a chunk leave before its other frames: they go
//!   the other way.
//! - A message is one only if its UDP datagram is *to* the protocol's port. What comes from the
//!   port are answers of servers, and none of the device's business.
//! - What only a device or its controller may say is dropped if it comes in by a port. What is for
//!   them counts only if it is addressed to this device: another one's fences are not answered.
//! - A marked frame is sent in two parts: its new headers, and the rest as it came in. So is an
//!   answer: the headers, and the value.
//!
//! Cost of a hit beside a forwarded frame: the lookup of the key, the lines of status, length and
//! value, and the headers written. No packet allocates. Panics: none, on any bytes.

use crate::address::{DeviceAddress, Server};
use crate::reason::{Denied, DropReason};
use arrayvec::ArrayVec;
use crossbeam_queue::ArrayQueue;
use overbank_handover::grace::Visitor;
use overbank_netcache::pipeline::{Packet, Pipeline, Verdict};
use overbank_netcache::slots::VALUE_MAX;
use overbank_runtime::link::Common;
use overbank_runtime::{Engine, Ingress, Out};
use overbank_stations::forward::{self, Forwarder};
use overbank_stations::{Sighting, Watch};
use overbank_wire::bridge::Header;
use overbank_wire::neighbour::{ANSWER_MAX, Question};
use overbank_wire::netcache::frame::{Broken, Datagram, End, HEAD_MAX};
use overbank_wire::netcache::{Key, Message, Op};
use std::sync::Arc;

/// Frames of a chunk of the forwarder.
const CHUNK: usize = u32::BITS as usize;

overbank_stations::counters! {
    /// What a worker of the device counts.
    pub struct DeviceTotals: "overbank_" {
        kv_hits: counter packets "GETs that the device answered" rate;
        kv_misses: counter packets "GETs that went on to their server" rate;
        kv_writes: counter packets "Writes of cached keys, stamped and passed on" rate;
        kv_updates: counter packets "UPDATEs answered";
        kv_fences: counter packets "FENCEs answered";
        kv_others: counter packets "Other messages passed on: writes of keys that are not cached, \
            answers, reads past the device";
        kv_passes: counter packets "Further passes through the pipeline, of values longer than 128 \
            bytes";
        kv_neighbours: counter packets
            "ARP requests and neighbour solicitations for the device's address answered";
        kv_reports: counter reports "Keys reported as hot to the controller";
        kv_reports_lost: counter reports
            "Keys not reported: too many reports waited, their server's port is unknown or may \
             have none, or the device has no address of its family";
    }
}

/// What workers tell the controller. Each worker has separate queues.
#[derive(Debug)]
pub struct News {
    /// Messages of servers.
    pub said: ArrayQueue<(Server, Message<'static>)>,
    /// Keys that became hot, and where their GETs go.
    pub hot: ArrayQueue<(Key, Server)>,
}

impl News {
    /// Returns queues for this many of each.
    pub fn new(most: usize) -> Arc<News> {
        let most = most.max(1);
        Arc::new(News { said: ArrayQueue::new(most), hot: ArrayQueue::new(most) })
    }
}

/// A frame to send: what the controller has to say.
#[derive(Clone, Debug)]
pub struct Order {
    /// Index of the port.
    pub port: u16,
    /// A message without a value.
    pub frame: ArrayVec<u8, HEAD_MAX>,
}

/// Where frames go. Each frame of a call of [`Device::forward`] is output once or more, dropped
/// once, or handed to the controller.
pub trait Sink {
    /// Sends what became of frame `index` by a port.
    fn output(&mut self, index: usize, port: u16, bytes: &[u8]);

    /// Sends it in two parts, the first of which has the Ethernet header.
    fn output_parts(&mut self, index: usize, port: u16, head: &[u8], rest: &[u8]);

    /// Drops frame `index`.
    fn drop(&mut self, index: usize, reason: DropReason);

    /// Notes that frame `index` is for the controller.
    fn to_control(&mut self, index: usize);
}

impl Sink for Out<DropReason> {
    #[inline]
    fn output(&mut self, index: usize, port: u16, bytes: &[u8]) {
        Out::output(self, index, port, bytes);
    }

    #[inline]
    fn output_parts(&mut self, index: usize, port: u16, head: &[u8], rest: &[u8]) {
        Out::output_parts(self, index, port, head, rest);
    }

    #[inline]
    fn drop(&mut self, index: usize, reason: DropReason) {
        Out::drop(self, index, reason);
    }

    fn to_control(&mut self, index: usize) {
        Out::to_control(self, index);
    }
}

/// What an engine is made of.
pub struct Parts {
    /// A forwarder that learns.
    pub forwarder: Forwarder,
    pub watch: Watch,
    pub pipeline: Pipeline,
    pub visitor: Visitor,
    pub news: Arc<News>,
    pub address: DeviceAddress,
    /// UDP port of the protocol.
    pub udp_port: u16,
    /// By index of the port: whether keys of servers behind it are cached.
    pub servers: Vec<bool>,
    pub common: Arc<Common>,
}

/// The engine.
pub struct Device {
    forwarder: Forwarder,
    core: Core,
}

/// All of it that changes, or that messages need.
struct Core {
    watch: Watch,
    pipeline: Pipeline,
    visitor: Visitor,
    news: Arc<News>,
    address: DeviceAddress,
    udp_port: u16,
    servers: Vec<bool>,
    common: Arc<Common>,
    totals: DeviceTotals,
    verdicts: [Verdict; CHUNK],
    /// Of the answers of a chunk.
    values: Box<[[u8; VALUE_MAX]; CHUNK]>,
}

/// What a frame is to the device. Small: it is returned for each frame.
enum Seen<'a> {
    /// Nothing.
    Other,
    /// It has what may be a message.
    Datagram(Datagram<'a>),
    /// It asks for the device's MAC address.
    Question,
    Drop(DropReason),
}

impl Device {
    /// Returns an engine.
    pub fn new(parts: Parts) -> Device {
        let Parts { forwarder, watch, pipeline, visitor, news, address, .. } = parts;
        let Parts { udp_port, servers, common, .. } = parts;
        let totals = DeviceTotals::default();
        let verdicts = [Verdict::Control; CHUNK];
        let values = Box::new([[0; VALUE_MAX]; CHUNK]);
        let core = Core {
            watch,
            pipeline,
            visitor,
            news,
            address,
            udp_port,
            servers,
            common,
            totals,
            verdicts,
            values,
        };
        Device { forwarder, core }
    }

    /// Decides on the frames that came in by port `ingress`, in their order.
    #[inline]
    pub fn forward<S: Sink>(&mut self, ingress: u16, burst: &[&[u8]], now_ms: u64, out: &mut S) {
        let Device { forwarder, core } = self;
        let chunk = Chunk::default();
        forwarder.forward(ingress, burst, &mut Burst { core, out, ingress, now_ms, chunk });
    }

    /// Takes the epoch of the sketch that the controller wants.
    pub fn attend(&mut self) {
        self.core.pipeline.attend();
    }

    /// Returns what was counted.
    pub fn counted(&self) -> DeviceTotals {
        DeviceTotals {
            kv_passes: self.core.pipeline.passes(),
            learn_limited: self.core.watch.learner().limited(),
            learn_queue_full: self.core.watch.learner().queue_full(),
            ..self.core.totals
        }
    }
}

impl Core {
    /// Reads a frame.
    #[inline(always)]
    fn see<'a>(&self, frame: &'a [u8]) -> Seen<'a> {
        let Some(ends) = frame.first_chunk::<12>() else { return Seen::Other };
        let (dst, mac) = (&ends[..6], &self.address.mac[..]);
        if ends[6..] == *mac {
            return Seen::Drop(Denied::OwnSource.into());
        }
        match Datagram::of(frame, self.udp_port) {
            Ok(None) => {}
            Ok(Some(datagram)) => return Seen::Datagram(datagram),
            Err(broken) => return Seen::Drop(broken.into()),
        }
        let is_own = dst == mac;
        if (is_own || dst[0] & 1 == 1)
            && let Some(question) = Question::of(frame)
            && self.address.has(question.target)
        {
            return Seen::Question;
        }
        if is_own { Seen::Drop(Denied::ToDevice.into()) } else { Seen::Other }
    }

    /// Returns why a message may not be sent to this address.
    #[inline(always)]
    fn refuse(&self, frame: &[u8], datagram: &Datagram<'_>, op: Op) -> Option<DropReason> {
        let dst = frame.first_chunk::<6>()?;
        let is_own = *dst == self.address.mac;
        match op {
            Op::Update | Op::Fence | Op::Adopted | Op::Hello | Op::Refresh => {
                if !is_own || !self.address.has(datagram.dst().ip) {
                    return Some(Denied::Elsewhere.into());
                }
                (!datagram.checksum_is_right()).then_some(Broken::Checksum.into())
            }
            _ if is_own => Some(Denied::ToDevice.into()),
            _ => (dst[0] & 1 == 1).then_some(Denied::Group.into()),
        }
    }

    /// Reports a key whose GET leaves by a port.
    #[cold]
    fn report(&mut self, frame: &[u8], port: u16) {
        let Ok(Some(datagram)) = Datagram::of(frame, self.udp_port) else { return };
        let Ok(message) = Message::parse(datagram.payload()) else { return };
        let server = server(port, frame, datagram.dst());
        let may = self.servers.get(usize::from(port)).is_some_and(|may| *may)
            && self.address.facing(server.end.ip).is_some();
        if may && self.news.hot.push((message.key, server)).is_ok() {
            self.totals.kv_reports += 1;
        } else {
            self.totals.kv_reports_lost += 1;
        }
    }
}

/// Which frames of a chunk have a verdict that matters when they leave.
#[derive(Default)]
struct Chunk {
    /// Number of its first frame.
    first: usize,
    /// Frames that are to be marked; GETs whose key became hot.
    marked: u32,
    hot: u32,
    /// Numbers of the messages among the chunk's, by frame.
    nth: [u8; CHUNK],
}

/// One burst on its way.
struct Burst<'a, S> {
    core: &'a mut Core,
    out: &'a mut S,
    ingress: u16,
    now_ms: u64,
    chunk: Chunk,
}

/// Returns the server at an end of a frame's way, behind this port.
fn server(port: u16, frame: &[u8], end: End) -> Server {
    Server { port, vlan: Header::of(frame).map_or(0, |header| header.vlan), end }
}

impl<S: Sink> Burst<'_, S> {
    /// Does what the pipeline said of a message; returns whether its frame goes on.
    #[inline(always)]
    fn settle(
        &mut self,
        nth: usize,
        index: usize,
        datagram: &Datagram<'_>,
        message: &Message<'_>,
        frame: &[u8],
    ) -> bool {
        let Burst { core, out, ingress, chunk, .. } = self;
        let bit = 1u32 << (index - chunk.first);
        match core.verdicts[nth] {
            Verdict::Forward => {
                let is_get = matches!(message.op, Op::Get);
                core.totals.kv_misses += u64::from(is_get);
                core.totals.kv_others += u64::from(!is_get);
                return true;
            }
            Verdict::Mark(op, _) => {
                let is_cached = matches!(op, Op::PutCached | Op::DeleteCached);
                core.totals.kv_writes += u64::from(is_cached);
                core.totals.kv_others += u64::from(!is_cached);
                chunk.marked |= bit;
                return true;
            }
            Verdict::Answer { op, flags, status, stamp, len } => {
                let value = core.values[nth].get(..usize::from(len)).unwrap_or_default();
                let said = Message { op, flags, status, stamp, value, ..*message };
                let mut head = [0; HEAD_MAX];
                let Some(len) = datagram.answer(&said, &mut head) else {
                    debug_assert!(false, "no value is longer than a packet");
                    return true;
                };
                match op {
                    Op::UpdateOk => core.totals.kv_updates += 1,
                    Op::FenceOk => core.totals.kv_fences += 1,
                    _ => core.totals.kv_hits += 1,
                }
                out.output_parts(index, *ingress, &head[..len], value);
            }
            Verdict::Control => {
                let from = server(*ingress, frame, datagram.src());
                // No such message has a value.
                let said = Message { value: &[], ..*message };
                match core.news.said.push((from, said)) {
                    Ok(()) => out.to_control(index),
                    Err(_) => out.drop(index, Denied::QueueFull.into()),
                }
            }
            Verdict::Drop(reason) => out.drop(index, reason.into()),
        }
        false
    }

    /// Answers a question for the device's MAC address.
    #[cold]
    fn introduce(&mut self, index: usize, frame: &[u8]) {
        let (mac, mut room) = (self.core.address.mac, [0; ANSWER_MAX]);
        match Question::of(frame).and_then(|question| question.answer(mac, &mut room)) {
            Some(len) => {
                self.core.totals.kv_neighbours += 1;
                self.out.output(index, self.ingress, &room[..len]);
            }
            None => self.out.drop(index, Denied::ToDevice.into()),
        }
    }
}

impl<S: Sink> forward::Sink for Burst<'_, S> {
    const ADMITS: bool = true;

    #[inline]
    fn admit(&mut self, first: usize, frames: &[&[u8]], may: u32) -> u32 {
        self.chunk = Chunk { first, ..Chunk::default() };
        let mut go = may;
        // No vectors: what is as large as this is copied twice by a push.
        let mut messages = [const { None }; CHUNK];
        let mut packets = [Packet::NONE; CHUNK];
        let mut count = 0;
        for (i, frame) in frames.iter().enumerate() {
            if may >> i & 1 == 0 {
                continue;
            }
            let refused = match self.core.see(frame) {
                Seen::Other => continue,
                Seen::Datagram(datagram) => match Message::parse(datagram.payload()) {
                    Ok(message) => match self.core.refuse(frame, &datagram, message.op) {
                        None => {
                            self.chunk.nth[i] = count as u8;
                            packets[count] = Packet { message, port: self.ingress };
                            messages[count] = Some((i, datagram));
                            count += 1;
                            continue;
                        }
                        Some(reason) => Some(reason),
                    },
                    Err(refused) => Some(refused.into()),
                },
                Seen::Question => None,
                Seen::Drop(reason) => Some(reason),
            };
            match refused {
                Some(reason) => self.out.drop(first + i, reason),
                None => self.introduce(first + i, frame),
            }
            go &= !(1 << i);
        }
        if count == 0 {
            return go;
        }
        let Core { pipeline, visitor, verdicts, values, .. } = &mut *self.core;
        visitor.enter();
        let hot = pipeline.burst(&packets[..count], verdicts, &mut values[..]);
        visitor.leave();
        for (nth, (message, packet)) in messages.iter().flatten().zip(&packets).enumerate() {
            let (i, datagram) = message;
            if !self.settle(nth, first + i, datagram, &packet.message, frames[*i]) {
                go &= !(1 << i);
            }
            self.chunk.hot |= u32::from(hot >> nth & 1 == 1) << i;
        }
        go
    }

    #[inline]
    fn output(&mut self, index: usize, port: u16, frame: &[u8]) {
        let (core, i) = (&mut *self.core, index - self.chunk.first);
        if self.chunk.hot >> i & 1 == 1 {
            self.chunk.hot &= !(1 << i);
            core.report(frame, port);
        }
        if self.chunk.marked >> i & 1 == 1
            && let Verdict::Mark(op, stamp) = core.verdicts[usize::from(self.chunk.nth[i])]
            && let Ok(Some(datagram)) = Datagram::of(frame, core.udp_port)
        {
            let mut head = [0; HEAD_MAX];
            if let Some(len) = datagram.mark(op, stamp, &mut head) {
                return self.out.output_parts(index, port, &head[..len], &frame[len..]);
            }
            debug_assert!(false, "a message has a head");
        }
        self.out.output(index, port, frame);
    }

    fn drop(&mut self, index: usize, reason: forward::DropReason) {
        self.out.drop(index, reason.into());
    }

    fn saw(&mut self, sighting: Sighting) {
        let core = &mut *self.core;
        if sighting.key.mac() != core.address.mac && core.watch.report(sighting, self.now_ms) {
            core.common.bell.ring();
        }
    }

    fn flooded(&mut self, index: usize) {
        self.core.totals.flooded += 1;
        let bit = 1 << (index - self.chunk.first);
        if self.chunk.hot & bit != 0 {
            self.chunk.hot &= !bit;
            // Its port is not known yet: the next epoch reports it again.
            self.core.totals.kv_reports_lost += 1;
        }
    }
}

impl Engine for Device {
    /// What changes is in tables.
    type Snapshot = ();
    type Order = Order;
    type Totals = DeviceTotals;
    type Drop = DropReason;

    #[inline]
    fn process(
        &mut self,
        burst: &[&[u8]],
        ingress: Ingress,
        now_ms: u64,
        out: &mut Out<DropReason>,
    ) {
        self.forward(ingress.index, burst, now_ms, out);
    }

    fn carry_out(&mut self, order: Order, _now_ms: u64, out: &mut Out<DropReason>) {
        out.injected(order.frame.len());
        out.output(0, order.port, &order.frame);
    }

    fn take_over(&mut self, (): &(), (): &(), _now_ms: u64) {}

    fn turn(&mut self, _now_ms: u64) {
        self.attend();
    }

    fn totals(&self) -> DeviceTotals {
        self.counted()
    }
}
