//! Why a packet left by no port and went to no controller.
//!
//! One small enum for the whole engine, so that counters are arrays. A packet that left by a port
//! or went to a controller has no reason, whatever happened to it afterwards.

overbank_reasons::reasons! {
    /// Why a packet left by no port and went to no controller. If several reasons apply, the first
    /// in this list is reported. A truncated or oversized frame reaches no rule.
    pub enum DropReason {
    TruncatedEthernet = "truncated_ethernet", "frame shorter than an Ethernet header";
    FrameTooLong = "frame_too_long", "frame longer than the switch handles";
    TooManyResubmits = "too_many_resubmits", "more resubmits, gotos or steps than the limits allow";
    ControllerQueueFull = "controller_queue_full", "the queue of packets for controllers was full";
    NoController = "no_controller", "for a controller, but none was connected";
    NoPacketIn = "port_no_packet_in", "for a controller, but the ingress port is set to no-packet-in";
    TtlExpired = "ttl_expired", "`dec_ttl` found a TTL or hop limit of 1 or 0";
    Fragment = "fragment", "IP fragment, in the fragment mode `drop`";
    NoOutput = "no_output", "output only to missing ports or the ingress port";
    NormalDrop = "normal_drop", "NORMAL found no port to send to";
    NoRule = "no_rule", "no rule matched in table 0 or in a later table of `goto_table`";
    RuleDrop = "rule_drop", "the matching rules had no output";
    }
}

impl DropReason {
    /// Returns whether the packet was refused on its way to the controllers.
    pub const fn is_refusal(self) -> bool {
        matches!(
            self,
            DropReason::ControllerQueueFull | DropReason::NoController | DropReason::NoPacketIn
        )
    }
}

impl From<overbank_wire::DropReason> for DropReason {
    fn from(reason: overbank_wire::DropReason) -> DropReason {
        match reason {
            overbank_wire::DropReason::TruncatedEthernet => DropReason::TruncatedEthernet,
            overbank_wire::DropReason::FrameTooLong => DropReason::FrameTooLong,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_the_wire_keeps_its_name() {
        for reason in overbank_wire::DropReason::ALL {
            assert_eq!(DropReason::from(reason).name(), reason.name());
        }
    }
}
