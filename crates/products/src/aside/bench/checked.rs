//! Values, and whether answers are right.

use crate::aside::AsideError;
use crate::aside::mix::{Kind, Op};
use overbank::hash::mix;
use std::collections::HashSet;

/// Returns the value of a key: a hash of it, and the number of its last write.
pub fn value(key: u64, version: u32) -> u64 {
    mix(key) & !0xffff_ffff | u64::from(version)
}

/// Checks answers: each must have the hash of its key and, under test, the number of the key's last
/// write. A key may be absent only in a group of operations that inserts it: the lookups of a group
/// come before its writes.
///
/// The values of another program's database are not known: one answer in [`SAMPLED`] is noted, to
/// be compared with the database's.
#[derive(Clone, Default)]
pub struct Checked {
    wrong: u64,
    missing: u64,
    /// Keys that a group did not find.
    absent: Vec<u64>,
    writes: u32,
    sample: Option<Sample>,
    #[cfg(test)]
    last: std::collections::HashMap<u64, u32>,
}

/// Answers of which one is noted.
const SAMPLED: u32 = 64;

#[derive(Clone, Default)]
struct Sample {
    seen: u32,
    answers: Vec<(u64, Option<u64>)>,
}

impl Checked {
    /// For a database of another program.
    pub fn others() -> Checked {
        Checked { sample: Some(Sample::default()), ..Checked::default() }
    }

    #[inline(always)]
    pub fn see(&mut self, key: u64, found: Option<u64>) {
        if let Some(Sample { seen, answers }) = &mut self.sample {
            *seen = seen.wrapping_add(1);
            if *seen % SAMPLED == 0 {
                answers.push((key, found));
            }
            return;
        }
        match found {
            Some(found) => {
                let right = (found ^ mix(key)) >> 32 == 0 && self.is_last(key, found as u32);
                self.wrong += u64::from(!right);
            }
            None => self.absent.push(key),
        }
    }

    #[cfg(test)]
    fn is_last(&self, key: u64, version: u32) -> bool {
        self.last.get(&key).copied().unwrap_or(0) == version
    }

    #[cfg(not(test))]
    #[inline(always)]
    fn is_last(&self, _: u64, _: u32) -> bool {
        true
    }

    /// Returns the value that a key is to have next.
    pub fn write(&mut self, key: u64) -> u64 {
        self.writes = self.writes.wrapping_add(1);
        #[cfg(test)]
        self.last.insert(key, self.writes);
        value(key, self.writes)
    }

    /// Ends a group of operations; `ops` are those that may insert what its lookups did not find.
    pub fn close(&mut self, ops: &[Op]) {
        if self.absent.is_empty() {
            return;
        }
        let inserts = ops.iter().filter(|op| op.kind == Kind::Insert);
        let inserted: HashSet<u64> = inserts.map(|op| op.key).collect();
        let missing = self.absent.drain(..).filter(|key| !inserted.contains(key));
        self.missing += missing.count() as u64;
    }

    /// Compares the answers noted since the last time; `wrong` counts those that are others.
    pub fn recheck(
        &mut self,
        wrong: impl FnOnce(&[(u64, Option<u64>)]) -> Result<u64, AsideError>,
    ) -> Result<(), AsideError> {
        if let Some(Sample { answers, .. }) = &mut self.sample {
            self.wrong += wrong(answers)?;
            answers.clear();
        }
        Ok(())
    }

    pub fn verdict(&mut self) -> Result<(), AsideError> {
        match (std::mem::take(&mut self.wrong), std::mem::take(&mut self.missing)) {
            (0, 0) => Ok(()),
            (wrong, absent) => Err(AsideError::Wrong { wrong, absent }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(run: impl FnOnce(&mut Checked)) -> Option<(u64, u64)> {
        let mut checked = Checked::default();
        run(&mut checked);
        match checked.verdict() {
            Err(AsideError::Wrong { wrong, absent }) => Some((wrong, absent)),
            _ => None,
        }
    }

    #[test]
    fn only_the_last_write_is_right() {
        assert_eq!(verdict(|checked| checked.see(7, Some(value(7, 0)))), None);
        assert_eq!(verdict(|checked| checked.see(7, Some(value(8, 0)))), Some((1, 0)));
        let written = |answer: fn(u64, u64) -> u64| {
            verdict(|checked| {
                let (old, new) = (checked.write(7), checked.write(7));
                checked.see(7, Some(answer(old, new)));
            })
        };
        assert_eq!(written(|_, new| new), None);
        assert_eq!(written(|old, _| old), Some((1, 0)));
    }

    #[test]
    fn answers_of_another_database_are_sampled() {
        let mut checked = Checked::others();
        (0..2 * u64::from(SAMPLED)).for_each(|key| checked.see(key, None));
        let mut sampled = 0;
        let mut recheck = || {
            let wrong = |sample: &[_]| Ok(sample.len() as u64);
            checked.recheck(|sample| {
                sampled += sample.len();
                wrong(sample)
            })
        };
        recheck().and_then(|()| recheck()).expect("no database failed");
        assert_eq!(sampled, 2, "each once");
        assert!(matches!(checked.verdict(), Err(AsideError::Wrong { wrong: 2, absent: 0 })));
    }

    #[test]
    fn a_key_is_absent_only_in_the_group_that_inserts_it() {
        let op = |kind, key| Op { kind, key };
        let absent = |ops: &[Op]| {
            verdict(|checked| {
                checked.see(7, None);
                checked.close(ops);
                checked.close(&[op(Kind::Insert, 7)]);
            })
        };
        assert_eq!(absent(&[op(Kind::Read, 7), op(Kind::Insert, 7)]), None);
        assert_eq!(absent(&[op(Kind::Update, 7), op(Kind::Insert, 8)]), Some((0, 1)));
        assert_eq!(absent(&[]), Some((0, 1)));
    }
}
