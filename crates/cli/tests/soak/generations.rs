//! Rules that stamp: no packet may be treated by rules that were gone when it was sent.
//!
//! ```text
//!   controller   started = n ── rules of generation n ── barrier ── confirmed = n
//!   E            reads confirmed (c), writes it into a datagram, sends
//!   switch                     the rules write their generation over the source port (and, in a
//!                              second table of the same bundle, over the source address)
//!   F            gets the datagram with stamp s, then reads started (d):     c ≤ s ≤ d
//! ```
//!
//! Generation c was confirmed before the datagram existed, so whatever came before it must not be
//! seen again; what was not yet begun cannot be seen at all. Both stamps of a bundle are the same
//! in each datagram: rules that change together change for all packets between two of them.
//! Besides:
//! - a stamp of a bundle that was never committed is never seen, nor one of a slave (`peers.rs`);
//! - a rule that ended by itself treats nothing that is sent later (`timed.rs`);
//! - once all generations were deleted and that was confirmed, nothing arrives;
//! - what the drop rule of [`NEVER`] covers never arrives, however the churn forwards around it.

use crate::bench::PATIENCE;
use crate::client::{Client, add, output};
use crate::context::{Soak, Threads, differs, fill};
use crate::scene::{
    CHURNED, E, F, NEVER, ONE_STAMP, SOMETIMES, TIMED, TO_CONTROLLERS, TWO_STAMPS, address,
};
use crate::timed;
use overbank_openflow::{
    Action, BundleAdd, BundleControl, FlowCommand, FlowMod, Instruction, Message, Oxm, OxmField,
    OxmMatch, Version,
};
use rand::Rng;
use rand_pcg::Pcg64;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Number of stamps; generations wrap around after it.
const STAMPS: u64 = 50_000;
/// The first stamp.
const FIRST: u64 = 1024;
/// No generation has it; rules with it are never in force.
pub const POISON: u16 = 60_000;
/// Said of packets that are sent after all generations are gone.
const NONE: u64 = u64::MAX;
/// Stamps that have to be seen of rules that change, and of rules that end: a check that saw
/// nothing has checked nothing. The soak lasts until then.
const CHANGING_MIN: u64 = 5;
const ENDING_MIN: u64 = 1;
/// Bytes in front of a datagram's filling.
const HEAD: usize = 16;

/// The stamp of a generation.
pub fn stamp(generation: u64) -> u16 {
    u16::try_from(FIRST + generation % STAMPS).expect("it fits")
}

/// Whether a packet that was sent when `confirmed` was in force, and seen when `started` was on its
/// way, may have this stamp.
fn allowed(stamp: u16, confirmed: u64, started: u64) -> bool {
    let Some(place) = u64::from(stamp).checked_sub(FIRST).filter(|place| *place < STAMPS) else {
        return false;
    };
    let after = (place + STAMPS - confirmed % STAMPS) % STAMPS;
    started >= confirmed && after <= started - confirmed
}

/// One flow that is stamped.
#[derive(Default)]
pub struct Stamped {
    pub started: AtomicU64,
    pub confirmed: AtomicU64,
    /// Stamps that were seen.
    pub seen: AtomicU64,
}

/// Shared by controller, sender and receivers.
#[derive(Default)]
struct Shared {
    one: Stamped,
    two: Stamped,
    timed: Stamped,
    /// No rule of `timed` is there, and none will be.
    timed_over: AtomicBool,
    /// The first generation of both stands.
    ready: AtomicBool,
    /// All generations are gone.
    gone: AtomicBool,
    /// Everything was sent.
    sent: AtomicBool,
}

/// What an outsider knows at the end.
#[derive(Default)]
pub struct Ending {
    /// Datagrams sent to [`NEVER`].
    pub never_sent: AtomicU64,
}

/// Starts controller, sender and receivers.
pub fn start(soak: &Arc<Soak>, threads: &mut Threads) -> Arc<Ending> {
    let (shared, ending) = (Arc::new(Shared::default()), Arc::new(Ending::default()));
    let for_controller = Arc::clone(&shared);
    threads.here(soak, "generations", move |soak| control(soak, &for_controller));
    let for_timed = Arc::clone(&shared);
    threads.here(soak, "rules with an end", move |soak| {
        timed::control(soak, &for_timed.timed, ENDING_MIN);
        for_timed.timed_over.store(true, SeqCst);
    });
    let (for_sender, count) = (Arc::clone(&shared), Arc::clone(&ending));
    threads.inside(soak, E, "E's sender", move |soak| send(soak, &for_sender, &count));
    for port in [ONE_STAMP, TWO_STAMPS, TIMED, NEVER, SOMETIMES] {
        let shared = Arc::clone(&shared);
        threads.inside(soak, F, &format!("F's receiver {port}"), move |soak| {
            receive(soak, &shared, port);
        });
    }
    ending
}

