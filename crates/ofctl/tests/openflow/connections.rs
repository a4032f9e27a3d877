//! Connections: made, accepted, refused, lost and made again.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use overbank_ofctl::sessions::ControlOptions;
use overbank_ofctl::target::Target;
use overbank_openflow::{Message, Version};

use super::bench::{Bench, own_address, patient, quiet, wait};
use super::client::Client;

#[test]
fn the_switch_connects_to_a_controller_and_again_when_it_returns() {
    let listener = TcpListener::bind((own_address(), 0)).expect("a port");
    let address = listener.local_addr().expect("bound");
    let options = ControlOptions {
        backoff: (Duration::from_millis(10), Duration::from_millis(40)),
        ..patient()
    };
    let target = Target::Connect { host: address.ip().to_string(), port: address.port() };
    let bench = Bench::with("", &[quiet()], options, vec![target]);
    for _ in 0..2 {
        let (stream, _) = listener.accept().expect("it comes");
        let mut client = Client::greet(stream, Version::V13);
        assert_eq!(client.ask(&Message::BarrierRequest), Message::BarrierReply);
        wait("it counts as connected", || bench.handle().lock().controllers() == 1);
    }
    drop(listener);
    wait("attempts that fail", || bench.counters.snapshot().connects_failed >= 3);
    wait("it counts as away", || bench.handle().lock().controllers() == 0);
    let listener = TcpListener::bind(address).expect("the same port");
    let (stream, _) = listener.accept().expect("it comes back");
    drop(Client::greet(stream, Version::V15));
}

#[test]
fn unix_sockets_serve_both_ways_and_leave_no_file() {
    use std::io::Read;
    use std::os::unix::net::{UnixListener, UnixStream};
    let folder = tempfile::tempdir().expect("a folder");
    let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
    // A file that a killed switch left.
    drop(UnixListener::bind(&ours).expect("a socket"));
    let listener = UnixListener::bind(&theirs).expect("a socket");
    let targets = vec![Target::UnixListen(ours.clone()), Target::UnixConnect(theirs)];
    let bench = Bench::with("", &[quiet()], patient(), targets);
    let mut accepted = listener.accept().expect("it comes").0;
    let mut connected = UnixStream::connect(&ours).expect("it listens");
    for stream in [&mut accepted, &mut connected] {
        let mut hello = [0; 8];
        stream.read_exact(&mut hello).expect("a hello");
        assert_eq!(hello[..2], [6, 0]);
    }
    drop((accepted, connected, bench));
    assert!(!ours.exists());
}

#[test]
fn a_target_that_cannot_be_had_is_an_error_at_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let bench = Bench::new(1);
    let target = Target::Listen(taken.local_addr().expect("bound"));
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    let served = overbank_ofctl::sessions::serve(
        vec![target],
        bench.handle(),
        ControlOptions::default(),
        stopped,
    );
    let error = bench.runtime.block_on(served).expect_err("taken").to_string();
    assert!(error.starts_with("cannot listen on ptcp:"), "{error}");
}

#[test]
fn too_many_connections_are_closed_and_counted() {
    let options = ControlOptions { connections: 2, ..patient() };
    let bench = Bench::with("", &[quiet()], options, vec![]);
    let mut one = Client::connect(bench.address, Version::V13);
    let mut two = Client::connect(bench.address, Version::V13);
    for client in [&mut one, &mut two] {
        assert_eq!(client.ask(&Message::BarrierRequest), Message::BarrierReply);
    }
    let stream = TcpStream::connect(bench.address).expect("it listens");
    wait("the third is refused", || bench.counters.snapshot().connections_refused == 1);
    drop((stream, one));
    wait("the first has left", || bench.counters.snapshot().connections == 1);
    let mut three = Client::connect(bench.address, Version::V13);
    for client in [&mut two, &mut three] {
        assert_eq!(client.ask(&Message::BarrierRequest), Message::BarrierReply);
    }
}

#[test]
fn silent_connections_lock_no_controller_out() {
    let options = ControlOptions { connections: 3, ..patient() };
    let bench = Bench::with("", &[quiet()], options, vec![]);
    let counted = || bench.counters.snapshot();
    let silent: Vec<TcpStream> =
        (0..3).map(|_| TcpStream::connect(bench.address).expect("it listens")).collect();
    wait("they have all seats", || counted().connections == 3);
    let mut clients: Vec<Client> =
        (0..3).map(|_| Client::connect(bench.address, Version::V13)).collect();
    for client in &mut clients {
        assert_eq!(client.ask(&Message::BarrierRequest), Message::BarrierReply);
    }
    assert_eq!((counted().connections_displaced, counted().connections_refused), (3, 0));
    wait("the silent ones are closed", || counted().connections == 3);
    // Those that said hello keep their seats.
    let late = TcpStream::connect(bench.address).expect("it listens");
    wait("the next is refused", || counted().connections_refused == 1);
    for client in &mut clients {
        assert_eq!(client.ask(&Message::BarrierRequest), Message::BarrierReply);
    }
    drop((silent, late));
}
