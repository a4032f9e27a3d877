//! A node between its ports, and the place outside from which packets come.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::super::handling;
use super::super::nodes::{Architecture, END, FlowKey, Frame, Node, Outbox, Role};
use super::net::NodePorts;
use crate::experiments::namespaces::{Open, wait};
use crate::prelude::LabError;

/// A packet that is under way for so long is lost.
const PATIENCE: Duration = Duration::from_secs(20);
/// Interval at which a node looks whether it shall stop.
const LOOK: Duration = Duration::from_millis(50);
/// Where a tunnel's header has its TEID: after Ethernet, IPv4, UDP and the first half of GTP-U.
const TEID: usize = 46;

/// What nodes and the place outside share. One packet is under way at a time, so the nodes rest
/// when these change.
#[derive(Default)]
pub(super) struct Shared {
    /// Place of the architecture that is in use.
    pub(super) architecture: AtomicUsize,
    /// Links that handled packets crossed.
    pub(super) links: AtomicU64,
    pub(super) stop: AtomicBool,
}

/// A node, in each architecture.
pub(super) struct Seat<'a> {
    pub(super) number: u8,
    pub(super) nodes: Vec<(Architecture, Node<u64>)>,
    pub(super) ports: NodePorts,
    pub(super) shared: &'a Shared,
}

impl Seat<'_> {
    /// Works until it shall stop.
    pub(super) fn run(mut self) {
        let mut out = Outbox::new();
        let mut waiting = VecDeque::new();
        while !self.shared.stop.load(Ordering::Relaxed) {
            wait(self.ports.all(), LOOK);
            self.receive(&mut waiting);
            while let Some((role, frame)) = waiting.pop_front() {
                self.work(role, &frame, &mut out, &mut waiting);
            }
        }
    }

    fn receive(&mut self, waiting: &mut VecDeque<(Role, Frame)>) {
        let NodePorts { ext, switch, mesh } = &mut self.ports;
        if let Ok(frames) = ext.queue.receive.receive() {
            let frames = frames.iter().filter_map(|bytes| Frame::received(bytes));
            waiting.extend(frames.map(|frame| (Role::Ingress, frame)));
        }
        for port in [switch].into_iter().chain(mesh.iter_mut().flatten()) {
            if let Ok(frames) = port.queue.receive.receive() {
                let frames = frames.iter().filter_map(|bytes| Frame::received(bytes));
                let labelled = frames.filter(Frame::is_labelled);
                waiting.extend(labelled.map(|frame| (frame.label().role, frame)));
            }
        }
    }

    /// Does a node's work on a frame; one that it sends to itself waits here.
    fn work(
        &mut self,
        role: Role,
        frame: &Frame,
        out: &mut Outbox,
        waiting: &mut VecDeque<(Role, Frame)>,
    ) {
        let Some((architecture, node)) =
            self.nodes.get_mut(self.shared.architecture.load(Ordering::Acquire))
        else {
            return;
        };
        node.work(role, &[*frame], out);
        for sent in out.take() {
            let label = sent.label();
            if role == Role::Handling {
                self.shared.links.fetch_add(frame.label().hops.into(), Ordering::Release);
                send(&mut self.ports.ext, sent.in_tunnel());
            } else if label.to == self.number {
                waiting.push_back((label.role, *sent));
            } else if *architecture == Architecture::RouteBricks {
                let port = self.ports.mesh.get_mut(usize::from(label.to));
                port.into_iter().flatten().for_each(|port| send(port, sent.on_link()));
            } else {
                send(&mut self.ports.switch, sent.on_link());
            }
        }
    }
}

/// Sends a frame at once. One that is lost does not come back, which is seen outside.
fn send(port: &mut Open, bytes: &[u8]) {
    let _ = port.queue.transmit.send(bytes);
    let _ = port.queue.transmit.flush();
}

/// A packet's way through the cluster and back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trip {
    pub(super) ns: f64,
    pub(super) links: u64,
}

/// The place outside: one port for each node.
pub(super) struct Outside<'a> {
    pub(super) ports: Vec<Open>,
    pub(super) shared: &'a Shared,
}

impl Outside<'_> {
    /// Sends a session's packet in at a node, and waits until it leaves by its tunnel.
    ///
    /// # Errors
    /// It does not leave, or leaves elsewhere or by another tunnel.
    pub(super) fn trip(&mut self, session: u64, ingress: usize) -> Result<Trip, LabError> {
        let frame = Frame::entering(u64::of(session));
        let nodes = self.ports.len() as u64;
        self.shared.links.store(0, Ordering::Release);
        let start = Instant::now();
        send(&mut self.ports[ingress], frame.on_link());
        loop {
            wait(self.ports.iter(), PATIENCE);
            for (at, port) in self.ports.iter_mut().enumerate() {
                let frames = port.queue.receive.receive().map_err(LabError::failed)?;
                let Some(frame) = frames.iter().find(|frame| frame.len() == END) else { continue };
                let ns = start.elapsed().as_nanos() as f64;
                let teid = frame[TEID..].first_chunk().map(|teid| u32::from_be_bytes(*teid));
                if at != usize::from(handling(session, nodes)) || teid != Some(session as u32 + 1) {
                    let why = format!("a packet of session {session} left node {at} as {teid:?}");
                    return Err(LabError::Failed(why));
                }
                return Ok(Trip { ns, links: self.shared.links.load(Ordering::Acquire) });
            }
            if start.elapsed() > PATIENCE {
                let why = format!("a packet of session {session} was lost, entering at {ingress}");
                return Err(LabError::Failed(why));
            }
        }
    }
}
