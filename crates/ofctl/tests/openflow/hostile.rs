//! Peers that mean harm, or are broken: they lose their session, and no other peer loses anything.
//!
//! The switch forwards all the while, from a port that brings frames without end, which every test
//! looks at before and after.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use overbank_ofctl::sessions::ControlOptions;
use overbank_openflow::{
    FlowCommand, Frames, Header, Message, OxmMatch, Version, consts::port, multipart::Request,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::bench::{Bench, PATIENCE, busy, patient, quiet, wait};
use super::client::{Client, add, everything, output, question};

/// A switch that forwards all the while. One at a time: it uses all of a core.
struct Forwarding {
    bench: Bench,
    _turn: MutexGuard<'static, ()>,
}

impl Deref for Forwarding {
    type Target = Bench;

    fn deref(&self) -> &Bench {
        &self.bench
    }
}

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A switch that forwards from port 1 to port 2.
fn forwarding(options: ControlOptions) -> Forwarding {
    let _turn = turn();
    let rule = "priority=1,in_port=1,actions=output:2";
    Forwarding { bench: Bench::with(rule, &[busy(), quiet(), quiet()], options, vec![]), _turn }
}

/// Frames go on being forwarded, and a controller that behaves is served.
fn unharmed(bench: &Bench) {
    let forwarded = || bench.switch().status().ports[0].forwarded;
    let before = forwarded();
    wait("frames are forwarded", || forwarded() > before + 1000);
    assert!(!bench.switch().is_broken());
    let mut client = Client::connect(bench.address, Version::V13);
    assert_eq!(client.ask(&Message::BarrierRequest), Message::BarrierReply);
}

/// Reads until the switch closes the connection.
fn listen(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut all = Vec::new();
    let mut bytes = [0; 65_536];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return all,
            Ok(read) => all.extend_from_slice(&bytes[..read]),
            Err(error) => {
                let open = [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind());
                assert!(!open, "it is not closed: {all:?}");
                return all;
            }
        }
        assert!(all.len() < 64 << 20, "it says a lot");
    }
}

/// The last message in what the switch said.
fn last(bytes: &[u8]) -> (Header, Vec<u8>) {
    let mut frames = Frames::new();
    frames.extend(bytes);
    let mut last = None;
    while let Ok(Some(frame)) = frames.next_frame() {
        last = Some((frame.header, frame.body().to_vec()));
    }
    last.expect("it said something")
}

/// Where a time has to pass in a test: longer than a busy machine keeps one thread waiting.
const UNHURRIED: Duration = Duration::from_secs(2);

const HELLO: [u8; 8] = [4, 0, 0, 8, 0, 0, 0, 1];
const ERROR: u8 = 1;

#[test]
fn a_peer_without_hello_gets_an_error_and_is_closed() {
    let bench = forwarding(patient());
    for (first, code) in [
        // A request in place of a hello; OpenFlow 1.0; a length that cannot be.
        (&[4, 5, 0, 8, 0, 0, 0, 1], [0, 0, 0, 0]),
        (&[1, 0, 0, 8, 0, 0, 0, 1], [0, 0, 0, 0]),
        (&[4, 0, 0, 7, 0, 0, 0, 1], [0, 1, 0, 6]),
    ] {
        let mut stream = TcpStream::connect(bench.address).expect("it listens");
        stream.write_all(first).expect("it reads");
        let (header, body) = last(&listen(&mut stream));
        assert_eq!((header.kind, &body[..4]), (ERROR, &code[..]), "{first:?}");
    }
    wait("all are ended", || bench.counters.snapshot().sessions_broken == 3);
    assert_eq!(bench.counters.snapshot().hellos_missed, 0);
    assert_eq!(bench.counters.snapshot().sessions_opened, 0);
    unharmed(&bench);
}

#[test]
fn a_peer_without_a_whole_hello_is_closed_in_time() {
    let options = ControlOptions { handshake: UNHURRIED, ..patient() };
    let bench = forwarding(options);
    // Another protocol, half a header, nothing.
    for first in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[4, 0], &[]] {
        let mut stream = TcpStream::connect(bench.address).expect("it listens");
        stream.write_all(first).expect("it reads");
        let (header, _) = last(&listen(&mut stream));
        assert_eq!(header.kind, 0, "nothing but its hello: {first:?}");
    }
    wait("all are ended", || bench.counters.snapshot().sessions_broken == 3);
    assert_eq!(bench.counters.snapshot().hellos_missed, 3);
    assert_eq!(bench.counters.snapshot().sessions_opened, 0);
    unharmed(&bench);
}

#[test]
fn a_stream_that_lost_its_frame_ends_with_an_error() {
    let bench = forwarding(patient());
    let mut stream = TcpStream::connect(bench.address).expect("it listens");
    stream.write_all(&HELLO).expect("it reads");
    stream.write_all(&[4, 2, 0, 3, 0, 0, 0, 9]).expect("it reads");
    let (header, body) = last(&listen(&mut stream));
    assert_eq!((header.kind, header.xid, &body[..4]), (ERROR, 9, &[0, 1, 0, 6][..]));
    unharmed(&bench);
}

