//! Why a packet left by no port and went to no controller.
//!
//! One small enum for the whole engine, so that counters are arrays. A packet that left by at least
//! one port, or went to a controller, has no reason, whatever happened to it afterwards.

/// Declares the reasons: one line each, `Variant = "name", "help";`.
macro_rules! reasons {
    ( $(#[$meta:meta])* $( $Reason:ident = $name:literal, $help:literal; )+ ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
        #[repr(u8)]
        pub enum DropReason {
            $( #[doc = $help] #[error($help)] $Reason, )+
        }

        impl DropReason {
            /// Every reason, in the order of [`DropReason::index`].
            pub const ALL: [DropReason; [$( $name ),+].len()] = [$( DropReason::$Reason ),+];

            /// A short name for counters and reports.
            pub const fn name(self) -> &'static str {
                match self { $( DropReason::$Reason => $name, )+ }
            }

            /// What it means.
            pub const fn help(self) -> &'static str {
                match self { $( DropReason::$Reason => $help, )+ }
            }
        }
    };
}

reasons! {
    /// Why a packet left by no port and went to no controller. When several apply, the first of this
    /// list that does is reported. No rule saw a frame that is truncated or too long.
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

impl DropReason {
    /// How many there are.
    pub const COUNT: usize = DropReason::ALL.len();

    /// Its position in an array of [`DropReason::COUNT`] counters.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

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
    fn the_list_is_complete_and_in_order() {
        for (i, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), i);
        }
        for reason in overbank_wire::DropReason::ALL {
            assert_eq!(DropReason::from(reason).name(), reason.name());
        }
    }
}