/// UDP that comes in on E's port, to a port.
pub fn udp_to(port: u16) -> OxmMatch {
    vec![
        Oxm::exact(OxmField::InPort, E as u128 + 1),
        Oxm::exact(OxmField::EthType, 0x0800),
        Oxm::exact(OxmField::IpProto, 17),
        Oxm::exact(OxmField::UdpDst, port.into()),
    ]
    .into()
}

/// Stamps the source port and sends to F.
pub fn one_stamp(priority: u16, stamp: u16) -> FlowMod {
    stamped(ONE_STAMP, priority, stamp)
}

/// The same for what goes to another port.
pub fn stamped(port: u16, priority: u16, stamp: u16) -> FlowMod {
    let set = Action::SetField(Oxm::exact(OxmField::UdpSrc, stamp.into()));
    add(priority, udp_to(port), vec![set, output(F as u32 + 1)])
}

/// Stamps the source port in table 0 and the source address in table 1.
fn two_stamps(priority: u16, stamp: u16) -> [FlowMod; 2] {
    let port = Action::SetField(Oxm::exact(OxmField::UdpSrc, stamp.into()));
    let first = FlowMod {
        instructions: vec![Instruction::ApplyActions(vec![port]), Instruction::GotoTable(1)],
        ..add(priority, udp_to(TWO_STAMPS), vec![])
    };
    let source = u128::from(u32::from_be_bytes([10, 99, 0, 0]) | u32::from(stamp));
    let address = Action::SetField(Oxm::exact(OxmField::Ipv4Src, source));
    let second = add(priority, udp_to(TWO_STAMPS), vec![address, output(F as u32 + 1)]);
    [first, FlowMod { table: 1, ..second }]
}

fn but(flow: FlowMod, command: FlowCommand) -> Message {
    let mut flow = FlowMod { command, ..flow };
    if matches!(command, FlowCommand::Delete | FlowCommand::DeleteStrict) {
        flow.instructions.clear();
    }
    Message::FlowMod(flow)
}

/// The controller of the generations.
struct Controller {
    client: Client,
    random: Pcg64,
    /// Where the rule of [`ONE_STAMP`] stands.
    priority: u16,
    bundle: u32,
}

impl Controller {
    fn barrier(&mut self) {
        self.client.done(&Message::EchoReply(Vec::new()));
        self.client.unasked.clear();
    }

    /// The next generation of [`ONE_STAMP`], in one of the ways in which rules take turns.
    fn one(&mut self, generation: u64) {
        let stamp = stamp(generation);
        let here = self.priority;
        let there = 40_000 + self.random.random_range(0..50u16);
        let ways: Vec<Message> = match self.random.random_range(0..5) {
            // In its place: new, or changed.
            0 => vec![Message::FlowMod(one_stamp(here, stamp))],
            1 => vec![but(one_stamp(here, stamp), FlowCommand::ModifyStrict)],
            // Gone, then there: nothing arrives in between.
            2 => vec![
                but(one_stamp(here, 0), FlowCommand::DeleteStrict),
                Message::FlowMod(one_stamp(here, stamp)),
            ],
            // Beside it, above or below; then the old one is deleted by priority or by cookie.
            way if there != here => {
                self.priority = there;
                let cookie = 0x0fee_0000 | u64::from(here);
                let cookie_there = 0x0fee_0000 | u64::from(there);
                let delete = if way == 3 {
                    but(one_stamp(here, 0), FlowCommand::DeleteStrict)
                } else {
                    let of = FlowMod { cookie, cookie_mask: u64::MAX, ..one_stamp(0, 0) };
                    but(of, FlowCommand::Delete)
                };
                // So that the cookie tells where it stands.
                let old = FlowMod { cookie, ..one_stamp(here, self::stamp(generation - 1)) };
                let new = FlowMod { cookie: cookie_there, ..one_stamp(there, stamp) };
                vec![Message::FlowMod(old), Message::FlowMod(new), delete]
            }
            _ => vec![Message::FlowMod(one_stamp(here, stamp))],
        };
        for message in &ways {
            self.client.send(message);
        }
    }

    fn bundle(&mut self, kind: u16) {
        let control = BundleControl { bundle: self.bundle, kind, flags: 3 };
        match self.client.ask(&Message::BundleControl(control)) {
            Message::BundleControl(reply) if reply.kind == kind + 1 => {}
            other => panic!("a bundle is refused: {other:?}"),
        }
    }

