//! OpenFlow's errors: a type, and a code within it (specification 7.5.4).
//!
//! Names are those of the specification without their prefixes. Unknown numbers stay numbers, so
//! every error that a peer sends can be kept and shown.

use std::fmt;

macro_rules! codes {
    ($( $(#[$doc:meta])* $kind:ident $number:literal {
        $( $code:ident $value:literal $text:literal ),+ $(,)?
    } )+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            pub enum $kind { $( #[doc = concat!($text, ".")] $code ),+ }

            impl $kind {
                pub const fn code(self) -> u16 {
                    match self { $( $kind::$code => $value ),+ }
                }

                fn from_code(code: u16) -> Option<$kind> {
                    match code { $( $value => Some($kind::$code), )+ _ => None }
                }

                fn text(self) -> &'static str {
                    match self { $( $kind::$code => $text ),+ }
                }
            }

            impl From<$kind> for ErrorCode {
                fn from(code: $kind) -> ErrorCode {
                    ErrorCode::$kind(code)
                }
            }
        )+

        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $( $(#[$doc])* $kind($kind), )+
            /// Numbers without a name.
            Unknown {
                kind: u16,
                code: u16,
            },
        }

        impl ErrorCode {
            /// Every error with a name.
            pub const ALL: &'static [ErrorCode] =
                &[ $( $( ErrorCode::$kind($kind::$code) ),+ ),+ ];

            /// Returns type and code as numbers.
            pub const fn to_wire(self) -> (u16, u16) {
                match self {
                    $( ErrorCode::$kind(code) => ($number, code.code()), )+
                    ErrorCode::Unknown { kind, code } => (kind, code),
                }
            }

            /// Returns the error with these numbers.
            pub fn from_wire(kind: u16, code: u16) -> ErrorCode {
                let known = match kind {
                    $( $number => $kind::from_code(code).map(ErrorCode::$kind), )+
                    _ => None,
                };
                known.unwrap_or(ErrorCode::Unknown { kind, code })
            }
        }

        impl fmt::Display for ErrorCode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $( ErrorCode::$kind(code) => {
                        write!(f, "{} {:?}: {}", stringify!($kind), code, code.text())
                    } )+
                    ErrorCode::Unknown { kind, code } => write!(f, "error {kind}/{code}"),
                }
            }
        }
    };
}

