//! PFCP (N4, 3GPP TS 29.244) for the mobile gateway: an SMF's requests become sessions.
//!
//! ```text
//!   datagram ─▶ message.rs ─▶ Speaker ─▶ rules.rs: PDR, FAR, QER ─▶ Session ─▶ Store: gateway's
//!               (rs-pfcp)        │       what they mean for one tunnel          sessions, or
//!   answer   ◀───────────────────┘       usage.rs: URR, volumes                 its cluster's
//! ```
//!
//! - [`Speaker`]: a pure state machine. Datagrams and time go in; datagrams, End Markers and
//!   changes of sessions come out. No sockets, no clock, no threads.
//! - [`Store`]: where sessions are. [`Alone`] does a change at once, [`Clustered`] asks the cluster
//!   and answers later. What a later speaker needs is kept with each session ([`Kept`]).
//! - A request is done as a whole or refused with a cause, the offending element and the rule.
//!   Nothing is accepted and ignored, with the exceptions below.
//! - A repeated request (same peer, sequence number and type) gets the same answer and changes
//!   nothing. A later speaker knows the answer to the last request that made or changed a session;
//!   that to a deletion goes with the session.
//!
//! | supported | |
//! |---|---|
//! | node | Heartbeat both ways; Association Setup, Update, Release |
//! | session | Establishment, Modification, Deletion; Report of usage and Error Indications |
//! | PDR | an uplink one, F-TEID given or chosen; a downlink one or none; UE address likewise |
//! | FAR | forward, drop; GTP-U to IPv4 or IPv6; End Marker (SNDEM) |
//! | QER | gates, MBR, QFI |
//! | URR | volume, at a threshold, on query (of one or of all), at its removal and at deletion |
//!
//! Taken without effect, since there is one N3 and one N6 and packets are not kept: network
//! instances, 3GPP interface types, the QFI of an uplink PDI, BARs, Drop Buffered Packets; and
//! what only informs, such as DNN and RAT type. `BUFF` drops (counted).
//! Elements that the standard does not define are skipped.
//!
//! Leaf elements are read and written by `rs-pfcp`; groups and messages are put together here: in
//! version 0.5.0 its Remove PDR and Query URR are no groups, and its Update QER has no QFI.

mod clustered;
mod message;
mod rules;
mod speaker;
mod store;
#[cfg(test)]
mod tests;
mod usage;

pub use clustered::Clustered;
pub use message::Refusal;
pub use speaker::{Kept, N4Totals, Out, Settings, Speaker};
pub use store::{Alone, Ask, Done, Failure, Store};