    fn bundled(&mut self, inner: &Message) {
        let (bundle, xid) = (self.bundle, self.client.next_xid());
        let mut message = Vec::new();
        inner.encode(self.client.version, xid, &mut message).expect("it fits");
        self.client.send(&Message::BundleAdd(BundleAdd { bundle, flags: 3, message }));
    }

    /// The next generation of [`TWO_STAMPS`]: both rules at once, replaced or deleted and made
    /// anew.
    fn two(&mut self, generation: u64, commit: bool) {
        let stamp = if commit { stamp(generation) } else { POISON };
        self.bundle += 1;
        self.bundle(0);
        let anew = self.random.random_bool(0.3);
        let [first, second] = two_stamps(41_000, stamp);
        // In either order; what is committed shows as a whole.
        let rules = if self.random.random() { [first, second] } else { [second, first] };
        for rule in rules {
            if anew {
                self.bundled(&but(rule.clone(), FlowCommand::DeleteStrict));
            }
            self.bundled(&Message::FlowMod(rule));
        }
        if commit {
            self.bundle(4);
        }
    }
}

fn control(soak: &Soak, shared: &Shared) {
    let connect = || Client::connect(soak.scene.openflow, Version::V14);
    let random = soak.random("generations");
    let mut controller = Controller { client: connect(), random, priority: 40_000, bundle: 0 };
    let mut generation = 0;
    let mut uncommitted = 0;
    let end = Instant::now() + Duration::from_secs(soak.plan.seconds) + PATIENCE;
    let seen = || shared.one.seen.load(SeqCst).min(shared.two.seen.load(SeqCst));
    while !soak.is_stopped() || seen() < CHANGING_MIN && Instant::now() < end {
        generation += 1;
        for stamped in [&shared.one, &shared.two] {
            stamped.started.store(generation, SeqCst);
        }
        if generation == 1 {
            controller.client.send(&Message::FlowMod(one_stamp(40_000, stamp(1))));
        } else {
            controller.one(generation);
        }
        controller.barrier();
        shared.one.confirmed.store(generation, SeqCst);
        controller.two(generation, true);
        controller.barrier();
        shared.two.confirmed.store(generation, SeqCst);
        shared.ready.store(true, SeqCst);
        if controller.random.random_ratio(1, 50) {
            uncommitted += 1;
            controller.two(generation, false);
            if controller.random.random() {
                controller.bundle(6);
            } else {
                // Whatever was said last; it must not count.
                controller.client = connect();
            }
        }
        std::thread::sleep(Duration::from_micros(controller.random.random_range(0..2000)));
    }
    soak.count("generations of stamping rules", 2 * generation);
    soak.count("bundles never committed", uncommitted);
    for port in [ONE_STAMP, TWO_STAMPS] {
        let all = FlowMod { table: 255, ..add(0, udp_to(port), vec![]) };
        controller.client.send(&but(all, FlowCommand::Delete));
    }
    controller.barrier();
    let start = Instant::now();
    while !shared.timed_over.load(SeqCst) && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    shared.gone.store(true, SeqCst);
}