codes! {
    /// The peers agree on no version.
    HelloFailed 0 {
        Incompatible 0 "no version in common",
        Eperm 1 "not permitted",
    }
    /// A request is invalid.
    BadRequest 1 {
        BadVersion 0 "version of the header not supported",
        BadType 1 "message type not supported",
        BadMultipart 2 "multipart type not supported",
        BadExperimenter 3 "experimenter not supported",
        BadExpType 4 "experimenter type not supported",
        Eperm 5 "not permitted",
        BadLen 6 "wrong length for the type",
        BufferEmpty 7 "buffer is already used",
        BufferUnknown 8 "buffer does not exist",
        BadTableId 9 "table does not exist",
        IsSlave 10 "controller has the slave role",
        BadPort 11 "port does not exist",
        BadPacket 12 "packet of a packet-out is not valid",
        MultipartBufferOverflow 13 "multipart request is too long in total",
        MultipartRequestTimeout 14 "multipart request was not completed in time",
        MultipartReplyTimeout 15 "multipart reply was not completed in time",
        MultipartBadSched 16 "another multipart request intervened",
        PipelineFieldsOnly 17 "only pipeline fields are allowed here",
        Unknown 18 "unknown reason",
    }
    /// An action is invalid.
    BadAction 2 {
        BadType 0 "action type not supported",
        BadLen 1 "wrong length of actions",
        BadExperimenter 2 "experimenter not supported",
        BadExpType 3 "experimenter action not supported",
        BadOutPort 4 "output port does not exist",
        BadArgument 5 "argument not valid",
        Eperm 6 "not permitted",
        TooMany 7 "too many actions",
        BadQueue 8 "output queue does not exist",
        BadOutGroup 9 "group does not exist",
        MatchInconsistent 10 "action contradicts the match",
        UnsupportedOrder 11 "order of actions not supported",
        BadTag 12 "tag or encapsulation not supported",
        BadSetType 13 "field cannot be set",
        BadSetLen 14 "wrong length of the field to set",
        BadSetArgument 15 "value cannot be set",
        BadSetMask 16 "field cannot be set under a mask",
        BadMeter 17 "meter does not exist",
    }
    /// An instruction is invalid.
    BadInstruction 3 {
        UnknownInst 0 "unknown instruction",
        UnsupInst 1 "instruction not supported by the table",
        BadTableId 2 "table not valid",
        UnsupMetadata 3 "metadata value not supported",
        UnsupMetadataMask 4 "metadata mask not supported",
        BadExperimenter 5 "experimenter not supported",
        BadExpType 6 "experimenter instruction not supported",
        BadLen 7 "wrong length of instructions",
        Eperm 8 "not permitted",
        DupInst 9 "duplicate instruction",
    }
    /// A match is invalid.
    BadMatch 4 {
        BadType 0 "match type not supported",
        BadLen 1 "wrong length of the match",
        BadTag 2 "tag or encapsulation not supported",
        BadDlAddrMask 3 "datalink address mask not supported",
        BadNwAddrMask 4 "network address mask not supported",
        BadWildcards 5 "bits outside of the mask are set",
        BadField 6 "field not supported",
        BadValue 7 "value not supported",
        BadMask 8 "mask not supported",
        BadPrereq 9 "prerequisite of a field is missing",
        DupField 10 "duplicate field",
        Eperm 11 "not permitted",
    }
    /// A flow-mod failed.
    FlowModFailed 5 {
        Unknown 0 "unknown reason",
        TableFull 1 "table is full",
        BadTableId 2 "table does not exist",
        Overlap 3 "overlaps a flow of the same priority",
        Eperm 4 "not permitted",
        BadTimeout 5 "timeout not supported",
        BadCommand 6 "unknown command",
        BadFlags 7 "unknown flags",
        CantSync 8 "cannot synchronise the table",
        BadPriority 9 "priority not supported",
        IsSync 10 "table is synchronised, read-only",
    }
    /// A group-mod failed.
    GroupModFailed 6 {
        GroupExists 0 "group already exists",
        InvalidGroup 1 "group not valid",
        WeightUnsupported 2 "weights not supported",
        OutOfGroups 3 "group table is full",
        OutOfBuckets 4 "too many buckets",
        ChainingUnsupported 5 "groups that forward to groups not supported",
        WatchUnsupported 6 "cannot watch this port or group",
        Loop 7 "groups would form a loop",
        UnknownGroup 8 "group does not exist",
        ChainedGroup 9 "another group forwards to it",
        BadType 10 "group type not supported",
        BadCommand 11 "unknown command",
        BadBucket 12 "error in a bucket",
        BadWatch 13 "error in a watched port or group",
        Eperm 14 "not permitted",
        UnknownBucket 15 "bucket does not exist",
        BucketExists 16 "bucket already exists",
    }
    /// A port-mod failed.
    PortModFailed 7 {
        BadPort 0 "port does not exist",
        BadHwAddr 1 "hardware address differs from the port's",
        BadConfig 2 "configuration not valid",
        BadAdvertise 3 "features to advertise not valid",
        Eperm 4 "not permitted",
    }
    /// A table-mod failed.
    TableModFailed 8 {
        BadTable 0 "table does not exist",
        BadConfig 1 "configuration not valid",
        Eperm 2 "not permitted",
    }
    /// A queue request failed.
    QueueOpFailed 9 {
        BadPort 0 "port does not exist",
        BadQueue 1 "queue does not exist",
        Eperm 2 "not permitted",
    }
    /// The switch refused the configuration.
    SwitchConfigFailed 10 {
        BadFlags 0 "flags not valid",
        BadLen 1 "miss length not valid",
        Eperm 2 "not permitted",
    }
    /// The switch refused the role.
    RoleRequestFailed 11 {
        Stale 0 "generation id is stale",
        Unsup 1 "role change not supported",
        BadRole 2 "role not valid",
        IdUnsup 3 "short identifiers not supported",
        IdInUse 4 "short identifier is in use",
    }
    /// A meter-mod failed.
    MeterModFailed 12 {
        Unknown 0 "unknown reason",
        MeterExists 1 "meter already exists",
        InvalidMeter 2 "meter not valid",
        UnknownMeter 3 "meter does not exist",
        BadCommand 4 "unknown command",
        BadFlags 5 "flags not supported",
        BadRate 6 "rate not supported",
        BadBurst 7 "burst size not supported",
        BadBand 8 "band not supported",
        BadBandValue 9 "value of a band not supported",
        OutOfMeters 10 "too many meters",
        OutOfBands 11 "too many bands",
    }
    /// The switch refused the table features.
    TableFeaturesFailed 13 {
        BadTable 0 "table does not exist",
        BadMetadata 1 "metadata mask not valid",
        BadType 2 "unknown property type",
        BadLen 3 "wrong length of a property",
        BadArgument 4 "value of a property not supported",
        Eperm 5 "not permitted",
        BadCapabilities 6 "capabilities not valid",
        BadMaxEnt 7 "number of entries not valid",
        BadFeatures 8 "features not valid",
    }
    /// A property is invalid (1.4 and later).
    BadProperty 14 {
        BadType 0 "unknown property type",
        BadLen 1 "wrong length of a property",
        BadValue 2 "value of a property not supported",
        TooMany 3 "too many properties",
        DupType 4 "duplicate property",
        BadExperimenter 5 "experimenter not supported",
        BadExpType 6 "experimenter property not supported",
        BadExpValue 7 "value of an experimenter property not supported",
        Eperm 8 "not permitted",
    }
    /// The switch refused the choice of asynchronous messages (1.4 and later).
    AsyncConfigFailed 15 {
        Invalid 0 "mask not valid",
        Unsupported 1 "configuration not supported",
        Eperm 2 "not permitted",
    }
    /// The switch refused a flow monitor (1.4 and later).
    FlowMonitorFailed 16 {
        Unknown 0 "unknown reason",
        MonitorExists 1 "monitor already exists",
        InvalidMonitor 2 "monitor not valid",
        UnknownMonitor 3 "monitor does not exist",
        BadCommand 4 "unknown command",
        BadFlags 5 "flags not supported",
        BadTableId 6 "table does not exist",
        BadOut 7 "output port or group not valid",
    }
    /// A bundle failed (1.4 and later).
    BundleFailed 17 {
        Unknown 0 "unknown reason",
        Eperm 1 "not permitted",
        BadId 2 "bundle does not exist",
        BundleExist 3 "bundle already exists",
        BundleClosed 4 "bundle is closed",
        OutOfBundles 5 "too many bundles",
        BadType 6 "unknown control type",
        BadFlags 7 "flags not supported, or different from the bundle's",
        MsgBadLen 8 "wrong length of the contained message",
        MsgBadXid 9 "contained message has a different xid",
        MsgUnsup 10 "message type not allowed in a bundle",
        MsgConflict 11 "messages contradict each other",
        MsgTooMany 12 "too many messages",
        MsgFailed 13 "a contained message failed",
        Timeout 14 "bundle took too long",
        BundleInProgress 15 "another bundle holds the resource",
        SchedNotSupported 16 "scheduled commits not supported",
        SchedFuture 17 "scheduled too far ahead",
        SchedPast 18 "scheduled too far in the past",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_pair_of_numbers_reads_back() {
        for kind in 0..=20 {
            for code in 0..=40 {
                assert_eq!(ErrorCode::from_wire(kind, code).to_wire(), (kind, code));
            }
        }
        let unknown = ErrorCode::Unknown { kind: 0xffff, code: 2300 };
        assert_eq!(ErrorCode::from_wire(0xffff, 2300), unknown);
    }

    #[test]
    fn no_two_names_share_their_numbers() {
        let numbers: HashSet<_> = ErrorCode::ALL.iter().map(|code| code.to_wire()).collect();
        assert_eq!(numbers.len(), ErrorCode::ALL.len());
        for &code in ErrorCode::ALL {
            let (kind, number) = code.to_wire();
            assert_eq!(ErrorCode::from_wire(kind, number), code);
        }
    }
}
