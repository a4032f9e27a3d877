//! What befalls a server, a connection to it or its values, while keys are hot.

use crate::common::until;
use crate::servers::{Connection, World, binary};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

const FLAGS: [(&str, &str); 2] = [("staleness-max", "0.5"), ("max-age", "none")];

#[test]
fn a_server_that_comes_back_empty() {
    let Some(mut world) = World::start(&FLAGS) else { return };
    for _ in 0..3 {
        let mut client = world.client();
        client.set("k", "one");
        world.hot(&mut client, "get k");
        let connects = world.running.handle().totals().1.connects;
        world.server.restart();
        // The client's connection ends with the server's.
        assert!(client.read().is_empty());
        let mut client = world.client();
        until("it is followed again", || {
            world.is_open() && world.running.handle().totals().1.connects > connects
        });
        assert_eq!(client.ask("get k"), "END\r\n");
        assert_eq!(world.hot(&mut client, "get k"), "END\r\n");
    }
    world.stop();
}

#[test]
fn a_server_that_stops_for_longer_than_the_lease() {
    let Some(world) = World::start(&FLAGS) else { return };
    let mut client = world.client();
    client.set("k", "one");
    world.hot(&mut client, "get k");
    world.server.signal("-STOP");
    std::thread::sleep(Duration::from_millis(1000));
    assert!(!world.is_open(), "the lease is over");
    let before = world.settled();
    client.send("get k\r\n");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(world.settled(), before, "a hit without a lease");
    world.server.signal("-CONT");
    assert_eq!(client.reply(), b"VALUE k 0 3\r\none\r\nEND\r\n");
    world.hot(&mut client, "get k");
}

#[test]
fn flushes_through_the_proxy_are_seen_at_once() {
    let Some(world) = World::start(&FLAGS) else { return };
    let mut client = world.client();
    for flush in ["flush_all\r\n", "flush_all noreply\r\n", "flush_all 0\r\n"] {
        client.set("k", "one");
        world.hot(&mut client, "get k");
        client.send(flush);
        if !flush.contains("noreply") {
            assert_eq!(client.reply(), b"OK\r\n");
        }
        assert_eq!(client.ask("get k"), "END\r\n", "{flush}");
    }
    let mut other = world.client();
    client.set("k", "one");
    world.hot(&mut client, "get k");
    other.send(binary(0x18, 7, b"", b"", b""));
    other.send(binary(0x0a, 7, b"", b"", b""));
    assert_eq!(other.reply()[1], 0x0a);
    assert_eq!(client.ask("get k"), "END\r\n");
    world.stop();
}

/// A write whose client leaves before the answer is done, and seen.
#[test]
fn clients_that_leave_with_writes_on_their_way() {
    let Some(world) = World::start(&FLAGS) else { return };
    let mut client = world.client();
    for round in 0..50 {
        let value = format!("value-{round}");
        world.hot(&mut client, "get k");
        let mut gone = world.client();
        let tail = if round % 2 == 0 { " noreply" } else { "" };
        gone.send(format!("set k 0 0 {}{tail}\r\n{value}\r\n", value.len()));
        drop(gone);
        until("it is seen", || client.ask("get k").contains(&value));
    }
    // In the middle of a value.
    let mut gone = world.client();
    gone.send("set k 0 0 500000\r\n");
    gone.send(vec![b'x'; 200_000]);
    drop(gone);
    world.hot(&mut client, "get k");
    drop(client);
    let totals = world.stop();
    assert_eq!(totals.clients, 0);
}

/// Reads up to the end.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

#[test]
fn a_client_that_says_no_more_gets_all_replies() {
    let Some(world) = World::start(&[]) else { return };
    let mut warm = world.client();
    warm.set("k", "one");
    world.hot(&mut warm, "get k");
    for count in [1, 1000] {
        let mut stream = world.client().stream;
        let asked = "get k\r\nmg none v q\r\nset other 0 0 1 noreply\r\nx\r\nget other\r\n";
        stream.write_all(asked.repeat(count).as_bytes()).expect("it is read");
        stream.shutdown(Shutdown::Write).expect("it is open");
        let reply = "VALUE k 0 3\r\none\r\nEND\r\nVALUE other 0 1\r\nx\r\nEND\r\n";
        assert_eq!(rest(&mut stream), reply.repeat(count).as_bytes());
    }
    drop(warm);
    world.stop();
}

/// Writes all requests before it reads a reply.
fn pipeline(world: &World, count: usize, request: &str, reply: &str) {
    let mut client = world.client();
    let mut writer = client.stream.try_clone().expect("a descriptor");
    let requests = request.repeat(count);
    let write = std::thread::spawn(move || writer.write_all(requests.as_bytes()));
    std::thread::sleep(Duration::from_millis(200));
    let mut left = reply.len() * count;
    while left > 0 {
        let some = client.read();
        assert!(!some.is_empty() && some.len() <= left);
        left -= some.len();
    }
    write.join().expect("no panic").expect("it is read");
    assert_eq!(client.ask("mn"), "MN\r\n");
}

