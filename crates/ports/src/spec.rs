//! Ports as text, `KIND:ARGUMENT[,option=value…]`: parses, checks and opens them.
//!
//! ```text
//! afpacket:veth1               afpacket:veth1,ring=v3,ring-mib=32
//! afxdp:veth1,mode=copy        tap:tap0,mtu=9000
//! pcap:in.pcap                 pcap:in=a.pcap,out=b.pcap,pace=yes
//! memory:flows=1000,size=64    memory:file=a.pcap,limit=1000000
//! any of them                  …,loss=0.01,corrupt=0.001,fault-seed=7,dump=seen.pcap
//! ```
//!
//! The first piece without `=` is the argument: an interface, or the capture to read. Values
//! contain no comma. Options must be known, unique and within their bounds; otherwise one line says
//! what would be right. [`PortSpec`] prints as text that parses to the same value.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::afpacket::{self, AfPacketOptions, RingKind};
use crate::afxdp::{self, AfXdpOptions};
use crate::dump::DumpPort;
use crate::fault::{FaultOn, FaultOptions, FaultPort};
use crate::looped::{MemoryOptions, MemoryPort};
use crate::pcap::{self, PcapOptions};
use crate::queue::{Port, PortError};
use crate::select::Select;
use crate::tap::{self, TapOptions};

mod parse;

pub const QUEUES_MAX: usize = 64;

/// A port that can be opened.
#[derive(Clone, Debug, PartialEq)]
pub struct PortSpec {
    pub kind: PortKind,
    /// Faults to inject, if any.
    pub faults: Option<FaultOptions>,
    /// Capture to write every passing frame to.
    pub dump: Option<PathBuf>,
}

/// Kind of port, with its options.
#[derive(Clone, Debug, PartialEq)]
pub enum PortKind {
    /// An interface through packet sockets.
    AfPacket { interface: String, options: AfPacketOptions },
    /// An interface through AF_XDP.
    AfXdp { interface: String, options: AfXdpOptions },
    /// A TAP interface, created if it is missing.
    Tap { interface: String, options: TapOptions },
    /// Captures.
    Pcap(PcapOptions),
    /// Frames in memory.
    Memory(MemoryOptions),
}

/// Why a text names no port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("port `{text}`: {problem}")]
pub struct SpecError {
    pub text: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl FromStr for PortSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<PortSpec, SpecError> {
        // One line, whatever the text.
        let shown: String = text.chars().take(200).flat_map(char::escape_debug).collect();
        parse::spec(text).map_err(|problem| SpecError { text: shown, problem })
    }
}

impl PortSpec {
    /// Returns which frames an AF_XDP port takes; `None`: a port of another kind takes all.
    pub fn select(&mut self) -> Option<&mut Select> {
        match &mut self.kind {
            PortKind::AfXdp { options, .. } => Some(&mut options.select),
            _ => None,
        }
    }

    /// Returns kind and argument without options, as messages name the port.
    pub fn name(&self) -> String {
        match &self.kind {
            PortKind::AfPacket { interface, .. } => format!("afpacket:{interface}"),
            PortKind::AfXdp { interface, .. } => format!("afxdp:{interface}"),
            PortKind::Tap { interface, .. } => format!("tap:{interface}"),
            PortKind::Pcap(PcapOptions { input, output, .. }) => {
                let path = input.as_ref().or(output.as_ref());
                format!("pcap:{}", path.map_or(String::new(), |path| path.display().to_string()))
            }
            PortKind::Memory(MemoryOptions { file: Some(file), .. }) => {
                format!("memory:{}", file.display())
            }
            PortKind::Memory(options) => format!("memory:flows={}", options.flows),
        }
    }

    /// Returns the port's interface, if any.
    pub fn interface(&self) -> Option<&str> {
        match &self.kind {
            PortKind::AfPacket { interface, .. }
            | PortKind::AfXdp { interface, .. }
            | PortKind::Tap { interface, .. } => Some(interface),
            PortKind::Pcap(_) | PortKind::Memory(_) => None,
        }
    }
}

