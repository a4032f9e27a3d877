//! The recommendation: is a proxy worth it, and with how many entries?
//!
//! Worth it is the smallest size that saves at least 95 % of what the best one saves, if that takes
//! a fifth of the commands off the server, and the server is busy at all. Saved are the reads that
//! the proxy answers less the fills that it asks for.

use super::record::{Recommendation, Size, Verdict};
use overbank_kit::report::count;

/// Share of the commands that a proxy must take off the server.
const SHARE_MIN: f64 = 0.2;
/// Share of the best that a smaller size must save.
const ENOUGH: f64 = 0.95;
/// Commands a second below which a server is hardly busy.
const BUSY: f64 = 1000.0;
/// Commands and seconds below which nothing can be said.
const COMMANDS_MIN: u64 = 1000;
const SECONDS_MIN: f64 = 2.0;

/// Recommends by sizes in ascending order; `cacheable` of the commands are reads that a cache could
/// answer.
pub fn recommend(commands: u64, cacheable: u64, seconds: f64, sizes: &[Size]) -> Recommendation {
    let not = |verdict, reason| Recommendation { verdict, entries: None, reason };
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    if commands < COMMANDS_MIN || seconds < SECONDS_MIN {
        let reason = format!(
            "Undecided: {} commands in {seconds:.1} s are too few; observe at least {} over some \
             minutes.",
            count(commands),
            count(COMMANDS_MIN)
        );
        return not(Verdict::TooShort, reason);
    }
    let share = cacheable as f64 / commands as f64;
    let best = sizes.iter().max_by(|a, b| a.saved.cmp(&b.saved).then(b.entries.cmp(&a.entries)));
    let Some(best) = best.filter(|_| share >= SHARE_MIN) else {
        let reason = format!(
            "Not worth it: only {} of the commands are reads that a cache could answer.",
            percent(share)
        );
        return not(Verdict::NotWorth, reason);
    };
    if best.command_share < SHARE_MIN {
        let (entries, off) = (count(best.entries as u64), percent(best.command_share.max(0.0)));
        let why = if best.fills.saturating_mul(2) >= best.hits.max(1) && best.promoted > 0 {
            format!(
                "keys change too often, {} fills for {} hits",
                count(best.fills),
                count(best.hits)
            )
        } else {
            format!("reads are spread over too many keys, {} answered", percent(best.read_share))
        };
        let reason = format!(
            "Not worth it: even with {entries} entries, {off} of the commands would be taken off \
             the server: {why}."
        );
        return not(Verdict::NotWorth, reason);
    }
    let enough = |size: &&Size| size.saved as f64 >= ENOUGH * best.saved as f64;
    let chosen = sizes.iter().find(enough).unwrap_or(best);
    let (entries, off) = (chosen.entries, percent(chosen.command_share));
    let rate = commands as f64 / seconds;
    if rate < BUSY {
        let reason = format!(
            "Not needed: at {rate:.0} commands a second the server is hardly busy, though --entries \
             {entries} would take {off} of them off it."
        );
        return Recommendation { verdict: Verdict::NotNeeded, entries: Some(entries), reason };
    }
    let reason = format!(
        "Worth it: `overbank kv proxy --entries {entries}` would answer {} of the reads that a \
         cache could answer, and take {off} of the commands off the server, {} a second.",
        percent(chosen.read_share),
        count((chosen.command_share * rate) as u64)
    );
    Recommendation { verdict: Verdict::Worth, entries: Some(entries), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(entries: usize, hits: u64, fills: u64) -> Size {
        Size::of(entries, hits, fills, (fills / 2, 0), (8000, 10_000))
    }

    #[track_caller]
    fn is(seconds: f64, sizes: &[Size], verdict: Verdict, entries: Option<usize>, reason: &str) {
        let found = recommend(10_000, 8000, seconds, sizes);
        assert_eq!((found.verdict, found.entries), (verdict, entries), "{}", found.reason);
        assert!(found.reason.contains(reason), "{}", found.reason);
    }

    #[test]
    fn the_smallest_size_that_saves_nearly_all_is_recommended() {
        let sizes = [size(10, 3000, 100), size(100, 5000, 200), size(1000, 5100, 250)];
        is(5.0, &sizes, Verdict::Worth, Some(100), "62.5 % of the reads");
        is(5.0, &sizes[..1], Verdict::Worth, Some(10), "29.0 % of the commands off");
        is(20.0, &sizes, Verdict::NotNeeded, Some(100), "hardly busy");
        is(1.0, &sizes, Verdict::TooShort, None, "too few");
    }

    #[test]
    fn the_reason_says_why_not() {
        is(5.0, &[size(10, 3000, 2500)], Verdict::NotWorth, None, "change too often");
        is(5.0, &[size(10, 500, 3)], Verdict::NotWorth, None, "spread over too many keys");
        is(5.0, &[size(10, 0, 0)], Verdict::NotWorth, None, "spread over too many keys");
        is(5.0, &[], Verdict::NotWorth, None, "only");
        let few = recommend(10_000, 100, 5.0, &[size(10, 3000, 10)]);
        assert!(few.reason.contains("only 1.0 %"), "{}", few.reason);
        let short = recommend(0, 0, 0.0, &[]);
        assert_eq!(short.verdict, Verdict::TooShort);
    }
}
