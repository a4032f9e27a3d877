//! Why the gateway drops a frame.

use overbank_reasons::Reasons;
use overbank_wire::gtpu::Refused;

overbank_reasons::reasons! {
    /// Why a valid frame is dropped, in the order in which reasons are looked for.
    pub enum Denied {
        Truncated = "truncated_ethernet", "frame shorter than an Ethernet header";
        OtherMac = "other_mac", "the destination is not the port's MAC address";
        Vlan = "vlan", "frame with a VLAN tag: use the VLAN's interface as the port";
        ForeignFabric = "foreign_fabric", "frame on the fabric that no node of the cluster sent";
        // N3.
        OtherAddress = "other_address", "UDP datagram to port 2152 of another address than N3's";
        ForeignPeer = "foreign_peer", "the sender is in none of the prefixes of n3-peer";
        EchoLimited = "echo_limited", "more Echo Requests of a peer than echo-limit, or Echo \
            Responses to other nodes than 10,000/s";
        EchoResponse = "echo_response", "Echo Response to a request of the gateway: taken";
        EchoStray = "echo_stray", "Echo Response to no request of the gateway";
        EndMarker = "end_marker", "End Marker";
        ErrorIndication = "error_indication", "Error Indication of a peer";
        SupportedExtensions = "supported_extensions",
            "Supported Extension Headers Notification of a peer";
        TeidZero = "teid_zero", "G-PDU with TEID 0";
        ForgedTeid = "forged_teid", "G-PDU whose TEID does not carry the check of teid-secret";
        UnknownTeid = "unknown_teid", "G-PDU with a TEID of no session";
        LinkLocal = "link_local", "uplink packet from or to a link-local address";
        Spoofed = "spoofed_source", "uplink packet whose source is not the session's address";
        ToControl = "to_control", "uplink packet to an N3 address or a protected one";
        BadDestination = "bad_destination", "uplink packet whose destination is not a single host";
        // N6.
        NotTerminal = "not_ue", "packet whose destination is in no UE pool";
        UnknownTerminal = "unknown_ue", "packet to an address of a UE pool that no session has";
        // The cluster.
        Fenced = "fenced", "the node may not act: it has lost the cluster";
        NotIngress = "not_ingress", "the node joins the cluster, or is suspended";
        UnknownShare = "unknown_share",
            "too many packets of its source are of no session; the source's share is used up";
        Note = "fabric_note", "note of another node about packets of no session: taken";
        NodeDown = "node_down", "the node of the packet's session is gone or has no address";
        NoSuchNode = "no_such_node",
            "packet of no session: the number that the table has for it is no member's";
        Loop = "loop", "two nodes have forwarded the packet before";
        // Both.
        Gate = "gate_closed", "the session's gate is closed in this direction";
        TtlExpired = "ttl_expired", "the inner TTL or hop limit does not allow another hop";
        TooBig = "too_big", "the packet exceeds the MTU of the way out";
        BrokenInner = "broken_inner", "uplink IPv6 packet whose extension headers exceed it";
        Congested = "congested",
            "the tunnel was congested, and the packet cannot carry the mark (RFC 6040)";
        NoNextHop = "no_next_hop", "no next hop is known for the destination";
        RateLimited = "rate_limited", "the session exceeds its rate in this direction";
    }
}

/// Why a frame is dropped: it cannot be read, or it may not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    Frame(Refused),
    Denied(Denied),
}

impl From<Refused> for DropReason {
    fn from(reason: Refused) -> DropReason {
        DropReason::Frame(reason)
    }
}

impl From<Denied> for DropReason {
    fn from(reason: Denied) -> DropReason {
        DropReason::Denied(reason)
    }
}

impl Reasons for DropReason {
    const COUNT: usize = Refused::COUNT + Denied::COUNT;

    #[inline]
    fn index(self) -> usize {
        match self {
            DropReason::Frame(reason) => reason.index(),
            DropReason::Denied(reason) => Refused::COUNT + reason.index(),
        }
    }

    fn name_at(index: usize) -> &'static str {
        match index.checked_sub(Refused::COUNT) {
            None => Refused::name_at(index),
            Some(index) => Denied::name_at(index),
        }
    }

    fn help_at(index: usize) -> &'static str {
        match index.checked_sub(Refused::COUNT) {
            None => Refused::help_at(index),
            Some(index) => Denied::help_at(index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_reason_has_a_separate_name() {
        let names: HashSet<&str> = (0..DropReason::COUNT).map(DropReason::name_at).collect();
        assert_eq!(names.len(), DropReason::COUNT);
        let last = DropReason::from(Denied::RateLimited);
        assert_eq!((last.index(), last.index() + 1), (DropReason::COUNT - 1, DropReason::COUNT));
        assert_eq!(DropReason::name_at(DropReason::from(Refused::Fragment).index()), "fragment");
    }
}
