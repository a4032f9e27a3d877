//! A port in memory: frames looped from RAM, frames put in by hand, frames counted or kept.
//!
//! ```text
//! store   │ 0 │ 1 │ 2 │ 3 │ 4 │ …      read by all queues, copied by none
//! queue 0   0       2   3      ↻       the frames of its flows, in the order of the store
//! queue 1       1           4  ↻
//! ```
//!
//! For measurements without a kernel, and for tests. A frame belongs to the queue of its flow
//! ([`flow_hash`]), so flows keep their order. Cost of a received frame: one read of the store's
//! index. Guarantees: receiving from the store neither locks nor allocates; at most
//! [`INJECTED_MAX`] injected frames wait.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::capture::read_ethernet;
use crate::flow::flow_hash;
use crate::memory::{FrameStore, Limits};
use crate::queue::{
    BURST, Port, PortError, PortInfo, Queue, Receive, ReceiveCounters, Received, SendError,
    Transmit, TransmitCounters,
};

/// Most injected frames of a queue that wait to be received.
pub const INJECTED_MAX: usize = 65_536;

/// Options of [`MemoryPort::open`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryOptions {
    /// Number of flows; one frame of each is looped: UDP over IPv4, from addresses 10.0.0.0 up to
    /// 10.255.255.254.
    pub flows: u32,
    /// Bytes of each of these frames, without frame check sequence.
    pub size: usize,
    /// Capture whose frames are looped instead.
    pub file: Option<PathBuf>,
    /// Number of frames, over all queues, after which the port ends.
    pub limit: Option<u64>,
    /// Number of transmitted frames to keep, the last ones.
    pub keep: usize,
}

impl MemoryOptions {
    /// Most flows: their 64-byte frames take 88 MiB.
    pub const FLOWS_MAX: u32 = 1 << 20;
    /// Shortest frame with all headers.
    pub const SIZE_MIN: usize = 42;
    /// Longest frame: that of a jumbo MTU.
    pub const SIZE_MAX: usize = 9018;
    /// Most frames kept.
    pub const KEEP_MAX: usize = 1 << 20;
}

impl Default for MemoryOptions {
    fn default() -> Self {
        MemoryOptions { flows: 0, size: 64, file: None, limit: None, keep: 0 }
    }
}

pub struct MemoryPort {
    info: PortInfo,
    queues: Vec<Queue>,
    handle: MemoryHandle,
}

/// Handle to inject frames into a [`MemoryPort`] and to take sent ones.
#[derive(Clone)]
pub struct MemoryHandle {
    injected: Arc<[Injected]>,
    kept: Arc<Kept>,
}

#[derive(Default)]
struct Injected {
    /// Whether to look under the lock.
    waiting: AtomicBool,
    frames: Mutex<VecDeque<Vec<u8>>>,
}

#[derive(Default)]
struct Kept {
    most: usize,
    frames: Mutex<VecDeque<Vec<u8>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics between two changes that belong together.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryPort {
    /// Creates the frames that the options ask for.
    ///
    /// # Errors
    /// The capture cannot be read, or the frames do not fit into memory.
    pub fn open(
        options: &MemoryOptions,
        name: &str,
        queues: usize,
    ) -> Result<MemoryPort, PortError> {
        let store = match &options.file {
            Some(path) => read_frames(path),
            None => synthetic(options.flows, options.size),
        };
        let unusable = |problem| PortError::Unusable { port: name.to_owned(), problem };
        Ok(MemoryPort::from_store(Arc::new(store.map_err(unusable)?), options, name, queues))
    }

    /// Loops the frames of a store; of the options, only `limit` and `keep` apply.
    pub fn from_store(
        store: Arc<FrameStore>,
        options: &MemoryOptions,
        name: &str,
        queues: usize,
    ) -> MemoryPort {
        let queues = queues.max(1);
        let mut shards = vec![Vec::new(); queues];
        let mut mtu = 1500;
        for (i, frame) in store.iter().enumerate() {
            shards[(flow_hash(frame.data) % queues as u64) as usize].push(i as u32);
            mtu = mtu.max(frame.data.len().saturating_sub(14));
        }
        let kept = Kept { most: options.keep, frames: Mutex::default() };
        let handle = MemoryHandle {
            injected: (0..queues).map(|_| Injected::default()).collect(),
            kept: Arc::new(kept),
        };
        let (frames, limit) = (store.len() as u64, options.limit);
        let both = |(queue, shard): (usize, Vec<u32>)| {
            let left = limit.map(|limit| share(&shard, frames, limit));
            let receive = Looped {
                store: Arc::clone(&store),
                shard,
                next: 0,
                left,
                queue,
                injected: Arc::clone(&handle.injected),
                taken: Vec::new(),
            };
            let kept = Arc::clone(&handle.kept);
            let transmit =
                Counted { kept, batch: Vec::new(), mtu, counters: TransmitCounters::default() };
            Queue { receive: Box::new(receive), transmit: Box::new(transmit) }
        };
        let queues = shards.into_iter().enumerate().map(both).collect::<Vec<_>>();
        let info = PortInfo {
            name: name.to_owned(),
            mac: [2, 0, 0, 0, 0, 1],
            mtu: u32::try_from(mtu).unwrap_or(u32::MAX),
            link_up: true,
            detail: format!("{frames} frames looped, {} queues", queues.len()),
        };
        MemoryPort { info, queues, handle }
    }

    /// Returns the handle to inject frames and take kept ones.
    pub fn handle(&self) -> MemoryHandle {
        self.handle.clone()
    }
}

/// Returns how many of the first `limit` frames of the endless loop belong to this shard.
fn share(shard: &[u32], frames: u64, limit: u64) -> u64 {
    if frames == 0 {
        return 0;
    }
    let rest = shard.iter().take_while(|&&i| u64::from(i) < limit % frames).count();
    (limit / frames) * shard.len() as u64 + rest as u64
}

impl MemoryHandle {
    /// Injects a frame into the queue of its flow; returns `false` if that is full.
    pub fn inject(&self, frame: &[u8]) -> bool {
        let queue = flow_hash(frame) % self.injected.len() as u64;
        let injected = &self.injected[queue as usize];
        let mut frames = locked(&injected.frames);
        if frames.len() >= INJECTED_MAX {
            return false;
        }
        frames.push_back(frame.to_vec());
        // Pairs with the load of the receiver, which then waits for the lock.
        injected.waiting.store(true, Ordering::Release);
        true
    }

