//! Verdicts: the action programs of megaflows, each kept once.
//!
//! A hundred thousand megaflows usually share a handful of programs, so a megaflow holds a number
//! and the programs stay in the CPU's caches. References are counted; a number is given out again
//! when nothing refers to it.

use crate::drop::DropReason;
use crate::translate::Op;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// What happens to every packet of a megaflow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Verdict {
    /// The steps, in order.
    pub program: Box<[Op]>,
    /// Why nothing is output, where nothing is.
    pub drop: Option<DropReason>,
}

/// A verdict in the form that the packet path asks for first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortcut {
    /// The program is one output of the frame as it came.
    Output(u32),
    /// The program is empty.
    Drop(DropReason),
    /// Run the program.
    Program,
}

#[derive(Debug)]
struct Slot {
    shortcut: Shortcut,
    references: u32,
    verdict: Verdict,
}

/// The verdicts in use, by number.
#[derive(Debug)]
pub struct Verdicts {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_value: HashMap<Verdict, u32, FixedState>,
}

impl Verdicts {
    /// None yet.
    pub fn new(seed: u64) -> Verdicts {
        Verdicts {
            slots: Vec::new(),
            free: Vec::new(),
            by_value: HashMap::with_hasher(FixedState::with_seed(seed)),
        }
    }

    /// The number of a verdict, with one more reference to it.
    pub fn acquire(&mut self, verdict: Verdict) -> u32 {
        if let Some(&number) = self.by_value.get(&verdict) {
            self.slots[number as usize].references += 1;
            return number;
        }
        let shortcut = match (&verdict.program[..], verdict.drop) {
            (&[Op::Output(port)], None) => Shortcut::Output(port),
            (&[], reason) => Shortcut::Drop(reason.unwrap_or(DropReason::NoOutput)),
            _ => Shortcut::Program,
        };
        let slot = Slot { shortcut, references: 1, verdict: verdict.clone() };
        let number = match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = slot;
                number
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        self.by_value.insert(verdict, number);
        number
    }

    /// Gives one reference back.
    pub fn release(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        slot.references -= 1;
        if slot.references == 0 {
            self.by_value.remove(&slot.verdict);
            self.free.push(number);
        }
    }

    /// What the packet path asks for first.
    #[inline]
    pub fn shortcut(&self, number: u32) -> Shortcut {
        self.slots[number as usize].shortcut
    }

    /// The verdict itself.
    #[inline]
    pub fn get(&self, number: u32) -> &Verdict {
        &self.slots[number as usize].verdict
    }

    /// How many different verdicts are in use.
    pub fn len(&self) -> usize {
        self.by_value.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_value.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(ports: &[u32]) -> Verdict {
        Verdict { program: ports.iter().map(|&p| Op::Output(p)).collect(), drop: None }
    }

    #[test]
    fn equal_verdicts_share_a_number_until_the_last_reference_goes() {
        let mut verdicts = Verdicts::new(1);
        let (a, b) = (verdicts.acquire(output(&[1])), verdicts.acquire(output(&[1, 2])));
        assert_eq!(verdicts.acquire(output(&[1])), a);
        assert_ne!(a, b);
        assert_eq!(verdicts.shortcut(a), Shortcut::Output(1));
        assert_eq!(verdicts.shortcut(b), Shortcut::Program);
        verdicts.release(a);
        assert_eq!(verdicts.len(), 2);
        verdicts.release(a);
        assert_eq!(verdicts.len(), 1);
        let dropped = Verdict { program: [].into(), drop: Some(DropReason::NoRule) };
        assert_eq!(verdicts.acquire(dropped), a, "the number is given out again");
        assert_eq!(verdicts.shortcut(a), Shortcut::Drop(DropReason::NoRule));
    }
}