fn send(soak: &Soak, shared: &Shared, ending: &Ending) {
    let mut random = soak.random("E's sender");
    let sockets: Vec<UdpSocket> =
        (0..8).map(|_| UdpSocket::bind((address(E), 0)).expect("bound")).collect();
    let mut number = 0u64;
    let mut never = 0;
    let mut bytes = [0; 1400];
    let mut send = |random: &mut Pcg64, to: SocketAddr, confirmed: u64| {
        number += 1;
        let len = HEAD + random.random_range(0..bytes.len() - HEAD) / 8 * 8;
        bytes[..8].copy_from_slice(&confirmed.to_be_bytes());
        bytes[8..HEAD].copy_from_slice(&number.to_be_bytes());
        fill(number, 0, &mut bytes[HEAD..len]);
        let socket = &sockets[random.random_range(0..sockets.len())];
        // The kernel may have no room for the moment.
        socket.send_to(&bytes[..len], to).is_ok()
    };
    let f = |port: u16| SocketAddr::from(([10, 77, 0, F as u8 + 1], port));
    while !shared.ready.load(SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut finals = 0;
    let mut round = 0u64;
    while finals < 100 {
        let gone = shared.gone.load(SeqCst);
        finals += u32::from(gone);
        for _ in 0..2 {
            for (port, of) in
                [(ONE_STAMP, &shared.one), (TWO_STAMPS, &shared.two), (TIMED, &shared.timed)]
            {
                let confirmed = if gone { NONE } else { of.confirmed.load(SeqCst) };
                send(&mut random, f(port), confirmed);
            }
            let [x, y]: [u8; 2] = random.random();
            send(&mut random, SocketAddr::from(([10, 123, x, y], CHURNED)), 0);
        }
        never += u64::from(send(&mut random, f(NEVER), 0));
        send(&mut random, f(SOMETIMES), 0);
        if round.is_multiple_of(8) {
            send(&mut random, f(TO_CONTROLLERS), 0);
        }
        round += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    soak.count("datagrams E sent", number);
    ending.never_sent.store(never, SeqCst);
    shared.sent.store(true, SeqCst);
}

fn receive(soak: &Soak, shared: &Shared, port: u16) {
    let socket = UdpSocket::bind(("0.0.0.0", port)).expect("bound");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket");
    let mut bytes = [0; 2000];
    let (mut seen, mut stamps) = (0u64, std::collections::HashSet::new());
    let whom = format!("F, port {port}");
    let mut quiet_since = Instant::now();
    loop {
        let (len, from) = match socket.recv_from(&mut bytes) {
            Ok(got) => got,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let quiet = quiet_since.elapsed() > Duration::from_millis(300);
                if shared.sent.load(SeqCst) && quiet {
                    break;
                }
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        quiet_since = Instant::now();
        seen += 1;
        let word = |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
        let (Some(confirmed), Some(number)) = (word(0), word(8)) else { panic!("{len} bytes") };
        let (confirmed, number) = (u64::from_be_bytes(confirmed), u64::from_be_bytes(number));
        let intact = len >= HEAD && differs(number, 0, &bytes[HEAD..len]).is_none();
        soak.check(intact, &whom, || format!("datagram {number} came with other bytes"));
        let of = match port {
            ONE_STAMP => &shared.one,
            TWO_STAMPS => &shared.two,
            TIMED => &shared.timed,
            SOMETIMES => continue,
            _ => {
                soak.fail(&whom, format!("datagram {number} came, though a rule drops it"));
                continue;
            }
        };
        let started = of.started.load(SeqCst);
        let SocketAddr::V4(from) = from else { panic!("{from}") };
        let (stamp, ip) = (from.port(), from.ip().octets());
        let holds = confirmed != NONE && allowed(stamp, confirmed, started);
        soak.check(holds, &whom, || {
            let by = match stamp {
                POISON => "rules that were never in force".to_owned(),
                _ if confirmed == NONE => format!("stamp {stamp}, when all rules were gone"),
                _ => format!("stamp {stamp}"),
            };
            format!(
                "datagram {number} was treated by {by}; when it was sent, generation {confirmed} \
                 (stamp {}) was in force, and {started} was the last to be begun",
                if confirmed == NONE { 0 } else { self::stamp(confirmed) }
            )
        });
        if port == TWO_STAMPS {
            let whole = ip == [10, 99, stamp.to_be_bytes()[0], stamp.to_be_bytes()[1]];
            soak.check(whole, &whom, || {
                format!("datagram {number} was treated by half a bundle: {from}")
            });
        }
        stamps.insert(stamp);
        of.seen.store(stamps.len() as u64, SeqCst);
    }
    let (name, least) = match port {
        ONE_STAMP => ("stamps seen, one rule", CHANGING_MIN),
        TWO_STAMPS => ("stamps seen, bundles", CHANGING_MIN),
        TIMED => ("stamps seen, rules with an end", ENDING_MIN),
        SOMETIMES => ("datagrams past the drop rule", 0),
        _ => return,
    };
    soak.check(seen > 0, &whom, || "nothing came at all".to_owned());
    soak.check(stamps.len() as u64 >= least, &whom, || format!("only {} stamps", stamps.len()));
    soak.count("datagrams F checked", seen);
    soak.count(name, if port == SOMETIMES { seen } else { stamps.len() as u64 });
}

#[test]
fn stamps_are_allowed_between_confirmed_and_started() {
    for confirmed in [1, 5, STAMPS - 1, STAMPS, 3 * STAMPS + 7] {
        for ahead in 0..4 {
            let started = confirmed + ahead;
            for generation in confirmed.saturating_sub(2)..=started + 2 {
                let wanted = (confirmed..=started).contains(&generation);
                assert_eq!(allowed(stamp(generation), confirmed, started), wanted);
            }
        }
        assert!(!allowed(POISON, confirmed, confirmed + 3));
        assert!(!allowed(80, confirmed, confirmed + 3));
    }
}
