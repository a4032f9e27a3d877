//! A tap on any port: writes every frame that it receives or sends to a capture.
//!
//! Frames of both directions go to one nanosecond pcap, with the time at which they passed. If the
//! capture can no longer be written (a full disk), the port continues, and [`Port::info`] reports
//! it.

use std::os::fd::BorrowedFd;
use std::path::Path;

use crate::capture::{CaptureStream, StreamWriter, WriteError};
use crate::queue::{
    Port, PortError, PortInfo, Queue, Receive, ReceiveCounters, Received, SendError, Transmit,
    TransmitCounters,
};
use crate::select::Select;

pub struct DumpPort {
    inner: Box<dyn Port>,
    stream: CaptureStream,
}

impl DumpPort {
    /// Puts the tap on a port before its queues are taken.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn new(inner: Box<dyn Port>, path: impl AsRef<Path>) -> Result<DumpPort, WriteError> {
        Ok(DumpPort { inner, stream: CaptureStream::create(path)? })
    }
}

impl Port for DumpPort {
    fn take_queues(&mut self) -> Vec<Queue> {
        let wrap = |Queue { receive, transmit }| Queue {
            receive: Box::new(DumpReceive { inner: receive, out: self.stream.writer() }),
            transmit: Box::new(DumpTransmit { inner: transmit, out: self.stream.writer() }),
        };
        self.inner.take_queues().into_iter().map(wrap).collect()
    }

    fn select(&mut self, select: &Select) -> Result<(), PortError> {
        self.inner.select(select)
    }

    fn info(&mut self) -> PortInfo {
        let mut info = self.inner.info();
        let state = if self.stream.is_broken() { "writing failed, ended" } else { "written" };
        info.detail = format!("{}; dump {state}", info.detail);
        info
    }
}

struct DumpReceive {
    inner: Box<dyn Receive>,
    out: StreamWriter,
}

impl Receive for DumpReceive {
    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        let frames = self.inner.receive()?;
        for frame in &frames {
            // Here and below: a failed write ends the capture, and `info` reports it.
            let _ = self.out.push(frame);
        }
        let _ = self.out.flush();
        Ok(frames)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }

    fn counters(&mut self) -> ReceiveCounters {
        self.inner.counters()
    }
}

struct DumpTransmit {
    inner: Box<dyn Transmit>,
    out: StreamWriter,
}

impl Transmit for DumpTransmit {
    fn send(&mut self, frame: &[u8]) -> Result<(), SendError> {
        self.inner.send(frame)?;
        let _ = self.out.push(frame);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        let _ = self.out.flush();
        self.inner.flush()
    }

    fn counters(&mut self) -> TransmitCounters {
        self.inner.counters()
    }
}