    /// Takes the last transmitted frames, oldest first.
    pub fn take_sent(&self) -> Vec<Vec<u8>> {
        locked(&self.kept.frames).drain(..).collect()
    }
}

impl Port for MemoryPort {
    fn take_queues(&mut self) -> Vec<Queue> {
        std::mem::take(&mut self.queues)
    }

    fn info(&mut self) -> PortInfo {
        self.info.clone()
    }
}

struct Looped {
    store: Arc<FrameStore>,
    shard: Vec<u32>,
    next: usize,
    /// Frames of the store still to come.
    left: Option<u64>,
    queue: usize,
    injected: Arc<[Injected]>,
    /// Lent injected frames.
    taken: Vec<Vec<u8>>,
}

impl Receive for Looped {
    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        self.taken.clear();
        let injected = &self.injected[self.queue];
        if injected.waiting.load(Ordering::Acquire) {
            let mut frames = locked(&injected.frames);
            let count = frames.len().min(BURST);
            self.taken.extend(frames.drain(..count));
            injected.waiting.store(!frames.is_empty(), Ordering::Release);
        }
        let mut received: Received<'_> = self.taken.iter().map(Vec::as_slice).collect();
        if self.shard.is_empty() {
            return Ok(received);
        }
        let room = (BURST - received.len()) as u64;
        let count = self.left.map_or(room, |left| left.min(room));
        for _ in 0..count {
            let frame = self.store.get(self.shard[self.next] as usize);
            received.push(frame.expect("the shard holds numbers of the store").data);
            self.next = if self.next + 1 == self.shard.len() { 0 } else { self.next + 1 };
        }
        if let Some(left) = &mut self.left {
            *left -= count;
        }
        Ok(received)
    }

    fn is_finished(&self) -> bool {
        // Without stored frames the port is for injection, which never ends.
        !self.store.is_empty()
            && (self.left == Some(0) || self.shard.is_empty())
            && !self.injected[self.queue].waiting.load(Ordering::Acquire)
    }

    fn counters(&mut self) -> ReceiveCounters {
        ReceiveCounters::default()
    }
}

struct Counted {
    kept: Arc<Kept>,
    /// Frames to keep, at the next flush.
    batch: Vec<Vec<u8>>,
    mtu: usize,
    counters: TransmitCounters,
}

impl Transmit for Counted {
    fn send(&mut self, frame: &[u8]) -> Result<(), SendError> {
        self.send_parts(frame, &[])
    }

    fn send_parts(&mut self, head: &[u8], rest: &[u8]) -> Result<(), SendError> {
        let len = head.len() + rest.len();
        if crate::offload::payload_len_of(head, len) > self.mtu {
            return Err(SendError::TooLong);
        }
        self.counters.sent += 1;
        self.counters.sent_bytes += len as u64;
        if self.kept.most > 0 {
            self.batch.push([head, rest].concat());
            if self.batch.len() >= BURST {
                self.keep();
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        if !self.batch.is_empty() {
            self.keep();
        }
        Ok(())
    }

    fn counters(&mut self) -> TransmitCounters {
        self.counters
    }
}

impl Counted {
    fn keep(&mut self) {
        let mut frames = locked(&self.kept.frames);
        frames.extend(self.batch.drain(..));
        let over = frames.len().saturating_sub(self.kept.most);
        frames.drain(..over);
    }
}

fn read_frames(path: &Path) -> Result<FrameStore, String> {
    read_ethernet(path, &Limits::default()).map_err(|e| e.to_string())
}

/// Returns one frame for each of `flows` flows.
fn synthetic(flows: u32, size: usize) -> Result<FrameStore, String> {
    let size = size.clamp(MemoryOptions::SIZE_MIN, MemoryOptions::SIZE_MAX);
    let mut store = FrameStore::new();
    for flow in 0..flows.min(MemoryOptions::FLOWS_MAX) {
        store.push(&udp_frame(flow, size), 0, 0).map_err(|e| e.to_string())?;
    }
    Ok(store)
}

fn udp_frame(flow: u32, size: usize) -> Vec<u8> {
    let mut frame = vec![0; size];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    let ip_len = (size - 14) as u16;
    let mut headers = vec![0x08, 0x00, 0x45, 0];
    headers.extend(ip_len.to_be_bytes());
    headers.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    headers.extend((0x0a00_0000 | flow).to_be_bytes());
    headers.extend([10, 255, 255, 254]);
    headers.extend((1024 + (flow % 60_000) as u16).to_be_bytes());
    headers.extend(9u16.to_be_bytes()); // Discard.
    headers.extend((ip_len - 20).to_be_bytes());
    frame[12..12 + headers.len()].copy_from_slice(&headers);
    // The checksum of the header; UDP needs none over IPv4.
    crate::offload::complete_header_checksum(&mut frame[14..34]);
    frame
}

#[cfg(test)]
mod tests;
