//! Injects faults around any port: loss, corruption, duplication, reordering.
//!
//! ```text
//! frame n ─▶ lost? ─▶ corrupted? ─▶ duplicated? ─▶ held back? ─▶ out
//!                                                     └── behind one to eight later frames
//! ```
//!
//! Four random numbers are drawn for each frame. The fate of frame `n` of a queue depends only on
//! the seed, the queue, the direction and `n`, so a run repeats exactly. Held frames are released
//! once no more frames come. Every frame is copied: this is for tests, not for speed.
//! [`FaultCounters`] counts the faults. In the port's counters, received frames that the injector
//! loses never existed; each sent frame counts once, as sent or as lost.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use crate::queue::{
    BURST, Port, PortError, PortInfo, Queue, Receive, ReceiveCounters, Received, SendError,
    Transmit, TransmitCounters,
};
use crate::select::Select;

/// Most frames that may overtake one.
const OVERTAKEN_MAX: u64 = 8;

/// The direction with faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FaultOn {
    /// Received frames.
    #[default]
    In,
    /// Sent frames.
    Out,
    /// Both directions.
    Both,
}

/// Probabilities of faults, each from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultOptions {
    /// The frame is lost.
    pub loss: f64,
    /// One bit of the frame is inverted.
    pub corrupt: f64,
    /// One to eight later frames overtake it.
    pub reorder: f64,
    /// The frame comes twice.
    pub duplicate: f64,
    /// Seed of the random numbers.
    pub seed: u64,
    pub on: FaultOn,
}

impl Default for FaultOptions {
    fn default() -> Self {
        FaultOptions {
            loss: 0.0,
            corrupt: 0.0,
            reorder: 0.0,
            duplicate: 0.0,
            seed: 1,
            on: FaultOn::In,
        }
    }
}

/// Faults so far, over all queues and directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounters {
    /// Frames that reached the injector.
    pub frames: u64,
    pub lost: u64,
    /// Frames with an inverted bit.
    pub corrupted: u64,
    /// Frames held back.
    pub reordered: u64,
    /// Frames duplicated.
    pub duplicated: u64,
}

/// The live counters; each is independent of the others.
#[derive(Default)]
struct Counts {
    frames: AtomicU64,
    lost: AtomicU64,
    corrupted: AtomicU64,
    reordered: AtomicU64,
    duplicated: AtomicU64,
}

impl Counts {
    fn get(&self) -> FaultCounters {
        FaultCounters {
            frames: self.frames.load(Relaxed),
            lost: self.lost.load(Relaxed),
            corrupted: self.corrupted.load(Relaxed),
            reordered: self.reordered.load(Relaxed),
            duplicated: self.duplicated.load(Relaxed),
        }
    }
}

/// A line that frames pass through.
struct Line {
    options: FaultOptions,
    random: Pcg64,
    counts: Arc<Counts>,
    /// Frames lost, and copies added, on this line.
    lost: u64,
    copies: u64,
    copied_bytes: u64,
    /// Frames ready to leave.
    ready: VecDeque<Vec<u8>>,
    /// Frames held back, each with the number of frames that still overtake it.
    held: Vec<(u64, Vec<u8>)>,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
}

impl Line {
    fn new(options: &FaultOptions, queue: usize, out: bool, counts: &Arc<Counts>) -> Line {
        // Each queue and direction has its own sequence.
        let stream = (queue as u64) << 1 | u64::from(out);
        let seed = options.seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Line {
            options: *options,
            random: Pcg64::seed_from_u64(seed),
            counts: Arc::clone(counts),
            lost: 0,
            copies: 0,
            copied_bytes: 0,
            ready: VecDeque::new(),
            held: Vec::new(),
            spare: Vec::new(),
        }
    }

    fn copy(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(frame);
        copy
    }

    fn recycle(&mut self, frame: Vec<u8>) {
        if self.spare.len() < 4 * BURST {
            self.spare.push(frame);
        }
    }

    /// Takes a frame; returns whether it leaves at once, ahead of all that is ready.
    fn put(&mut self, frame: &[u8]) -> bool {
        let count = |counter: &AtomicU64| counter.fetch_add(1, Relaxed);
        let [loss, corrupt, reorder, duplicate]: [f64; 4] = self.random.random();
        let detail: u64 = self.random.random();
        count(&self.counts.frames);
        if loss < self.options.loss {
            count(&self.counts.lost);
            self.lost += 1;
            return false;
        }
        let mut first = self.copy(frame);
        if corrupt < self.options.corrupt && !first.is_empty() {
            count(&self.counts.corrupted);
            let bit = (detail >> 8) as usize % (first.len() * 8);
            first[bit / 8] ^= 1 << (bit % 8);
        }
        let second = (duplicate < self.options.duplicate).then(|| {
            count(&self.counts.duplicated);
            (self.copies, self.copied_bytes) =
                (self.copies + 1, self.copied_bytes + first.len() as u64);
            self.copy(&first)
        });
        let waits = reorder < self.options.reorder;
        if waits {
            count(&self.counts.reordered);
            self.held.push((1 + detail % OVERTAKEN_MAX, first));
        } else {
            self.ready.push_back(first);
            self.overtake();
        }
        // The second one leaves at once, even if the first is held back.
        if let Some(second) = second {
            self.ready.push_back(second);
            self.overtake();
        }
        !waits
    }

