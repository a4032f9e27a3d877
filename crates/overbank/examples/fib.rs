//! Measures forwarding tables: nanoseconds per lookup and per insertion.
//!
//!     cargo run --release -p overbank --example fib -- [MILLIONS[,MILLIONS…]] [BURST] [ISA]
//!
//! Entries are Ethernet addresses with a 16-bit port, 8 bytes each, filled to 95 %; without
//! arguments 1 and 16 million of them, bursts of 32, the best instruction set. Each figure is the
//! median of rounds that take turns in one process: `floor` reads one random line of the table a
//! key and does nothing else, the cheaper way of bursts alone and ahead; `hit` and `miss` look up
//! addresses that are there and that are not. `×` is the cost as a multiple of the floor of the
//! same round. Then hits again with a writer at full speed on another core: one that replaces
//! values, one that removes and inserts, one that moves entries around without end. `slower`
//! compares with rounds in between in which that core spins.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use overbank::fib::{Config, MacAddr, Reader, Writer};
use overbank::isa::Isa;
use overbank::random::Pcg32;

/// Many short rounds: on a machine that does other things as well, most are undisturbed.
const ROUNDS: usize = 301;
const DRAWS: usize = 1 << 14;

type Failure = Box<dyn std::error::Error>;

/// The address of a number below 2^48; all differ.
fn address(number: u64) -> MacAddr {
    let bits = number.wrapping_mul(0x9e37_79b9_7f4b) & 0xffff_ffff_ffff;
    MacAddr::new(bits).expect("masked to 48 bits")
}

/// How a burst is looked up.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// By itself.
    Alone,
    /// After [`Reader::prefetch`] of the next one.
    Prefetched,
    /// Naming the next one.
    Ahead,
    /// All at once.
    All,
}

/// Lookups of all keys; the number of hits.
fn look_up(reader: &Reader<MacAddr, u16>, keys: &[MacAddr], burst: usize, way: Way) -> u32 {
    if matches!(way, Way::All) {
        let (mut values, mut found) = ([0u16; 256], [0; 4]);
        let (mut hits, mut sum) = (0, 0u16);
        for keys in keys.chunks(256) {
            reader.lookup_all(keys, &mut values, &mut found);
            hits += found.iter().map(|found| found.count_ones()).sum::<u32>();
            sum = values.iter().fold(sum, |sum, &v| sum.wrapping_add(v));
        }
        black_box(sum);
        return hits;
    }
    let mut values = [0u16; 64];
    let (mut hits, mut sum) = (0, 0u16);
    let mut next = keys.chunks(burst).skip(1);
    reader.prefetch(keys.chunks(burst).next().filter(|_| matches!(way, Way::Ahead)).unwrap_or(&[]));
    for keys in keys.chunks(burst) {
        let next = next.next().unwrap_or(&[]);
        let found = match way {
            Way::Alone => reader.lookup_batch(keys, &mut values),
            Way::Prefetched => {
                reader.prefetch(next);
                reader.lookup_batch(keys, &mut values)
            }
            Way::All => 0,
            Way::Ahead => reader.lookup_batch_ahead(keys, &mut values, next),
        };
        hits += found.count_ones();
        sum = values.iter().fold(sum, |sum, &v| sum.wrapping_add(v));
    }
    black_box(sum);
    hits
}

fn nanoseconds<T>(count: usize, work: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    black_box(work());
    start.elapsed().as_secs_f64() * 1e9 / count as f64
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures
        .get(if std::env::var_os("BEST").is_some() { 0 } else { figures.len() / 2 })
        .copied()
        .unwrap_or(f64::NAN)
}

