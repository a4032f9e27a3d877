//! Why a packet left by no port and went to no controller.
//!
//! One small enum for the whole engine, so that counters are arrays. A packet that left by at least
//! one port, or went to a controller, has no reason, whatever happened to it afterwards.

/// Why a packet left by no port and went to no controller. When several apply, the first of this
/// list that does is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
#[repr(u8)]
pub enum DropReason {
    /// Fewer than the 14 bytes of an Ethernet header; no rule saw it.
    #[error("frame shorter than an Ethernet header")]
    TruncatedEthernet,
    /// More bytes than the switch handles; no rule saw it.
    #[error("frame too long")]
    FrameTooLong,
    /// The rules resubmit too deeply or do too much (see [`crate::translate`]).
    #[error("resubmitted too deeply or too often")]
    TooManyResubmits,
    /// It was for the controllers, and their queue is full or there is none.
    #[error("the controllers' queue is full")]
    ControllerQueueFull,
    /// `dec_ttl` found a TTL or hop limit of 1 or 0.
    #[error("TTL expired")]
    TtlExpired,
    /// There was an output, but only to the ingress port or to ports that do not exist.
    #[error("no such port, or only the ingress port")]
    NoOutput,
    /// A learning switch has no port for it.
    #[error("no port for it in a learning switch")]
    NormalDrop,
    /// No rule matched in table 0, or in the table that `goto_table` named.
    #[error("no rule matched")]
    NoRule,
    /// The rules that matched output nothing.
    #[error("dropped by a rule")]
    RuleDrop,
}

impl DropReason {
    /// How many there are.
    pub const COUNT: usize = DropReason::ALL.len();

    /// Every reason, in the order of [`DropReason::index`].
    pub const ALL: [DropReason; 9] = [
        DropReason::TruncatedEthernet,
        DropReason::FrameTooLong,
        DropReason::TooManyResubmits,
        DropReason::ControllerQueueFull,
        DropReason::TtlExpired,
        DropReason::NoOutput,
        DropReason::NormalDrop,
        DropReason::NoRule,
        DropReason::RuleDrop,
    ];

    /// Its place in an array of [`DropReason::COUNT`] counters.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// A short name for counters and reports.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::TruncatedEthernet => "truncated_ethernet",
            DropReason::FrameTooLong => "frame_too_long",
            DropReason::TooManyResubmits => "too_many_resubmits",
            DropReason::ControllerQueueFull => "controller_queue_full",
            DropReason::TtlExpired => "ttl_expired",
            DropReason::NoOutput => "no_output",
            DropReason::NormalDrop => "normal_drop",
            DropReason::NoRule => "no_rule",
            DropReason::RuleDrop => "rule_drop",
        }
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
    fn the_list_is_complete_and_in_order() {
        for (i, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), i);
        }
        for reason in overbank_wire::DropReason::ALL {
            assert_eq!(DropReason::from(reason).name(), reason.name());
        }
    }
}
