//! Transfers by TCP, both ways at once, every byte compared with what was sent: between A and B,
//! and between B and C, whose port loses, corrupts, reorders and duplicates frames. Meanwhile the
//! rules that carry them are replaced by others that carry them, too.

use crate::bench::PATIENCE;
use crate::client::{Client, add, output};
use crate::context::{Soak, Threads, differs, fill};
use crate::scene::{A, B, C, address};
use overbank_openflow::{Action, FlowCommand, FlowMod, Message, Oxm, OxmField, Version};
use rand::Rng;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Where hosts wait for transfers.
const PORT: u16 = 7100;

/// The two ends of a transfer, and the bytes each way.
const PAIRS: [(usize, usize, usize, &str); 2] =
    [(A, B, 2 << 20, "TCP A ⇄ B"), (B, C, 128 << 10, "TCP B ⇄ C, faults")];

/// Sends and receives `len` bytes; `ours` and `theirs` say which.
fn exchange(stream: &TcpStream, ours: u64, theirs: u64, len: usize) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let mut stream = stream;
            let mut bytes = vec![0; 1 << 16];
            for offset in (0..len).step_by(bytes.len()) {
                let bytes = &mut bytes[..(len - offset).min(1 << 16)];
                fill(ours, offset as u64, bytes);
                stream.write_all(bytes)?;
            }
            stream.shutdown(Shutdown::Write)
        });
        let mut reader = stream;
        let mut bytes = vec![0; 1 << 16];
        let mut offset = 0;
        while offset < len {
            let bytes = &mut bytes[..(len - offset).min(1 << 16)];
            let failed = |error: io::Error| io::Error::other(format!("at byte {offset}: {error}"));
            reader.read_exact(bytes).map_err(failed)?;
            if let Some(at) = differs(theirs, offset as u64, bytes) {
                return Err(io::Error::other(format!("byte {} is another", offset + at)));
            }
            offset += bytes.len();
        }
        if reader.read(&mut [0])? != 0 {
            return Err(io::Error::other("more came than was sent"));
        }
        writer.join().expect("a writer")
    })
}

fn key(soak: &Soak, pair: usize, number: u64, back: bool) -> u64 {
    soak.plan.seed ^ number << 8 ^ (pair as u64) << 1 ^ u64::from(back)
}

/// One transfer from the side that asks for it.
pub fn transfer(soak: &Soak, pair: usize, number: u64, len: usize) -> io::Result<()> {
    let to: SocketAddr = SocketAddr::from(([10, 77, 0, PAIRS[pair].1 as u8 + 1], PORT));
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.write_all(&number.to_be_bytes())?;
    stream.write_all(&(len as u64).to_be_bytes())?;
    exchange(&stream, key(soak, pair, number, false), key(soak, pair, number, true), len)
}

/// Serves transfers until `done`; tells `listening` when the first may come.
pub fn serve(soak: &Soak, pair: usize, listening: &Sender<()>, done: &AtomicBool) {
    let (_, host, _, name) = PAIRS[pair];
    let listener = TcpListener::bind((address(host), PORT)).expect("bound");
    listener.set_nonblocking(true).expect("a socket");
    // No waiting thread may be left.
    let _ = listening.send(());
    loop {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if done.load(Ordering::SeqCst) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let mut serve = || {
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let mut word = [0; 8];
            stream.read_exact(&mut word)?;
            let number = u64::from_be_bytes(word);
            stream.read_exact(&mut word)?;
            let len = u64::from_be_bytes(word) as usize;
            exchange(&stream, key(soak, pair, number, true), key(soak, pair, number, false), len)
        };
        if let Err(error) = serve() {
            soak.fail(name, format!("the serving side: {error}"));
        }
    }
}

/// Starts transfers one after another, and what replaces their rules.
pub fn start(soak: &Arc<Soak>, threads: &mut Threads) {
    for (pair, &(from, to, len, name)) in PAIRS.iter().enumerate() {
        let done = Arc::new(AtomicBool::new(false));
        let served = Arc::clone(&done);
        let (listening, listens) = channel();
        threads.inside(soak, to, name, move |soak| serve(soak, pair, &listening, &served));
        threads.inside(soak, from, name, move |soak| {
            // An error means that the serving thread is gone, which the first transfer will show.
            let _ = listens.recv();
            let mut number = 0;
            while !soak.is_stopped() || number == 0 {
                if let Err(error) = transfer(soak, pair, number, len) {
                    soak.fail(name, format!("transfer {number}: {error}"));
                    // Once is enough; each takes its time.
                    break;
                }
                number += 1;
            }
            done.store(true, Ordering::SeqCst);
            soak.count(name, number);
        });
    }
    threads.here(soak, "rules of TCP", replace);
}

/// Replaces the rules that the transfers run by.
fn replace(soak: &Soak) {
    let mut client = Client::connect(soak.scene.openflow, Version::V13);
    let mut random = soak.random("rules of TCP");
    let mut changes = 0;
    while !soak.is_stopped() {
        for host in [A, B, C] {
            let matching = vec![
                Oxm::exact(OxmField::EthType, 0x0800),
                Oxm::exact(
                    OxmField::Ipv4Dst,
                    u32::from_be_bytes([10, 77, 0, host as u8 + 1]).into(),
                ),
            ];
            let dscp = Oxm::exact(OxmField::IpDscp, random.random_range(0..64u8).into());
            let mut actions = vec![output(host as u32 + 1)];
            if random.random() {
                actions.insert(0, Action::SetField(dscp));
            }
            let command =
                if random.random() { FlowCommand::Add } else { FlowCommand::ModifyStrict };
            let rule = add(50_000, matching.into(), actions);
            client.send(&Message::FlowMod(FlowMod { command, ..rule }));
            changes += 1;
        }
        client.done(&Message::EchoReply(Vec::new()));
        client.unasked.clear();
        soak.sleep(Duration::from_millis(random.random_range(1..40)));
    }
    soak.count("changes of the rules of TCP", changes);
}
