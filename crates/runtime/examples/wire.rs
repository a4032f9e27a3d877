//! Runs a wire: frames from one port of a pair leave by the other, counted per EtherType.
//!
//! ```text
//!   port 1 ◀──▶ port 2      port 3 ◀──▶ port 4      a last port without a partner drops
//! ```
//!
//! Shows all that a new engine needs: a table of counters, a table of reasons, two traits. It also
//! shows the traffic between two interfaces without changing it:
//!
//! ```text
//! cargo run --release -p overbank-runtime --example wire -- afpacket:veth1 afpacket:veth2
//! ```

use overbank_declare::counters::{Exposition, Gauge};
use overbank_ports::PortSpec;
use overbank_runtime::{
    ConfiguredPort, Control, ControlStatus, Engine, Ingress, Options, Out, Parts, PortDesc,
    Publisher, Running, start,
};
use serde::Serialize;
use std::error::Error;
use std::io;
use std::time::Duration;

overbank_declare::counters! {
    pub struct WireTotals: "overbank_wire_" {
        ip4: counter packets "Frames with IPv4" as "frames" { ethertype = "ip4" } rate;
        ip6: counter packets "Frames with IPv6" as "frames" { ethertype = "ip6" } rate;
        arp: counter packets "Frames with ARP" as "frames" { ethertype = "arp" } rate;
        vlan: counter packets "Frames with a VLAN tag" as "frames" { ethertype = "vlan" } rate;
        other: counter packets "Other frames" as "frames" { ethertype = "other" } rate;
    }
}

overbank_reasons::reasons! {
    pub enum WireDrop {
        Runt = "runt", "frame shorter than an Ethernet header";
        NoPartner = "no_partner", "the last of an odd number of ports";
    }
}

pub struct Wire {
    ports: u16,
    totals: WireTotals,
}

impl Engine for Wire {
    type Snapshot = ();
    type Order = ();
    type Totals = WireTotals;
    type Drop = WireDrop;

    fn process(
        &mut self,
        burst: &[&[u8]],
        ingress: Ingress,
        _now_ms: u64,
        out: &mut Out<WireDrop>,
    ) {
        let partner = ingress.index ^ 1;
        for (index, frame) in burst.iter().enumerate() {
            let Some(ethertype) = frame.get(12..14) else {
                out.drop(index, WireDrop::Runt);
                continue;
            };
            let totals = &mut self.totals;
            let count = match ethertype {
                [0x08, 0x00] => &mut totals.ip4,
                [0x86, 0xdd] => &mut totals.ip6,
                [0x08, 0x06] => &mut totals.arp,
                [0x81, 0x00] | [0x88, 0xa8] => &mut totals.vlan,
                _ => &mut totals.other,
            };
            *count += 1;
            if partner < self.ports {
                out.output(index, partner, frame);
            } else {
                out.drop(index, WireDrop::NoPartner);
            }
        }
    }

    fn carry_out(&mut self, (): (), _now_ms: u64, _out: &mut Out<WireDrop>) {}

    fn take_over(&mut self, (): &(), (): &(), _now_ms: u64) {}

    fn totals(&self) -> WireTotals {
        self.totals
    }
}

const PAIRS: Gauge = Gauge { name: "overbank_wire_pairs", help: "Pairs of ports", labels: &[] };

/// The control side, which has no decisions to make.
pub struct WireControl(Publisher<Wire>);

/// Its status.
#[derive(Clone, Debug, Serialize)]
pub struct Pairs {
    pub pairs: usize,
}

impl ControlStatus for Pairs {
    fn expose(&self, to: &mut Exposition) {
        to.gauge(&PAIRS, &[], self.pairs as f64);
    }
}

impl Control for WireControl {
    type Engine = Wire;
    type Status = Pairs;

    fn publisher(&self) -> &Publisher<Wire> {
        &self.0
    }

    fn publisher_mut(&mut self) -> &mut Publisher<Wire> {
        &mut self.0
    }

    fn snapshot(&self) {}

    fn tick(&mut self, _now_ms: u64) -> Option<u64> {
        None
    }

    fn port_changed(&mut self, _index: usize, _before: &PortDesc) {}

    fn status(&self) -> Pairs {
        Pairs { pairs: self.0.ports().len() / 2 }
    }
}

pub fn wire(options: &Options, ports: Vec<ConfiguredPort>) -> io::Result<Running<WireControl>> {
    start(options, ports, |publisher| {
        let ports = publisher.ports().len() as u16;
        let engine = |_| Wire { ports, totals: WireTotals::default() };
        let engines = (0..options.workers).map(engine).collect();
        Ok(Parts { control: WireControl(publisher), first: (), engines })
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let specs: Vec<String> = std::env::args().skip(1).collect();
    if specs.is_empty() {
        return Err("usage: wire KIND:… KIND:…, such as afpacket:veth1 afpacket:veth2".into());
    }
    let mut ports = Vec::new();
    for (number, spec) in (1..).zip(&specs) {
        ports.push(ConfiguredPort::open(number, spec.parse::<PortSpec>()?, 1)?);
    }
    let running = wire(&Options::default(), ports)?;
    while !running.is_finished() && !running.is_broken() {
        std::thread::sleep(Duration::from_secs(1));
        println!("{:?}", running.status().total.engine);
    }
    println!("{}", serde_json::to_string_pretty(&running.stop())?);
    Ok(())
}
