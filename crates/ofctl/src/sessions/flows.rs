//! Flow-mods: the five commands.
//!
//! | command | what it does here |
//! |---|---|
//! | add | replaces a rule of the same table, priority and match; refused for table 255 |
//! | modify, strictly or not | gives rules that stand new actions; if none matches, nothing |
//! | delete, strictly or not | removes rules, of all tables for table 255; `out_port` narrows it |
//!
//! A buffered packet goes through the tables as they are after the change. If its buffer
//! is gone the change stands, and an error says what was wrong with the buffer.

use overbank_openflow::{BUFFER_NONE, ErrorCode, FlowCommand, FlowMod, consts::port};
use overbank_switch::rule::{Action, Rule};
use overbank_switch::tables::{Change, Filter};

use super::convert::flow as convert;
use super::counters::count;
use super::session::Session;
use crate::rules::{RuleControl, RuleRefused};

/// A flow-mod that has been checked.
#[derive(Clone, Debug)]
pub(super) enum Checked {
    Add(Box<Rule>),
    Modify(Box<(Filter, Change)>),
    Delete(Box<Filter>),
    /// It can concern no rule.
    Nothing,
}

impl Checked {
    /// Reads a flow-mod.
    pub fn of(flow: &FlowMod) -> Result<Checked, ErrorCode> {
        let strict = matches!(flow.command, FlowCommand::ModifyStrict | FlowCommand::DeleteStrict);
        Ok(match flow.command {
            FlowCommand::Add => Checked::Add(Box::new(convert::to_rule(flow)?)),
            FlowCommand::Modify | FlowCommand::ModifyStrict => {
                Checked::Modify(Box::new(convert::to_change(flow, strict)?))
            }
            FlowCommand::Delete | FlowCommand::DeleteStrict => convert::to_deletion(flow, strict)?
                .map_or(Checked::Nothing, |filter| Checked::Delete(Box::new(filter))),
        })
    }

    /// Does it.
    pub fn apply(self, control: &mut RuleControl) -> Result<(), RuleRefused> {
        match self {
            Checked::Add(rule) => control.add(*rule).map(drop),
            Checked::Modify(what) => control.modify(&what.0, &what.1).map(drop),
            Checked::Delete(filter) => {
                control.delete(&filter);
                Ok(())
            }
            Checked::Nothing => Ok(()),
        }
    }
}

impl Session {
    pub(super) async fn flow_mod(&mut self, flow: &FlowMod) -> Result<(), ErrorCode> {
        let checked = Checked::of(flow)?;
        let done = checked.apply(&mut self.control().switch.lock());
        done.map_err(|refused| convert::refusal(&refused))?;
        count(&self.control().options.counters.flow_mods, 1);
        let deletes = matches!(flow.command, FlowCommand::Delete | FlowCommand::DeleteStrict);
        if flow.buffer_id == BUFFER_NONE || deletes {
            return Ok(());
        }
        let packet = self.buffered(flow.buffer_id)?;
        let through = vec![Action::Output(port::TABLE)];
        self.send_out(packet.frame.clone(), packet.in_port, through).await;
        Ok(())
    }
}
