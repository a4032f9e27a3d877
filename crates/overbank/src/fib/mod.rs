//! Forwarding tables: exact maps from addresses to ports, of a handful to billions of entries. Any
//! number of threads read while one writes.
//!
//! A 2-choice cuckoo hash table whose buckets are cache lines, after CuckooSwitch (Dong Zhou, *Data
//! Structure Engineering for High Performance Software Packet Processing*, section 3). A key has a
//! *home* bucket and a *second* one. An insertion that finds both full moves other entries to their
//! other bucket, along the shortest path to a free slot.
//!
//! ```text
//!                         one cache line = one bucket
//!   home(key)    ┌────────┬───────┬───────┬───────┬───────┬───────┬───────┬───────┐
//!        ───────▶│ header │ entry │ entry │ entry │ entry │ entry │ entry │ entry │  8 bytes each
//!                └────────┴───────┴───────┴───────┴───────┴───────┴───────┴───────┘
//!   second(key)   version · markers · occupied slots        (other types: `bucket.rs`)
//!        ───────▶ the same, read for the few keys that a marker of the home line points to
//! ```
//!
//! | | |
//! |---|---|
//! | keys | up to 128 bits: integers, IP and Ethernet addresses, bytes, others by [`Key`] |
//! | values | `u16`, `u32`, `u64` |
//! | occupancy before an insertion is refused | 95 % at least, 99 % with 7 slots |
//! | bytes an Ethernet entry at 95 % | 9.63 (8.97 GiB for a billion) |
//! | lines a hit | 1.19 at 95 %, 1.0 when half full |
//! | lines a miss | 1.13 at 95 % |
//!
//! The paper keeps the version counters in a separate array, each for many buckets. Here they lie
//! in the line that they guard. That takes one slot of eight, but a lookup reads nothing but its
//! bucket, and a writer disturbs only the readers of the line that it writes. The header also has
//! room for the *markers*, which settle most absent keys with the home line alone.
//!
//! ```
//! use overbank::fib::{Config, MacAddr, Writer};
//!
//! let mut writer = Writer::<MacAddr, u16>::new(&Config::entries(1000))?;
//! let reader = writer.reader(); // Clone it, and send it to other threads.
//!
//! let host = MacAddr::from([0x02, 0, 0, 0, 0, 7]);
//! assert_eq!(writer.insert(host, 3)?, None);
//! assert_eq!(reader.lookup(host), Some(3));
//!
//! let burst = [host, MacAddr::from([0xff; 6])];
//! let mut ports = [0; 2];
//! assert_eq!(reader.lookup_batch(&burst, &mut ports), 0b01);
//! assert_eq!(ports, [3, 0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Consistency
//!
//! *A lookup returns what was true at some instant during the call*, also for an absent key. If one
//! lookup happens before another, its instant is not later. Readers take no lock and write nothing.
//! They retry only if the writer *finished* a store in their bucket meanwhile. A writer that stops
//! anywhere, for however long, delays no reader (the odd versions of the paper would).
//!
//! All state is in 64-bit atomics. A bucket's **header** is one word: version, markers, occupied
//! slots. The writer does four things, in this order of stores:
//!
//! - *Write* into a free slot: W1 header: version + 1 · W2 release fence · W3 the slot's words,
//!   relaxed · W4 header: slot occupied, release.
//! - *Clear* a slot: header: slot free, release.
//! - *Set* a value: its word, release.
//! - *Displace* an entry: *write* it in its other bucket · header of its **home**: version + 1,
//!   marker ± 1, release · *clear* it here.
//!
//! An insertion into the second bucket first sets the marker (and the version) of the home; a
//! removal from there clears the slot first and the marker afterwards. Hence, after every store:
//!
//! 1. A present key is in one slot, or, while it moves, in two with the same value; the words of an
//!    occupied slot do not change, but for the value when it is *set*.
//! 2. If a present key is not in its home, a marker of its home says so.
//! 3. Between two versions of its home, a present key has one slot that it is in all the time.
//!
//! A reader loads a header h (acquire), compares the slots that h calls occupied, loads the value,
//! and after an acquire fence loads the header again; it goes on if the version is the same.
//!
//! **A hit.** Let the slot be occupied in h. Had any word been read from a later W3, the fences
//! W2 and the reader's would make W1 visible to the second load, and the version would differ. So
//! all words are those of the occupant in h, or of a value set later while it was still there. The
//! entry (key, value) was in the slot at the later of the two stores, that of h and that of the
//! value, and by 1 it was the key's entry in the table. Both stores were seen during the call, and
//! neither was overwritten in what the reader knew when it began; so the instant lies in the call.
//!
//! **A miss in one line.** The home's h has no slot with the key, no marker for its second bucket,
//! and the version held. As above, the words were those of the occupants in h. So when h was stored
//! (or when the call began, if that is later) the key was not in its home, and by 2 not in its
//! second bucket.
//!
//! **A miss in two lines.** Header h of the home, home, header and slots of the second bucket, an
//! acquire fence, and the home's version again: the same. Assume that the key was present during
//! all of the call. By 3 there is a slot that it was in from h (or the begin of the call) until the
//! next version of the home, and everything that was read was stored before that version: a header
//! that was not is a release store after it, and a slot's word that was not is after a fence W2
//! after it, and either would make the new version visible to the last load. So the reader saw that
//! slot occupied, its words in place, and would have found the key. The version of the second
//! bucket does not matter for a miss: a *key's whereabouts are guarded by its home alone*.
//!
//! **Bursts and lists** are independent lookups, each with a separate instant within the call, in
//! no order and without a snapshot. They read other keys' buckets between a key's home and its
//! second bucket; the argument above depends only on the order of a key's own loads, however far
//! apart they are.
//!
//! **In one order.** All stores are the writer's, so they are in one order; give each lookup the
//! instant named above. Every header is loaded with acquire, and each W3 and *set* is followed by a
//! release store or is one and ends in a fence of the reader, so a lookup passes on all that it saw
//! to whatever it happens before.
//!
//! Versions have 32 bits: a reader that sleeps inside a lookup for exactly a multiple of 2³²
//! changes of one bucket would be deceived, 40 seconds of nothing else at 10 ns each.
//!
//! The protocol runs under loom (`model.rs`). With the feature `always-displace`, every operation
//! of the writer also moves entries, under the same tests. On x86-64 acquire loads and both fences
//! compile to no instruction; `tests/fib_disassembly.rs` checks that.
//!
//! # Limits
//!
//! No argument makes it panic. No lookup and no change of an entry allocates. A search for a free
//! slot examines at most [`Config::search_max`] buckets. A table has 2 to [`BUCKETS_MAX`] buckets.

mod bucket;
mod candidates;
mod config;
mod drain;
mod error;
#[cfg(feature = "snapshot")]
mod image;
#[cfg(any(test, feature = "internals"))]
mod internals;
mod key;
#[cfg(all(test, feature = "loom"))]
mod model;
mod reader;
mod search;
mod simd;
mod table;
mod writer;

pub use config::{BUCKETS_MAX, Config, OCCUPANCY_PERCENT, SEARCH_MAX};
pub use drain::Drain;
pub use error::{FibError, Full};
#[cfg(feature = "snapshot")]
pub use image::FibImageError;
pub use key::{Key, MacAddr, MacVlan, Value};
pub use reader::Reader;
pub use table::BURST_MAX;
pub use writer::{Stats, Writer};
