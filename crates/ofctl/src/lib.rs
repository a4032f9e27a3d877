//! The rule switch: OpenFlow rules decide where frames go, and controllers change them.
//!
//! ```text
//!   sessions/  OpenFlow sessions: messages to changes of rules, packet-ins, statistics
//!      │
//!   rules/     RuleControl: the working tables, timeouts, events      overbank_runtime::Control
//!      │  RuleSnapshot                     ▲ packet-ins, stations seen
//!   engine     RuleEngine: the tiers of overbank_switch, per worker  overbank_runtime::Engine
//! ```

pub mod engine;
pub mod rules;
pub mod sessions;
pub mod settings;
mod setup;
pub mod target;

pub use engine::{RuleEngine, RuleTotals};
pub use rules::{ControllerHandle, RuleControl, listing};
pub use setup::{Setup, StartError, Switch, datapath_id, start};