    /// Counts one more frame that passed those held back.
    fn overtake(&mut self) {
        let ready = &mut self.ready;
        self.held.retain_mut(|(more, frame)| {
            *more -= 1;
            if *more == 0 {
                ready.push_back(std::mem::take(frame));
            }
            *more > 0
        });
    }

    /// Releases held frames: no frame came after them.
    fn let_go(&mut self) {
        self.ready.extend(self.held.drain(..).map(|(_, frame)| frame));
    }
}

pub struct FaultPort {
    inner: Box<dyn Port>,
    options: FaultOptions,
    counts: Arc<Counts>,
}

impl FaultPort {
    /// Puts the injector around a port before its queues are taken.
    pub fn new(inner: Box<dyn Port>, options: &FaultOptions) -> FaultPort {
        FaultPort { inner, options: *options, counts: Arc::default() }
    }

    pub fn counters(&self) -> FaultCounters {
        self.counts.get()
    }
}

impl Port for FaultPort {
    fn take_queues(&mut self) -> Vec<Queue> {
        let (into, out) = match self.options.on {
            FaultOn::In => (true, false),
            FaultOn::Out => (false, true),
            FaultOn::Both => (true, true),
        };
        let wrap = |(number, queue): (usize, Queue)| {
            let Queue { mut receive, mut transmit } = queue;
            if into {
                let line = Line::new(&self.options, number, false, &self.counts);
                receive = Box::new(FaultReceive { inner: receive, line, given: Vec::new() });
            }
            if out {
                let line = Line::new(&self.options, number, true, &self.counts);
                transmit = Box::new(FaultTransmit {
                    inner: transmit,
                    line,
                    fresh: false,
                    refused: 0,
                    told: TransmitCounters::default(),
                });
            }
            Queue { receive, transmit }
        };
        self.inner.take_queues().into_iter().enumerate().map(wrap).collect()
    }

    fn select(&mut self, select: &Select) -> Result<(), PortError> {
        self.inner.select(select)
    }

    fn info(&mut self) -> PortInfo {
        let mut info = self.inner.info();
        let FaultCounters { frames, lost, corrupted, reordered, duplicated } = self.counters();
        info.detail = format!(
            "{}; faults in {frames} frames: {lost} lost, {corrupted} corrupted, {reordered} \
             reordered, {duplicated} duplicated",
            info.detail
        );
        info
    }
}

struct FaultReceive {
    inner: Box<dyn Receive>,
    line: Line,
    /// Lent frames.
    given: Vec<Vec<u8>>,
}

impl Receive for FaultReceive {
    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        for frame in self.given.drain(..) {
            self.line.recycle(frame);
        }
        if self.line.ready.len() < BURST {
            match self.inner.receive() {
                Ok(frames) if frames.is_empty() => self.line.let_go(),
                Ok(frames) => frames.iter().for_each(|frame| {
                    self.line.put(frame);
                }),
                Err(error) => {
                    self.line.let_go();
                    if self.line.ready.is_empty() {
                        return Err(error);
                    }
                }
            }
        }
        let count = self.line.ready.len().min(BURST);
        self.given.extend(self.line.ready.drain(..count));
        Ok(self.given.iter().map(Vec::as_slice).collect())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn is_finished(&self) -> bool {
        self.inner.is_finished() && self.line.ready.is_empty() && self.line.held.is_empty()
    }

    fn counters(&mut self) -> ReceiveCounters {
        self.inner.counters()
    }
}

/// Counts each frame that it takes once, as sent or as lost, so that the caller's account closes.
struct FaultTransmit {
    inner: Box<dyn Transmit>,
    line: Line,
    /// Whether frames were sent since the last flush.
    fresh: bool,
    /// Frames that the port refused too late to report it.
    refused: u64,
    /// The last counters reported; none may decrease.
    told: TransmitCounters,
}

impl FaultTransmit {
    /// Sends what is ready; returns the result of the first frame.
    fn pass(&mut self) -> Result<(), SendError> {
        let mut first = None;
        while let Some(frame) = self.line.ready.pop_front() {
            let outcome = self.inner.send(&frame);
            self.line.recycle(frame);
            self.refused += u64::from(outcome.is_err());
            first.get_or_insert(outcome);
        }
        first.unwrap_or(Ok(()))
    }
}

impl Transmit for FaultTransmit {
    fn send(&mut self, frame: &[u8]) -> Result<(), SendError> {
        self.fresh = true;
        let at_once = self.line.put(frame);
        let outcome = self.pass();
        if at_once && outcome.is_err() {
            self.refused -= 1;
            return outcome;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        if !std::mem::take(&mut self.fresh) {
            self.line.let_go();
            // `refused` counts the frames that the port refuses here.
            let _ = self.pass();
        }
        self.inner.flush()
    }

    fn counters(&mut self) -> TransmitCounters {
        let (inner, line, told) = (self.inner.counters(), &self.line, self.told);
        // A duplicated frame counts once both copies have left.
        let done = inner.sent + inner.lost + self.refused + line.lost;
        let done = done.saturating_sub(line.copies).max(told.sent + told.lost);
        let sent = inner.sent.saturating_sub(line.copies).clamp(told.sent, done - told.lost);
        let bytes = inner.sent_bytes.saturating_sub(line.copied_bytes).max(told.sent_bytes);
        self.told = TransmitCounters { sent, sent_bytes: bytes, lost: done - sent };
        self.told
    }
}

#[cfg(test)]
mod tests;
