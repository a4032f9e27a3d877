//! Measures what the border to C costs: the same loop in C (`border.c`) and in Rust, in turns.
//!
//! ```text
//! taskset -c 1 cargo run --release -p overbank-capi --example border
//! ```
//!
//! Both sides have a table each, of the same entries inserted in the same order, and the same keys.
//! Rust has what a Rust program has: a boxed cache of a design named at run time, and a typed
//! reader. C calls through pointers. Each round is short. C and Rust take turns, and so does which
//! of them is first; the ratio is that of a round's pair.

#![allow(unsafe_code)] // Calls of C.

use std::error::Error;
use std::ffi::{CString, c_void};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::time::Instant;

use overbank::cache::{Config, Design, DynCache, Probes};
use overbank::fib::{self, Reader, Writer};
use overbank::hash::Hash64;
use overbank::lookaside::{self, Copies, Found};
use overbank::memory::Pages;
use overbank_capi::*;

const SEED: u64 = 1;
const DESIGN: &str = "blp-2-16+pblru";
const BURST: usize = 32;
/// Rounds of what is short; a tenth of them for what is long.
const PAIRS: usize = 2001;

/// As in `border.c`.
#[repr(C)]
struct Calls {
    probe: *const c_void,
    next: *const c_void,
    commit: *const c_void,
    lookup: *const c_void,
    aside: *const c_void,
}

type Bursts = unsafe extern "C" fn(
    *const Calls,
    *mut overbank_burst,
    *mut overbank_cache,
    *const u64,
    *const u32,
    usize,
) -> u64;
type Lookups = unsafe extern "C" fn(
    *const Calls,
    *const overbank_fib_reader,
    *const u64,
    usize,
    usize,
    *mut u32,
    *mut u64,
) -> u64;

type Asides = unsafe extern "C" fn(*const Calls, *const overbank_copies, *const u64, usize) -> u64;

/// Compiles `border.c` and returns its functions.
fn compiled() -> Result<(Bursts, Lookups, Asides), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir()?;
    let object = folder.path().join("border.so");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c17", "-O3", "-march=native", "-shared", "-fPIC", "-I"]);
    gcc.arg(root.join("include")).arg(root.join("examples/border.c")).arg("-o").arg(&object);
    assert!(gcc.status()?.success(), "{gcc:?}");
    let name = CString::new(object.into_os_string().into_vec())?;
    // SAFETY: the object was just made from `border.c`, whose types these are; never closed.
    unsafe {
        let object = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
        let symbol = |name: &std::ffi::CStr| {
            let symbol = libc::dlsym(object, name.as_ptr());
            assert!(!symbol.is_null(), "border.c has no {name:?}");
            symbol
        };
        assert!(!object.is_null(), "{name:?} cannot be loaded");
        Ok((
            std::mem::transmute::<*mut c_void, Bursts>(symbol(c"bursts")),
            std::mem::transmute::<*mut c_void, Lookups>(symbol(c"lookups")),
            std::mem::transmute::<*mut c_void, Asides>(symbol(c"asides")),
        ))
    }
}

/// The loop of `bursts` in Rust.
#[inline(never)]
fn bursts(cache: &mut dyn DynCache, hashes: &[Hash64], expected: &[u32]) -> u64 {
    let mut probes = Probes::new();
    let mut found = 0;
    for (hashes, expected) in hashes.chunks_exact(BURST).zip(expected.chunks_exact(BURST)) {
        cache.probe_batch(hashes, &mut probes);
        let hits = probes.resolve(cache, hashes, |i, value| expected[i] == value);
        found += hits.found().len() as u64;
        cache.commit(hashes, &hits);
    }
    found
}

/// The loop of `lookups` in Rust.
#[inline(never)]
fn lookups(
    reader: &Reader<[u8; 8], u32>,
    keys: &[[u8; 8]],
    burst: usize,
    values: &mut [u32],
    hits: &mut [u64],
) -> u64 {
    let mut sum = 0;
    for keys in keys.chunks_exact(burst) {
        if let [hits] = hits {
            *hits = reader.lookup_batch(keys, values);
        } else {
            reader.lookup_all(keys, values, hits);
        }
        sum += u64::from(values[0]) + hits[0];
    }
    sum
}

/// The loop of `asides` in Rust.
#[inline(never)]
fn asides(table: &Copies<u64, u64>, keys: &[u64]) -> u64 {
    let mut sum = 0;
    for keys in keys.chunks_exact(BURST) {
        table.get_batch(keys, |_, found| {
            sum += if let Found::Hit(value) = found { value } else { 1 };
        });
    }
    sum
}

