//! Declares the reasons by which counters are kept, one line each.
//!
//! ```
//! overbank_reasons::reasons! {
//!     /// Why a frame was not sent.
//!     pub enum NotSent {
//!         QueueFull = "queue_full", "The transmit queue was full";
//!         TooLong = "too_long", "The frame is longer than the MTU";
//!     }
//! }
//! assert_eq!(NotSent::TooLong.name(), "too_long");
//! assert_eq!(NotSent::COUNT, 2);
//! ```
//!
//! A reason displays as its meaning and is an error, so a function can return it as one. A counter
//! by reason is an array with one number for each: see `counters!` of `overbank-declare`.

/// An enum of reasons that indexes an array of counters.
///
/// [`crate::reasons!`] implements it. A type that chains several enums may implement it too.
pub trait Reasons: Copy {
    const COUNT: usize;

    /// Returns the position in an array of [`Self::COUNT`] counters.
    fn index(self) -> usize;

    /// Returns the name at `index`, as in metrics and status documents.
    fn name_at(index: usize) -> &'static str;

    /// Returns the meaning at `index`.
    fn help_at(index: usize) -> &'static str;
}

/// Declares an enum of reasons: one line each, `Variant = "name", "help";`.
#[macro_export]
macro_rules! reasons {
    (
        $(#[$meta:meta])*
        $vis:vis enum $Reason:ident {
            $( $Variant:ident = $name:literal, $help:literal; )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        $vis enum $Reason {
            $( #[doc = $help] $Variant, )+
        }

        #[allow(dead_code)] // Few enums use all of these.
        impl $Reason {
            /// In the order of [`Self::index`].
            pub const ALL: [Self; [$( $name ),+].len()] = [ $( Self::$Variant ),+ ];
            pub const COUNT: usize = Self::ALL.len();

            /// Returns the position in an array of [`Self::COUNT`] counters.
            #[inline]
            pub const fn index(self) -> usize {
                self as usize
            }

            /// Returns the name in metrics and status documents.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$Variant => $name, )+ }
            }

            pub const fn help(self) -> &'static str {
                match self { $( Self::$Variant => $help, )+ }
            }
        }

        impl std::fmt::Display for $Reason {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.help())
            }
        }

        impl std::error::Error for $Reason {}

        impl $crate::Reasons for $Reason {
            const COUNT: usize = Self::ALL.len();

            #[inline]
            fn index(self) -> usize {
                self as usize
            }

            fn name_at(index: usize) -> &'static str {
                Self::ALL.get(index).map_or("unknown", |reason| reason.name())
            }

            fn help_at(index: usize) -> &'static str {
                Self::ALL.get(index).map_or("", |reason| reason.help())
            }
        }
    };
}

/// Returns a Markdown table of the reasons and their meanings.
pub fn reference<R: Reasons>() -> String {
    let mut text = String::from("| reason | meaning |\n|---|---|\n");
    for index in 0..R::COUNT {
        text.push_str(&format!("| `{}` | {} |\n", R::name_at(index), R::help_at(index)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::reasons! {
        enum Why {
            First = "first", "It came first";
            Second = "second", "It came second";
        }
    }

    #[test]
    fn every_reason_has_an_index_a_name_and_a_help() {
        for (index, reason) in Why::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
            assert_eq!(Why::name_at(index), reason.name());
            assert_eq!(Why::help_at(index), reason.help());
        }
        assert_eq!((Why::COUNT, Why::name_at(2)), (2, "unknown"));
        let wanted = "| reason | meaning |\n|---|---|\n| `first` | It came first |\n\
                      | `second` | It came second |\n";
        assert_eq!(reference::<Why>(), wanted);
    }
}
