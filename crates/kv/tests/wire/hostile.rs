//! A client beside servers that answer with anything.

use crate::agent;
use overbank_kv::client::{Client, Error, Outcome, Request};
use overbank_kv::key;
use overbank_netcache::Protocol;
use overbank_netcache::agent::Settings;
use overbank_netcache::client::{GIVE_UP_US, TRIES_MAX};
use overbank_wire::netcache::{FLAG_BYPASS, Message, Op, Stamp, Status};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Answers each message by `answer`, which gets the socket and the source; ends with the test.
fn server(
    mut answer: impl FnMut(&UdpSocket, SocketAddr, &Message<'_>) + Send + 'static,
) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free address");
    let address = socket.local_addr().expect("bound");
    std::thread::spawn(move || {
        let mut room = [0; 4096];
        while let Ok((len, from)) = socket.recv_from(&mut room) {
            answer(&socket, from, &Message::parse(&room[..len]).expect("a client's message"));
        }
    });
    address
}

fn say(socket: &UdpSocket, to: SocketAddr, message: &Message<'_>) {
    let mut room = [0; 4096];
    let len = message.emit(&mut room).expect("room");
    socket.send_to(&room[..len], to).expect("sent");
}

#[test]
fn only_the_right_answer_counts() {
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a free address");
    let heard = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&heard);
    let server = server(move |socket, from, said| {
        // More than once for a request if this machine is slow.
        counter.fetch_add(1, Ordering::Relaxed);
        let good = Message { value: b"good", ..said.answer(Op::GetOk, Status::Ok) };
        let bad = Message { value: b"bad", ..good };
        say(&stranger, from, &bad);
        say(socket, from, &Message { client: said.client ^ 1, ..bad });
        say(socket, from, &Message { request: said.request + 1000, ..bad });
        say(socket, from, &Message { request: u64::MAX, ..bad });
        say(socket, from, &Message { key: said.key ^ 1, ..bad });
        say(socket, from, &said.answer(Op::WriteOk, Status::Ok));
        say(socket, from, &said.answer(Op::Error, Status::Ok));
        socket.send_to(b"no message", from).expect("sent");
        socket.send_to(&[0x4e; 4000], from).expect("sent");
        say(socket, from, &good);
        say(socket, from, &good);
    });
    let mut client = Client::new(&[server]).expect("a socket");
    for _ in 0..100 {
        assert_eq!(client.get(b"key").expect("an answer").as_deref(), Some(&b"good"[..]));
    }
    // What the last request left unread.
    let heard = || heard.load(Ordering::Relaxed);
    let until = Instant::now() + Duration::from_secs(10);
    while client.totals().received < 11 * heard() && Instant::now() < until {
        assert!(client.poll(Duration::from_millis(1)).expect("a socket").is_none());
        std::thread::yield_now();
    }
    let (totals, heard) = (client.totals(), heard());
    // Eight of each time are messages of the server, and one ended each request. Why another does
    // not count depends on whether its request has ended.
    let [closed, client, key, kind] = totals.unmatched;
    assert_eq!(closed + client + key + kind, 8 * heard - 100, "{totals:?}");
    assert_eq!(client, heard, "{totals:?}");
    assert!((1..=100).contains(&key) && (1..=200).contains(&kind), "{totals:?}");
    if heard == 100 {
        assert_eq!([closed, key, kind], [300, 100, 200], "none was sent again: {totals:?}");
    }
    assert_eq!((totals.strangers, totals.malformed.iter().sum::<u64>()), (heard, 2 * heard));
}

#[test]
fn a_server_that_does_not_answer_is_given_up_after_the_time() {
    let (asked, heard) = std::sync::mpsc::channel();
    let server = server(move |_, _, said| asked.send(said.request).expect("a test"));
    let mut client = Client::new(&[server]).expect("a socket");
    let start = Instant::now();
    let error = client.put(b"key", b"value").expect_err("no answer");
    assert!(matches!(error, Error::GaveUp { .. }) && error.to_string().contains("no answer"));
    assert!(start.elapsed() >= Duration::from_micros(GIVE_UP_US));
    let requests: Vec<u64> = heard.try_iter().collect();
    assert_eq!(requests, vec![1; TRIES_MAX as usize], "one request, as often as allowed");
    assert_eq!((client.in_flight(), client.totals().gave_up), (0, 1));
}

/// The same hash for all.
fn collide(_: &[u8]) -> [u8; 15] {
    [7; 15]
}