/// Fills the table to its last ten per cent in steps; prints the rate of each.
fn build(entries: usize, isa: Option<Isa>) -> Result<Writer<MacAddr, u16>, Failure> {
    let mut writer = Writer::new(&Config::entries(entries).seed(7).isa(isa))?;
    print!("  insertions, M/s up to each occupancy:");
    let (mut done, start) = (0, Instant::now());
    for percent in [50, 80, 85, 90, 92, 94, 95] {
        let until = entries * percent / 95;
        let since = Instant::now();
        for i in done..until {
            writer.prefetch(address(i as u64 + 16));
            writer.insert(address(i as u64), i as u16)?;
        }
        let rate = (until - done) as f64 / since.elapsed().as_secs_f64() / 1e6;
        print!("  {percent} % {rate:.1}");
        done = until;
    }
    println!("  all in {:.2} s", start.elapsed().as_secs_f64());
    let stats = writer.stats();
    println!(
        "  {:.2} % of slots, {:.1} % in their second bucket, {:.3} moves an insertion",
        100.0 * writer.occupancy(),
        100.0 * stats.second as f64 / writer.len() as f64,
        stats.displaced as f64 / stats.inserted as f64,
    );
    Ok(writer)
}

struct Draws {
    pcg: Pcg32,
    hits: Vec<MacAddr>,
    misses: Vec<MacAddr>,
    hashes: Vec<u64>,
}

impl Draws {
    fn new() -> Self {
        let none = address(0);
        let (hits, misses) = (vec![none; DRAWS], vec![none; DRAWS]);
        Self { pcg: Pcg32::new(1, 2), hits, misses, hashes: vec![0; DRAWS] }
    }

    fn draw(&mut self, entries: usize) {
        for i in 0..DRAWS {
            let number = u64::from(self.pcg.below(entries as u32));
            self.hits[i] = address(number);
            self.misses[i] = address(number + entries as u64 + (1 << 33));
            self.hashes[i] = u64::from(self.pcg.draw()) << 32 | u64::from(self.pcg.draw());
        }
    }
}

fn idle(reader: &Reader<MacAddr, u16>, entries: usize, burst: usize) -> Result<(), Failure> {
    let mut draws = Draws::new();
    const WAYS: [Way; 4] = [Way::Alone, Way::Prefetched, Way::Ahead, Way::All];
    // Floor, one by one; hits and misses of each way, in nanoseconds and in floors.
    let mut base: [Vec<f64>; 2] = Default::default();
    let mut ways: [[[Vec<f64>; 2]; 2]; 4] = Default::default();
    for _ in 0..ROUNDS {
        draws.draw(entries);
        let floor = [false, true]
            .map(|ahead| nanoseconds(DRAWS, || reader.touch(burst, ahead, &draws.hashes)))
            .into_iter()
            .fold(f64::INFINITY, f64::min);
        let one =
            nanoseconds(DRAWS, || draws.hits.iter().filter_map(|&key| reader.lookup(key)).count());
        base[0].push(floor);
        base[1].push(one);
        for (way, figures) in WAYS.into_iter().zip(&mut ways) {
            draws.draw(entries);
            for (kind, figures) in figures.iter_mut().enumerate() {
                let keys = [&draws.hits, &draws.misses][kind];
                let mut found = 0;
                let ns = nanoseconds(DRAWS, || found = look_up(reader, keys, burst, way));
                let due = [DRAWS as u32, 0][kind];
                if found != due {
                    return Err(format!("{found} hits, not {due}").into());
                }
                figures[0].push(ns);
                figures[1].push(ns / floor);
            }
        }
    }
    let one_line = draws.misses.iter().filter(|&&key| reader.lines_if_absent(key) == 1).count();
    let [floor, one] = base.each_mut().map(|f| median(f));
    println!("  floor {floor:.1} ns, one by one {one:.1} ns");
    for (way, figures) in WAYS.into_iter().zip(&mut ways) {
        let [[hit, hit_x], [miss, miss_x]] =
            figures.each_mut().map(|kind| kind.each_mut().map(|f| median(f)));
        println!("  {way:?}: hit {hit:.1} ns ({hit_x:.2}×), miss {miss:.1} ns ({miss_x:.2}×)");
    }
    let one_line = 100.0 * one_line as f64 / DRAWS as f64;
    println!("  {one_line:.1} % of misses settled by one line");
    Ok(())
}

