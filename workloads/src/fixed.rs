//! Makes addresses the same in every run: without address space randomization, and one thread.
#![allow(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Asks for the current personality.
const QUERY: libc::c_ulong = 0xffff_ffff;

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

/// Fails if the process has more than one thread: the hooks are for one.
pub fn one_thread() -> Result<()> {
    let tasks = std::fs::read_dir("/proc/self/task").context("/proc/self/task")?.count();
    if tasks != 1 {
        bail!("internal error: {tasks} threads; please report it");
    }
    Ok(())
}
