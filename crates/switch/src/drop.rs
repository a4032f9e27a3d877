//! Why a packet left by no port and went to no controller.
//!
//! One small enum for the whole engine, so that counters are arrays. A packet that left by at least
//! one port, or went to a controller, has no reason, whatever happened to it afterwards.

overbank_reasons::reasons! {
    /// Why a packet left by no port and went to no controller. When several apply, the first of this
    /// list that does is reported. No rule saw a frame that is truncated or too long.
    pub enum DropReason {
    TruncatedEthernet = "truncated_ethernet", "frame shorter than an Ethernet header";
    FrameTooLong = "frame_too_long", "frame too long";
    TooManyResubmits = "too_many_resubmits", "resubmitted too deeply or too often";
    ControllerQueueFull = "controller_queue_full", "it was for the controllers, and their queue is full";
    NoController = "no_controller", "it was for the controllers, and none is connected";
    NoPacketIn = "port_no_packet_in", "it was for the controllers, which want none of its port";
    TtlExpired = "ttl_expired", "`dec_ttl` found a TTL or hop limit of 1 or 0";
    Fragment = "fragment", "an IP fragment, and the switch is set to drop fragments";
    NoOutput = "no_output", "no such port, or only the ingress port";
    NormalDrop = "normal_drop", "no port for it in a learning switch";
    NoRule = "no_rule", "no rule matched in table 0, or in the table that `goto_table` named";
    RuleDrop = "rule_drop", "the rules that matched output nothing";
    }
}

impl DropReason {
    /// Whether the packet was for the controllers and was refused on its way to them.
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
