//! Rounds in which contestants take turns: each begins with the contestant after the one that began
//! the round before, so that none always follows the same one. A shared machine is faster in one
//! round than in the next, so contestants are compared round by round ([`Rounds::ratio`]), never
//! median with median.

use crate::experiment::LabError;
use crate::spread::Spread;

/// Returns the order of `count` contestants in a round.
pub fn turns(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |place| (round + place) % count)
}

#[derive(Clone, Debug, PartialEq)]
pub struct Rounds {
    pub figures: Vec<Vec<f64>>,
}

impl Rounds {
    /// Runs them: `turn` gets a contestant and the number of the round and returns its figure;
    /// `step` gets the share done and may end it.
    pub fn run<C>(
        contestants: &mut [C],
        rounds: usize,
        mut step: impl FnMut(f64) -> Result<(), LabError>,
        mut turn: impl FnMut(&mut C, usize) -> Result<f64, LabError>,
    ) -> Result<Rounds, LabError> {
        let mut figures = vec![Vec::with_capacity(rounds); contestants.len()];
        for round in 0..rounds {
            step(round as f64 / rounds as f64)?;
            for at in turns(round, contestants.len()) {
                figures[at].push(turn(&mut contestants[at], round)?);
            }
        }
        Ok(Rounds { figures })
    }

    pub fn spread(&self, contestant: usize) -> Spread {
        Spread::of(self.figures[contestant].iter().copied())
    }

    /// Returns the figures of a contestant as multiples of another's in the same round.
    pub fn ratio(&self, contestant: usize, to: usize) -> Spread {
        let of = |contestant: usize| self.figures[contestant].iter().copied();
        Spread::of_ratios(of(contestant), of(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each round begins one further on, and none is left out.
    #[test]
    fn contestants_take_turns() {
        let order = |round| turns(round, 3).collect::<Vec<_>>();
        assert_eq!([order(0), order(1), order(2)], [[0, 1, 2], [1, 2, 0], [2, 0, 1]]);
        assert_eq!(order(3), order(0));
        assert_eq!(turns(5, 0).count(), 0);

        let mut went = Vec::new();
        let turn = |name: &mut char, round: usize| {
            went.push(*name);
            Ok((round + 1) as f64 * if *name == 'a' { 2.0 } else { 1.0 })
        };
        let rounds = Rounds::run(&mut ['a', 'b'], 3, |_| Ok(()), turn).unwrap();
        assert_eq!(went, ['a', 'b', 'b', 'a', 'a', 'b']);
        assert_eq!(rounds.figures, [[2.0, 4.0, 6.0], [1.0, 2.0, 3.0]]);
        assert_eq!(rounds.spread(0), Spread { median: 4.0, low: 2.0, high: 6.0 });
        assert_eq!(rounds.ratio(0, 1), Spread { median: 2.0, low: 2.0, high: 2.0 });
        let stopped = Rounds::run(&mut ['a'], 1, |_| Err(LabError::Stopped), |_, _| Ok(0.0));
        assert!(matches!(stopped, Err(LabError::Stopped)));
    }
}
