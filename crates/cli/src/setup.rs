//! Sets up a measuring command: its core, Ctrl-C, a progress bar, the command line.

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use overbank_kit::machine;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Pins this thread to the wanted core, or to the last one.
pub fn pin(wanted: Option<usize>) -> Result<Option<usize>> {
    machine::pin(wanted).context("--core")
}

/// Returns a flag that Ctrl-C sets; the second Ctrl-C ends the process.
pub fn stop_on_ctrl_c() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let set = stop.clone();
    ctrlc::set_handler(move || {
        if set.swap(true, Ordering::Relaxed) {
            // The second Ctrl-C ends the process at once.
            std::process::exit(130);
        }
    })
    .context("cannot handle Ctrl-C")?;
    Ok(stop)
}

/// Returns a bar on standard error; hidden if that is not a terminal or with `quiet`.
pub fn progress_bar(quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {percent:>3}%  {eta} left  {msg}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Returns the command line as typed, for reports.
pub fn command_line() -> String {
    let mut words = std::env::args();
    words.next();
    let words: Vec<String> = std::iter::once("overbank".to_owned()).chain(words).collect();
    words.join(" ")
}
