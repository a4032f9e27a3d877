//! The Ethernet switch: whole, with threads and queues. What it decides is compared with a naive
//! twin in `l2/tests.rs` of the crate.

use crate::common::{closed, frame, mac, number_of, quiet, wait};
use overbank::fib::{MacAddr, MacVlan};
use overbank::memory::Pages;
use overbank_bridge::{BridgeControl, Setup, listing, start};
use overbank_ports::FrameStore;
use overbank_ports::looped::{MemoryHandle, MemoryOptions, MemoryPort};
use overbank_runtime::status::StatusOf;
use overbank_runtime::{ConfiguredPort, Control as _, Options, PortDesc};
use overbank_stations::Limits;
use std::sync::Arc;

fn setup(workers: usize) -> Setup {
    let run = Options { workers, ..Options::default() };
    Setup { run, seed: 1, ..Setup::default() }
}

fn seen(handle: &MemoryHandle) -> Vec<u64> {
    handle.take_sent().iter().map(|frame| number_of(frame)).collect()
}

/// With a VLAN tag.
fn tagged(mut frame: Vec<u8>, vlan: u16) -> Vec<u8> {
    let [high, low] = vlan.to_be_bytes();
    frame.splice(12..12, [0x81, 0, high, low]);
    frame
}

fn dropped(status: &StatusOf<BridgeControl>, port: usize, reason: &str) -> u64 {
    status.ports[port].dropped.of(reason)
}

#[test]
fn learns_floods_moves_and_tells_vlans_apart() {
    let (ports, handles) = quiet(3, 2);
    let switch = start(&setup(2), ports).expect("started");
    let stations = |n| wait("stations", || switch.status().control.stations.totals.stations == n);
    let flooded = |n| wait("flooded", || switch.status().total.engine.flooded == n);
    let sent = |n| wait("sent", || switch.status().ports.iter().map(|p| p.sent).sum::<u64>() == n);
    handles[0].inject(&frame(mac(1), mac(2), 5, 1));
    stations(1);
    flooded(1);
    sent(2);
    assert_eq!(
        (seen(&handles[0]), seen(&handles[1]), seen(&handles[2])),
        (vec![], vec![1], vec![1])
    );
    handles[1].inject(&frame(mac(2), mac(1), 5, 2));
    stations(2);
    wait("only to the known port", || seen(&handles[0]) == [2]);
    // The same addresses in a VLAN are other stations.
    handles[2].inject(&tagged(frame(mac(1), mac(2), 5, 3), 10));
    stations(3);
    flooded(2);
    wait("flooded", || seen(&handles[0]) == [3]);
    wait("flooded", || seen(&handles[1]) == [3]);
    handles[1].inject(&tagged(frame(mac(2), mac(1), 5, 4), 10));
    stations(4);
    wait("to port 3, in the VLAN", || seen(&handles[2]) == [4]);
    // Station 1 goes to port 3; what is for it follows.
    handles[2].inject(&frame(mac(1), mac(2), 5, 5));
    wait("moved", || switch.status().control.stations.macs.moved == 1);
    wait("to port 2", || seen(&handles[1]) == [5]);
    handles[1].inject(&frame(mac(2), mac(1), 5, 6));
    wait("to port 3", || seen(&handles[2]) == [6]);
    let list = |text: &str| listing(switch.handle(), text);
    let vlan = list("fdb vlan=10 port=3");
    let station = vlan.stations.first().expect("one of it");
    assert_eq!((vlan.known, vlan.stations.len(), vlan.more), (4, 1, false));
    assert_eq!((station.mac.as_str(), station.port, station.vlan), ("02:00:00:00:00:01", 3, 10));
    let (two, none) = (list("fdb most=2"), list("fdb most=many"));
    assert!(two.stations.len() == 2 && two.more && two.error.is_empty());
    assert!(none.stations.is_empty() && none.error.contains("most="), "{none:?}");
    assert_eq!(list("fdb mac=02:00:00:00:00:02").stations.len(), 2);
    let status = switch.stop();
    closed(&status);
    assert_eq!((status.total.packets, status.total.engine.flooded), (6, 2));
    assert_eq!(status.control.stations.macs.learned, 4);
}

