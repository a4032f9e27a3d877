//! The design that we recommend, in one place: the grid measures it, the floor and the questions show
//! it, `advise` compares with it. And the short list from which both choose where they can try.
//!
//! # Where nothing is known
//!
//! One design serves every load α and skew θ. On a Zen 5 with 32 MiB of last-level cache, in short
//! runs (a miss of 1000 cycles; all 18 cells of the grid at 4 MiB, and α = 0.5, 0.75 and 2 without
//! skew at 64 MiB) it has 0.98 to 2.5 of the throughput of the best of the paper's designs in the
//! same cell; the grid's record has all cells.
//! `blp-2-16+half-bubble` looks up somewhat faster past four fifths
//! full, but around α = 1 it falls behind 2-4 cuckoo-lite (0.9). Three things make one design do:
//!
//! - while a table has room, its probe reads one line a key, as that of a set-associative table
//!   (`cuckoo` looks at second buckets only where it must);
//! - nearly full, two lines anywhere hold more than two lines side by side;
//! - past that, promotion pays with skew, and half-bubble rests without.
//!
//! That is for traffic that stays as it is. Under a hot set that moves quickly it hits less often
//! than 2-4 BLP: 3.2 points less at α = 3, θ = 0.99, where the ranks move on by 1 % of the flows
//! every α·slots packets, and 1.1 points less where they move on by 10 %; at 0.1 % it still hits
//! more often (experiment `churn`, docs/records). Probably promotion keeps flows that were
//! hot before. `overbank advise` measures on the sequence itself.
//!
//! # Where one can try
//!
//! How much a second line costs depends on the machine. On a Sapphire Rapids core, where at most so
//! many lines are under way that a burst waits for each, two lines a key in 64 MiB cost more than
//! what they save in misses once the table is crowded and traffic is skewed: `set-16+pblru`, one
//! line a key, then has 1.1 of the throughput of the paper's best design and 1.3 of
//! `cuckoo-2-16+half-bubble`'s. So the grid tries the [`SHORTLIST`], bursts alone and ahead, for
//! some rounds and takes the fastest, and `overbank advise` tries it, bursts alone, with the traffic at
//! hand.

use overbank::cache::{Design, GeometryKind, PolicyKind};

/// Its name.
pub const RECOMMENDED: &str = "cuckoo-2-16+half-bubble";

/// Designs worth a trial: ours; one line a key, with an order for skew and without for no skew; and
/// two lines side by side.
pub const SHORTLIST: [&str; 4] = [RECOMMENDED, "set-16+pblru", "set-16", "blp-2-16+half-bubble"];

/// The design.
pub fn recommended() -> Design {
    Design::new(GeometryKind::Cuckoo2x16, PolicyKind::HalfBubble)
        .expect("half-bubble goes with every geometry")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_that_of_the_design() {
        assert_eq!(recommended().to_string(), RECOMMENDED);
        for name in SHORTLIST {
            assert_eq!(name.parse::<Design>().unwrap().to_string(), name);
        }
    }
}
