//! Bodies of messages, one file per family.

pub mod async_config;
pub mod bundle;
pub mod error;
pub mod experimenter;
pub mod features;
pub mod flow_mod;
pub mod flow_removed;
pub mod group;
pub mod meter;
pub mod packet_in;
pub mod packet_out;
pub mod port;
pub mod role;
pub mod table;

/// Declares a set of named bits; keeps unknown ones.
macro_rules! flags {
    ($(#[$doc:meta])* $name:ident: $bits:ident {
        $( $(#[$flag_doc:meta])* $flag:ident = $value:expr ),+ $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub $bits);

        impl $name {
            $( $(#[$flag_doc])* pub const $flag: $name = $name($value); )+
            /// Every bit with a name.
            pub const KNOWN: $name = $name(0 $( | $value )+);

            /// Returns whether all bits of `other` are set.
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl std::ops::BitOr for $name {
            type Output = $name;

            fn bitor(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }
    };
}

/// Declares a one-byte number of which some values have names.
macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $( $(#[$value_doc:meta])* $value:ident = $number:literal ),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $( $(#[$value_doc])* $value, )+
            /// Another number.
            Other(u8),
        }

        impl $name {
            /// Returns the value of a number.
            pub const fn from_wire(number: u8) -> $name {
                match number {
                    $( $number => $name::$value, )+
                    other => $name::Other(other),
                }
            }

            pub const fn to_wire(self) -> u8 {
                match self {
                    $( $name::$value => $number, )+
                    $name::Other(number) => number,
                }
            }
        }
    };
}

pub(crate) use {flags, reasons};
