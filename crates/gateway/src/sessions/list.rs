//! Lists and verifies the sessions in pages, so that no answer holds the control side for long.
//!
//! A page follows the slots. A session keeps its slot while it exists, so that a listing of all
//! pages has every session that existed throughout, once. Cost: at most [`SLOTS_A_PAGE`] slots a
//! page. Panics: none.

use super::{Listed, Sessions};
use crate::session::Key;

/// Most slots that one page looks at.
pub const SLOTS_A_PAGE: usize = 1 << 16;

/// A part of all sessions.
#[derive(Clone, Debug)]
pub struct Page {
    pub sessions: Vec<Listed>,
    /// Where the next page begins; `None`: this is the last one.
    pub next: Option<u32>,
}

impl Sessions {
    /// Returns at most `most` of the sessions from slot `from` on that are `wanted`, in no order.
    pub fn page(&self, from: u32, most: usize, wanted: impl Fn(&Listed) -> bool) -> Page {
        let mut page = Page { sessions: Vec::new(), next: None };
        let end = (from as usize).saturating_add(SLOTS_A_PAGE).min(self.owners.len());
        for slot in from as usize..end {
            if page.sessions.len() >= most {
                page.next = Some(slot as u32);
                return page;
            }
            let record = self.records.get(&self.owners[slot]);
            let listed = record.map(|record| self.listed(record));
            page.sessions.extend(listed.filter(|listed| wanted(listed)));
        }
        page.next = (end < self.owners.len()).then_some(end as u32);
        page
    }

    /// Iterates over the resting keys: key, session that had it, end of its rest.
    pub fn resting(&self) -> impl Iterator<Item = (Key, u64, u64)> {
        self.resting.iter().map(|(key, rest)| (*key, rest.owner, rest.until_ms))
    }

    /// Returns the first of these sessions whose keys do not lead to it: an internal error.
    pub fn misled(&self, listed: &[Listed]) -> Option<(u64, Key)> {
        let wrong = |listed: &Listed| {
            let mut keys = listed.session.keys();
            keys.find(|key| self.owner_of(*key) != Some(listed.session.id))
                .map(|key| (listed.session.id, key))
        };
        listed.iter().find_map(wrong)
    }
}
