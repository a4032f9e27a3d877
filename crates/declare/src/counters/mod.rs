//! Declares counters, one line each.
//!
//! ```
//! overbank_declare::counters! {
//!     /// Counts of one worker at one port.
//!     pub struct PortTotals: "overbank_port_" {
//!         received: counter packets "Frames received" as "received_packets" rate top "in/s";
//!         received_bytes:   counter bytes   "Bytes received";
//!         dropped[Reason]:  counter packets "Frames dropped" as "dropped_packets";
//!         queued:           gauge   packets "Frames in the transmit queue" in status;
//!     }
//! }
//! # overbank_reasons::reasons! { /// Why.
//! #     pub enum Reason { NoRule = "no_rule", "No rule matched"; } }
//! let mut totals = PortTotals::default();
//! totals.received += 1;
//! totals.dropped[Reason::NoRule.index()] += 1;
//! ```
//!
//! A line reads: name, kind, unit, help, then what differs from the default.
//!
//! | in the line | meaning |
//! |---|---|
//! | `name` | field of the struct and of the status document |
//! | `name[Reasons]` | an array, one number for each reason; an object without zeros in documents |
//! | `counter` | only grows; several workers are added up |
//! | `gauge` | goes up and down; added up as well |
//! | `oldest`, `peak` | gauges whose sum over workers is the smallest, the largest |
//! | `as "metric"` | name in the metrics behind the prefix; the field's name unless given |
//! | `as "metric" {label = "value"}, …` | one family for several fields, told apart by a label |
//! | `in status`, `in none` | not in the metrics; not in the status document either |
//! | `rate`, `rate "name"` | part of the rates of `overbank top`; fields of one name are added up |
//! | `top "head"` | a column of its table, under this head |
//!
//! The table gives: the struct (plain numbers, no atomics: a worker increments them), its words
//! (for `overbank-handover`), sums ([`add`](Counters::add)), Prometheus text ([`Exposition`]),
//! status fields (serde), rates ([`Rates`]) and the reference in Markdown ([`reference()`]).
//! `pub struct Totals, shared SharedTotals: …` also gives a struct of atomics for tasks that count
//! together, and its `snapshot()`.

mod exposition;
mod json;
mod rates;
mod reference;
#[cfg(test)]
mod tests;
mod value;

pub use exposition::{Exposition, Gauge, OPEN_METRICS};
pub use json::{deserialize, serialize};
pub use rates::Rates;
pub use reference::{Labelled, fields_reference, gauges_reference, reference};
pub use value::Value;

/// How a number behaves, and how the numbers of several workers combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; a sum.
    Counter,
    /// Goes up and down; a sum.
    Gauge,
    /// A gauge; the smallest of several workers counts.
    Oldest,
    /// A gauge; the largest of several workers counts.
    Peak,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shown {
    /// Not shown: other numbers are computed from it.
    Nowhere,
    /// In the status document.
    Status,
    /// In the status document and the metrics.
    Everywhere,
}

/// A family of metrics that includes a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Without the `_total` of a counter.
    pub name: &'static str,
    /// Label and value that identify the counter within the family.
    pub label: Option<(&'static str, &'static str)>,
}

/// One line of a table: all about a counter but its value.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// Field of the struct and of the status document.
    pub name: &'static str,
    pub kind: Kind,
    /// Unit: packets, bytes, …
    pub unit: &'static str,
    pub help: &'static str,
    pub shown: Shown,
    /// Metric families.
    pub metrics: &'static [Metric],
    /// Name among the rates of `overbank top`.
    pub rate: Option<&'static str>,
    /// Head of its column in `overbank top`.
    pub column: Option<&'static str>,
    /// Count of numbers: 1, or one for each reason.
    pub len: usize,
    pub reason: Option<fn(usize) -> &'static str>,
}

/// A struct of counters, declared by [`crate::counters!`].
pub trait Counters: Clone + Default + Send + Sync + 'static {
    /// Declarations, in the order of the fields.
    const TABLE: &'static [Counter];
    /// Count of numbers in all: a counter by reason has one for each.
    const WORDS: usize;

    /// Passes every number to `put`, in order.
    fn put(&self, put: &mut impl FnMut(u64));

    /// Builds the struct from numbers that `take` returns, in order.
    fn take(take: &mut impl FnMut() -> u64) -> Self;

    /// Returns every number, in order.
    fn words(&self) -> Vec<u64> {
        let mut words = Vec::with_capacity(Self::WORDS);
        self.put(&mut |word| words.push(word));
        words
    }

    /// Builds the struct from numbers in order; missing ones, as from an older program, are 0.
    fn from_words(words: &[u64]) -> Self {
        let mut words = words.iter().copied();
        Self::take(&mut || words.next().unwrap_or(0))
    }

    /// Adds the numbers of another worker. An `oldest` keeps the smaller, a `peak` the larger.
    fn add(&mut self, other: &Self) {
        let kinds = Self::TABLE.iter().flat_map(|c| std::iter::repeat_n(c.kind, c.len));
        let pairs = self.words().into_iter().zip(other.words());
        let mut sums = kinds.zip(pairs).map(|(kind, (ours, theirs))| match kind {
            Kind::Counter | Kind::Gauge => ours.wrapping_add(theirs),
            Kind::Oldest => ours.min(theirs),
            Kind::Peak => ours.max(theirs),
        });
        *self = Self::take(&mut || sums.next().expect("both structs have WORDS numbers"));
    }

    /// Returns the sum over all workers; zeros without workers.
    fn sum<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = all.into_iter();
        let Some(first) = all.next() else { return Self::default() };
        let mut sum = first.clone();
        all.for_each(|one| sum.add(one));
        sum
    }

    /// Calls `each` with every counter, its reason if any, and its number.
    fn visit(&self, mut each: impl FnMut(&'static Counter, Option<&'static str>, u64)) {
        let places = Self::TABLE.iter().flat_map(|counter| {
            (0..counter.len).map(move |index| (counter, counter.reason.map(|name| name(index))))
        });
        for ((counter, reason), word) in places.zip(self.words()) {
            each(counter, reason, word);
        }
    }
}