/// Times both sides in turns and prints a line. `each` is what a round looks up.
fn compare(what: &str, each: usize, mut c: impl FnMut() -> u64, mut rust: impl FnMut() -> u64) {
    let timed = |work: &mut dyn FnMut() -> u64| {
        let start = Instant::now();
        let result = black_box(work());
        (start.elapsed().as_secs_f64() * 1e9 / each as f64, result)
    };
    let (mut of_c, mut of_rust, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let pairs = if each > 10_000 { PAIRS / 10 } else { PAIRS };
    for pair in 0..pairs + pairs / 10 {
        let (first, second);
        let ((in_c, said), (in_rust, expected)) = if pair % 2 == 0 {
            first = timed(&mut c);
            second = timed(&mut rust);
            (first, second)
        } else {
            second = timed(&mut rust);
            first = timed(&mut c);
            (first, second)
        };
        assert!(said == expected && said > 0, "{what}: {said} in C, {expected} in Rust");
        // The first ones warm up.
        if pair >= pairs / 10 {
            of_c.push(in_c);
            of_rust.push(in_rust);
            ratios.push(100. * (in_c / in_rust - 1.));
        }
    }
    let at = |values: &mut Vec<f64>, part: usize| {
        values.sort_by(f64::total_cmp);
        values[values.len() * part / 100]
    };
    println!(
        "{what:40} {:7.2} {:7.2} {:+7.1} % ({:+.1} to {:+.1})  {:+6.1} %",
        at(&mut of_c, 50),
        at(&mut of_rust, 50),
        at(&mut ratios, 50),
        at(&mut ratios, 25),
        at(&mut ratios, 75),
        100. * (at(&mut of_c, 5) / at(&mut of_rust, 5) - 1.),
    );
}

fn caches(loops: Bursts, calls: &Calls, entries: usize) -> Result<(), Box<dyn Error>> {
    let design: Design = DESIGN.parse()?;
    let mut rust = design.build(&Config::entries(entries).seed(SEED))?;
    let mut c = null_mut();
    let options = overbank_cache_options { seed: SEED, ..Default::default() };
    let name = CString::new(DESIGN)?;
    // SAFETY: valid arguments.
    let made = unsafe { overbank_cache_create(name.as_ptr(), entries, &options, &mut c) };
    assert_eq!(made, overbank_status::OVERBANK_OK);
    let flows = entries as u64 * 9 / 10;
    for flow in 0..flows {
        rust.insert(Hash64::mix(flow), flow as u32 & 0xffff)?;
        // SAFETY: a live cache of this thread.
        let done =
            unsafe { overbank_cache_insert(c, Hash64::mix(flow).get(), flow as u32 & 0xffff) };
        assert_eq!(done, overbank_status::OVERBANK_OK);
    }
    // Random flows; a round is 64 bursts of them.
    let asked: Vec<u64> = (0..1 << 20).map(|i| Hash64::mix(!i).get() % flows).collect();
    let hashes: Vec<Hash64> = asked.iter().map(|&flow| Hash64::mix(flow)).collect();
    let raw: Vec<u64> = hashes.iter().map(|hash| hash.get()).collect();
    let expected: Vec<u32> = asked.iter().map(|&flow| flow as u32 & 0xffff).collect();
    let each = 64 * BURST;
    let step = |at: &mut usize| {
        let now = *at;
        *at = (now + each) % hashes.len();
        now
    };
    let mut burst = null_mut();
    // SAFETY: valid arguments.
    assert_eq!(unsafe { overbank_burst_create(&mut burst) }, overbank_status::OVERBANK_OK);
    let (mut at_c, mut at_rust) = (0, 0);
    compare(
        &format!("burst of 32, cache of {entries}"),
        each,
        || {
            let at = step(&mut at_c);
            let (hashes, expected) = (raw[at..].as_ptr(), expected[at..].as_ptr());
            // SAFETY: a live cache of this thread, and arrays of `each` elements from `at`.
            unsafe { loops(calls, burst, c, hashes, expected, each) }
        },
        || {
            let at = step(&mut at_rust);
            bursts(&mut *rust, &hashes[at..at + each], &expected[at..at + each])
        },
    );
    // SAFETY: made above.
    unsafe {
        overbank_burst_destroy(burst);
        overbank_cache_destroy(c);
    }
    Ok(())
}

fn fibs(loops: Lookups, calls: &Calls, entries: usize) -> Result<(), Box<dyn Error>> {
    // Small pages: of large ones, one table might get more than the other.
    let key = |flow: u64| Hash64::mix(flow).get().to_ne_bytes();
    let mut rust =
        Writer::<[u8; 8], u32>::new(&fib::Config::entries(entries).seed(SEED).pages(Pages::Small))?;
    let (mut c, mut of_c) = (null_mut(), null_mut());
    let options = overbank_fib_options { seed: SEED, pages: 1, ..Default::default() };
    // SAFETY: valid arguments; handles of this thread.
    unsafe {
        let made = overbank_fib_create(8, 4, entries, &options, &mut c);
        assert_eq!(made, overbank_status::OVERBANK_OK);
        for flow in 0..entries as u64 {
            rust.insert(key(flow), flow as u32 | 1)?;
            let done = overbank_fib_insert(c, key(flow).as_ptr().cast(), flow | 1);
            assert_eq!(done, overbank_status::OVERBANK_OK);
        }
        assert_eq!(overbank_fib_reader_create(c, &mut of_c), overbank_status::OVERBANK_OK);
    }
    let reader = rust.reader();
    let count = 1_000_000;
    let asked: Vec<u64> = (0..count).map(|i| Hash64::mix(!i).get() % entries as u64).collect();
    let keys: Vec<[u8; 8]> = asked.iter().map(|&flow| key(flow)).collect();
    let raw: Vec<u64> = keys.iter().map(|&key| u64::from_ne_bytes(key)).collect();
    for (burst, each) in [(BURST, 64 * BURST), (keys.len(), keys.len())] {
        let mut values = vec![0; burst];
        let mut other = values.clone();
        let mut hits = vec![0; burst.div_ceil(64)];
        let mut more = hits.clone();
        let (mut at_c, mut at_rust) = (0, 0);
        let step = |at: &mut usize| {
            let now = *at;
            *at = if now + 2 * each > keys.len() { 0 } else { now + each };
            now
        };
        compare(
            &format!("lookup of {burst}, table of {entries}"),
            each,
            || {
                let at = step(&mut at_c);
                let (values, hits) = (other.as_mut_ptr(), more.as_mut_ptr());
                // SAFETY: a live reader of this thread, and arrays that are so long.
                unsafe { loops(calls, of_c, raw[at..].as_ptr(), each, burst, values, hits) }
            },
            || {
                let at = step(&mut at_rust);
                lookups(&reader, &keys[at..at + each], burst, &mut values, &mut hits)
            },
        );
    }
    // SAFETY: made above.
    unsafe {
        overbank_fib_reader_destroy(of_c);
        overbank_fib_destroy(c);
    }
    Ok(())
}

fn lookaside(loops: Asides, calls: &Calls, entries: usize) -> Result<(), Box<dyn Error>> {
    let config = lookaside::Config::entries(entries).seed(SEED).pages(Pages::Small);
    let rust = Copies::<u64, u64>::new(&config)?;
    let mut c = null_mut();
    let options = overbank_aside_options { seed: SEED, pages: 1, ..Default::default() };
    // SAFETY: valid arguments.
    let made = unsafe { overbank_copies_create(1, 1, entries, &options, &mut c) };
    assert_eq!(made, overbank_status::OVERBANK_OK);
    let key = |flow: u64| Hash64::mix(flow).get();
    let flows = entries as u64 * 3 / 4;
    for flow in 0..flows {
        let (key, mut value, mut found) = (key(flow), flow | 1, 0);
        let kept = rust.get(key).answer().is_err_and(|ticket| rust.fill(ticket, Some(value)));
        let mut ticket = MaybeUninit::uninit();
        let place = ticket.as_mut_ptr();
        // SAFETY: valid arguments; the first call misses, and so writes the ticket.
        let said = unsafe {
            let mut none = 0;
            let looked = overbank_copies_lookup(c, &key, 1, &mut none, &mut found, place);
            assert_eq!(looked, overbank_status::OVERBANK_OK);
            overbank_copies_fill(c, place, &raw mut value)
        };
        assert_eq!(said == overbank_status::OVERBANK_OK, kept);
    }
    let keys: Vec<u64> = (0..1 << 20).map(|i| key(Hash64::mix(!i).get() % flows)).collect();
    let each = 64 * BURST;
    let step = |at: &mut usize| {
        let now = *at;
        *at = (now + each) % keys.len();
        now
    };
    let (mut at_c, mut at_rust) = (0, 0);
    compare(
        &format!("look-aside of 32, table of {entries}"),
        each,
        // SAFETY: a live table, and `each` keys.
        || unsafe { loops(calls, c, keys[step(&mut at_c)..].as_ptr(), each) },
        || {
            let at = step(&mut at_rust);
            asides(&rust, &keys[at..at + each])
        },
    );
    // SAFETY: made above.
    unsafe { overbank_copies_destroy(c) };
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let (of_bursts, of_fibs, of_asides) = compiled()?;
    let calls = Calls {
        probe: overbank_burst_probe as *const c_void,
        next: overbank_burst_next as *const c_void,
        commit: overbank_burst_commit as *const c_void,
        lookup: overbank_fib_lookup as *const c_void,
        aside: overbank_copies_lookup as *const c_void,
    };
    assert_ne!(calls.probe, null());
    println!(
        "ns a key, medians of {PAIRS} rounds         C    Rust    C more (quartiles)    best 5 %"
    );
    for entries in [1 << 12, 1 << 16, 1 << 20] {
        caches(of_bursts, &calls, entries)?;
    }
    for entries in [1 << 12, 1 << 20] {
        fibs(of_fibs, &calls, entries)?;
    }
    for entries in [1 << 12, 1 << 16, 1 << 20] {
        lookaside(of_asides, &calls, entries)?;
    }
    Ok(())
}
