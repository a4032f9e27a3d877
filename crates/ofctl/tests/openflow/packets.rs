//! Packets to controllers and from them, and their buffers.

use overbank_ofctl::Setup;
use overbank_openflow::{
    BUFFER_NONE, BadRequest, Message, OxmMatch, PacketInReason, Version, consts::port,
};
use overbank_runtime::Options;

use super::bench::{Bench, frame, patient, quiet, wait};
use super::client::{Client, add, output, packet_in, packet_out, to_controller};

#[test]
fn packets_come_in_with_buffers_and_leave_from_them() {
    let bench = Bench::new(3);
    let mut client = Client::connect(bench.address, Version::V13);
    client.done(&to_controller(20));
    let sent = frame(1, 2, &[0x5a; 100]);
    bench.ports[0].inject(&sent);
    let packet = packet_in(&mut client);
    assert_eq!(packet.data, &sent[..20]);
    assert_eq!(usize::from(packet.total_len), sent.len());
    assert_eq!((packet.reason, packet.table, packet.cookie), (PacketInReason::TableMiss, 0, 0));
    assert_eq!(packet.matching.in_port(), Some(1));
    assert_ne!(packet.buffer_id, BUFFER_NONE);
    assert_eq!(bench.counters.snapshot().buffers_in_use, 1);
    // Another session has separate buffers.
    let mut other = Client::connect(bench.address, Version::V13);
    let stolen = other.refused(&packet_out(packet.buffer_id, 1, 2, vec![]));
    assert_eq!(stolen, BadRequest::BufferUnknown.into());

    client.done(&packet_out(packet.buffer_id, 1, 2, vec![]));
    assert_eq!(bench.sent(2, 1), std::slice::from_ref(&sent));
    let again = client.refused(&packet_out(packet.buffer_id, 1, 2, vec![]));
    assert_eq!(again, BadRequest::BufferEmpty.into());
    assert_eq!(bench.counters.snapshot().buffers_in_use, 0);

    // A flow-mod sends the packet through the tables as they are then.
    bench.ports[0].inject(&sent);
    let packet = packet_in(&mut client);
    let mut flow = add(9, OxmMatch::of_port(1), vec![output(3)]);
    flow.buffer_id = packet.buffer_id;
    client.done(&Message::FlowMod(flow.clone()));
    assert_eq!(bench.sent(3, 1), std::slice::from_ref(&sent));
    // The rule stands, also if its buffer is gone.
    flow.priority = 10;
    assert_eq!(client.refused(&Message::FlowMod(flow)), BadRequest::BufferEmpty.into());
    assert_eq!(client.flows().len(), 3);

    // Whole frames need no buffer.
    client.done(&to_controller(0xffff));
    bench.ports[1].inject(&sent);
    let packet = packet_in(&mut client);
    assert_eq!((packet.buffer_id, packet.data), (BUFFER_NONE, sent));
    assert_eq!(packet.matching.in_port(), Some(2));
}

#[test]
fn packets_of_a_controller_leave_by_ports_and_go_through_the_tables() {
    let bench = Bench::with(
        "priority=5,in_port=2,actions=output:3\npriority=4,actions=output:1",
        &vec![quiet(); 3],
        patient(),
        vec![],
    );
    let mut client = Client::connect(bench.address, Version::V15);
    let data = frame(1, 2, b"hello");
    client.done(&packet_out(BUFFER_NONE, port::CONTROLLER, 2, data.clone()));
    assert_eq!(bench.sent(2, 1), std::slice::from_ref(&data));
    client.done(&packet_out(BUFFER_NONE, 2, port::TABLE, data.clone()));
    assert_eq!(bench.sent(3, 1), std::slice::from_ref(&data));
    client.done(&packet_out(BUFFER_NONE, port::CONTROLLER, port::TABLE, data.clone()));
    assert_eq!(bench.sent(1, 1), std::slice::from_ref(&data));
    client.done(&packet_out(BUFFER_NONE, 1, port::FLOOD, data.clone()));
    assert_eq!((bench.sent(2, 1).len(), bench.sent(3, 1).len()), (1, 1));
    assert_eq!(bench.ports[0].take_sent().len(), 0, "not back where it came from");
    client.done(&packet_out(BUFFER_NONE, 1, port::IN_PORT, data.clone()));
    assert_eq!(bench.sent(1, 1), [data]);
    assert_eq!(bench.counters.snapshot().packet_outs, 5);
}

#[test]
fn packets_of_a_controller_wait_in_a_bounded_queue() {
    let run = Options { orders: 1, ..Options::default() };
    let setup = Setup { run, ..Setup::default() };
    let bench = Bench::of(setup, &[quiet(), quiet()], patient(), vec![]);
    let mut client = Client::connect(bench.address, Version::V13);
    let mut sent = 0;
    // Whether one comes before the worker has taken the last is up to the threads: until one has.
    wait("a frame finds the queue full", || {
        for i in 0..500 {
            let data = frame(1, 2, &u16::to_be_bytes(i));
            client.send(&packet_out(BUFFER_NONE, port::CONTROLLER, 2, data));
        }
        sent += 500;
        client.done(&Message::EchoReply(vec![]));
        bench.counters.snapshot().packet_outs_waited > 0
    });
    let counted = bench.counters.snapshot();
    assert_eq!(counted.packet_outs + counted.packet_outs_dropped, sent);
    // Workers tell their counts from time to time.
    wait("every frame that was not dropped is received", || {
        let status = bench.switch().status();
        status.ports.last().map(|port| port.received) == Some(counted.packet_outs)
    });
}
