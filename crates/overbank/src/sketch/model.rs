//! The turn of epochs under loom: a counter counts one key while the keeper starts epochs, in every
//! order in which their accesses may happen or be seen, up to a bound of preemptions.
//!
//!     cargo test -p overbank --lib --features loom sketch::model
//!
//! Each count is in one epoch. The checker also reports a counter's word that the keeper clears
//! while the counter may read it.

use loom::thread;

use super::{Config, Counter, Keeper, Settings};

const KEY: u128 = 1 << 64 | 2;
const COUNTS: u64 = 2;
const SETTINGS: Settings = Settings { threshold: 1, sample_log2: 0 };

/// Checks `scene` with a counter and its keeper in every order.
fn check(scene: impl Fn(Counter, Keeper) + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(2));
    model.check(move || {
        let config = Config { counters_log2: 2, bloom_log2: 6 };
        let (counter, keeper) = config.build(0, SETTINGS).expect("small");
        scene(counter, keeper);
    });
}

/// Counts the key in another thread, which returns the counter.
fn count(mut counter: Counter) -> thread::JoinHandle<Counter> {
    thread::spawn(move || {
        (0..COUNTS).for_each(|_| assert!(counter.count_batch(&[KEY]) <= 1));
        counter
    })
}

#[test]
fn every_count_is_in_one_epoch() {
    check(|counter, mut keeper| {
        let counting = count(counter);
        let (mut total, mut turns, mut open) = (0, 0, false);
        for _ in 0..2 {
            if let Some(counts) = keeper.finished().filter(|_| open) {
                assert_eq!(u64::from(counts.estimate(KEY)), counts.samples());
                assert_eq!(counts.reported(KEY), counts.samples() >= 1);
                total += counts.samples();
                open = false;
            }
            if !open && keeper.turn(SETTINGS) {
                turns += 1;
                open = true;
            }
        }
        let mut counter = counting.join().expect("no panic");
        assert!(turns > 0, "nothing hinders the first turn");
        counter.attend();
        if open {
            total += keeper.finished().expect("attended").samples();
        }
        assert_eq!(total + keeper.live().samples(), COUNTS);
    });
}

/// The keeper asks for a second turn at once: refused unless the counter has taken the first.
#[test]
fn no_generation_is_cleared_while_it_is_written() {
    check(|counter, mut keeper| {
        let counting = count(counter);
        assert!(keeper.turn(SETTINGS), "nothing hinders the first turn");
        keeper.turn(SETTINGS);
        counting.join().expect("no panic");
        for counts in [Some(keeper.live()), keeper.finished()].into_iter().flatten() {
            assert_eq!(u64::from(counts.estimate(KEY)), counts.samples());
        }
    });
}
