//! Which sizes are measured: those of the experiment or those asked for, as far as memory goes.

use super::optimistic::Optimistic;
use overbank_kit::experiment::{Context, LabError, Record};
use overbank_kit::machine::{last_level_cache_bytes, memory_available_bytes};

/// Kept free for everything else, and for what the kernel needs to map a table.
const RESERVE_BYTES: u64 = 512 << 20;
/// Entries of a table that can be asked for.
pub const ENTRIES: std::ops::RangeInclusive<u64> = 1000..=3_000_000_000;

/// The sizes of an experiment, in entries, ascending.
pub(super) fn wanted(context: &Context<'_>, smoke: &[u64], full: &[u64]) -> Vec<u64> {
    let own = if context.smoke() { smoke } else { full };
    let mut sizes = if context.entries.is_empty() { own } else { context.entries }.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Bytes of a forwarding table for `entries` entries at 95 %.
pub(super) fn fib_bytes(entries: u64) -> u64 {
    // 7 entries in a line of 64 bytes.
    (entries * 100).div_ceil(95 * 7) * 64 + 128
}

/// Bytes of a table of figure 5's baseline.
pub(super) fn optimistic_bytes(entries: u64) -> u64 {
    Optimistic::bytes_for(entries as usize) as u64
}

/// Whether so much memory can be had now.
pub(super) fn fits(bytes: u64) -> bool {
    memory_available_bytes().is_none_or(|free| bytes.saturating_add(RESERVE_BYTES) <= free)
}

/// What is left out for want of memory, in one line; `None` if nothing is.
pub(super) fn does_not_fit(entries: u64, bytes: u64) -> Option<String> {
    if fits(bytes) {
        return None;
    }
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let free = memory_available_bytes().unwrap_or(0);
    Some(format!(
        "{} entries left out: {:.1} GiB and {:.1} in reserve do not fit into the {:.1} GiB that are \
         free",
        name(entries),
        gib(bytes),
        gib(RESERVE_BYTES),
        gib(free)
    ))
}

/// Measures one size after the other, with progress by entries, most of which goes into building.
/// Gives what was measured, and the lines of those that `measure` left out for want of memory.
pub(super) fn each<M>(
    context: &mut Context<'_>,
    wanted: &[u64],
    mut measure: impl FnMut(&mut Context<'_>, u64) -> Result<Result<M, String>, LabError>,
) -> Result<(Vec<M>, Vec<String>), LabError> {
    let (mut all, mut missing) = (Vec::new(), Vec::new());
    let total: u64 = wanted.iter().sum();
    let at = |entries: u64| entries as f64 / total.max(1) as f64;
    let mut before = 0;
    for &entries in wanted {
        let part = (at(before), at(before + entries));
        match context.part(part, |context| measure(context, entries))? {
            Ok(measured) => all.push(measured),
            Err(line) => {
                context.step(&line, part.0)?;
                missing.push(line);
            }
        }
        before += entries;
    }
    Ok((all, missing))
}

/// Notes what was left out; an error if that is everything.
pub(super) fn left_out(
    record: &mut Record,
    all: &[u64],
    missing: Vec<String>,
) -> Result<(), LabError> {
    if !missing.is_empty() && missing.len() == all.len() {
        return Err(LabError::Failed(missing.join("; ")));
    }
    record.notes.extend(missing.into_iter().map(|line| format!("{line}.")));
    Ok(())
}

/// Whether a table of `bytes` bytes is past the last-level cache; `None` where that is not known.
pub(super) fn past_the_caches(bytes: u64) -> Option<bool> {
    last_level_cache_bytes().map(|cache| bytes > cache as u64)
}

/// "10 k", "16 M", "1 G".
pub(super) fn name(entries: u64) -> String {
    for (unit, letter) in [(1_000_000_000, 'G'), (1_000_000, 'M'), (1000, 'k')] {
        if entries >= unit {
            let whole = entries as f64 / unit as f64;
            return if entries.is_multiple_of(unit) {
                format!("{whole} {letter}")
            } else {
                format!("{whole:.2} {letter}")
            };
        }
    }
    entries.to_string()
}

/// Bytes of an entry in a table 95 % full: what the configuration gives, for tests of the above.
#[cfg(test)]
fn real_fib_bytes(entries: u64) -> u64 {
    use overbank::fib::{Config, Key6, Writer};
    let writer = Writer::<Key6, u16>::new(&Config::entries(entries as usize)).expect("small");
    writer.reader().bytes() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_tables() {
        for entries in [1000, 12_345, 1_000_000] {
            assert_eq!(fib_bytes(entries), real_fib_bytes(entries));
        }
        // Under 9 GiB for a billion.
        assert!(fib_bytes(1_000_000_000) < 9 << 30);
        assert!(optimistic_bytes(1_000_000_000) < 8 << 30);
    }

    #[test]
    fn names() {
        let names = [999, 10_000, 16_000_000, 1_500_000, 1_000_000_000].map(name);
        assert_eq!(names, ["999", "10 k", "16 M", "1.50 M", "1 G"]);
    }

    #[test]
    fn what_does_not_fit_is_said_in_one_line() {
        assert_eq!(does_not_fit(1000, 1000), None);
        let line = does_not_fit(3_000_000_000, 1 << 60).expect("an exbibyte");
        assert!(line.starts_with("3 G entries left out: ") && !line.contains('\n'), "{line}");
    }
}
