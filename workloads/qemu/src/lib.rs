//! A plugin of QEMU's user mode (API version 1): feeds the machine with each load and store of
//! `overbank-workloads`, built without hooks, whether the compiler's hooks would see it or not.
//!
//! ```text
//! overbank_client_next, call 1        the warm-up begins: accesses count from here
//!                       call W + 1    its last answer is there
//!                       call W + 2    the measured requests begin: counters start at zero
//!                       call W + L + 2    end: two objects of JSON on standard error
//! ```
//!
//! Two machines: `all` sees every access, `without_stack` those outside the stack. The client's
//! code is skipped, as in the other build. Arguments: `warmup=W,lookups=L,llc=BYTES`; page walks
//! are off. One thread.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Mutex;

use overbank_sdc::{Counters, Machine, Shape};

/// Functions of the client, and of this program around the loop that serves, contain these.
const CLIENT: [&str; 3] = ["overbank_client_", "18overbank_workloads", "4item8expected"];
const NEXT: &str = "overbank_client_next";
/// The stack of the thread that serves (`workloads/src/fixed.rs`).
const STACK: Range<u64> = 4 << 30..(4 << 30) + (8 << 20);

const NO_REGISTERS: c_int = 0;
const LOADS_AND_STORES: c_int = 3;

#[repr(C)]
struct Block {
    _opaque: [u8; 0],
}

#[repr(C)]
struct Instruction {
    _opaque: [u8; 0],
}

// The part of QEMU's plugin API, version 1, that is used here (docs/devel/tcg-plugins of QEMU 7.2).
unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: u64, call: unsafe extern "C" fn(u64, *mut Block));
    fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const Block, at: usize) -> *mut Instruction;
    fn qemu_plugin_insn_symbol(instruction: *const Instruction) -> *const c_char;
    fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Instruction,
        call: extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        call: unsafe extern "C" fn(c_uint, u32, u64, *mut c_void),
        flags: c_int,
        kinds: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_mem_size_shift(access: u32) -> c_uint;
    fn qemu_plugin_mem_is_store(access: u32) -> bool;
}

/// The API that this plugin speaks.
// SAFETY: QEMU reads the symbol of this name.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: c_int = 1;

struct Run {
    all: Machine,
    without_stack: Machine,
    /// Accesses that the second machine does not see.
    stack: u64,
    /// First instruction of [`NEXT`].
    next: Option<u64>,
    calls: u64,
    warmup: u64,
    lookups: u64,
    on: bool,
}

static RUN: Mutex<Option<Run>> = Mutex::new(None);

fn run(act: impl FnOnce(&mut Run)) {
    if let Ok(mut run) = RUN.lock()
        && let Some(run) = run.as_mut()
    {
        act(run);
    }
}

impl Run {
    fn next(&mut self) {
        self.calls += 1;
        let Run { calls, warmup, lookups, .. } = *self;
        self.on = calls <= warmup || (warmup + 2..warmup + 2 + lookups).contains(&calls);
        if calls == warmup + 2 {
            self.all.restart();
            self.without_stack.restart();
            self.stack = 0;
        } else if calls == warmup + 2 + lookups {
            let all = report(self.all.counters(), lookups);
            let without_stack = report(self.without_stack.counters(), lookups);
            let stack = self.stack as f64 / lookups as f64;
            eprintln!(
                "{}",
                serde_json::json!({ "all": all, "without_stack": without_stack, "stack": stack })
            );
        }
    }

    fn access(&mut self, address: u64, len: u32, store: bool) {
        if !self.on {
            return;
        }
        let is_stack = STACK.contains(&address);
        self.stack += u64::from(is_stack);
        let machines = [Some(&mut self.all), (!is_stack).then_some(&mut self.without_stack)];
        for machine in machines.into_iter().flatten() {
            if store {
                machine.store(address, len);
            } else {
                machine.load(address, len);
            }
        }
    }
}

/// Returns figures a lookup.
fn report(counters: &Counters, lookups: u64) -> serde_json::Value {
    let each = |n: u64| n as f64 / lookups as f64;
    serde_json::json!({
        "accesses": each(counters.accesses),
        "l1_misses": each(counters.l1.misses),
        "llc_misses": each(counters.llc.misses),
    })
}

extern "C" fn on_next(_cpu: c_uint, _data: *mut c_void) {
    run(Run::next);
}

unsafe extern "C" fn on_access(_cpu: c_uint, access: u32, address: u64, _data: *mut c_void) {
    // SAFETY: QEMU has handed out the access for this call.
    let (shift, store) =
        unsafe { (qemu_plugin_mem_size_shift(access), qemu_plugin_mem_is_store(access)) };
    run(|run| run.access(address, 1 << shift, store));
}

unsafe extern "C" fn on_block(_id: u64, block: *mut Block) {
    // SAFETY: the block lives for this call; its instructions are asked for by their numbers.
    unsafe {
        for at in 0..qemu_plugin_tb_n_insns(block) {
            let instruction = qemu_plugin_tb_get_insn(block, at);
            let symbol = qemu_plugin_insn_symbol(instruction);
            let symbol =
                if symbol.is_null() { "" } else { CStr::from_ptr(symbol).to_str().unwrap_or("") };
            if symbol == NEXT {
                // The first that is translated is the first of the function.
                let place = qemu_plugin_insn_vaddr(instruction);
                let mut is_first = false;
                run(|run| is_first = *run.next.get_or_insert(place) == place);
                if is_first {
                    qemu_plugin_register_vcpu_insn_exec_cb(
                        instruction,
                        on_next,
                        NO_REGISTERS,
                        null_mut(),
                    );
                }
            }
            if !CLIENT.iter().any(|part| symbol.contains(part)) {
                qemu_plugin_register_vcpu_mem_cb(
                    instruction,
                    on_access,
                    NO_REGISTERS,
                    LOADS_AND_STORES,
                    null_mut(),
                );
            }
        }
    }
}

/// Begins: QEMU calls it once. Returns 0, or 1 if the arguments are wrong.
///
/// # Safety
/// `arguments` are `count` strings.
// SAFETY: QEMU calls the function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    _about: *const c_void,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    let (mut warmup, mut lookups, mut shape) = (None, None, Shape::paper());
    shape.tlb.walk_levels = 0;
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the caller's promise.
        let argument = unsafe { CStr::from_ptr(*arguments.add(at)) }.to_str().unwrap_or("");
        let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
        match (name, value.parse::<u64>()) {
            ("warmup", Ok(n)) => warmup = Some(n),
            ("lookups", Ok(n)) => lookups = Some(n),
            ("llc", Ok(bytes)) => shape.llc.bytes = bytes,
            _ => {
                eprintln!("{argument}: must be warmup=N, lookups=N or llc=BYTES");
                return 1;
            }
        }
    }
    let (Some(warmup), Some(lookups)) = (warmup, lookups) else {
        eprintln!("must have warmup=N,lookups=N");
        return 1;
    };
    let (Ok(all), Ok(without_stack)) = (Machine::new(&shape), Machine::new(&shape)) else {
        eprintln!("llc={}: no such cache", shape.llc.bytes);
        return 1;
    };
    let (stack, calls, on) = (0, 0, false);
    let next = None;
    let begun = Run { all, without_stack, stack, next, calls, warmup, lookups, on };
    if let Ok(mut run) = RUN.lock() {
        *run = Some(begun);
    }
    // SAFETY: the call-back lives as long as the plugin.
    unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, on_block) };
    0
}
