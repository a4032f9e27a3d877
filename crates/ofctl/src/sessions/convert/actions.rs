//! OpenFlow's actions and instructions to the switch's.
//!
//! The order in which instructions run is fixed (apply, clear, write, goto), so their order in the
//! message does not matter. `goto_table` becomes the last of the rule's actions.
//!
//! `set_field` must suit the match: every packet that matches has to have the field, or, for a VLAN
//! tag, an action before it has to have pushed one (`MatchInconsistent` otherwise). In a packet-out
//! there is no match; an action on a field that the packet does not have does nothing.
//!
//! `vlan_tci` can be set in any packet: with its present bit a tag is pushed where there is none,
//! without it the tag is popped.
//!
//! `vlan_vid` is set with the present bit of OpenFlow 1.2, or without it; either way it is the VID
//! of a tag that is there.

use overbank_openflow::{
    Action as OfAction, BadAction, BadInstruction, ErrorCode, Instruction, Oxm, OxmField,
    PacketInReason,
    consts::{experimenter, port},
};
use overbank_switch::rule::{Action, Match, TABLE_MAX};
use overbank_wire::Field;
use overbank_wire::key::VLAN_PRESENT;

use super::fields;

pub use overbank_switch::parse::ACTIONS_MAX;

/// Where a list of actions stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind<'a> {
    /// In a rule with this match.
    Apply(&'a Match),
    /// In the action set of a packet, by a rule with this match.
    Write(&'a Match),
    /// In a packet-out.
    PacketOut,
}

/// What a rule does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleActions {
    /// At once; `goto_table`, if there is one, is the last of them.
    pub actions: Vec<Action>,
    /// Empty the action set afterwards.
    pub clear_actions: bool,
    /// Then write these into it.
    pub write_actions: Vec<Action>,
}

/// Returns the actions of a rule in `table` with this match.
///
/// # Errors
/// As the specification numbers them: an instruction that stands twice or is not supported, a goto
/// that does not lead forwards, and those of [`from_list`].
pub fn from_instructions(
    instructions: &[Instruction],
    table: u8,
    matching: &Match,
) -> Result<RuleActions, ErrorCode> {
    let mut of_rule = RuleActions::default();
    let mut seen = 0u8;
    let mut goto = None;
    let mut once = |bit: u8| {
        let again = seen & bit != 0;
        seen |= bit;
        if again { Err(ErrorCode::from(BadInstruction::DupInst)) } else { Ok(()) }
    };
    for instruction in instructions {
        match instruction {
            Instruction::GotoTable(to) => {
                once(1)?;
                if *to <= table || *to > TABLE_MAX {
                    return Err(BadInstruction::BadTableId.into());
                }
                goto = Some(Action::GotoTable(*to));
            }
            Instruction::ApplyActions(list) => {
                once(2)?;
                of_rule.actions = from_list(list, ListKind::Apply(matching))?;
            }
            Instruction::ClearActions => {
                once(4)?;
                of_rule.clear_actions = true;
            }
            Instruction::WriteActions(list) => {
                once(8)?;
                of_rule.write_actions = from_list(list, ListKind::Write(matching))?;
            }
            Instruction::WriteMetadata { .. } => return Err(BadInstruction::UnsupInst.into()),
            Instruction::Meter(_) => return Err(BadInstruction::UnsupInst.into()),
            Instruction::Experimenter { .. } => return Err(BadInstruction::BadExperimenter.into()),
            Instruction::Other { .. } => return Err(BadInstruction::UnknownInst.into()),
        }
    }
    of_rule.actions.extend(goto);
    Ok(of_rule)
}

