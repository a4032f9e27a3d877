//! Errors as OpenFlow numbers them: a type, and a code within it (specification 7.5.4).
//!
//! Names are those of the specification without their prefixes. Numbers that this table does not
//! know stay numbers, so every error that a peer sends can be kept and shown.

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
                /// The code's number.
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

        /// Type and code of an error.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $( $(#[$doc])* $kind($kind), )+
            /// Numbers without a name here.
            Unknown {
                /// The error's type.
                kind: u16,
                /// The error's code.
                code: u16,
            },
        }

        impl ErrorCode {
            /// Every error with a name.
            pub const ALL: &'static [ErrorCode] =
                &[ $( $( ErrorCode::$kind($kind::$code) ),+ ),+ ];

            /// Type and code as numbers.
            pub const fn to_wire(self) -> (u16, u16) {
                match self {
                    $( ErrorCode::$kind(code) => ($number, code.code()), )+
                    ErrorCode::Unknown { kind, code } => (kind, code),
                }
            }

            /// The error with these numbers.
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
    /// Versions could not be agreed on.
    HelloFailed 0 {
        Incompatible 0 "no version in common",
        Eperm 1 "not permitted",
    }
    /// A request was not understood.
    BadRequest 1 {
        BadVersion 0 "version of the header not supported",
        BadType 1 "message type not supported",
        BadMultipart 2 "multipart type not supported",
        BadExperimenter 3 "experimenter not supported",
        BadExpType 4 "experimenter type not supported",
        Eperm 5 "not permitted",
        BadLen 6 "wrong length for the type",
        BufferEmpty 7 "buffer was used before",
        BufferUnknown 8 "buffer does not exist",
        BadTableId 9 "table does not exist",
        IsSlave 10 "controller has the slave role",
        BadPort 11 "port does not exist",
        BadPacket 12 "packet of a packet-out is not valid",
        MultipartBufferOverflow 13 "multipart request is too long in all",
        MultipartRequestTimeout 14 "multipart request was not completed in time",
        MultipartReplyTimeout 15 "multipart reply was not completed in time",
        MultipartBadSched 16 "another multipart request came between",
        PipelineFieldsOnly 17 "only pipeline fields may stand here",
        Unknown 18 "unknown reason",
    }
    /// An action was not understood.
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
        MatchInconsistent 10 "action does not suit the match",
        UnsupportedOrder 11 "order of actions not supported",
        BadTag 12 "tag or encapsulation not supported",
        BadSetType 13 "field cannot be set",
        BadSetLen 14 "wrong length of the field to set",
        BadSetArgument 15 "value cannot be set",
        BadSetMask 16 "field cannot be set under a mask",
        BadMeter 17 "meter does not exist",
    }
    /// An instruction was not understood.
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
        DupInst 9 "instruction stands twice",
    }
    /// A match was not understood.
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
        DupField 10 "field stands twice",
        Eperm 11 "not permitted",
    }
    /// A flow-mod could not be done.
    FlowModFailed 5 {
        Unknown 0 "unknown reason",
        TableFull 1 "table is full",
        BadTableId 2 "table does not exist",
        Overlap 3 "overlaps a flow of the same priority",
        Eperm 4 "not permitted",
        BadTimeout 5 "timeout not supported",
        BadCommand 6 "command not known",
        BadFlags 7 "flags not known",
        CantSync 8 "synchronised table cannot follow",
        BadPriority 9 "priority not supported",
        IsSync 10 "table is synchronised, read-only",
    }
    /// A group-mod could not be done.
    GroupModFailed 6 {
        GroupExists 0 "group exists already",
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
        BadCommand 11 "command not known",
        BadBucket 12 "error in a bucket",
        BadWatch 13 "error in a watched port or group",
        Eperm 14 "not permitted",
        UnknownBucket 15 "bucket does not exist",
        BucketExists 16 "bucket exists already",
    }
    /// A port-mod could not be done.
    PortModFailed 7 {
        BadPort 0 "port does not exist",
        BadHwAddr 1 "hardware address is not that of the port",
        BadConfig 2 "configuration not valid",
        BadAdvertise 3 "features to advertise not valid",
        Eperm 4 "not permitted",
    }
    /// A table-mod could not be done.
    TableModFailed 8 {
        BadTable 0 "table does not exist",
        BadConfig 1 "configuration not valid",
        Eperm 2 "not permitted",
    }
    /// A request about queues could not be done.
    QueueOpFailed 9 {
        BadPort 0 "port does not exist",
        BadQueue 1 "queue does not exist",
        Eperm 2 "not permitted",
    }
    /// The switch's configuration was refused.
    SwitchConfigFailed 10 {
        BadFlags 0 "flags not valid",
        BadLen 1 "miss length not valid",
        Eperm 2 "not permitted",
    }
    /// A role was refused.
    RoleRequestFailed 11 {
        Stale 0 "generation is older than one seen before",
        Unsup 1 "role change not supported",
        BadRole 2 "role not valid",
        IdUnsup 3 "short identifiers not supported",
        IdInUse 4 "short identifier is in use",
    }
    /// A meter-mod could not be done.
    MeterModFailed 12 {
        Unknown 0 "unknown reason",
        MeterExists 1 "meter exists already",
        InvalidMeter 2 "meter not valid",
        UnknownMeter 3 "meter does not exist",
        BadCommand 4 "command not known",
        BadFlags 5 "flags not supported",
        BadRate 6 "rate not supported",
        BadBurst 7 "burst size not supported",
        BadBand 8 "band not supported",
        BadBandValue 9 "value of a band not supported",
        OutOfMeters 10 "no more meters",
        OutOfBands 11 "too many bands",
    }
    /// Features of tables were refused.
    TableFeaturesFailed 13 {
        BadTable 0 "table does not exist",
        BadMetadata 1 "metadata mask not valid",
        BadType 2 "property type not known",
        BadLen 3 "wrong length of a property",
        BadArgument 4 "value of a property not supported",
        Eperm 5 "not permitted",
        BadCapabilities 6 "capabilities not valid",
        BadMaxEnt 7 "number of entries not valid",
        BadFeatures 8 "features not valid",
    }
    /// A property was not understood (1.4 and later).
    BadProperty 14 {
        BadType 0 "property type not known",
        BadLen 1 "wrong length of a property",
        BadValue 2 "value of a property not supported",
        TooMany 3 "too many properties",
        DupType 4 "property stands twice",
        BadExperimenter 5 "experimenter not supported",
        BadExpType 6 "experimenter property not supported",
        BadExpValue 7 "value of an experimenter property not supported",
        Eperm 8 "not permitted",
    }
    /// A choice of asynchronous messages was refused (1.4 and later).
    AsyncConfigFailed 15 {
        Invalid 0 "mask not valid",
        Unsupported 1 "configuration not supported",
        Eperm 2 "not permitted",
    }
    /// A flow monitor was refused (1.4 and later).
    FlowMonitorFailed 16 {
        Unknown 0 "unknown reason",
        MonitorExists 1 "monitor exists already",
        InvalidMonitor 2 "monitor not valid",
        UnknownMonitor 3 "monitor does not exist",
        BadCommand 4 "command not known",
        BadFlags 5 "flags not supported",
        BadTableId 6 "table does not exist",
        BadOut 7 "output port or group not valid",
    }
    /// A bundle could not be done (1.4 and later).
    BundleFailed 17 {
        Unknown 0 "unknown reason",
        Eperm 1 "not permitted",
        BadId 2 "bundle does not exist",
        BundleExist 3 "bundle exists already",
        BundleClosed 4 "bundle is closed",
        OutOfBundles 5 "too many bundles",
        BadType 6 "control type not known",
        BadFlags 7 "flags not supported, or not those of the bundle",
        MsgBadLen 8 "wrong length of the message in it",
        MsgBadXid 9 "xid of the message in it is another",
        MsgUnsup 10 "message cannot stand in a bundle",
        MsgConflict 11 "messages cannot stand together",
        MsgTooMany 12 "too many messages",
        MsgFailed 13 "a message of it failed",
        Timeout 14 "bundle took too long",
        BundleInProgress 15 "another bundle holds the resource",
        SchedNotSupported 16 "scheduled commits not supported",
        SchedFuture 17 "scheduled too far ahead",
        SchedPast 18 "scheduled too far back",
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
