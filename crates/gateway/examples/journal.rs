//! Measures answered changes a second of a gateway's journal: clients that each add a session,
//! wait until it is on disk, and remove it again.
//!
//!     cargo run --release -p overbank-gateway --example journal -- DIRECTORY [SECONDS]

use overbank_gateway::journal::{Journal, JournalError, Keeper};
use overbank_gateway::prefix::Prefix;
use overbank_gateway::session::{Gate, Session};
use overbank_gateway::sessions::SessionError;
use overbank_gateway::{Setup, Tunable};
use overbank_runtime::{ConfiguredPort, Options};
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Journal(#[from] JournalError),
}

fn session(n: u32) -> Session {
    Session {
        id: u64::from(n),
        n3: [192, 0, 2, 1].into(),
        teid: n,
        peer: [198, 51, 100, 7].into(),
        peer_teid: n,
        qfi: Some(9),
        ipv4: Some((0x0a00_0000 + n).into()),
        ipv6: None,
        gate: Gate::Open,
        rate_up: None,
        rate_down: None,
    }
}

fn both(keeper: &Keeper, n: u32) -> Result<(), Refused> {
    let (session, id) = (session(n), u64::from(n));
    keeper.commit::<_, Refused>(
        move |control, edits| Ok(control.plan_add(&session, edits)?),
        move |control| Ok(control.add(session)?),
    )?;
    keeper.commit(
        move |control, edits| Ok(control.plan_remove(id, edits)?),
        move |control| Ok(control.remove(id).map(drop)?),
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let directory = PathBuf::from(args.next().ok_or("give a directory for the journal")?);
    let seconds: u64 = args.next().map_or(Ok(3), |text| text.parse())?;
    for clients in [1, 4, 16, 64] {
        let (journal, found) = Journal::open(&directory)?;
        let setup = Setup {
            tunable: Tunable {
                pools: [Prefix::parse("10.0.0.0/8")?].into_iter().collect(),
                ..Tunable::default()
            },
            run: Options { workers: 1, ..Options::default() },
            n3: [[192, 0, 2, 1].into()].into(),
            teid_secret: None,
            max_sessions: 100_000,
            seed: 1,
            kept: found.kept,
            journal: Some(journal.counts()),
            sessions: Vec::new(),
            interfaces: [None, None],
            cluster: None,
        };
        let ports = [1, 2].map(|number| ConfiguredPort { number, spec: None, port: None });
        let running = overbank_gateway::start(&setup, ports.into())?;
        let keeper = Keeper::start(journal, running.handle().clone())?;
        let (begin, changes) = (Instant::now(), AtomicU64::new(0));
        let end = begin + Duration::from_secs(seconds);
        std::thread::scope(|scope| {
            for client in 0..clients {
                let (keeper, changes) = (&keeper, &changes);
                scope.spawn(move || {
                    while Instant::now() < end {
                        both(keeper, 1 + client).expect("a session of this client alone");
                        changes.fetch_add(2, Relaxed);
                    }
                });
            }
        });
        let took = begin.elapsed().as_secs_f64();
        let counts = running.handle().lock().journal().ok_or("there is a journal")?;
        let (changes, frames) = (changes.into_inner() as f64, counts.frames as f64);
        writeln!(
            std::io::stdout(),
            "{clients:2} clients: {:.0} changes/s answered, {:.1} in an fsync of {:.0} µs",
            changes / took,
            changes / frames,
            took * 1e6 / frames,
        )?;
        drop(keeper);
        running.stop();
        // The journal's thread lets its lock go.
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}
