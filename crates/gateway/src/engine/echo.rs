//! Responses to Echo Requests of the gateway ([`crate::peers`]).
//!
//! In a cluster, a response may come in at another node than the one that asked. It goes there by
//! the fabric, as a packet does: its sequence number names the node. At most 10,000/s do, so that
//! no flood of them takes the fabric; an invented one passes the check of its number in 1 of 128
//! cases.

use super::fabric::{Looked, Way};
use super::n3::FromN3;
use super::{View, Work};
use crate::fabric::Seed;
use crate::limits::{Limit, PerSecond};
use crate::peers::{Asker, Path};
use crate::reason::{Denied, DropReason};
use crossbeam_queue::ArrayQueue;
use overbank_cluster::{NodeId, Tag};
use overbank_wire::udp::Datagram;

/// Responses that wait to be taken.
const RESPONSES_MAX: usize = 4096;
/// Responses to other nodes.
const FORWARDED: PerSecond = PerSecond::at_most(10_000);

/// A response to a request of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoResponse {
    pub path: Path,
    pub sequence: u16,
    /// Restart counter of the peer.
    pub recovery: Option<u8>,
}

/// Takes responses to the control side. Bounded: further ones are left out until these are taken,
/// and requests are repeated.
#[derive(Debug)]
pub struct Echoes {
    /// Secret of a gateway by itself; nodes of a cluster have that of the cluster.
    seed: Seed,
    responses: ArrayQueue<EchoResponse>,
    forwarded: Limit,
}

impl Echoes {
    pub fn new(seed: Seed) -> Echoes {
        let responses = ArrayQueue::new(RESPONSES_MAX);
        Echoes { seed, responses, forwarded: Limit::default() }
    }

    /// Returns one, once.
    pub fn take(&self) -> Option<EchoResponse> {
        self.responses.pop()
    }
}

impl Default for Echoes {
    fn default() -> Echoes {
        Echoes::new(Seed(0))
    }
}

impl View {
    /// Returns what makes and checks sequence numbers of Echo Requests.
    pub fn asker(&self) -> Asker {
        match &self.fabric {
            Some(fabric) => Asker { seed: fabric.seed, me: fabric.me },
            None => Asker { seed: self.echoes.seed, me: NodeId(0) },
        }
    }

    /// Reads an Echo Response.
    #[cold]
    pub(super) fn read_response<'a>(
        &self,
        datagram: &Datagram<'a>,
        sequence: Option<u16>,
        recovery: Option<u8>,
    ) -> Result<FromN3<'a>, DropReason> {
        let path = Path { n3: datagram.ends.dst(), peer: datagram.ends.src() };
        let (asker, sequence) = (self.asker(), sequence.unwrap_or(0));
        match asker.of(path, sequence) {
            Some(node) if node == asker.me => {
                let _ = self.echoes.responses.push(EchoResponse { path, sequence, recovery });
                Err(Denied::EchoResponse.into())
            }
            Some(node) if self.fabric.is_some() => Ok(FromN3::Response(node)),
            _ => Err(Denied::EchoStray.into()),
        }
    }
}

impl Work {
    /// Returns the way of a response to another node.
    #[cold]
    pub(super) fn way_of_response(
        &self,
        view: &View,
        looked: &Looked<'_>,
        node: NodeId,
        now_ms: u64,
    ) -> Result<Way, Denied> {
        looked.pass()?;
        if !FORWARDED.admit(&view.echoes.forwarded, now_ms) {
            return Err(Denied::EchoLimited);
        }
        Ok(Way::There(node, Tag { hops: 1, moved: 0 }))
    }
}
