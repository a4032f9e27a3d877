//! The design that we recommend, in one place: the grid measures it, the floor and the questions
//! show it, `advise` compares with it. And the short list from which both choose where they can
//! try.
//!
//! Where nothing is known, one design serves every load α and skew θ, because of three things:
//!
//! - while a table has room, its probe reads one line a key, as that of a set-associative table
//!   (`cuckoo` looks at second buckets only where it must);
//! - nearly full, two lines anywhere hold more than two lines side by side;
//! - past that, promotion pays with skew, and half-bubble rests without.
//!
//! That is for traffic that stays as it is: under a hot set that moves quickly, 2-4 BLP hits more
//! often (experiment `churn`); probably promotion keeps flows that were hot before.
//!
//! How much a second line costs depends on the machine: where few lines are under way at a time,
//! one line a key is the faster one in a crowded table with skewed traffic. So the grid tries the
//! [`SHORTLIST`], bursts alone and ahead, for some rounds and takes the fastest, and
//! `overbank advise` tries it, bursts alone, with the traffic at hand. docs/records has the grid of
//! two machines.

use overbank::cache::{Design, GeometryKind, PolicyKind};

pub const RECOMMENDED: &str = "cuckoo-2-16+half-bubble";

/// Designs worth a trial: ours; one line a key, with an order for skew and without for no skew; and
/// two lines side by side.
pub const SHORTLIST: [&str; 4] = [RECOMMENDED, "set-16+pblru", "set-16", "blp-2-16+half-bubble"];

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