/// Messages of every kind, whole ones, to be changed.
fn samples() -> Vec<Vec<u8>> {
    let flow = add(1, OxmMatch::of_port(1), vec![output(2), output(port::CONTROLLER)]);
    let messages = [
        Message::EchoRequest(vec![1; 40]),
        Message::FeaturesRequest,
        Message::FlowMod(flow),
        Message::BarrierRequest,
        Message::GetAsyncRequest,
        question(Request::Flow(everything())),
        question(Request::Table),
        question(Request::TableFeatures(vec![])),
        question(Request::PortDesc { port: port::ANY }),
    ];
    let mut all = Vec::new();
    for message in messages {
        let mut bytes = Vec::new();
        message.encode(Version::V13, 7, &mut bytes).expect("it fits");
        all.push(bytes);
    }
    // The kinds that have no sample: a header and zeros.
    for kind in 0..40 {
        let header = Header { version: 4, kind, length: 80, xid: 1 };
        all.push([&header.to_bytes()[..], &[0; 72]].concat());
    }
    all
}

#[test]
fn random_and_mutated_bytes_harm_nobody() {
    let bench = forwarding(ControlOptions { probe: UNHURRIED, ..patient() });
    let mutated = (
        prop::sample::select(samples()),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        any::<bool>(),
    )
        .prop_map(|(mut bytes, changes, whole)| {
            let len = bytes.len();
            for (at, value) in changes {
                let at = at.index(len);
                // Mostly lengths that are right, so that what comes after is read.
                if !(2..4).contains(&at) || !whole {
                    bytes[at] = value;
                }
            }
            bytes
        });
    let random = prop::collection::vec(any::<u8>(), 0..300);
    let stream = prop::collection::vec(prop_oneof![8 => mutated, 1 => random], 1..40);
    let mut runner =
        TestRunner::new(Config { cases: 60, failure_persistence: None, ..Config::default() });
    runner
        .run(&stream, |messages| {
            let mut stream = TcpStream::connect(bench.address).expect("it listens");
            stream.write_all(&HELLO).expect("it reads");
            // It may have closed it already.
            let _ = stream.write_all(&messages.concat());
            let _ = stream.shutdown(Shutdown::Write);
            let said = listen(&mut stream);
            let mut frames = Frames::new();
            frames.extend(&said);
            while let Some(frame) = frames.next_frame().expect("whole messages") {
                let read = Message::decode(Version::V13, &frame.header, frame.body());
                prop_assert!(
                    frame.header.version == 4 && read.is_ok() || frame.header.kind == 0,
                    "{:?} {:?}",
                    frame.header,
                    read.err()
                );
            }
            prop_assert_eq!(frames.buffered(), 0);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{}", error.to_string().lines().next().unwrap_or("")));
    assert!(bench.counters.snapshot().errors_sent > 60);
    wait("all are closed", || bench.counters.snapshot().connections == 0);
    // A changed flow-mod may be a right one, and the rules are any controller's to change.
    let mut client = Client::connect(bench.address, Version::V13);
    let mut all = add(0, OxmMatch::default(), vec![]);
    (all.command, all.table, all.instructions) = (FlowCommand::Delete, 255, vec![]);
    client.done(&Message::FlowMod(all));
    client.done(&Message::FlowMod(add(1, OxmMatch::of_port(1), vec![output(2)])));
    drop(client);
    unharmed(&bench);
}

#[test]
fn a_peer_that_does_not_read_is_held_and_then_closed() {
    let options = ControlOptions { stall: 2 * UNHURRIED, ..patient() };
    let bench = forwarding(options);
    let mut echo = Vec::new();
    Message::EchoRequest(vec![7; 60_000]).encode(Version::V13, 1, &mut echo).expect("it fits");
    let mut dump = Vec::new();
    question(Request::TableFeatures(vec![])).encode(Version::V13, 1, &mut dump).expect("it fits");
    for request in [echo, dump] {
        let broken = bench.counters.snapshot().sessions_broken;
        let mut stream = TcpStream::connect(bench.address).expect("it listens");
        stream.write_all(&HELLO).expect("it reads");
        stream.set_write_timeout(Some(Duration::from_millis(100))).expect("a socket");
        let mut at = 0;
        wait("the session ends", || {
            // As much as it takes; in the end nothing.
            for _ in 0..100 {
                match stream.write(&request[at..]) {
                    Ok(written) => at = (at + written) % request.len(),
                    Err(_) => break,
                }
            }
            bench.counters.snapshot().sessions_broken > broken
        });
        let most = bench.counters.snapshot().bytes_queued_most;
        // The bound, and one reply more.
        assert!(most > 100_000, "{most} bytes waited at most");
        assert!(most < 256 * 1024 + 1024 * 1024, "{most} bytes waited at most");
        unharmed(&bench);
    }
    let end = bench.counters.snapshot();
    assert_eq!(end.sessions_stalled, 2);
    assert!(end.sessions_held >= 2, "{end:?}");
}

#[test]
fn packet_ins_that_are_not_read_are_dropped_and_counted() {
    let bench = forwarding(patient());
    let mut slow = Client::connect(bench.address, Version::V13);
    let mut quick = Client::connect(bench.address, Version::V13);
    let action = overbank_openflow::Action::Output { port: port::CONTROLLER, max_len: 0xffff };
    let copy = add(9, OxmMatch::of_port(1), vec![output(2), action]);
    quick.done(&Message::FlowMod(copy));
    let counted = || bench.counters.snapshot();
    let mut read = 0u64;
    wait("packet-ins are dropped", || {
        while quick.try_next(Duration::from_millis(1)).is_some() {
            read += 1;
            if read.is_multiple_of(1000) {
                break;
            }
        }
        counted().packet_ins_dropped > 1000 && read > 5000
    });
    let most = counted().bytes_queued_most;
    assert!(most < 2 * (256 * 1024 + 1024), "{most} bytes waited at most");
    // The session stands; requests are answered after what was sent before.
    let mut delete = add(0, OxmMatch::default(), vec![]);
    (delete.command, delete.instructions) = (FlowCommand::Delete, vec![]);
    quick.done(&Message::FlowMod(delete));
    quick.done(&Message::FlowMod(add(1, OxmMatch::of_port(1), vec![output(2)])));
    quick.unasked.clear();
    slow.done(&Message::EchoReply(vec![]));
    unharmed(&bench);
}

#[test]
fn a_connection_whose_other_end_is_silent_is_closed() {
    let bench = forwarding(ControlOptions { probe: UNHURRIED, ..patient() });
    // A peer that answers stays: asked twice.
    let mut alive = Client::connect(bench.address, Version::V13);
    assert!(alive.try_next(5 * UNHURRIED / 2).is_none());
    assert_eq!(alive.ask(&Message::BarrierRequest), Message::BarrierReply);
    drop(alive);
    assert_eq!(bench.counters.snapshot().sessions_broken, 0);
    let mut silent = TcpStream::connect(bench.address).expect("it listens");
    silent.write_all(&HELLO).expect("it reads");
    // It gets a hello and an echo request, then the connection ends.
    let said = listen(&mut silent);
    assert_eq!(last(&said).0.kind, 2);
    wait("it counts as broken", || bench.counters.snapshot().sessions_broken == 1);
    assert_eq!(bench.counters.snapshot().echoes_missed, 1);
    unharmed(&bench);
}

#[test]
fn connections_without_number_give_way_to_each_other() {
    let options = ControlOptions { connections: 8, handshake: UNHURRIED, ..patient() };
    let bench = forwarding(options);
    let all: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(bench.address).expect("it listens")).collect();
    let counted = || bench.counters.snapshot();
    wait("all are accepted", || counted().connections_opened == 200);
    // None of them says hello: each is displaced, or its time is over.
    wait("all are closed", || counted().connections == 0);
    wait("and counted", || counted().sessions_broken == 200);
    let end = counted();
    assert!(end.connections_displaced + end.hellos_missed >= 200, "{end:?}");
    assert!(end.hellos_missed > 0 && end.connections_displaced > 0, "{end:?}");
    assert_eq!((end.connections_refused, end.sessions_broken), (0, 200));
    drop(all);
    unharmed(&bench);
}

#[test]
fn a_flood_of_rules_ends_at_the_limit_while_frames_are_forwarded() {
    let setup = overbank_ofctl::Setup::default();
    let control = overbank_ofctl::rules::ControlConfig { rules_max: 2000, ..setup.control };
    let setup = overbank_ofctl::Setup { control, megaflows: 1024, ..setup };
    let _turn = turn();
    let bench = Bench::of(setup, &[busy(), quiet()], patient(), vec![]);
    let mut client = Client::connect(bench.address, Version::V13);
    client.done(&Message::FlowMod(add(0, OxmMatch::of_port(1), vec![output(2)])));
    let mut bytes = Vec::new();
    for priority in 1..=6000 {
        let flow = add(priority, OxmMatch::of_port(2), vec![output(1)]);
        Message::FlowMod(flow).encode(Version::V13, priority.into(), &mut bytes).expect("it fits");
    }
    let mut writer = client.stream.try_clone().expect("a socket");
    let thread = std::thread::spawn(move || writer.write_all(&bytes).expect("it reads"));
    let mut refused = 0;
    while refused < 4001 {
        let (_, message) = client.try_next(PATIENCE).expect("errors");
        assert!(matches!(message, Message::Error(_)), "{message:?}");
        refused += 1;
    }
    thread.join().expect("written");
    assert_eq!(bench.handle().lock().tables().len(), 2000);
    unharmed(&bench);
}
