//! Makes addresses the same in every run: no address space randomization, a stack at a fixed place,
//! and one thread that works.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::ptr::{from_mut, null_mut};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Asks for the current personality.
const QUERY: libc::c_ulong = 0xffff_ffff;

/// Where the stack lies: below the arena.
const STACK: usize = 4 << 30;
const STACK_BYTES: usize = 8 << 20;

/// Turns off the randomization of addresses and runs the program again, once.
pub fn addresses() -> Result<()> {
    // SAFETY: changes no memory; the query changes nothing.
    let now = unsafe { libc::personality(QUERY) };
    let fixed = libc::ADDR_NO_RANDOMIZE;
    if now >= 0 && now & fixed != 0 {
        return Ok(());
    }
    // SAFETY: as above.
    if now < 0 || unsafe { libc::personality((now | fixed) as libc::c_ulong) } < 0 {
        // Some sandboxes forbid it. The run is right, its counters differ from others a little.
        return Ok(());
    }
    // SAFETY: as above. Some sandboxes ignore the call: another start would change nothing.
    if unsafe { libc::personality(QUERY) } & fixed == 0 {
        return Ok(());
    }
    let program = std::env::current_exe().context("cannot find this program")?;
    let error = Command::new(program).args(std::env::args_os().skip(1)).exec();
    Err(error).context("cannot run this program again")
}

/// Returns whether addresses are fixed.
pub fn are_fixed() -> bool {
    // SAFETY: changes nothing.
    let now = unsafe { libc::personality(QUERY) };
    now >= 0 && now & libc::ADDR_NO_RANDOMIZE != 0
}

/// Returns the time that this thread has been on a core. By the C library: valgrind hides what a
/// direct call is found by.
pub fn core_time() -> Duration {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the time is written to memory of its size, which is a time without that, too.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, time.as_mut_ptr());
        time.assume_init()
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Reserves zeros at an address.
///
/// # Errors
/// The addresses are in use, or the process may not reserve as many.
pub fn map(address: usize, bytes: usize) -> io::Result<()> {
    let (access, fixed) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_FIXED_NOREPLACE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    let wanted = address as *mut c_void;
    // SAFETY: takes no addresses that are in use. A kernel that does not know MAP_FIXED_NOREPLACE
    // may choose another place, which stays reserved and unused.
    let got = unsafe { libc::mmap(wanted, bytes, access, flags, -1, 0) };
    if got == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    if got != wanted {
        return Err(io::Error::from_raw_os_error(libc::EEXIST));
    }
    // Large pages of the host make a run faster; it is right without them.
    // SAFETY: changes no contents.
    let _ = unsafe { libc::madvise(wanted, bytes, libc::MADV_HUGEPAGE) };
    Ok(())
}

/// What a thread does, and what came out.
struct Job<F, R> {
    work: Option<F>,
    result: Option<Result<R, Box<dyn Any + Send>>>,
}

/// Does the job that `job` points to.
extern "C" fn do_job<F: FnOnce() -> R, R>(job: *mut c_void) -> *mut c_void {
    // SAFETY: `on_stack` lends its job to this thread and waits for its end.
    let job = unsafe { &mut *job.cast::<Job<F, R>>() };
    job.result = job.work.take().map(|work| catch_unwind(AssertUnwindSafe(work)));
    null_mut()
}

/// Runs `work` on a stack at a fixed address. The main thread's begins below arguments and
/// environment, so that their length would move it.
pub fn on_stack<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    fn of<F: FnOnce() -> R, R>(_: &F) -> extern "C" fn(*mut c_void) -> *mut c_void {
        do_job::<F, R>
    }
    map(STACK, STACK_BYTES).with_context(|| {
        format!("stack: cannot reserve {} MB of addresses at {STACK:#x}", STACK_BYTES >> 20)
    })?;
    let start = of(&work);
    let mut job = Job { work: Some(work), result: None };
    let (mut attributes, mut thread) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the attributes are initialised before they are used; the stack is this thread's alone
    // and never freed; the job outlives the thread, which is joined.
    let error = unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setstack(attributes.as_mut_ptr(), STACK as *mut c_void, STACK_BYTES);
        let job = from_mut(&mut job).cast();
        match libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), start, job) {
            0 => libc::pthread_join(thread.assume_init(), null_mut()),
            error => error,
        }
    };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error)).context("cannot start a thread");
    }
    job.result.context("internal error: no result")?.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Fails if the process has more than the main thread, which waits, and this one: the hooks are for
/// one.
pub fn one_thread() -> Result<()> {
    let tasks = std::fs::read_dir("/proc/self/task").context("/proc/self/task")?.count();
    if tasks > 2 {
        bail!("internal error: {tasks} threads; please report it");
    }
    Ok(())
}
