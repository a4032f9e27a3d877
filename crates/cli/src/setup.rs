//! What every command that measures sets up: its core, Ctrl-C, a progress bar, the words typed.

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Pins this thread to the wanted core, or to the last one.
pub fn pin(wanted: Option<usize>) -> Result<Option<usize>> {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let Some(id) = wanted else {
        // Where pinning is not to be had, the measurement is still worth making.
        return Ok(cores.last().filter(|c| core_affinity::set_for_current(**c)).map(|c| c.id));
    };
    let names = || cores.iter().map(|c| c.id.to_string()).collect::<Vec<_>>().join(", ");
    match cores.iter().find(|c| c.id == id) {
        Some(core) if core_affinity::set_for_current(*core) => Ok(Some(id)),
        Some(_) => bail!("--core {id}: the system refuses to pin a thread to it"),
        None => bail!("--core {id}: no such core for this process, there are {}", names()),
    }
}

/// A flag that Ctrl-C sets; the second Ctrl-C ends the process.
pub fn stop_on_ctrl_c() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let set = stop.clone();
    ctrlc::set_handler(move || {
        if set.swap(true, Ordering::Relaxed) {
            // The second time, they mean it.
            std::process::exit(130);
        }
    })
    .context("cannot listen for Ctrl-C")?;
    Ok(stop)
}

/// A bar on standard error, unless that is no terminal or nobody wants it.
pub fn progress_bar(quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {percent:>3}%  {eta} left  {msg}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// What the user typed, for reports.
pub fn command_line() -> String {
    let mut words = std::env::args();
    words.next();
    let words: Vec<String> = std::iter::once("overbank".to_owned()).chain(words).collect();
    words.join(" ")
}
