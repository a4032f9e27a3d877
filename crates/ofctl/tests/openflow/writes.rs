//! Flow-mods and bundles: what they change, and how they are refused.

use std::time::Duration;

use overbank_ofctl::Setup;
use overbank_ofctl::sessions::ControlOptions;
use overbank_openflow::{
    BUFFER_NONE, BadAction, BadInstruction, BadMatch, BundleAdd, BundleControl, BundleFailed,
    FlowCommand, FlowFlags, FlowMod, FlowModFailed, Instruction, Message, Oxm, OxmField, OxmMatch,
    PortConfig, PortMod, Version,
};

use super::bench::{Bench, frame, patient, quiet};
use super::client::{Client, add, output};

fn port(number: u32) -> OxmMatch {
    OxmMatch::of_port(number)
}

/// Changes a flow-mod.
fn but(mut flow: FlowMod, change: impl FnOnce(&mut FlowMod)) -> Message {
    change(&mut flow);
    Message::FlowMod(flow)
}

fn deletion(matching: OxmMatch) -> FlowMod {
    FlowMod {
        command: FlowCommand::Delete,
        table: 255,
        instructions: vec![],
        ..add(0, matching, vec![])
    }
}

#[test]
fn the_five_commands_change_the_right_rules() {
    let bench = Bench::new(2);
    let mut client = Client::connect(bench.address, Version::V13);
    let base = || add(5, port(1), vec![output(2)]);
    client.done(&but(base(), |flow| flow.cookie = 0xa1));
    client.done(&but(add(6, port(1), vec![output(2)]), |flow| flow.cookie = 0xb1));
    client.done(&but(add(5, port(2), vec![output(1)]), |flow| flow.table = 4));
    assert_eq!(
        bench.rules(),
        [
            "cookie=0xa1,table=0,priority=5,in_port=1,actions=output:2",
            "cookie=0xb1,table=0,priority=6,in_port=1,actions=output:2",
            "table=4,priority=5,in_port=2,actions=output:1",
        ]
    );
    // Strictly: the one of the same priority; the cookie of the message is no new one.
    client.done(&but(add(6, port(1), vec![output(1)]), |flow| {
        flow.command = FlowCommand::ModifyStrict;
        flow.cookie = 0xff;
    }));
    assert_eq!(bench.rules()[0], "cookie=0xa1,table=0,priority=5,in_port=1,actions=output:2");
    assert_eq!(bench.rules()[1], "cookie=0xb1,table=0,priority=6,in_port=1,actions=output:1");
    // By cookie, whatever the priority.
    client.done(&but(add(0, OxmMatch::default(), vec![output(9)]), |flow| {
        flow.command = FlowCommand::Modify;
        (flow.cookie, flow.cookie_mask) = (0xa0, 0xf0);
    }));
    assert_eq!(bench.rules()[0], "cookie=0xa1,table=0,priority=5,in_port=1,actions=output:9");
    assert_eq!(bench.rules()[1], "cookie=0xb1,table=0,priority=6,in_port=1,actions=output:1");
    // What matches nothing modifies nothing and is no error.
    client.done(&but(add(77, port(7), vec![output(9)]), |flow| flow.command = FlowCommand::Modify));
    assert_eq!(bench.rules().len(), 3);
    // By output, in all tables.
    client.done(&but(deletion(OxmMatch::default()), |flow| flow.out_port = 1));
    assert_eq!(bench.rules(), ["cookie=0xa1,table=0,priority=5,in_port=1,actions=output:9"]);
    // No rule has a group.
    client.done(&but(deletion(OxmMatch::default()), |flow| flow.out_group = 3));
    client.done(&but(deletion(port(1)), |flow| {
        (flow.command, flow.priority, flow.table) = (FlowCommand::DeleteStrict, 4, 0);
    }));
    assert_eq!(bench.rules().len(), 1);
    client.done(&Message::FlowMod(deletion(port(1))));
    assert_eq!(bench.rules().len(), 0);
}

