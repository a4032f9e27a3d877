//! Which slots of a line count as used.

/// Used slots of a line of which few are used, at most.
pub const FEW: usize = 3;

/// Returns the slots of a line that have a tenth of the accesses of its hottest one at least.
///
/// Nearly all places of a cache have held several lines in turn, so most slots have an access.
///
/// ```
/// assert_eq!(overbank_sdc::used_slots(&[100, 10, 9, 0]), 2);
/// ```
pub fn used_slots(line: &[u64]) -> usize {
    let most = line.iter().max().copied().unwrap_or(0);
    line.iter().filter(|count| **count > 0 && count.saturating_mul(10) >= most).count()
}