/// Declares counters, one line each; see [the module](mod@crate::counters).
#[macro_export]
macro_rules! counters {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Totals:ident $(, shared $Shared:ident)? : $prefix:literal {
            $( $name:ident $([$Reasons:ty])? : $kind:ident $unit:ident $help:literal
               $(as $( $metric:literal $({ $label:ident = $value:literal })? ),+ )?
               $(in $shown:ident)?
               $(rate $($rate:literal)?)?
               $(top $column:literal)?
            ; )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis struct $Totals {
            $( #[doc = $help] pub $name: $crate::counters!(@type $($Reasons)?), )+
        }

        impl Default for $Totals {
            fn default() -> Self {
                <Self as $crate::counters::Counters>::take(&mut || 0)
            }
        }

        impl $crate::counters::Counters for $Totals {
            const TABLE: &'static [$crate::counters::Counter] = &[ $( $crate::counters::Counter {
                name: stringify!($name),
                kind: $crate::counters!(@kind $kind),
                unit: stringify!($unit),
                help: $help,
                shown: $crate::counters!(@shown $($shown)?),
                metrics: $crate::counters!(
                    @metrics $prefix $name [ $($( $metric $({ $label = $value })? ),+)? ]
                ),
                rate: $crate::counters!(@rate $name $( [ $($rate)? ] )?),
                column: $crate::counters!(@column $($column)?),
                len: <$crate::counters!(@type $($Reasons)?) as $crate::counters::Value>::LEN,
                reason: $crate::counters!(@reason $($Reasons)?),
            }, )+ ];
            const WORDS: usize = 0
                $( + <$crate::counters!(@type $($Reasons)?) as $crate::counters::Value>::LEN )+;

            fn put(&self, put: &mut impl FnMut(u64)) {
                $( $crate::counters::Value::put(&self.$name, put); )+
            }

            fn take(take: &mut impl FnMut() -> u64) -> Self {
                Self { $( $name: $crate::counters::Value::take(take), )+ }
            }
        }

        impl $crate::serde::Serialize for $Totals {
            fn serialize<S: $crate::serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                $crate::counters::serialize(self, to)
            }
        }

        impl<'de> $crate::serde::Deserialize<'de> for $Totals {
            fn deserialize<D: $crate::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::counters::deserialize(from)
            }
        }

        $crate::counters! {
            @shared [$vis] $Totals [$($Shared)?] $( [$name $help $([$Reasons])?] )+
        }
    };

    (@type) => { u64 };
    (@type $Reasons:ty) => { [u64; <$Reasons as $crate::Reasons>::COUNT] };

    (@kind counter) => { $crate::counters::Kind::Counter };
    (@kind gauge) => { $crate::counters::Kind::Gauge };
    (@kind oldest) => { $crate::counters::Kind::Oldest };
    (@kind peak) => { $crate::counters::Kind::Peak };

    (@shown) => { $crate::counters::Shown::Everywhere };
    (@shown status) => { $crate::counters::Shown::Status };
    (@shown none) => { $crate::counters::Shown::Nowhere };

    (@metrics $prefix:literal $name:ident []) => {
        &[$crate::counters::Metric { name: concat!($prefix, stringify!($name)), label: None }]
    };
    (@metrics $prefix:literal $name:ident
        [ $( $metric:literal $({ $label:ident = $value:literal })? ),+ ]) => {
        &[ $( $crate::counters::Metric {
            name: concat!($prefix, $metric),
            label: $crate::counters!(@label $($label $value)?),
        } ),+ ]
    };
    (@label) => { None };
    (@label $label:ident $value:literal) => { Some((stringify!($label), $value)) };

    (@rate $name:ident) => { None };
    (@rate $name:ident []) => { Some(stringify!($name)) };
    (@rate $name:ident [$rate:literal]) => { Some($rate) };

    (@column) => { None };
    (@column $column:literal) => { Some($column) };

    (@reason) => { None };
    (@reason $Reasons:ty) => { Some(<$Reasons as $crate::Reasons>::name_at) };

    (@shared [$vis:vis] $Totals:ident [] $($fields:tt)+) => {};
    (@shared [$vis:vis] $Totals:ident [$Shared:ident]
        $( [$name:ident $help:literal $([$Reasons:ty])?] )+) => {
        #[doc = concat!("Atomic counts of [`", stringify!($Totals), "`] for several threads.")]
        #[derive(Debug)]
        $vis struct $Shared {
            $( #[doc = $help]
               pub $name:
                   <$crate::counters!(@type $($Reasons)?) as $crate::counters::Value>::Shared,
            )+
        }

        impl Default for $Shared {
            fn default() -> Self {
                Self { $(
                    $name:
                        <$crate::counters!(@type $($Reasons)?) as $crate::counters::Value>::shared(),
                )+ }
            }
        }

        impl $Shared {
            /// Returns all numbers as they are now; each is exact by itself.
            $vis fn snapshot(&self) -> $Totals {
                $Totals { $( $name: $crate::counters::Value::load(&self.$name), )+ }
            }
        }
    };
}