#[test]
fn keys_of_one_hash_never_get_the_value_of_the_other() {
    let (agent, _) = agent(Settings::DEFAULT);
    let server = [agent.handle().address()];
    let mut client = Client::with_hash(&server, collide).expect("a socket");
    let (first, second) = (b"a key of more than 16 bytes", b"another such key of as many bytes");
    client.put(first, b"1").expect("written");
    assert_eq!(client.get(first).expect("its own").as_deref(), Some(&b"1"[..]));
    assert!(matches!(client.get(second), Err(Error::Collision { .. })));
    client.put(second, b"2").expect("written");
    assert_eq!(client.get(second).expect("its own").as_deref(), Some(&b"2"[..]));
    assert!(matches!(client.get(first), Err(Error::Collision { .. })));
    client.put(b"short", b"3").expect("written");
    assert_eq!(client.get(b"short").expect("not hashed").as_deref(), Some(&b"3"[..]));
    client.delete(first).expect("both");
    assert_eq!(client.get(second).expect("an answer"), None);
    // What another program has stored under the name of a hash.
    let mut client = Client::new(&server).expect("a socket");
    client.put(first, b"1").expect("written");
    assert_eq!(client.get(first).expect("its own").as_deref(), Some(&b"1"[..]));
    assert_eq!(client.totals().collisions, 0);
}

#[test]
fn the_value_of_another_key_at_the_device_is_asked_for_around_it() {
    let stamp = Stamp { boot: 1, install: 2, writes: 3 };
    let server = server(move |socket, from, said| {
        let of_other = key::wrap(b"another key of its hash", b"wrong");
        let right = key::wrap(b"a key of more than 16 bytes", b"right");
        let answer = said.answer(Op::GetOk, Status::Ok);
        let answer = match said.flags {
            FLAG_BYPASS => Message { value: &right, ..answer },
            _ => Message { value: &of_other, stamp, ..answer },
        };
        say(socket, from, &answer);
    });
    let mut client = Client::new(&[server]).expect("a socket");
    let ticket = client.begin(Request::Get(b"a key of more than 16 bytes")).expect("room");
    let done = client.poll(Duration::MAX).expect("a socket").expect("an answer");
    assert_eq!((done.ticket, done.from_device), (ticket, false));
    assert_eq!(done.result.expect("a value"), Outcome::Read(Some(b"right".to_vec())));
    assert_eq!((client.totals().collisions, client.totals().begun), (1, 2));
}

#[test]
fn what_cannot_be_sent_is_refused_by_name() {
    let server: SocketAddr = "127.0.0.1:9".parse().expect("an address");
    let mut client = Client::new(&[server]).expect("a socket");
    let mut refused = |request| client.begin(request).expect_err("refused").to_string();
    let long = [b'x'; 1409];
    assert_eq!(refused(Request::Get(&long[..1025])), "a key of 1025 bytes: must have at most 1024");
    let text = "a value of 1409 bytes: must have at most 1408 under this key";
    assert_eq!(refused(Request::Put(b"key", &long)), text);
    let text = "a value of 1387 bytes: must have at most 1386 under this key";
    assert_eq!(refused(Request::Put(&[b'k'; 20], &long[..1387])), text);
    assert!(matches!(Client::new(&[]), Err(Error::NoServer)));
    for wrong in [&[server, server][..], &["0.0.0.0:9".parse().expect("an address")]] {
        assert!(matches!(Client::new(wrong), Err(Error::Address { .. })));
    }
    // Over IPv6, whose header is longer.
    let mut client = Client::new(&["[::1]:9".parse().expect("an address")]).expect("a socket");
    let error = client.begin(Request::Put(b"key", &long[..1401])).expect_err("refused");
    assert!(matches!(error, Error::ValueTooLong { max: 1400, .. }));
    // No more in flight than a server remembers; another call waits for room.
    let mut client = Client::new(&[server]).expect("a socket");
    let begun = (0..).map_while(|_| client.begin(Request::Get(b"key")).ok()).count();
    assert_eq!((begun, client.in_flight()), (1024, 1024));
    assert!(matches!(client.begin(Request::Get(b"key")), Err(Error::Full { .. })));
}

#[test]
fn both_families_reach_one_agent() {
    use overbank_kv::agent::{Running, Setup};
    use overbank_kv::store::Memory;
    let listen = "[::]:0".parse().expect("an address");
    let (machine, protocol) = (Settings::DEFAULT, Protocol::Stamps);
    let setup =
        Setup { listen, device: None, receive_bytes: 1 << 20, machine, protocol, rate: None };
    let agent = Running::start(&setup, |_| Ok(Box::new(Memory::new(1 << 20)))).expect("it starts");
    let port = agent.handle().address().port();
    let at = |ip: &str| SocketAddr::new(ip.parse().expect("an address"), port);
    let mut four = Client::new(&[at("127.0.0.1")]).expect("a socket");
    let mut six = Client::new(&[at("::1")]).expect("a socket");
    four.put(b"key", b"value").expect("written");
    assert_eq!(six.get(b"key").expect("an answer").as_deref(), Some(&b"value"[..]));
    let mut mapped = Client::new(&[at("::ffff:127.0.0.1")]).expect("a socket");
    assert_eq!(mapped.get(b"key").expect("an answer").as_deref(), Some(&b"value"[..]));
}