/// What the other core does: nothing, or something with the table.
#[derive(Clone, Copy, Debug)]
enum Work {
    Replace,
    RemoveAndInsert,
    Move,
}

fn busy(mut writer: Writer<MacAddr, u16>, entries: usize, burst: usize) -> Result<(), Failure> {
    let reader = writer.reader();
    let mut draws = Draws::new();
    for work in [Work::Replace, Work::RemoveAndInsert, Work::Move] {
        let (stop, go) = (AtomicBool::new(false), AtomicBool::new(false));
        let operations = AtomicU64::new(0);
        let (mut slower, mut busy_ns, mut seconds) = (Vec::new(), Vec::new(), 0.0);
        let mut lost = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                core_affinity::set_for_current(core_affinity::CoreId { id: 1 });
                let mut pcg = Pcg32::new(5, 6);
                let mut ring = [0u64; 16];
                for i in (0..).map(|i: usize| i % 16) {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    if !go.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                        continue;
                    }
                    let number =
                        std::mem::replace(&mut ring[i], u64::from(pcg.below(entries as u32)));
                    writer.prefetch(address(ring[i]));
                    match work {
                        Work::Replace => {
                            writer.update(address(number), number as u16);
                        }
                        Work::RemoveAndInsert => {
                            writer.remove(address(number));
                            let inserted = writer.insert(address(number), number as u16);
                            assert!(inserted.is_ok(), "the slot of the removed key is free");
                        }
                        Work::Move => writer.shuffle(4),
                    }
                    operations.fetch_add(1, Ordering::Relaxed);
                }
            });
            for _ in 0..ROUNDS {
                draws.draw(entries);
                let mut found = (0, 0);
                let before = nanoseconds(DRAWS, || {
                    found.0 = look_up(&reader, &draws.hits, burst, Way::Alone)
                });
                draws.draw(entries);
                let seen = operations.load(Ordering::Relaxed);
                let start = Instant::now();
                go.store(true, Ordering::Relaxed);
                while operations.load(Ordering::Relaxed) == seen {
                    std::hint::spin_loop();
                }
                let during = nanoseconds(DRAWS, || {
                    found.1 = look_up(&reader, &draws.hits, burst, Way::Alone)
                });
                seconds += start.elapsed().as_secs_f64();
                go.store(false, Ordering::Relaxed);
                lost += 2 * DRAWS as u32 - found.0 - found.1;
                slower.push(during / before);
                busy_ns.push(during);
            }
            stop.store(true, Ordering::Relaxed);
        });
        println!(
            "  writer at {work:?}, {:.1} M/s: hit {:.1} ns, {:+.1} % slower, {lost} of {} absent",
            operations.into_inner() as f64 / seconds / 1e6,
            median(&mut busy_ns),
            100.0 * (median(&mut slower) - 1.0),
            2 * ROUNDS * DRAWS,
        );
    }
    Ok(())
}

fn run() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let sizes = arguments.next().unwrap_or_else(|| "1,16".to_owned());
    let burst: usize = arguments.next().map_or(Ok(32), |n| n.parse())?;
    let isa: Option<Isa> = arguments.next().map(|name| name.parse()).transpose()?;
    let burst = burst.clamp(1, 64);
    core_affinity::set_for_current(core_affinity::CoreId { id: 0 });
    for millions in sizes.split(',') {
        let entries = (millions.parse::<f64>()? * 1e6) as usize;
        println!("{millions} M entries, bursts of {burst}");
        let writer = build(entries, isa)?;
        let reader = writer.reader();
        println!(
            "  {:.1} MiB, {:.2} bytes an entry, {}, huge pages: {}",
            reader.bytes() as f64 / (1 << 20) as f64,
            reader.bytes() as f64 / writer.len() as f64,
            reader.isa(),
            reader.huge_pages(),
        );
        idle(&reader, entries, burst)?;
        busy(writer, entries, burst)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fib: {error}");
            ExitCode::FAILURE
        }
    }
}