/// Opens a port with one queue for each worker, at most [`QUEUES_MAX`].
///
/// After [`PortError::Gone`] the caller drops the port and opens it again with the same `spec`;
/// that fails while the interface is missing.
///
/// # Errors
/// The interface or file is missing or unsuitable, or the system refuses a call.
pub fn open(spec: &PortSpec, queues: usize) -> Result<Box<dyn Port>, PortError> {
    let name = spec.name();
    let unusable = |problem| PortError::Unusable { port: name.clone(), problem };
    if queues == 0 || queues > QUEUES_MAX {
        return Err(unusable(format!("{queues} queues, expected 1 to {QUEUES_MAX}")));
    }
    let mut port: Box<dyn Port> = match &spec.kind {
        PortKind::AfPacket { interface, options } => {
            Box::new(afpacket::open(interface, options, queues)?)
        }
        PortKind::AfXdp { interface, options } => afxdp::open(interface, options, queues)?,
        PortKind::Tap { interface, options } => Box::new(tap::open(interface, options, queues)?),
        PortKind::Pcap(options) => Box::new(pcap::open(options, &name, queues)?),
        PortKind::Memory(options) => Box::new(MemoryPort::open(options, &name, queues)?),
    };
    if let Some(faults) = &spec.faults {
        port = Box::new(FaultPort::new(port, faults));
    }
    if let Some(path) = &spec.dump {
        port = Box::new(DumpPort::new(port, path).map_err(|e| unusable(e.to_string()))?);
    }
    Ok(port)
}

/// Writes the pieces after the kind, the argument first.
struct Pieces<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    first: bool,
}

impl Pieces<'_, '_> {
    fn text(&mut self, text: impl fmt::Display) -> fmt::Result {
        let comma = if std::mem::take(&mut self.first) { "" } else { "," };
        write!(self.f, "{comma}{text}")
    }

    fn option<T: PartialEq + fmt::Display>(
        &mut self,
        name: &str,
        value: T,
        usual: T,
    ) -> fmt::Result {
        if value == usual { Ok(()) } else { self.text(format_args!("{name}={value}")) }
    }

    fn yes_no(&mut self, name: &str, value: bool, usual: bool) -> fmt::Result {
        let text = |yes| if yes { "yes" } else { "no" };
        self.option(name, text(value), text(usual))
    }

    fn some<T: fmt::Display>(&mut self, name: &str, value: Option<T>) -> fmt::Result {
        value.map_or(Ok(()), |value| self.text(format_args!("{name}={value}")))
    }

    fn path(&mut self, name: &str, path: Option<&PathBuf>) -> fmt::Result {
        self.some(name, path.map(|path| path.display()))
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.kind {
            PortKind::AfPacket { .. } => "afpacket:",
            PortKind::AfXdp { .. } => "afxdp:",
            PortKind::Tap { .. } => "tap:",
            PortKind::Pcap(_) => "pcap:",
            PortKind::Memory(_) => "memory:",
        })?;
        let mut p = Pieces { f, first: true };
        match &self.kind {
            PortKind::AfPacket { interface, options } => {
                let usual = AfPacketOptions::default();
                p.text(interface)?;
                p.option("ring", options.ring, usual.ring)?;
                p.option("ring-mib", options.ring_mib, usual.ring_mib)?;
                p.yes_no("promiscuous", options.promiscuous, usual.promiscuous)?;
            }
            PortKind::AfXdp { interface, options } => {
                let usual = AfXdpOptions::default();
                p.text(interface)?;
                p.option("mode", options.mode, usual.mode)?;
                p.option("xdp", options.xdp, usual.xdp)?;
                p.option("frames", options.frames, usual.frames)?;
                p.yes_no("promiscuous", options.promiscuous, usual.promiscuous)?;
            }
            PortKind::Tap { interface, options } => {
                p.text(interface)?;
                p.yes_no("offload", options.offload, TapOptions::default().offload)?;
                p.some("mtu", options.mtu)?;
            }
            PortKind::Pcap(options) => {
                p.path("in", options.input.as_ref())?;
                p.path("out", options.output.as_ref())?;
                p.yes_no("pace", options.pace, false)?;
            }
            PortKind::Memory(options) => {
                let usual = MemoryOptions::default();
                p.option("flows", options.flows, usual.flows)?;
                p.option("size", options.size, usual.size)?;
                p.path("file", options.file.as_ref())?;
                p.some("limit", options.limit)?;
                p.option("keep", options.keep, usual.keep)?;
            }
        }
        if let Some(faults) = &self.faults {
            let usual = FaultOptions::default();
            p.option("loss", faults.loss, usual.loss)?;
            p.option("corrupt", faults.corrupt, usual.corrupt)?;
            p.option("reorder", faults.reorder, usual.reorder)?;
            p.option("duplicate", faults.duplicate, usual.duplicate)?;
            p.option("fault-seed", faults.seed, usual.seed)?;
            p.option("fault-on", faults.on, usual.on)?;
        }
        p.path("dump", self.dump.as_ref())
    }
}

impl fmt::Display for RingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RingKind::V3 => "v3",
            RingKind::V2 => "v2",
        })
    }
}

impl fmt::Display for FaultOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FaultOn::In => "in",
            FaultOn::Out => "out",
            FaultOn::Both => "both",
        })
    }
}

#[cfg(test)]
mod tests;