/// Converts a list of actions.
///
/// # Errors
/// What the switch does not have (`BadType`, `BadExperimenter`, `BadOutGroup`, `BadQueue`,
/// `BadMeter`), ports that cannot be (`BadOutPort`), fields that cannot be set, or not here
/// (`BadSetType`, `BadSetArgument`, `MatchInconsistent`), other arguments (`BadArgument`), more
/// than [`ACTIONS_MAX`] (`TooMany`).
pub fn from_list(list: &[OfAction], kind: ListKind<'_>) -> Result<Vec<Action>, ErrorCode> {
    if list.len() > ACTIONS_MAX {
        return Err(BadAction::TooMany.into());
    }
    let mut tags = match kind {
        ListKind::Apply(matching) => usize::from(fields::has_tag(matching)),
        // An action set has its fixed order, and earlier tables may have pushed a tag.
        ListKind::Write(_) | ListKind::PacketOut => usize::MAX / 2,
    };
    let mut out = Vec::with_capacity(list.len());
    for action in list {
        out.push(match action {
            OfAction::Output { port, max_len } => output(*port, *max_len, kind)?,
            OfAction::SetField(oxm) => {
                let action = set_field(oxm, kind, tags)?;
                tags = tags_after(&action, tags);
                action
            }
            OfAction::PushVlan(tpid) if matches!(tpid, 0x8100 | 0x88a8) => {
                tags += 1;
                Action::PushVlan(*tpid)
            }
            OfAction::PushVlan(_) => return Err(BadAction::BadArgument.into()),
            OfAction::PopVlan => {
                tags = tags.saturating_sub(1);
                Action::PopVlan
            }
            OfAction::DecNwTtl => Action::DecTtl,
            OfAction::SetNwTtl(ttl) => {
                Action::SetField { field: Field::NwTtl, value: u128::from(*ttl), mask: 0xff }
            }
            OfAction::Resubmit { in_port, table } => resubmit(*in_port, *table, kind)?,
            OfAction::NxController {
                max_len,
                controller_id: 0,
                reason: PacketInReason::ApplyAction,
            } => Action::Controller { max_len: *max_len },
            OfAction::NxController { .. } => return Err(BadAction::BadArgument.into()),
            OfAction::Group(_) => return Err(BadAction::BadOutGroup.into()),
            OfAction::SetQueue(_) => return Err(BadAction::BadQueue.into()),
            OfAction::Meter(_) => return Err(BadAction::BadMeter.into()),
            OfAction::Other { .. } => return Err(BadAction::BadType.into()),
            OfAction::Experimenter { experimenter: experimenter::NICIRA, .. } => {
                return Err(BadAction::BadExpType.into());
            }
            OfAction::Experimenter { .. } => return Err(BadAction::BadExperimenter.into()),
        });
    }
    Ok(out)
}

/// Converts an output. `max_len` is kept where a dump will show it: conformance testers compare it.
fn output(port: u32, max_len: u16, kind: ListKind<'_>) -> Result<Action, ErrorCode> {
    let kept = max_len != 0 && kind != ListKind::PacketOut;
    Ok(match port {
        ..=port::MAX | port::LOCAL | port::IN_PORT | port::ALL | port::FLOOD | port::NORMAL
            if kept =>
        {
            Action::OutputAsked { port, max_len }
        }
        ..=port::MAX | port::LOCAL => Action::Output(port),
        port::IN_PORT => Action::InPort,
        port::ALL => Action::All,
        port::FLOOD => Action::Flood,
        port::NORMAL => Action::Normal,
        port::CONTROLLER => Action::Controller { max_len },
        // Through the tables: only a packet-out may.
        port::TABLE if kind == ListKind::PacketOut => Action::Output(port),
        _ => return Err(BadAction::BadOutPort.into()),
    })
}

fn set_field(oxm: &Oxm, kind: ListKind<'_>, tags: usize) -> Result<Action, ErrorCode> {
    if !oxm.field.settable() {
        return Err(BadAction::BadSetType.into());
    }
    let (field, value, mask) = match oxm.field {
        OxmField::VlanVid => (Field::VlanVid, oxm.value & 0xfff, oxm.mask & 0xfff),
        OxmField::VlanPcp => (Field::VlanPcp, oxm.value, oxm.mask),
        OxmField::NxVlanTci => (Field::VlanTci, oxm.value, oxm.mask),
        OxmField::ArpOp if oxm.value > 0xff => return Err(BadAction::BadSetArgument.into()),
        OxmField::ArpOp => (Field::ArpOp, oxm.value, oxm.mask & 0xff),
        OxmField::NxIpTos => (Field::IpDscp, oxm.value >> 2, oxm.mask >> 2),
        other => match fields::same(other) {
            Some(field) => (field, oxm.value, oxm.mask),
            None => return Err(BadAction::BadSetType.into()),
        },
    };
    if mask == 0 {
        return Err(BadAction::BadSetMask.into());
    }
    let suits = match (kind, field) {
        (_, Field::VlanVid | Field::VlanPcp) => tags > 0,
        (_, Field::VlanTci) => true,
        (ListKind::PacketOut, _) => true,
        (ListKind::Apply(matching) | ListKind::Write(matching), _) => {
            fields::established(field, matching)
        }
    };
    if !suits {
        return Err(BadAction::MatchInconsistent.into());
    }
    Ok(Action::SetField { field, value: value & mask, mask })
}