#[test]
fn long_pipelines_and_long_values_pass() {
    let Some(world) = World::start(&[]) else { return };
    let mut client = world.client();
    client.set("k", "one");
    world.hot(&mut client, "get k");
    pipeline(&world, 100_000, "get k\r\n", "VALUE k 0 3\r\none\r\nEND\r\n");
    pipeline(&world, 100_000, "set k 0 0 3\r\none\r\n", "STORED\r\n");
    pipeline(&world, 100_000, "set k 0 0 3 noreply\r\none\r\n", "");
    pipeline(&world, 100_000, "mg none v q\r\n", "");
    pipeline(&world, 100_000, "mg k v q\r\nmn\r\n", "VA 3\r\none\r\nMN\r\n");
    let value = "v".repeat(1_000_000);
    for _ in 0..5 {
        client.set("big", &value);
        let reply = format!("VALUE big 0 {}\r\n{value}\r\nEND\r\n", value.len());
        (0..5).for_each(|_| assert!(client.ask("get big") == reply, "another value"));
    }
    // The server refuses this one, and reads it nevertheless.
    let value = "v".repeat(3_000_000);
    let refused = client.ask(&format!("set big 0 0 {}\r\n{value}", value.len()));
    assert_eq!(refused, "SERVER_ERROR object too large for cache\r\n");
    assert_eq!(client.ask("mn"), "MN\r\n");
    drop(client);
    let totals = world.stop();
    assert!(totals.hits > 10_000, "{totals:?}");
}

#[test]
fn a_value_longer_than_the_limit_is_not_cached() {
    let Some(world) = World::start(&[("value-max", "1000")]) else { return };
    let mut client = world.client();
    client.set("short", &"v".repeat(1000));
    client.set("long", &"v".repeat(1001));
    world.hot(&mut client, "get short");
    let before = world.settled();
    (0..300).for_each(|_| drop(client.ask("get long")));
    assert_eq!(world.settled(), before);
}

#[test]
fn what_is_no_request_gets_an_error_and_harms_no_others() {
    let Some(world) = World::start(&[]) else { return };
    let mut client = world.client();
    client.set("k", "one");
    world.hot(&mut client, "get k");
    let long = "k".repeat(251);
    let mut direct = world.server.connect();
    for line in [
        format!("get {long}"),
        format!("mg {long} v"),
        format!("set {long} 0 0 1\r\nx"),
        "set k".to_owned(),
        "set k 0 0 -1".to_owned(),
        "mg k v v".to_owned(),
        "mg k".to_owned(),
        "ms k x".to_owned(),
    ] {
        assert_eq!(client.ask(&line), direct.ask(&line), "{line}");
        // Behind the line of a value that was not read.
        client.send("mn\r\n");
        while client.reply() != b"MN\r\n" {}
        direct.send("mn\r\n");
        while direct.reply() != b"MN\r\n" {}
    }
    for bytes in [&b"get a\0\r\n"[..], &[b'x'; 70_000], b"\x80\x01", &[0x80; 100]] {
        let mut stream = world.client().stream;
        // It may be closed meanwhile.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        rest(&mut stream);
    }
    let random = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u8;
    for round in 0..200 {
        let bytes: Vec<u8> = (0..500).map(|at| random(round * 500 + at)).collect();
        let mut gone = world.client();
        let _ = gone.stream.write_all(&bytes);
    }
    assert!(!world.running.is_broken());
    world.hot(&mut client, "get k");
}

/// Lines without an end reach a watcher, and others get their hits.
#[test]
fn a_watcher_gets_its_lines() {
    let Some(world) = World::start(&[]) else { return };
    let (mut client, mut watcher) = (world.client(), world.client());
    client.set("k", "one");
    world.hot(&mut client, "get k");
    watcher.send("watch mutations\r\n");
    let (mut seen, start) = (Vec::new(), Instant::now());
    while !String::from_utf8_lossy(&seen).contains("item_store") {
        assert!(start.elapsed() < Duration::from_secs(20));
        client.set("other", "x");
        watcher.stream.set_read_timeout(Some(Duration::from_millis(100))).expect("an option");
        let mut bytes = [0; 1000];
        if let Ok(count) = watcher.stream.read(&mut bytes) {
            seen.extend(&bytes[..count]);
        }
    }
    world.hot(&mut client, "get k");
}

#[test]
fn many_clients_come_and_go() {
    let Some(world) = World::start(&[("workers", "2")]) else { return };
    let mut clients: Vec<Connection> = (0..300).map(|_| world.client()).collect();
    for client in &mut clients {
        assert!(client.ask("version").starts_with("VERSION "));
        assert!(client.ask("stats").ends_with("END\r\n"));
    }
    drop(clients);
    until("they are gone", || world.totals().clients == 0);
    world.stop();
}
