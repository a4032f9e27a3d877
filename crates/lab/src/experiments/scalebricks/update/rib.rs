//! One part of the RIB: the owner's keys, from which it computes a change of the GPT, and the copy
//! of the GPT that any node has and applies the change to.

use crate::prelude::*;
use overbank::partition::setsep::{Config as SetSepConfig, GroupDelta, SetSep};
use overbank::partition::{Config, Delta, Replica, Writer};

/// Bits of a node's number: 32 nodes, as they may join later.
pub(super) const VALUE_BITS: usize = 5;

pub(super) trait Part: Sized {
    const NAME: &'static str;

    fn build(entries: &[(u64, u8)]) -> Result<Self, LabError>;

    /// Has the owner give a key another value. The delta is kept for [`Part::apply`].
    fn change(&mut self, hash: u64, value: u8) -> Result<(), LabError>;

    /// Applies up to `count` of the kept deltas to the copy, in order; returns their number.
    fn apply(&mut self, count: usize) -> Result<usize, LabError>;

    /// Returns the value of a key by the copy.
    fn value(&self, hash: u64) -> u8;

    /// Returns the bits of the last delta: of its content, and of all that is sent for it.
    fn delta_bits(&self) -> [usize; 2];
}

/// Deltas in their order, and the number of those that are applied.
struct Kept<D> {
    deltas: Vec<D>,
    applied: usize,
    last: [usize; 2],
}

impl<D> Kept<D> {
    fn new() -> Self {
        Kept { deltas: Vec::new(), applied: 0, last: [0; 2] }
    }

    /// Gives the next `count` deltas to `apply`; forgets all when all are applied.
    fn next(
        &mut self,
        count: usize,
        apply: impl FnOnce(&[D]) -> Result<(), LabError>,
    ) -> Result<usize, LabError> {
        let until = self.deltas.len().min(self.applied + count);
        let now = &self.deltas[self.applied..until];
        let count = now.len();
        apply(now)?;
        self.applied = until;
        if until == self.deltas.len() {
            self.deltas.clear();
            self.applied = 0;
        }
        Ok(count)
    }
}

/// The partition table.
pub(super) struct Dense {
    writer: Writer,
    copy: Replica,
    kept: Kept<Delta>,
}

impl Dense {
    /// Has the owner take a new key in place of another.
    pub(super) fn replace(&mut self, old: u64, (new, value): (u64, u8)) -> Result<(), LabError> {
        self.writer.remove(old);
        self.change(new, value)
    }
}

impl Part for Dense {
    const NAME: &'static str = "partition table";

    fn build(entries: &[(u64, u8)]) -> Result<Self, LabError> {
        let config = Config::new(entries.len(), VALUE_BITS);
        let entries = entries.iter().copied();
        let (writer, _) = Writer::build(&config, entries).map_err(LabError::failed)?;
        let copy = writer.replica().map_err(LabError::failed)?;
        Ok(Dense { writer, copy, kept: Kept::new() })
    }

    #[inline]
    fn change(&mut self, hash: u64, value: u8) -> Result<(), LabError> {
        if let Some(delta) = self.writer.insert(hash, value).map_err(LabError::failed)? {
            // Of a batch, whose header all of its deltas share.
            self.kept.last = [8 * delta.bytes(); 2];
            self.kept.deltas.push(delta);
        }
        Ok(())
    }

    fn apply(&mut self, count: usize) -> Result<usize, LabError> {
        let copy = &mut self.copy;
        self.kept.next(count, |deltas| copy.apply_all(deltas).map_err(LabError::failed))
    }

    fn value(&self, hash: u64) -> u8 {
        self.copy.reader().lookup(hash)
    }

    fn delta_bits(&self) -> [usize; 2] {
        self.kept.last
    }
}

/// SetSep, whose owner has the keys of each group at hand.
pub(super) struct Paper {
    groups: Vec<Vec<(u64, u8)>>,
    /// The copy; groups of keys never change, so the owner needs no other.
    table: SetSep,
    kept: Kept<GroupDelta>,
    /// Bits of a group's number.
    group_bits: usize,
}

impl Part for Paper {
    const NAME: &'static str = "SetSep";

    fn build(entries: &[(u64, u8)]) -> Result<Self, LabError> {
        let config = SetSepConfig::new(entries.len(), VALUE_BITS as u32);
        let (table, stats) =
            SetSep::build(&config, entries.iter().copied()).map_err(LabError::failed)?;
        let mut groups = vec![Vec::new(); stats.groups];
        entries.iter().for_each(|&entry| groups[table.group_of(entry.0)].push(entry));
        let group_bits = stats.groups.next_power_of_two().trailing_zeros() as usize;
        Ok(Paper { groups, table, kept: Kept::new(), group_bits })
    }

    #[inline]
    fn change(&mut self, hash: u64, value: u8) -> Result<(), LabError> {
        let group = self.table.group_of(hash);
        let entry = self.groups[group].iter_mut().find(|entry| entry.0 == hash);
        entry.ok_or_else(|| LabError::Failed("a key is in no group".into()))?.1 = value;
        let delta = self.table.solve(group, &self.groups[group], &mut 0);
        let bits = delta.bits(&self.table);
        self.kept.last = [bits, bits + self.group_bits];
        self.kept.deltas.push(delta);
        Ok(())
    }

    fn apply(&mut self, count: usize) -> Result<usize, LabError> {
        let table = &mut self.table;
        self.kept.next(count, |deltas| {
            deltas.iter().for_each(|delta| table.apply(delta));
            Ok(())
        })
    }

    fn value(&self, hash: u64) -> u8 {
        self.table.lookup(hash)
    }

    fn delta_bits(&self) -> [usize; 2] {
        self.kept.last
    }
}
