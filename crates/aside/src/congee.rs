//! congee, an adaptive radix tree with optimistic locks: keys and values of 64 bits.

use crate::live::{Aside, Index, Update};
use ::congee::Congee;
use std::alloc::{Layout, handle_alloc_error};

/// congee by its usual allocator, for machines of 64 bits.
#[derive(Default)]
pub struct Tree(Congee<usize, usize>);

const _: () = assert!(size_of::<usize>() == size_of::<u64>(), "congee keeps keys as usize");

/// Ends as other collections do. The tree says nothing of the size; a node has at most 256 words.
fn out_of_memory() -> ! {
    handle_alloc_error(Layout::new::<[usize; 256]>())
}

impl Index<u64, u64> for Tree {
    #[inline]
    fn get(&self, key: &u64) -> Option<u64> {
        self.0.get(&(*key as usize), &self.0.pin()).map(|value| value as u64)
    }

    fn insert(&self, key: u64, value: u64) {
        let inserted = self.0.insert(key as usize, value as usize, &self.0.pin());
        inserted.unwrap_or_else(|_| out_of_memory());
    }

    fn remove(&self, key: &u64) -> Option<u64> {
        self.0.remove(&(*key as usize), &self.0.pin()).map(|value| value as u64)
    }
}

impl Update<u64, u64> for Tree {
    fn update(&self, key: &u64, change: &mut dyn FnMut(Option<u64>) -> Option<u64>) -> Option<u64> {
        let (key, guard) = (*key as usize, self.0.pin());
        loop {
            let present = |value| change(Some(value as u64)).map(|value| value as usize);
            if let Some((_, new)) = self.0.compute_if_present(&key, present, &guard) {
                return new.map(|value| value as u64);
            }
            let new = change(None)?;
            // Inserts if the key is still absent, else begins again.
            let inserted = self.0.compute_or_insert(key, |old| old.unwrap_or(new as usize), &guard);
            if inserted.unwrap_or_else(|_| out_of_memory()).is_none() {
                return Some(new);
            }
        }
    }
}

impl Tree {
    /// Copies keys from `first` up to `end`, which is not included, and their values to `out`, as
    /// many as it has room for, and returns their number.
    pub fn range(&self, first: u64, end: u64, out: &mut [(u64, u64)]) -> usize {
        let mut found = vec![(0usize, 0usize); out.len()];
        let count = self.0.range(&(first as usize), &(end as usize), &mut found, &self.0.pin());
        for (out, (key, value)) in out.iter_mut().zip(&found[..count]) {
            *out = (*key as u64, *value as u64);
        }
        count
    }
}

impl Aside<Tree, u64, u64> {
    /// Copies a range as [`Tree::range`] does: from the index, not from the table.
    pub fn range(&self, first: u64, end: u64, out: &mut [(u64, u64)]) -> usize {
        self.index.range(first, end, out)
    }
}