#[test]
fn packets_without_output_have_a_named_reason() {
    let mut setup = setup(2);
    setup.isolated = vec![1, 2];
    setup.statics = vec![(MacVlan::new(mac(7), 0), 3), (MacVlan::new(mac(8), 0), 2)];
    let (ports, handles) = quiet(3, 2);
    let switch = start(&setup, ports).expect("started");
    let reason = |port: usize, reason: &str| {
        wait(reason, || dropped(&switch.status(), port, reason) == 1);
    };
    handles[0].inject(&[2; 13]);
    reason(0, "truncated_ethernet");
    handles[0].inject(&frame([3, 0, 0, 0, 0, 1], mac(7), 5, 1));
    reason(0, "bad_source");
    // Station 7 stays behind port 3, whatever source addresses claim.
    handles[0].inject(&frame(mac(7), mac(9), 5, 2));
    reason(0, "static_elsewhere");
    handles[0].inject(&frame(mac(1), [1, 0x80, 0xc2, 0, 0, 0], 5, 3));
    reason(0, "reserved_address");
    wait("learnt from it", || switch.status().control.stations.totals.stations == 3);
    handles[0].inject(&frame(mac(2), mac(1), 5, 4));
    reason(0, "same_port");
    // Ports 1 and 2 are isolated: neither what is known nor what is flooded goes across.
    handles[0].inject(&frame(mac(1), mac(8), 5, 5));
    reason(0, "isolated");
    handles[0].inject(&frame(mac(1), [0xff; 6], 5, 6));
    wait("flooded to port 3", || seen(&handles[2]) == [6]);
    // From and to a port that is not isolated all is well.
    handles[0].inject(&frame(mac(1), mac(7), 5, 7));
    wait("to port 3", || seen(&handles[2]) == [7]);
    handles[2].inject(&frame(mac(7), [0xff; 6], 5, 8));
    wait("to port 1", || seen(&handles[0]) == [8]);
    wait("and to port 2", || seen(&handles[1]) == [8]);
    let status = switch.stop();
    closed(&status);
    let one = &status.ports[0];
    assert_eq!((one.received, one.forwarded, one.dropped.iter().count()), (8, 2, 6), "{one:?}");
    assert_eq!(
        (status.control.stations.totals.stations_static, status.control.stations.macs.moved),
        (2, 0)
    );
    // Alone, it has no port to flood to.
    let (ports, handles) = quiet(1, 1);
    let switch = start(&self::setup(1), ports).expect("started");
    handles[0].inject(&frame(mac(1), mac(2), 5, 1));
    wait("no port", || dropped(&switch.status(), 0, "no_port") == 1);
    closed(&switch.stop());
}

#[test]
fn a_port_that_goes_down_is_flushed() {
    let (ports, handles) = quiet(3, 1);
    let switch = start(&setup(1), ports).expect("started");
    for n in 1..=6 {
        handles[usize::from(n) % 3].inject(&frame(mac(n), [0xff; 6], 5, 0));
    }
    wait("stations", || switch.status().control.stations.totals.stations == 6);
    let handle = switch.handle().clone();
    let desc = handle.lock().publisher().ports()[1].clone();
    handle.port_changed(1, PortDesc { link_up: false, ..desc }, false);
    let status = switch.status();
    assert_eq!(
        (status.control.stations.totals.stations, status.control.stations.macs.flushed),
        (4, 2)
    );
    // The port is watched: it is up, and soon it is said to be.
    wait("learnt again", || {
        handles[1].inject(&frame(mac(1), [0xff; 6], 5, 0));
        switch.status().control.stations.totals.stations == 5
    });
    closed(&switch.stop());
}

#[test]
fn a_table_larger_than_the_memory_is_refused() {
    let mut setup = setup(1);
    // 13.5 bytes each: 30 TiB.
    setup.mac = Limits { entries_max: 2_500_000_000_000, ..Limits::default() };
    let (ports, _) = quiet(1, 1);
    let error = start(&setup, ports).err().expect("there is no such machine").to_string();
    assert!(error.starts_with("mac-entries: 2500000000000 stations take "), "{error}");
}

