//! The hooks: what the instrumented code calls at every load and store, and its SDC instructions.
//!
//! One pointer to the machine says whether the hooks are on. It is null but during a pass. Of the
//! two threads one waits for the other ([`crate::fixed`]), and no hook runs inside another, because
//! the machine is not instrumented: so the machine has one user at a time.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use overbank_sdc::{Machine, Refused, Shape};
use overbank_watched::walk::walk;

static MACHINE: AtomicPtr<Machine> = AtomicPtr::new(null_mut());
/// Number of this process in the machine's SDC.
const PROCESS: u8 = 0;

/// Runs `work` with the hooks on.
pub fn watched<R>(machine: &mut Machine, work: impl FnOnce() -> R) -> R {
    /// Turns the hooks off, after a panic too.
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            MACHINE.store(null_mut(), Relaxed);
        }
    }
    MACHINE.store(machine, Relaxed);
    let _off = Off;
    work()
}

/// Returns whether the program was built with hooks.
pub fn are_there(shape: &Shape) -> Result<bool, Refused> {
    let mut machine = Machine::new(shape)?;
    black_box(watched(&mut machine, || walk(&[0; 2], 1, 0, 1)));
    Ok(machine.counters().accesses > 0)
}

#[inline(always)]
fn machine() -> Option<&'static mut Machine> {
    // SAFETY: the pointer is null or that of `watched`, whose caller has lent the machine until the
    // pointer is null again. The machine has one user meanwhile (head of this file).
    unsafe { MACHINE.load(Relaxed).as_mut() }
}

/// Asks the host's memory for what the program accesses next: it comes while the machine counts.
#[inline(always)]
fn prefetch(address: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint: it reads nothing, and an address without memory is ignored.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address as usize));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Counts a load of what no hook sees.
pub fn load<T>(of: &T) {
    if let Some(machine) = machine() {
        machine.load(std::ptr::from_ref(of).addr() as u64, size_of::<T>() as u32);
    }
}

macro_rules! hooks {
    ($($load:ident $store:ident $len:literal),+ $(,)?) => {
        $(
            // SAFETY: no other function has the name, which LLVM has chosen.
            #[unsafe(no_mangle)]
            extern "C" fn $load(address: u64) {
                if let Some(machine) = machine() {
                    prefetch(address);
                    machine.load(address, $len);
                }
            }
            // SAFETY: as above.
            #[unsafe(no_mangle)]
            extern "C" fn $store(address: u64) {
                if let Some(machine) = machine() {
                    prefetch(address);
                    machine.store(address, $len);
                }
            }
        )+
    };
}

hooks! {
    __sanitizer_cov_load1 __sanitizer_cov_store1 1,
    __sanitizer_cov_load2 __sanitizer_cov_store2 2,
    __sanitizer_cov_load4 __sanitizer_cov_store4 4,
    __sanitizer_cov_load8 __sanitizer_cov_store8 8,
    __sanitizer_cov_load16 __sanitizer_cov_store16 16,
}

// SAFETY: the declaration in `watched/src/outside.rs` is the only other use of the name.
#[unsafe(no_mangle)]
extern "C" fn overbank_sdc_lookup(key: u64, value: &mut u64) -> bool {
    machine().is_some_and(|machine| machine.sdc_lookup(PROCESS, key, std::slice::from_mut(value)))
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn overbank_sdc_insert(key: u64, value: u64) {
    if let Some(machine) = machine() {
        machine.sdc_insert(PROCESS, key, &[value]);
    }
}

// SAFETY: as above. The value goes to memory.
#[unsafe(no_mangle)]
extern "C" fn overbank_sdc_lookup_words(key: u64, to: &mut [u64; 8], words: usize) -> bool {
    let (Some(machine), Some(to)) = (machine(), to.get_mut(..words)) else { return false };
    let hit = machine.sdc_lookup(PROCESS, key, to);
    if hit {
        machine.store(to.as_ptr().addr() as u64, size_of_val(to) as u32);
    }
    hit
}

// SAFETY: as above. The value comes from memory; the caller has `words` words there.
#[unsafe(no_mangle)]
unsafe extern "C" fn overbank_sdc_insert_words(key: u64, from: *const u64, words: usize) {
    if let Some(machine) = machine() {
        machine.load(from.addr() as u64, (words * size_of::<u64>()) as u32);
        // SAFETY: the caller's.
        machine.sdc_insert(PROCESS, key, unsafe { std::slice::from_raw_parts(from, words) });
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn overbank_sdc_invalidate(key: u64) {
    if let Some(machine) = machine() {
        machine.sdc_invalidate(PROCESS, key);
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn overbank_sdc_false_hit() {
    if let Some(machine) = machine() {
        machine.false_hit();
    }
}
