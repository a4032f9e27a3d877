//! OpenFlow's types to the switch's, and back.
//!
//! ```text
//!   flow-mod ──▶ flow.rs ──▶ Rule, Filter, Change         matching.rs   matches
//!   dump, flow-removed ◀── flow.rs ◀── RuleEntry          actions.rs    OpenFlow's actions to ours
//!   port-desc, port-mod ◀──▶ port.rs ◀──▶ OfPort    instructions.rs  our actions to OpenFlow's
//! ```
//! *Guarantee:* a rule that OpenFlow can express comes back as the same rule; what it cannot
//! express is refused with the type and code that the specification has for it. Panics: none.

pub mod actions;
pub mod fields;
pub mod flow;
pub mod instructions;
pub mod matching;
pub mod port;

#[cfg(test)]
mod tests;