/// Returns the tags after an action. Writing the present bit of `vlan_tci` pushes one where there
/// is none, or pops one.
pub(super) fn tags_after(action: &Action, tags: usize) -> usize {
    let present = u128::from(VLAN_PRESENT);
    match *action {
        Action::SetField { field: Field::VlanTci, value, mask } if mask & present != 0 => {
            if value & present != 0 { tags.max(1) } else { tags.saturating_sub(1) }
        }
        _ => tags,
    }
}

fn resubmit(
    in_port: Option<u32>,
    table: Option<u8>,
    kind: ListKind<'_>,
) -> Result<Action, ErrorCode> {
    // A packet-out stands in no table, and an action set has no kind for it.
    let here = matches!(kind, ListKind::Apply(_)) || kind == ListKind::PacketOut && table.is_some();
    match table {
        _ if !here => Err(BadAction::BadType.into()),
        Some(table) if table > TABLE_MAX => Err(BadAction::BadArgument.into()),
        _ => Ok(Action::Resubmit { in_port, table }),
    }
}

#[cfg(test)]
mod tests {
    use overbank_switch::parse::parse_rule;

    use super::*;

    fn matching(text: &str) -> Match {
        parse_rule(&format!("{text} actions=drop")).expect("a rule").matching
    }

    fn refused(action: OfAction, kind: ListKind<'_>) -> BadAction {
        match from_list(&[action], kind) {
            Err(ErrorCode::BadAction(code)) => code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn reserved_ports_have_their_actions() {
        let any = Match::default();
        let with = |port, max_len, kind| from_list(&[OfAction::Output { port, max_len }], kind);
        let of = |port| with(port, 0, ListKind::Apply(&any));
        for (port, action) in [
            (7, Action::Output(7)),
            (port::LOCAL, Action::Output(port::LOCAL)),
            (port::IN_PORT, Action::InPort),
            (port::ALL, Action::All),
            (port::FLOOD, Action::Flood),
            (port::NORMAL, Action::Normal),
        ] {
            assert_eq!(of(port), Ok(vec![action]));
            for kind in [ListKind::Apply(&any), ListKind::Write(&any)] {
                let kept = Action::OutputAsked { port, max_len: 0xffe5 };
                assert_eq!(with(port, 0xffe5, kind), Ok(vec![kept]));
                assert_eq!(kept.plain(), action);
            }
            assert_eq!(with(port, 0xffe5, ListKind::PacketOut), Ok(vec![action]));
        }
        let controller = with(port::CONTROLLER, 99, ListKind::Apply(&any));
        assert_eq!(controller, Ok(vec![Action::Controller { max_len: 99 }]));
        for port in [port::TABLE, port::ANY, port::UNSET, port::MAX + 1] {
            assert_eq!(of(port), Err(BadAction::BadOutPort.into()), "{port:#x}");
        }
        let table = [OfAction::Output { port: port::TABLE, max_len: 0 }];
        let out = from_list(&table, ListKind::PacketOut);
        assert_eq!(out, Ok(vec![Action::Output(port::TABLE)]));
    }

    #[test]
    fn unsupported_features_are_named() {
        let any = Match::default();
        let here = ListKind::Apply(&any);
        for (action, code) in [
            (OfAction::Group(1), BadAction::BadOutGroup),
            (OfAction::SetQueue(1), BadAction::BadQueue),
            (OfAction::Meter(1), BadAction::BadMeter),
            (OfAction::Other { kind: 11, body: vec![] }, BadAction::BadType),
            (OfAction::Experimenter { experimenter: 1, data: vec![] }, BadAction::BadExperimenter),
            (
                OfAction::Experimenter { experimenter: experimenter::NICIRA, data: vec![0; 8] },
                BadAction::BadExpType,
            ),
            (OfAction::PushVlan(0x9100), BadAction::BadArgument),
            (OfAction::SetField(Oxm::exact(OxmField::EthType, 1)), BadAction::BadSetType),
            (OfAction::SetField(Oxm::exact(OxmField::MplsLabel, 1)), BadAction::BadSetType),
            (OfAction::SetField(Oxm::exact(OxmField::Ipv4Dst, 1)), BadAction::MatchInconsistent),
            (OfAction::SetField(Oxm::exact(OxmField::VlanVid, 1)), BadAction::MatchInconsistent),
            (OfAction::Resubmit { in_port: None, table: Some(255) }, BadAction::BadArgument),
        ] {
            assert_eq!(refused(action.clone(), here), code, "{action:?}");
        }
        let arp = matching("arp");
        let op = OfAction::SetField(Oxm::exact(OxmField::ArpOp, 256));
        assert_eq!(refused(op, ListKind::Apply(&arp)), BadAction::BadSetArgument);
        let resubmit = OfAction::Resubmit { in_port: None, table: Some(1) };
        assert_eq!(refused(resubmit, ListKind::Write(&any)), BadAction::BadType);
        let many = vec![OfAction::PopVlan; ACTIONS_MAX + 1];
        assert_eq!(from_list(&many, here), Err(BadAction::TooMany.into()));
    }

    #[test]
    fn a_tag_must_be_there_before_its_vid_is_set() {
        let (any, tagged) = (Match::default(), matching("dl_vlan=3"));
        let set = || OfAction::SetField(Oxm::exact(OxmField::VlanVid, 0x1007));
        let done = Action::SetField { field: Field::VlanVid, value: 7, mask: 0xfff };
        assert_eq!(refused(set(), ListKind::Apply(&any)), BadAction::MatchInconsistent);
        assert_eq!(from_list(&[set()], ListKind::Apply(&tagged)), Ok(vec![done]));
        let push = [OfAction::PushVlan(0x8100), set()];
        let pushed = from_list(&push, ListKind::Apply(&any));
        assert_eq!(pushed, Ok(vec![Action::PushVlan(0x8100), done]));
        let tci = |value| OfAction::SetField(Oxm::exact(OxmField::NxVlanTci, value));
        let tagging = [tci(0x1005), set()];
        assert!(from_list(&tagging, ListKind::Apply(&any)).is_ok());
        let untagging = from_list(&[tci(0), set()], ListKind::Apply(&tagged));
        assert_eq!(untagging, Err(BadAction::MatchInconsistent.into()));
        let pop = [OfAction::PopVlan, set()];
        let popped = from_list(&pop, ListKind::Apply(&tagged));
        assert_eq!(popped, Err(BadAction::MatchInconsistent.into()));
        assert!(from_list(&[set()], ListKind::PacketOut).is_ok());
    }

    #[test]
    fn instructions_run_in_their_own_order() {
        let any = Match::default();
        let of = |list: &[Instruction]| from_instructions(list, 3, &any);
        let output = |port| vec![OfAction::Output { port, max_len: 0 }];
        let of_rule = of(&[
            Instruction::GotoTable(4),
            Instruction::WriteActions(output(2)),
            Instruction::ClearActions,
            Instruction::ApplyActions(output(1)),
        ]);
        let wanted = RuleActions {
            actions: vec![Action::Output(1), Action::GotoTable(4)],
            clear_actions: true,
            write_actions: vec![Action::Output(2)],
        };
        assert_eq!(of_rule, Ok(wanted));
        for (list, code) in [
            (vec![Instruction::GotoTable(3)], BadInstruction::BadTableId),
            (vec![Instruction::GotoTable(255)], BadInstruction::BadTableId),
            (vec![Instruction::ClearActions; 2], BadInstruction::DupInst),
            (vec![Instruction::Meter(1)], BadInstruction::UnsupInst),
            (vec![Instruction::WriteMetadata { metadata: 1, mask: 1 }], BadInstruction::UnsupInst),
            (
                vec![Instruction::Experimenter { experimenter: 1, data: vec![] }],
                BadInstruction::BadExperimenter,
            ),
            (vec![Instruction::Other { kind: 9, body: vec![] }], BadInstruction::UnknownInst),
        ] {
            assert_eq!(of(&list), Err(code.into()), "{list:?}");
        }
    }
}
