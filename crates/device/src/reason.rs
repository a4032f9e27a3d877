//! Why a frame is dropped.

use overbank_netcache::pipeline::Unread;
use overbank_reasons::Reasons;
use overbank_stations::forward;
use overbank_wire::netcache::{Refused, frame::Broken};

overbank_reasons::reasons! {
    /// Why a frame is dropped that concerns the device itself.
    pub enum Denied {
        OwnSource = "own_source", "the source is the device's MAC address";
        ToDevice = "to_device", "frame to the device's MAC address that it has no use for";
        Group = "to_group", "message to a group MAC address";
        Elsewhere = "other_device", "update, fence or message for a controller that is not \
            addressed to this device";
        QueueFull = "control_queue_full", "message for the controller, for which too many wait";
    }
}

/// Why a frame leaves by no port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// Those of an Ethernet switch.
    Ethernet(forward::DropReason),
    /// Its datagram is not read.
    Broken(Broken),
    /// Its payload is no message.
    Refused(Refused),
    /// The message counts for nothing.
    Unread(Unread),
    Denied(Denied),
}

/// Writes what each part of the chain has in common: name of the variant, enum.
macro_rules! chain {
    ($( $Part:ident($Enum:ty), )+) => {
        $(
            impl From<$Enum> for DropReason {
                fn from(reason: $Enum) -> DropReason {
                    DropReason::$Part(reason)
                }
            }
        )+

        impl Reasons for DropReason {
            const COUNT: usize = 0 $( + <$Enum as Reasons>::COUNT )+;

            #[inline]
            fn index(self) -> usize {
                let mut before = 0;
                $(
                    if let DropReason::$Part(reason) = self {
                        return before + reason.index();
                    }
                    before += <$Enum as Reasons>::COUNT;
                )+
                before
            }

            fn name_at(mut index: usize) -> &'static str {
                $(
                    if index < <$Enum as Reasons>::COUNT {
                        return <$Enum>::name_at(index);
                    }
                    index -= <$Enum as Reasons>::COUNT;
                )+
                "unknown"
            }

            fn help_at(mut index: usize) -> &'static str {
                $(
                    if index < <$Enum as Reasons>::COUNT {
                        return <$Enum>::help_at(index);
                    }
                    index -= <$Enum as Reasons>::COUNT;
                )+
                ""
            }
        }
    };
}

chain! {
    Ethernet(forward::DropReason),
    Broken(Broken),
    Refused(Refused),
    Unread(Unread),
    Denied(Denied),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_reason_has_a_separate_name() {
        let names: HashSet<&str> = (0..DropReason::COUNT).map(DropReason::name_at).collect();
        assert_eq!(names.len(), DropReason::COUNT);
        let reasons: [(DropReason, &str); 5] = [
            (forward::DropReason::Truncated.into(), "truncated_ethernet"),
            (Broken::Ip.into(), "broken_ip"),
            (Refused::Magic.into(), "magic"),
            (Unread::Busy.into(), "busy"),
            (Denied::QueueFull.into(), "control_queue_full"),
        ];
        for (reason, name) in reasons {
            assert_eq!(DropReason::name_at(reason.index()), name);
            assert!(!DropReason::help_at(reason.index()).is_empty());
        }
        assert_eq!(DropReason::from(Denied::QueueFull).index(), DropReason::COUNT - 1);
        assert_eq!(DropReason::name_at(DropReason::COUNT), "unknown");
    }
}