/// Each with a table of 13 MiB. Of 1 GiB pages a machine may have some; without, nothing starts.
#[test]
fn the_status_says_on_which_pages_the_table_lies() {
    let start = |pages| {
        let mut setup = setup(1);
        setup.mac = Limits { entries_max: 1_000_000, pages, ..Limits::default() };
        let (ports, _) = quiet(1, 1);
        start(&setup, ports).map(|switch| switch.stop().control.stations.stations_pages.clone())
    };
    assert_eq!(start(Pages::Small).expect("always"), "small");
    let huge = start(Pages::Huge).expect("always");
    assert!(["small", "partly", "huge"].contains(&huge.as_str()), "{huge}");
    match start(Pages::Gigabyte { required: true }) {
        Ok(pages) => assert_eq!(pages, "1g"),
        Err(error) => {
            let error = error.to_string();
            assert!(error.starts_with("mac-pages: no 1 GiB pages for a table of "), "{error}");
        }
    }
}

#[test]
fn a_silent_station_ages() {
    let mut setup = setup(1);
    setup.mac = Limits { age_s: 1, ..Limits::default() };
    let (ports, handles) = quiet(2, 1);
    let switch = start(&setup, ports).expect("started");
    handles[0].inject(&frame(mac(1), mac(3), 5, 0));
    wait("learnt", || switch.status().control.stations.macs.learned == 1);
    let known = |n| listing(switch.handle(), &format!("fdb mac={}", MacAddr::from(mac(n))));
    wait("aged", || {
        // Station 2 is heard of all the time, and stays; on a machine that forgets us for a second,
        // it is learnt again. That it stays is shown without a clock, in `l2/stations/tests.rs`.
        handles[1].inject(&frame(mac(2), mac(3), 5, 0));
        known(1).stations.is_empty() && known(2).stations.len() == 1
    });
    let status = switch.stop();
    let macs = &status.control.stations.macs;
    assert_eq!(macs.learned, macs.aged + status.control.stations.totals.stations, "{macs:?}");
    assert!(macs.aged > 0 && macs.refreshed > 0, "{macs:?}");
    closed(&status);
}

/// One port invents sources as fast as it can; what is for known stations goes where it shall, and
/// to no other port.
#[test]
fn a_flood_of_invented_sources_fills_the_table_and_nothing_else() {
    const FRAMES: u64 = 400_000;
    let workers = 2;
    let mut store = FrameStore::new();
    for n in 0..50_000u32 {
        let [a, b, c, d] = n.to_be_bytes();
        // Flows differ, so that both workers have some.
        let invented = frame([0x0a, 0, a, b, c, d], mac(2), n as u16 | 1, 1);
        store.push(&invented, 0, 0).expect("room");
    }
    let flood =
        MemoryPort::from_store(Arc::new(store), &MemoryOptions::default(), "flood", workers);
    let (mut ports, handles) = quiet(3, workers);
    ports[0] = ConfiguredPort { number: 1, spec: None, port: Some(Box::new(flood)) };
    let mut setup = setup(workers);
    setup.mac = Limits { entries_max: 300, queue: 16, learn_per_s: 1000, ..Limits::default() };
    setup.statics = vec![(MacVlan::new(mac(2), 0), 2)];
    let switch = start(&setup, ports).expect("started");
    // While it lasts, a station behind port 3 is learnt; port 3 is under its share.
    wait("learnt", || {
        handles[2].inject(&frame(mac(3), mac(2), 5, 77));
        switch.handle().lock().stations().list(1, |e| e.key.mac() == mac(3)).1 == 1
    });
    for number in 100..200 {
        handles[1].inject(&frame(mac(2), mac(3), 5, number));
    }
    // The flood lasts for as long as it takes.
    wait("a full table, and no more to be told of", || {
        let StatusOf::<BridgeControl> { ports, control, total, .. } = switch.status();
        ports[0].received > FRAMES
            && control.stations.totals.stations == 301
            && control.stations.macs.refused > 0
            && total.engine.learn_limited > FRAMES / 2
    });
    wait("what was for station 3", || switch.status().ports[1].received == 100);
    let status = switch.stop();
    closed(&status);
    assert_eq!(seen(&handles[2]), (100..200).collect::<Vec<u64>>(), "no frame of the flood");
    let [flood, two, ..] = &status.ports[..] else { panic!("three ports") };
    assert_eq!((flood.forwarded, flood.dropped.total()), (flood.received, 0), "{flood:?}");
    assert!(two.outputs > FRAMES, "{two:?}");
    let control = &status.control;
    assert_eq!(
        (control.stations.totals.stations, control.stations.totals.stations_static),
        (301, 1),
        "{control:?}"
    );
    assert_eq!(control.stations.macs.moved, 0);
}
