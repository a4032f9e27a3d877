//! The switch's actions to OpenFlow's, for dumps and flow-removed messages.
//!
//! What OpenFlow put into a rule comes out as it went in, but for three things that OpenFlow says
//! in two ways: `set_nw_ttl` is how a whole TTL is set, `vlan_vid` is set with the present bit, and
//! the type of service by its DSCP. Rules from text can do a little more than OpenFlow; these come
//! out as Open vSwitch writes them:
//! - `mod_vlan_vid` and `mod_vlan_pcp` on a packet that may lack a tag get a `push_vlan` before
//!   them, unless the match or an earlier action makes sure of a tag;
//! - `mod_tp_src` and `mod_tp_dst` under a match that says no protocol become three `set_field`,
//!   of which two do nothing to any packet.

use overbank_openflow::{
    Action as OfAction, Instruction, MAX_LEN_NO_BUFFER, Oxm, OxmField, VID_PRESENT, consts::port,
};
use overbank_switch::rule::{Action, Match, Rule};
use overbank_wire::Field;

use super::{actions, fields};

/// Returns the instructions of a rule; none for one that drops.
pub fn to_instructions(rule: &Rule) -> Vec<Instruction> {
    let mut out = Vec::new();
    let apply = to_list(&rule.actions, &rule.matching);
    if !apply.is_empty() {
        out.push(Instruction::ApplyActions(apply));
    }
    if rule.clear_actions {
        out.push(Instruction::ClearActions);
    }
    if !rule.write_actions.is_empty() {
        out.push(Instruction::WriteActions(to_list(&rule.write_actions, &rule.matching)));
    }
    let goto = rule.actions.iter().rev().find_map(|action| match action {
        Action::GotoTable(table) => Some(*table),
        _ => None,
    });
    out.extend(goto.map(Instruction::GotoTable));
    out
}

/// Returns a list of actions, without its `goto_table`.
pub fn to_list(list: &[Action], matching: &Match) -> Vec<OfAction> {
    let mut tags = usize::from(fields::has_tag(matching));
    let mut out = Vec::with_capacity(list.len());
    let output = |port, max_len| OfAction::Output { port, max_len };
    for action in list {
        match *action {
            Action::Output(port) => out.push(output(port, 0)),
            Action::OutputAsked { port, max_len } => out.push(output(port, max_len)),
            Action::InPort => out.push(output(port::IN_PORT, 0)),
            Action::Flood => out.push(output(port::FLOOD, 0)),
            Action::All => out.push(output(port::ALL, 0)),
            Action::Normal => out.push(output(port::NORMAL, 0)),
            Action::Controller { max_len } => out.push(output(port::CONTROLLER, max_len)),
            Action::SetField { field, value, mask } => {
                set_field(field, value, mask, matching, &mut out);
                tags = actions::tags_after(action, tags);
            }
            Action::SetVlan { field, value } => {
                if tags == 0 {
                    out.push(OfAction::PushVlan(0x8100));
                    tags = 1;
                }
                set_field(field, value.into(), field.all_ones(), matching, &mut out);
            }
            Action::PushVlan(tpid) => {
                tags += 1;
                out.push(OfAction::PushVlan(tpid));
            }
            Action::PopVlan => {
                tags = tags.saturating_sub(1);
                out.push(OfAction::PopVlan);
            }
            Action::DecTtl => out.push(OfAction::DecNwTtl),
            Action::GotoTable(_) => {}
            Action::Resubmit { in_port, table } => {
                out.push(OfAction::Resubmit { in_port, table });
            }
        }
    }
    out
}

fn set_field(field: Field, value: u128, mask: u128, matching: &Match, out: &mut Vec<OfAction>) {
    let whole = mask == field.all_ones();
    let mut set =
        |field, value, mask| out.push(OfAction::SetField(Oxm::masked(field, value, mask)));
    match field {
        Field::NwTtl if whole => out.push(OfAction::SetNwTtl(value as u8)),
        Field::VlanVid if whole => set(OxmField::VlanVid, value | VID_PRESENT, 0xfff | VID_PRESENT),
        Field::VlanVid => set(OxmField::VlanVid, value, mask),
        Field::VlanPcp => set(OxmField::VlanPcp, value, mask),
        Field::VlanTci => set(OxmField::NxVlanTci, value, mask),
        Field::NwTos => set(OxmField::IpDscp, value >> 2, mask >> 2),
        Field::ArpOp if whole => set(OxmField::ArpOp, value, OxmField::ArpOp.all_ones()),
        Field::ArpOp => set(OxmField::ArpOp, value, mask),
        Field::TpSrc | Field::TpDst => {
            let typed = match field {
                Field::TpSrc => [Field::TcpSrc, Field::UdpSrc, Field::SctpSrc],
                _ => [Field::TcpDst, Field::UdpDst, Field::SctpDst],
            };
            let known = typed.into_iter().find(|&field| fields::established(field, matching));
            for field in typed.into_iter().filter(|&field| known.is_none_or(|k| k == field)) {
                if let Some(oxm) = fields::same_oxm(field) {
                    set(oxm, value, mask);
                }
            }
        }
        _ => {
            if let Some(oxm) = fields::same_oxm(field) {
                set(oxm, value, mask);
            }
        }
    }
}

/// Returns how many bytes of a frame an action asks for: all of them if it says that none may be
/// kept back.
pub fn wanted_len(max_len: u16, frame_len: usize) -> usize {
    if max_len == MAX_LEN_NO_BUFFER { frame_len } else { frame_len.min(max_len.into()) }
}

#[cfg(test)]
mod tests {
    use overbank_switch::parse::parse_rule;

    use super::*;

    fn shown(text: &str) -> Vec<Instruction> {
        to_instructions(&parse_rule(text).expect("a rule"))
    }

    fn applied(text: &str) -> Vec<OfAction> {
        match shown(text).into_iter().next() {
            Some(Instruction::ApplyActions(list)) => list,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_rule_that_drops_has_no_instruction() {
        assert_eq!(shown("ip,actions=drop"), []);
        assert_eq!(shown("actions=goto_table:4"), [Instruction::GotoTable(4)]);
    }

    #[test]
    fn the_vid_of_a_packet_without_a_tag_gets_one_pushed() {
        let set = OfAction::SetField(Oxm::exact(OxmField::VlanVid, 0x1007));
        let push = OfAction::PushVlan(0x8100);
        assert_eq!(applied("actions=mod_vlan_vid:7"), [push.clone(), set.clone()]);
        assert_eq!(applied("dl_vlan=3,actions=mod_vlan_vid:7"), std::slice::from_ref(&set));
        assert_eq!(applied("actions=push_vlan:0x8100,mod_vlan_vid:7"), [push, set]);
    }

    #[test]
    fn untyped_ports_are_those_of_the_match_or_all_three() {
        let of = |field| OfAction::SetField(Oxm::exact(field, 53));
        assert_eq!(applied("udp,actions=mod_tp_dst:53"), [of(OxmField::UdpDst)]);
        assert_eq!(
            applied("actions=mod_tp_src:53"),
            [of(OxmField::TcpSrc), of(OxmField::UdpSrc), of(OxmField::SctpSrc)]
        );
    }

    #[test]
    fn the_whole_frame_is_wanted_without_a_buffer() {
        assert_eq!(wanted_len(0xffff, 70_000), 70_000);
        assert_eq!((wanted_len(128, 60), wanted_len(128, 1500), wanted_len(0, 60)), (60, 128, 0));
    }
}
