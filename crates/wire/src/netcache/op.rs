//! What messages say: operations and results.

use super::Message;

/// Declares an enum of one byte: `Variant = number, "what it says";`.
macro_rules! bytes {
    (
        $(#[$meta:meta])*
        pub enum $Name:ident {
            $( $Variant:ident = $number:literal, $help:literal; )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $Name {
            $( #[doc = $help] $Variant = $number, )+
        }

        impl $Name {
            pub const ALL: &[$Name] = &[$( $Name::$Variant ),+];

            #[inline(always)]
            pub(super) const fn of(byte: u8) -> Option<$Name> {
                match byte {
                    $( $number => Some($Name::$Variant), )+
                    _ => None,
                }
            }
        }
    };
}

bytes! {
    /// Operations. Those of clients are the first three; a device turns a write of a cached key
    /// into its cached variant and stamps it (algorithm 1).
    pub enum Op {
        Get = 1, "Asks for a value.";
        Put = 2, "Sets a value.";
        Delete = 3, "Removes a value.";
        PutCached = 4, "A [`Op::Put`] that a device has stamped.";
        DeleteCached = 5, "A [`Op::Delete`] that a device has stamped.";
        GetOk = 6, "Answers a [`Op::Get`] with a value.";
        NotFound = 7, "Answers a [`Op::Get`]: there is no value.";
        WriteOk = 8, "Answers a write.";
        Update = 9, "A server's value of a cached key, to the device.";
        UpdateOk = 10, "Answers an [`Op::Update`]: its status says what became of it.";
        Fence = 11, "Asks the device for a new stamp of a key.";
        FenceOk = 12, "Answers an [`Op::Fence`] with that stamp, or that the key is not cached.";
        Adopt = 13, "The controller has installed a key; to its server.";
        Adopted = 14, "Answers an [`Op::Adopt`].";
        Evicted = 15, "The controller has removed a key; to its server.";
        Hello = 16, "A server has started.";
        Resume = 17, "Answers an [`Op::Hello`]: no key of the server is cached.";
        Refresh = 18, "A server asks the controller to install a key anew, or to leave it out.";
        Error = 19, "Answers a request that is refused: its status says why.";
    }
}

impl Op {
    /// Whether its messages may have a value.
    pub const fn has_value(self) -> bool {
        matches!(self, Op::Put | Op::PutCached | Op::GetOk | Op::Update)
    }

    /// Whether it changes a value.
    pub const fn is_write(self) -> bool {
        matches!(self, Op::Put | Op::Delete | Op::PutCached | Op::DeleteCached)
    }

    /// Returns what a device makes of it that stamps it; `None`: it is not stamped.
    #[inline]
    pub const fn cached(self) -> Option<Op> {
        match self {
            Op::Put => Some(Op::PutCached),
            Op::Delete => Some(Op::DeleteCached),
            Op::Fence => Some(Op::FenceOk),
            _ => None,
        }
    }
}

bytes! {
    /// What became of a request.
    pub enum Status {
        Ok = 0, "It is done.";
        Stale = 1, "The device has stamped a later write.";
        Absent = 2, "The key is not in the device's table.";
        TooLong = 3, "The value is longer than the server or the device takes.";
        TooOld = 4, "The server remembers as many later requests of the client as it can.";
        Busy = 5, "The server has as many requests as it takes: try again later.";
        Refused = 6, "The server's store has refused it.";
    }
}

impl<'a> Message<'a> {
    /// Returns the answer to a message, for the same request and key.
    pub const fn answer(&self, op: Op, status: Status) -> Message<'static> {
        let Message { client, request, key, stamp, .. } = *self;
        Message { op, flags: 0, status, client, request, key, stamp, value: &[] }
    }
}
