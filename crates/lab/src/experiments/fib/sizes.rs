//! The sizes that are measured: those of the experiment, or those asked for, that fit into memory.

use super::optimistic::Optimistic;
use crate::prelude::*;
use overbank_kit::machine::{last_level_cache_bytes, memory_available_bytes};

/// Kept free for everything else, and for what the kernel needs to map a table.
const RESERVE_BYTES: u64 = 512 << 20;
/// Entries of a table that can be asked for.
pub const ENTRIES: std::ops::RangeInclusive<u64> = 1000..=3_000_000_000;

/// Returns the bytes of a forwarding table for `entries` entries at 95 %.
pub(super) fn fib_bytes(entries: u64) -> u64 {
    // 7 entries in a line of 64 bytes.
    (entries * 100).div_ceil(95 * 7) * 64 + 128
}

pub(super) fn optimistic_bytes(entries: u64) -> u64 {
    Optimistic::bytes_for(entries as usize) as u64
}

pub(super) fn fits(bytes: u64) -> bool {
    memory_available_bytes().is_none_or(|free| bytes.saturating_add(RESERVE_BYTES) <= free)
}

/// Returns the sizes that do not fit into memory, in one line; `None` if all fit.
pub(super) fn does_not_fit(entries: u64, bytes: u64) -> Option<String> {
    if fits(bytes) {
        return None;
    }
    let free = memory_available_bytes().unwrap_or(0);
    let [bytes, reserve, free] = [bytes, RESERVE_BYTES, free].map(gib);
    Some(format!(
        "{} left out: {bytes:.1} GiB and {reserve:.1} in reserve do not fit into the {free:.1} GiB \
         that are free",
        name_of(entries)
    ))
}

pub(super) fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

/// Shows the bytes of an entry.
pub(super) fn each(bytes: u64, entries: u64) -> String {
    format!("{:.2}", bytes as f64 / entries as f64)
}

pub(super) fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// Makes a figure over the sizes of the experiment, or those asked for. Measures each whose tables
/// fit into memory, with progress by entries, most of which goes into building; the record notes
/// the others.
pub(super) fn figure<M>(
    context: &mut Context<'_>,
    experiment: &Experiment,
    (smoke, full): (&[u64], &[u64]),
    bytes: fn(u64) -> u64,
    mut measure: impl FnMut(&mut Context<'_>, u64) -> Result<M, LabError>,
) -> Result<(Record, Vec<M>), LabError> {
    context.step("starts", 0.0)?;
    let own = if context.smoke() { smoke } else { full };
    let mut sizes = if context.entries.is_empty() { own } else { context.entries }.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    let total = sizes.iter().sum::<u64>().max(1) as f64;
    let (mut all, mut missing, mut before) = (Vec::new(), Vec::new(), 0);
    for entries in sizes {
        let part = (before as f64 / total, (before + entries) as f64 / total);
        before += entries;
        if let Some(line) = does_not_fit(entries, bytes(entries)) {
            context.step(&line, part.0)?;
            missing.push(line);
        } else {
            all.push(context.part(part, |context| measure(context, entries))?);
        }
    }
    if all.is_empty() {
        return Err(LabError::Failed(missing.join("; ")));
    }
    let mut record = experiment.record(context);
    record.notes.extend(missing.into_iter().map(|line| format!("{line}.")));
    Ok((record, all))
}

/// Returns whether a table of `bytes` bytes is past the last-level cache; `None` where that is not
/// known.
pub(super) fn past_the_caches(bytes: u64) -> Option<bool> {
    last_level_cache_bytes().map(|cache| bytes > cache as u64)
}

/// Returns the largest table that the last-level cache holds with room to spare, of ascending ones.
pub(super) fn largest_cached<M>(all: &[M], bytes: impl Fn(&M) -> u64) -> Option<&M> {
    all.iter().rfind(|m| past_the_caches(2 * bytes(m)) == Some(false))
}

/// Returns a name like 10 k, 16 M or 1 G.
pub(super) fn name(entries: u64) -> String {
    let units = [(1_000_000_000, 'G'), (1_000_000, 'M'), (1000, 'k')];
    let Some((unit, letter)) = units.into_iter().find(|(unit, _)| entries >= *unit) else {
        return entries.to_string();
    };
    let digits = if entries.is_multiple_of(unit) { 0 } else { 2 };
    format!("{:.digits$} {letter}", entries as f64 / unit as f64)
}

pub(super) fn name_of(entries: u64) -> String {
    format!("{} entries", name(entries))
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank::fib::{Config, MacAddr, Writer};

    #[test]
    fn bytes_are_those_of_the_tables() {
        for entries in [1000, 12_345, 1_000_000] {
            let table = Writer::<MacAddr, u16>::new(&Config::entries(entries as usize)).unwrap();
            assert_eq!(fib_bytes(entries), table.reader().bytes() as u64);
        }
        // Under 9 GiB for a billion.
        assert!(fib_bytes(1_000_000_000) < 9 << 30);
        assert!(optimistic_bytes(1_000_000_000) < 8 << 30);
    }

    #[test]
    fn names_and_what_does_not_fit_are_short() {
        let names = [999, 10_000, 16_000_000, 1_500_000, 1_000_000_000].map(name);
        assert_eq!(names, ["999", "10 k", "16 M", "1.50 M", "1 G"]);
        assert_eq!(does_not_fit(1000, 1000), None);
        let line = does_not_fit(3_000_000_000, 1 << 60).expect("an exbibyte");
        assert!(line.starts_with("3 G entries left out: ") && !line.contains('\n'), "{line}");
    }
}
