//! Rules of all shapes that come, change and go, thousands of them, faster than any tool sends
//! them.
//!
//! They match what E sends to 10.123.0.0/16 and much that no host sends, so that subtables come and
//! go, megaflows are made and revalidated all the time, and tries grow and shrink. Some forward a
//! range of ports in the midst of which stands one that a rule above them drops for good.

use crate::client::{Client, add, output};
use crate::context::{Soak, Threads};
use crate::scene::{CHURNED, E, F, NEVER};
use crate::timed;
use overbank_openflow::{
    FlowCommand, FlowFlags, FlowMod, Message, Oxm, OxmField, OxmMatch, Version,
};
use rand::Rng;
use rand_pcg::Pcg64;
use std::sync::Arc;
use std::time::Duration;

/// Rules of the churn at one time.
const RULES_MAX: usize = 1500;
/// Flow-mods between two barriers.
const BATCH: usize = 64;
/// Flow-mods of a soak, however short it is for the machine.
const FLOW_MODS_MIN: u64 = 1000;
/// Their cookies.
const COOKIE: u64 = 0xc0_0000_0000;

/// Starts it.
pub fn start(soak: &Arc<Soak>, threads: &mut Threads) {
    threads.here(soak, "churn", churn);
}

fn exact(field: OxmField, value: u32) -> Oxm {
    Oxm::exact(field, value.into())
}

/// A match and a priority; `forwards` says whether all that it matches may go to F.
fn shape(random: &mut Pcg64) -> (u16, OxmMatch, bool) {
    let prefix = |random: &mut Pcg64, net: [u8; 2]| {
        let length = random.random_range(17..=32);
        let host: u16 = random.random();
        let value =
            u32::from_be_bytes([net[0], net[1], host.to_be_bytes()[0], host.to_be_bytes()[1]]);
        (u128::from(value), u128::from(u32::MAX << (32 - length)))
    };
    let ip = exact(OxmField::EthType, 0x0800);
    let priority = random.random_range(1..39_000);
    match random.random_range(0..6) {
        // 9600 to 9727, the forbidden port among them.
        0 => {
            let (base, mask) = (u128::from(NEVER & 0xff80), 0xff80);
            let port = Oxm::masked(OxmField::UdpDst, base, mask);
            let fields =
                vec![exact(OxmField::InPort, E as u32 + 1), ip, exact(OxmField::IpProto, 17), port];
            (random.random_range(1..59_999), fields.into(), true)
        }
        1 | 2 => {
            let (value, mask) = prefix(random, [10, 123]);
            (priority, vec![ip, Oxm::masked(OxmField::Ipv4Dst, value, mask)].into(), true)
        }
        3 => {
            let (value, mask) = prefix(random, [10, 123]);
            let fields = vec![
                ip,
                exact(OxmField::IpProto, 17),
                Oxm::masked(OxmField::Ipv4Dst, value, mask),
                exact(OxmField::UdpDst, CHURNED.into()),
            ];
            (priority, fields.into(), true)
        }
        4 => {
            let (value, mask) = prefix(random, [10, 124]);
            let port = Oxm::masked(OxmField::TcpSrc, random.random_range(0..256u128) << 8, 0xff00);
            let source = Oxm::masked(OxmField::Ipv4Src, value, mask);
            (priority, vec![ip, exact(OxmField::IpProto, 6), source, port].into(), false)
        }
        _ => {
            let source = u128::from(random.random_range(0..1u64 << 40));
            (priority, vec![Oxm::masked(OxmField::EthSrc, source, 0xffff_ffff_ff00)].into(), false)
        }
    }
}

fn churn(soak: &Soak) {
    let mut client = Client::connect(soak.scene.openflow, Version::V13);
    let mut random = soak.random("churn");
    let mut there: Vec<(FlowMod, bool)> = Vec::new();
    let (mut flow_mods, mut most, mut ended) = (0, 0, 0);
    while !soak.is_stopped() || flow_mods < FLOW_MODS_MIN {
        for _ in 0..BATCH {
            let turn = random.random_range(0..10);
            let of =
                |there: &[(FlowMod, bool)], random: &mut Pcg64| random.random_range(0..there.len());
            let message = if there.is_empty() || turn < 5 && there.len() < RULES_MAX {
                let (priority, matching, forwards) = shape(&mut random);
                let mut rule = add(priority, matching, vec![]);
                rule.cookie = COOKIE + flow_mods;
                if forwards && random.random() {
                    rule.instructions =
                        add(0, OxmMatch::default(), vec![output(F as u32 + 1)]).instructions;
                }
                // Some time out before; deleting them again finds nothing, which is no error.
                if random.random_ratio(1, 16) {
                    (rule.idle_timeout, rule.hard_timeout) = (1, random.random_range(1..3));
                    rule.flags = FlowFlags::SEND_FLOW_REM;
                }
                there.push((rule.clone(), forwards));
                rule
            } else if turn < 8 {
                let place = of(&there, &mut random);
                let (rule, forwards) = &there[place];
                let to =
                    if *forwards && random.random() { vec![output(F as u32 + 1)] } else { vec![] };
                let instructions = add(0, OxmMatch::default(), to).instructions;
                FlowMod { command: FlowCommand::ModifyStrict, instructions, ..rule.clone() }
            } else {
                let place = of(&there, &mut random);
                let (rule, _) = there.swap_remove(place);
                let flags = FlowFlags::default();
                FlowMod { command: FlowCommand::DeleteStrict, flags, instructions: vec![], ..rule }
            };
            client.send(&Message::FlowMod(message));
            flow_mods += 1;
        }
        for message in client.drain() {
            if let Message::FlowRemoved(gone) = message {
                ended += u64::from(timed::judge(soak, &gone).is_some());
            }
        }
        most = most.max(there.len());
        // All of them at once, now and then.
        if random.random_ratio(1, 60) {
            let all = FlowMod {
                command: FlowCommand::Delete,
                table: 255,
                cookie: COOKIE,
                cookie_mask: !0xffff_ffff,
                instructions: vec![],
                ..add(0, OxmMatch::default(), vec![])
            };
            client.done(&Message::FlowMod(all));
            let left =
                client.flows().into_iter().filter(|flow| flow.cookie & !0xffff_ffff == COOKIE);
            let left = left.count();
            soak.check(left == 0, "churn", || format!("{left} rules are left of a deletion"));
            there.clear();
        }
        soak.sleep(Duration::from_millis(2));
    }
    soak.count("flow-mods of the churn", flow_mods);
    soak.count("rules that ended by themselves, told to the churn", ended);
    soak.set("most rules of the churn", most as u64);
}