#[test]
fn flow_mods_are_refused_with_the_code_of_their_fault() {
    let setup = Setup::default();
    let control = overbank_ofctl::rules::ControlConfig { rules_max: 3, ..setup.control };
    let setup = Setup { control, ..setup };
    let bench = Bench::of(setup, &[quiet(), quiet()], patient(), vec![]);
    let mut client = Client::connect(bench.address, Version::V14);
    let base = || add(5, port(1), vec![output(2)]);
    let with =
        |instructions: Vec<Instruction>| but(base(), |flow| flow.instructions = instructions);
    let metadata = Instruction::WriteMetadata { metadata: 1, mask: 1 };
    let matching = |field| OxmMatch::from(vec![Oxm::exact(field, 1)]);
    let set = overbank_openflow::Action::SetField(Oxm::exact(OxmField::TcpDst, 1));
    for (message, code) in [
        (but(base(), |flow| flow.table = 255), FlowModFailed::BadTableId.into()),
        (
            but(base(), |flow| (flow.table, flow.command) = (255, FlowCommand::Modify)),
            FlowModFailed::BadTableId.into(),
        ),
        (with(vec![Instruction::Meter(1)]), BadInstruction::UnsupInst.into()),
        (with(vec![metadata]), BadInstruction::UnsupInst.into()),
        (with(vec![Instruction::GotoTable(0)]), BadInstruction::BadTableId.into()),
        (with(vec![Instruction::ApplyActions(vec![set])]), BadAction::MatchInconsistent.into()),
        (
            but(base(), |flow| flow.matching = matching(OxmField::TunnelId)),
            BadMatch::BadField.into(),
        ),
    ] {
        assert_eq!(client.refused(&message), code, "{message:?}");
    }
    assert_eq!(bench.rules().len(), 0);
    client.done(&Message::FlowMod(base()));
    let overlap = but(add(5, OxmMatch::default(), vec![]), |flow| {
        flow.flags = FlowFlags::CHECK_OVERLAP;
    });
    assert_eq!(client.refused(&overlap), FlowModFailed::Overlap.into());
    for priority in [6, 7] {
        client.done(&Message::FlowMod(add(priority, port(1), vec![])));
    }
    let full = Message::FlowMod(add(8, port(1), vec![]));
    assert_eq!(client.refused(&full), FlowModFailed::TableFull.into());
    // One that stands can still be replaced.
    client.done(&Message::FlowMod(add(7, port(1), vec![output(1)])));
    assert_eq!(bench.rules().len(), 3);
}

#[test]
fn an_add_starts_anew_and_a_modification_counts_on() {
    let bench = Bench::new(2);
    let mut client = Client::connect(bench.address, Version::V13);
    client.done(&Message::FlowMod(add(5, port(1), vec![output(2)])));
    let pass = |client: &mut Client, frames: usize| {
        for _ in 0..frames {
            bench.ports[0].inject(&frame(1, 2, b"x"));
        }
        bench.sent(2, frames);
        client.done(&Message::EchoReply(vec![]));
        client.flows()[0].stats.packets
    };
    assert_eq!(pass(&mut client, 4), Some(4));
    let modify = |flags| {
        but(add(5, port(1), vec![output(2)]), |flow| {
            (flow.command, flow.flags) = (FlowCommand::Modify, flags);
        })
    };
    client.done(&modify(FlowFlags::default()));
    assert_eq!(pass(&mut client, 1), Some(5));
    client.done(&modify(FlowFlags::RESET_COUNTS));
    assert_eq!(pass(&mut client, 2), Some(2));
    client
        .done(&but(add(5, port(1), vec![output(2)]), |flow| flow.flags = FlowFlags::RESET_COUNTS));
    assert_eq!(pass(&mut client, 3), Some(3));
}

const OPEN: u16 = 0;
const CLOSE: u16 = 2;
const COMMIT: u16 = 4;
const DISCARD: u16 = 6;

fn control(bundle: u32, kind: u16) -> Message {
    Message::BundleControl(BundleControl { bundle, kind, flags: 3 })
}

/// Adds to a bundle; the xid of the inner message has to be that of the outer one.
fn bundle_add(client: &mut Client, bundle: u32, inner: &Message) -> u32 {
    let xid = client.next_xid();
    let mut message = Vec::new();
    inner.encode(client.version, xid, &mut message).expect("it fits");
    let sent = client.send(&Message::BundleAdd(BundleAdd { bundle, flags: 3, message }));
    assert_eq!(sent, xid);
    xid
}

fn controlled(client: &mut Client, bundle: u32, kind: u16) {
    let reply = client.ask(&control(bundle, kind));
    let wanted = BundleControl { bundle, kind: kind + 1, flags: 3 };
    assert_eq!(reply, Message::BundleControl(wanted));
}

#[test]
fn a_bundle_is_done_as_a_whole_when_it_is_committed() {
    let bench = Bench::new(2);
    let mut client = Client::connect(bench.address, Version::V14);
    client.done(&Message::FlowMod(add(1, port(1), vec![output(2)])));
    controlled(&mut client, 5, OPEN);
    bundle_add(&mut client, 5, &Message::FlowMod(deletion(OxmMatch::default())));
    bundle_add(&mut client, 5, &Message::FlowMod(add(2, port(2), vec![output(1)])));
    let hw_addr = bench.handle().lock().ports()[0].desc.mac;
    let (config, mask) = (PortConfig::NO_PACKET_IN, PortConfig::NO_PACKET_IN);
    let change = PortMod { port: 1, hw_addr, config, mask, advertise: 0 };
    bundle_add(&mut client, 5, &Message::PortMod(change));
    client.done(&Message::EchoReply(vec![]));
    assert_eq!(bench.rules(), ["table=0,priority=1,in_port=1,actions=output:2"]);
    controlled(&mut client, 5, CLOSE);
    controlled(&mut client, 5, COMMIT);
    assert_eq!(bench.rules(), ["table=0,priority=2,in_port=2,actions=output:1"]);
    assert!(bench.handle().lock().ports()[0].config.no_packet_in);
}

