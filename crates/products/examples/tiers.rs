//! Packets that all take the same tier, for an instruction count: run it under callgrind with
//! `--toggle-collect='*measured*'`, as `cargo xtask instructions` does.
//!
//!     tiers TIER [DESIGN]        TIER: 1 (all hits), 2 (no tier 1), 3 (caches emptied before)
//!
//! Prints the packets that went through `measured`; the counters prove which tier answered.

use overbank_kit::traffic::{FRAME_LEN, Traffic};
use overbank_switch::datapath::{CacheConfig, Config, Datapath, Sink};
use overbank_switch::drop::DropReason;
use overbank_switch::megaflow::BURST;
use overbank_switch::parse::parse_rules;
use overbank_switch::ports::SwitchPort;
use overbank_switch::tables::Tables;

/// Counts, so that the work is not optimised away; the cheapest way to send a frame.
#[derive(Default)]
struct Count(u64);

impl Sink for Count {
    #[inline]
    fn output(&mut self, _index: usize, port: u32, frame: &[u8], _edited: bool) {
        self.0 += u64::from(port) + frame.len() as u64;
    }

    #[inline]
    fn drop(&mut self, _index: usize, _reason: DropReason) {}
}

/// Takes bursts through the datapath: what is counted.
#[inline(never)]
fn measured(datapath: &mut Datapath, frames: &[&[u8]], sink: &mut Count) {
    datapath.process(frames, 1, 0, sink);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "usage: tiers 1|2|3 [DESIGN]";
    let mut args = std::env::args().skip(1);
    let tier: u32 = args.next().ok_or(usage)?.parse().map_err(|_| usage)?;
    let design = args.next().unwrap_or_else(|| "blp-2-16".to_owned()).parse()?;
    // Of 128 KiB: in any L2, that of the CPU which valgrind plays included, so that no probe looks
    // ahead.
    let cache = (tier != 2).then_some(CacheConfig { design, entries: 1 << 15, isa: None });
    let ports = (1..=5).map(SwitchPort::from).collect();
    let config = Config { cache, megaflows: 1 << 16, ports, seed: 1 };
    let traffic = Traffic::default();
    let rules = parse_rules(&traffic.rules()).map_err(|e| e.to_string())?;
    let mut datapath = Datapath::new(&config, Tables::new(rules)?)?;

    // For tier 3, one flow of each class: each needs a separate megaflow.
    let bytes: Vec<[u8; FRAME_LEN]> = match tier {
        1 | 2 => (0..64 * BURST as u32).map(|id| frame(&traffic, id)).collect(),
        3 => one_of_each_class(&traffic),
        _ => return Err(usage.into()),
    };
    let frames: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
    let mut sink = Count::default();
    for _ in 0..4 {
        datapath.process(&frames, 1, 0, &mut sink);
    }
    datapath.reset_counters();
    let rounds = if tier == 3 { 200 } else { 4 };
    for _ in 0..rounds {
        if tier == 3 {
            datapath.flush();
        }
        measured(&mut datapath, &frames, &mut sink);
    }
    let counters = datapath.counters();
    let answered = match tier {
        1 => counters.microflow.hits,
        2 => counters.megaflow.hits,
        _ => counters.classifier_lookups,
    };
    if answered != counters.packets {
        return Err(
            format!("tier {tier} answered {answered} of {} packets", counters.packets).into()
        );
    }
    println!("{}", counters.packets);
    std::hint::black_box(sink.0);
    Ok(())
}

fn frame(traffic: &Traffic, id: u32) -> [u8; FRAME_LEN] {
    let mut bytes = [0; FRAME_LEN];
    traffic.write_frame(id, &mut bytes);
    bytes
}

fn one_of_each_class(traffic: &Traffic) -> Vec<[u8; FRAME_LEN]> {
    let class = |id: u32| traffic.flow_tuple(id).nw_dst.leading_ones().min(traffic.classes() - 1);
    let first_of = |wanted: u32| (0..).find(|&id| class(id) == wanted);
    (0..traffic.classes()).filter_map(first_of).map(|id| frame(traffic, id)).collect()
}
