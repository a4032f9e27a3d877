//! Messages through the device's pipeline, for an instruction count: run it under callgrind with
//! `--toggle-collect='*measured*'`, as `cargo xtask instructions` does.
//!
//!     queries hit|miss|put BYTES         reads of cached keys, of others, writes of cached keys
//!
//! Reads each message from its bytes, decides, and writes the answer if it has one. Prints the
//! messages that went through `measured`.

use overbank::sketch;
use overbank_netcache::pipeline::{Config, Counts, Packet, Pipeline, Table, Verdict};
use overbank_netcache::slots::{VALUE_MAX, passes_of};
use overbank_wire::netcache::{HEADER_LEN, Message, Op, Stamp};
use std::error::Error;
use std::hint::black_box;

const CACHED: u128 = 1024;
const BURST: usize = 32;
const BURSTS: usize = 128;

#[inline(never)]
fn measured(pipeline: &mut Pipeline, messages: &[Vec<u8>]) -> usize {
    let mut room = [0; HEADER_LEN + VALUE_MAX];
    let (mut verdicts, mut values) = ([Verdict::Forward; BURST], [[0; VALUE_MAX]; BURST]);
    let mut written = 0;
    for burst in messages.chunks(BURST) {
        let read = burst.iter().filter_map(|bytes| Message::parse(bytes).ok());
        let read = read.map(|message| Packet { message, port: 0 });
        let mut packets = [Packet::NONE; BURST];
        packets.iter_mut().zip(read).for_each(|(to, packet)| *to = packet);
        pipeline.burst(&packets, &mut verdicts, &mut values);
        for ((verdict, value), packet) in verdicts.iter().zip(&values).zip(&packets) {
            if let Verdict::Answer { op, flags, status, stamp, len } = *verdict {
                let head = packet.message.answer(op, status);
                let value = &value[..usize::from(len)];
                let answer = Message { flags, stamp, value, ..head };
                written += black_box(answer.emit(&mut room)).unwrap_or(0);
            }
        }
    }
    written
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, bytes] = &arguments[..] else { return Err("arguments: hit|miss|put BYTES".into()) };
    let value = vec![1; bytes.parse()?];
    let (op, from) = match what.as_str() {
        "hit" => (Op::Get, 0),
        "miss" => (Op::Get, CACHED),
        "put" => (Op::Put, 0),
        _ => return Err(format!("{what:?}: must be hit, miss or put").into()),
    };
    let config = Config { passes: passes_of(value.len()), ..Config::default() };
    let mut table = Table::new(config, 1)?;
    let counting = sketch::Settings { threshold: u16::MAX, sample_log2: 10 };
    let (counter, _keeper) = sketch::Config::default().build(1, counting)?;
    let (counts, _tally) = Counts::new(table.items());
    let mut pipeline = Pipeline::new(table.reader(), table.arrays(), counts, counter, 1);
    for key in 0..CACHED {
        let installed = table.install(key, 1, value.len())?;
        let stamp = Stamp { boot: 1, install: installed.install, writes: 0 };
        let update = Message { stamp, value: &value, ..Message::new(Op::Update, 1, 1, key) };
        let (mut verdict, mut room) = ([Verdict::Forward], [[0; VALUE_MAX]]);
        pipeline.burst(&[Packet { message: update, port: 1 }], &mut verdict, &mut room);
    }
    let messages: Vec<Vec<u8>> = (0..BURSTS * BURST)
        .map(|nth| {
            let value = if op == Op::Put { &value[..] } else { &[] };
            let key = from + nth as u128 % CACHED;
            let message = Message { value, ..Message::new(op, 1, nth as u64, key) };
            let mut bytes = vec![0; message.emit_len()];
            message.emit(&mut bytes).map(|_| bytes).ok_or("a value that is too long")
        })
        .collect::<Result<_, _>>()?;
    black_box(measured(&mut pipeline, &messages));
    println!("{}", messages.len());
    Ok(())
}
