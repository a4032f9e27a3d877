//! What a lookup returns.

use core::fmt;

/// The result of a lookup.
#[derive(Debug)]
pub enum Found<K, V> {
    /// The index has this value for the key.
    Hit(V),
    /// The index has no entry for the key.
    Absent,
    /// The table has no answer. The ticket lets the index's be put in.
    Miss(Ticket<K>),
}

impl<K, V> Found<K, V> {
    /// Returns the answer, or the ticket.
    ///
    /// # Errors
    /// The table has no answer.
    #[inline(always)]
    pub fn answer(self) -> Result<Option<V>, Ticket<K>> {
        match self {
            Found::Hit(value) => Ok(Some(value)),
            Found::Absent => Ok(None),
            Found::Miss(ticket) => Err(ticket),
        }
    }

    /// Returns whether the table has an answer.
    #[inline(always)]
    pub fn is_answer(&self) -> bool {
        !matches!(self, Found::Miss(_))
    }
}

/// The right to put in what the index answers to a lookup that missed. Take it from the lookup,
/// *then* read the index. A table declines it if the key may have changed since, after
/// a `clear`, and if the ticket is another table's.
pub struct Ticket<K> {
    pub(super) key: K,
    pub(super) bucket: u32,
    pub(super) tag: u16,
    /// The bucket's, at the lookup.
    pub(super) stamp: u64,
    /// The table's, between two clears; 0 fills nothing.
    pub(super) lot: u64,
}

impl<K> Ticket<K> {
    #[inline(always)]
    pub(super) const fn void(key: K) -> Self {
        Ticket { key, bucket: 0, tag: 0, stamp: 0, lot: 0 }
    }

    /// Returns the key of the lookup.
    #[inline(always)]
    pub const fn key(&self) -> &K {
        &self.key
    }

    /// Returns whether the table will decline the answer whatever it is: a writer was in the
    /// bucket, or the table steps aside.
    #[inline(always)]
    pub const fn is_void(&self) -> bool {
        self.lot == 0
    }
}

impl<K: fmt::Debug> fmt::Debug for Ticket<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("key", &self.key).field("is_void", &self.is_void()).finish()
    }
}