#[test]
fn a_bundle_that_fails_changes_nothing_and_tells_nothing() {
    let bench = Bench::new(2);
    let mut client = Client::connect(bench.address, Version::V15);
    client.done(&but(add(1, port(1), vec![output(2)]), |flow| {
        flow.flags = FlowFlags::SEND_FLOW_REM;
    }));
    let before = bench.rules();
    controlled(&mut client, 1, OPEN);
    bundle_add(&mut client, 1, &Message::FlowMod(deletion(OxmMatch::default())));
    bundle_add(&mut client, 1, &Message::FlowMod(add(2, port(2), vec![output(1)])));
    let overlap = but(add(2, OxmMatch::default(), vec![]), |flow| {
        flow.flags = FlowFlags::CHECK_OVERLAP;
    });
    let culprit = bundle_add(&mut client, 1, &overlap);
    let commit = client.send(&control(1, COMMIT));
    let Message::Error(first) = client.answer(culprit) else { panic!("no error") };
    assert_eq!(first.code, FlowModFailed::Overlap.into());
    let Message::Error(second) = client.answer(commit) else { panic!("no error") };
    assert_eq!(second.code, BundleFailed::MsgFailed.into());
    assert_eq!(bench.rules(), before);
    assert_eq!(client.drain(), [], "no flow-removed");
    assert_eq!(client.refused(&control(1, COMMIT)), BundleFailed::BadId.into());
}

#[test]
fn bundles_are_bounded_and_checked() {
    let options = ControlOptions { bundles: 2, bundle_messages: 3, ..patient() };
    let bench = Bench::with("", &[quiet()], options, vec![]);
    let mut client = Client::connect(bench.address, Version::V14);
    controlled(&mut client, 1, OPEN);
    assert_eq!(client.refused(&control(1, OPEN)), BundleFailed::BundleExist.into());
    controlled(&mut client, 1, OPEN);
    controlled(&mut client, 2, OPEN);
    assert_eq!(client.refused(&control(3, OPEN)), BundleFailed::OutOfBundles.into());
    assert_eq!(client.refused(&control(3, DISCARD)), BundleFailed::BadId.into());
    assert_eq!(client.refused(&control(1, 9)), BundleFailed::BadType.into());
    let other = BundleControl { bundle: 1, kind: CLOSE, flags: 1 };
    assert_eq!(client.refused(&Message::BundleControl(other)), BundleFailed::BadFlags.into());

    let mut refused = |inner: &Message| {
        let xid = bundle_add(&mut client, 1, inner);
        match client.answer(xid) {
            Message::Error(error) => error.code,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(&Message::BarrierRequest), BundleFailed::MsgUnsup.into());
    let flow = || add(1, port(1), vec![output(1)]);
    let buffered = but(flow(), |flow| flow.buffer_id = 1);
    assert_eq!(refused(&buffered), BundleFailed::MsgUnsup.into());
    let bad = but(flow(), |flow| flow.table = 255);
    assert_eq!(refused(&bad), FlowModFailed::BadTableId.into());
    for bundle in [1, 2, 2] {
        bundle_add(&mut client, bundle, &Message::FlowMod(flow()));
    }
    let xid = bundle_add(&mut client, 1, &Message::FlowMod(flow()));
    let Message::Error(error) = client.answer(xid) else { panic!("no error") };
    assert_eq!(error.code, BundleFailed::MsgTooMany.into());
    controlled(&mut client, 2, DISCARD);
    controlled(&mut client, 1, CLOSE);
    let xid = bundle_add(&mut client, 1, &Message::FlowMod(flow()));
    let Message::Error(error) = client.answer(xid) else { panic!("no error") };
    assert_eq!(error.code, BundleFailed::BundleClosed.into());
    assert_eq!(client.refused(&control(1, CLOSE)), BundleFailed::BundleClosed.into());
    controlled(&mut client, 1, COMMIT);
    assert_eq!(bench.rules().len(), 1);
    assert_eq!(BUFFER_NONE, u32::MAX);
    assert!(client.try_next(Duration::ZERO).is_none());
    let counted = bench.counters.snapshot();
    assert_eq!((counted.bundles_refused, counted.bundle_messages_refused), (1, 1));
}
