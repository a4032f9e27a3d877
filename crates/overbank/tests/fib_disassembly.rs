//! On x86-64 a lookup has no fence and no locked instruction, whatever the instruction set: this
//! program takes itself apart with `objdump` and follows the calls.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use overbank::fib::{Config, MacAddr, Reader, Writer};
use overbank::isa::Isa;

#[inline(never)]
fn looks_up_a_burst(reader: &Reader<MacAddr, u16>, keys: &[MacAddr], values: &mut [u16]) -> u64 {
    reader.lookup_batch(keys, values)
}

#[inline(never)]
fn looks_up_one_burst_after_the_other(
    reader: &Reader<MacAddr, u16>,
    keys: &[MacAddr],
    values: &mut [u16],
) -> u64 {
    reader.lookup_batch_ahead(&keys[..1], values, &keys[1..])
}

#[inline(never)]
fn looks_up_one_list(
    reader: &Reader<MacAddr, u16>,
    keys: &[MacAddr],
    values: &mut [u16],
    hits: &mut [u64],
) {
    reader.lookup_all(keys, values, hits);
}

#[inline(never)]
fn looks_up_one(reader: &Reader<u128, u64>, key: u128) -> Option<u64> {
    reader.lookup(key)
}

/// What the test must be able to see.
#[inline(never)]
fn has_a_fence(word: &AtomicU64) -> u64 {
    fence(Ordering::SeqCst);
    word.load(Ordering::Relaxed)
}

#[inline(never)]
fn has_a_locked_instruction(word: &AtomicU64) -> u64 {
    word.fetch_add(1, Ordering::Relaxed)
}

#[inline(never)]
fn has_an_exchange(word: &AtomicU64) -> u64 {
    word.swap(1, Ordering::Relaxed)
}

/// Functions by address: name and instructions.
type Functions = BTreeMap<u64, (String, Vec<String>)>;

fn disassemble() -> Functions {
    let program = std::env::current_exe().expect("this program has a file");
    let output = Command::new("objdump")
        .args(["--disassemble", "--demangle", "--no-show-raw-insn", "--section=.text"])
        .arg(program)
        .output()
        .unwrap_or_else(|error| panic!("objdump (Debian package binutils): {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut functions = Functions::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some((address, name)) = line.strip_suffix(">:").and_then(|l| l.split_once(" <")) {
            if let Ok(address) = u64::from_str_radix(address, 16) {
                functions.insert(address, (name.to_owned(), Vec::new()));
            }
        } else if let Some((_, instruction)) = line.split_once(":\t")
            && let Some(mut function) = functions.last_entry()
        {
            function.get_mut().1.push(instruction.trim().to_owned());
        }
    }
    functions
}

/// Address of a direct call's or jump's target: "call 2f0f0 <name+0x10>".
fn target(instruction: &str) -> Option<u64> {
    let (mnemonic, rest) = instruction.split_once(' ')?;
    if !mnemonic.starts_with("call") && !mnemonic.starts_with('j') {
        return None;
    }
    u64::from_str_radix(rest.split_whitespace().next()?, 16).ok()
}

fn orders_memory(instruction: &str) -> bool {
    let mut words = instruction.split_whitespace();
    let first = words.next().unwrap_or("");
    match first {
        "lock" | "mfence" | "lfence" | "sfence" | "cpuid" | "serialize" | "iret" => true,
        // With memory it locks without saying so.
        _ if first.starts_with("xchg") => instruction.contains('('),
        _ => false,
    }
}

/// The named functions, all that they call directly, and so on; not the ways out by panic.
fn reachable(functions: &Functions, names: &[&str]) -> BTreeSet<u64> {
    let mut open: Vec<u64> = functions
        .iter()
        .filter(|(_, (name, _))| names.iter().any(|wanted| name.contains(wanted)))
        .map(|(&address, _)| address)
        .collect();
    let mut seen = BTreeSet::new();
    while let Some(address) = open.pop() {
        let Some((&start, (name, instructions))) = functions.range(..=address).next_back() else {
            continue;
        };
        if name.contains("panic") || !seen.insert(start) {
            continue;
        }
        open.extend(instructions.iter().filter_map(|instruction| target(instruction)));
    }
    seen
}

#[test]
fn lookups_order_no_memory() {
    // All that is looked for has to be in the program.
    let mut writer = Writer::<MacAddr, u16>::new(&Config::buckets(2)).unwrap();
    writer.insert(MacAddr::from([1; 6]), 7).unwrap();
    let wide = Writer::<u128, u64>::new(&Config::buckets(2)).unwrap();
    let mut values = [0];
    assert_eq!(looks_up_a_burst(&writer.reader(), &[MacAddr::from([1; 6])], &mut values), 1);
    let two = [MacAddr::from([1; 6]); 2];
    assert_eq!(looks_up_one_burst_after_the_other(&writer.reader(), &two, &mut values), 1);
    let mut hits = [0];
    looks_up_one_list(&writer.reader(), &two[..1], &mut values, &mut hits);
    assert_eq!(hits, [1]);
    assert_eq!(looks_up_one(&wide.reader(), 1), None);
    let word = AtomicU64::new(0);
    black_box(has_a_fence(&word) + has_a_locked_instruction(&word) + has_an_exchange(&word));

    let functions = disassemble();
    let ordering = |names: &[&str]| {
        let mut found = Vec::new();
        for address in reachable(&functions, names) {
            let (name, instructions) = &functions[&address];
            found.extend(
                instructions.iter().filter(|i| orders_memory(i)).map(|i| format!("{name}: {i}")),
            );
        }
        found
    };
    for guilty in ["has_a_fence", "has_a_locked_instruction", "has_an_exchange"] {
        assert_ne!(ordering(&[guilty]), [""; 0], "{guilty} was not noticed");
    }
    // `simd::` holds the kernels, called by pointer; the rest is called from the functions above.
    for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512].map(Isa::name) {
        for entry in ["one", "batch", "all"] {
            let name = format!("fib::simd::{isa}::{entry}");
            assert!(functions.values().any(|f| f.0.contains(&name)), "{name} is not there");
        }
    }
    let lookup = ["fib::simd::", "looks_up_a_burst", "looks_up_one"];
    let found = ordering(&lookup);
    assert!(found.is_empty(), "{found:#?}");
    let functions = reachable(&functions, &lookup).len();
    println!("{functions} functions of lookups, none orders memory");
}
