//! A key's life: read, hot, cached, written, deleted, and what strangers cannot do to it.

use crate::world::{Way, World, wait};
use overbank_device::hot::Hot;
use overbank_wire::netcache::{Message, Op, PORT, Stamp};

const KEY: u128 = 0x0bad_cafe;

fn life(way: Way) {
    let mut world = World::new(way);
    let put = |world: &mut World, value: &[u8]| {
        assert_eq!(world.ask(Op::Put, KEY, value).op, Op::WriteOk);
    };
    put(&mut world, b"first");
    world.hits(KEY, Op::GetOk, b"first");
    let reads = world.server.reads;
    for _ in 0..10 {
        assert!(world.ask(Op::Get, KEY, &[]).by_device);
    }
    assert_eq!(world.server.reads, reads, "the server had none of them");
    // Whatever is written is what is read from then on, first by the server, then by the device.
    for value in [&b"second"[..], &[7; 128], b"", &[8; 3]] {
        put(&mut world, value);
        world.hits(KEY, Op::GetOk, value);
    }
    assert_eq!(world.ask(Op::Delete, KEY, &[]).op, Op::WriteOk);
    world.hits(KEY, Op::NotFound, b"");
    put(&mut world, b"third");
    world.hits(KEY, Op::GetOk, b"third");

    let hot = Hot::answer(world.running.handle(), "hot 5");
    assert_eq!((hot.error.as_str(), hot.cached, hot.keys.len()), ("", 1, 1));
    let key = &hot.keys[0];
    assert_eq!((key.key.as_str(), key.valid), ("0000000000000000000000000badcafe", true));
    assert_eq!((key.server.port, key.server.vlan, key.server.udp_port), (2, way.vlan, PORT));
    assert_eq!(key.server.mac, "02:00:00:00:00:02");

    // A stranger behind another port that knows the stamp.
    let stranger = way.end(3, PORT);
    let dropped = |world: &World, name| world.running.status().ports[2].dropped.of(name);
    let stamp = stamp_of(&world);
    let update = Message { stamp, value: b"forged", ..Message::new(Op::Update, 1, 1, KEY) };
    let fence = Message::new(Op::Fence, 1, 2, KEY);
    for (nth, message) in [(1, update), (2, fence)] {
        world.inject(2, &way.frame(&message, &stranger, &way.device()));
        wait("dropped", || dropped(&world, "wrong_port") == nth);
    }
    let adopt = Message { stamp, ..Message::new(Op::Adopt, 0, 0, KEY) };
    world.inject(2, &way.frame(&adopt, &stranger, &way.end(2, PORT)));
    wait("dropped", || dropped(&world, "forged") == 1);
    let hello = Message::new(Op::Hello, 0, 99, 0);
    world.inject(2, &way.frame(&hello, &stranger, &way.device()));
    wait("answered", || {
        let sent = world.ports[2].take_sent();
        sent.iter().any(|frame| frame[..6] == stranger.mac && frame.len() >= 94)
    });
    assert_eq!(stamp_of(&world), stamp, "nothing has changed");
    world.hits(KEY, Op::GetOk, b"third");
    assert_eq!(world.running.status().control.kv.cached, 1);

    // The server begins another run: its keys are evicted, and come back.
    world.server.restart(2);
    wait("the controller's word", || {
        world.server.turn();
        world.server.serves()
    });
    assert!(world.running.status().control.kv.evicted >= 1);
    put(&mut world, b"fourth");
    world.hits(KEY, Op::GetOk, b"fourth");

    wait("places given free", || world.running.status().control.kv.resting == 0);
    let status = world.running.stop();
    assert!(status.closes, "{:#?}", status.ports.iter().map(|p| p.totals).collect::<Vec<_>>());
    for port in &status.ports {
        let dropped = port.dropped.total();
        assert_eq!(port.received, port.forwarded + port.to_controller + dropped, "{}", port.name);
    }
    let (kv, engine) = (status.control.kv, status.total.engine);
    assert!(engine.kv_hits > 10 && engine.kv_writes > 3 && engine.kv_updates > 3);
    assert!(kv.installed >= 2 && kv.letters > 0, "{kv:?}");
}

/// The stamp of the key, from an answer of the device.
fn stamp_of(world: &World) -> Stamp {
    let control = world.running.handle().lock();
    let status = control.controller().table().status(KEY).expect("it is cached");
    status.stamp(crate::world::BOOT)
}

#[test]
fn a_key_is_cached_written_and_evicted_over_ip4() {
    life(Way { is_ip4: true, vlan: 0 });
}

#[test]
fn a_key_is_cached_written_and_evicted_over_ip6_in_a_vlan() {
    life(Way { is_ip4: false, vlan: 9 });
}
