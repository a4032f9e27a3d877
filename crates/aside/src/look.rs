//! A lookup through a table, whichever rule the table has.

use overbank::lookaside::{At, Copies, Counters, Found, Gate, Plain, Ticket, Versioned};

/// A table in front as its user sees it. What fills and changes it stays with the adapter.
pub trait Watched {
    /// Returns the gate.
    fn gate(&self) -> &Gate;
    /// Returns what was counted: one bucket in [`SAMPLE`](overbank::lookaside::SAMPLE).
    fn counters(&self) -> Counters;
    /// Returns the number of entries that it has room for.
    fn slots(&self) -> usize;
    /// Returns the bytes of the table.
    fn bytes(&self) -> usize;
    /// Forgets all entries; the index stays as it is.
    fn clear(&self);
}

macro_rules! watched {
    ($($table:ident),+) => {$(
        impl<K: Plain, V: Plain> Watched for $table<K, V> {
            fn gate(&self) -> &Gate {
                $table::gate(self)
            }
            fn counters(&self) -> Counters {
                $table::counters(self)
            }
            fn slots(&self) -> usize {
                $table::slots(self)
            }
            fn bytes(&self) -> usize {
                $table::bytes(self)
            }
            fn clear(&self) {
                $table::clear(self);
            }
        }
    )+};
}

watched!(Copies, Versioned);

/// A table of either rule.
pub(crate) trait Front<K, V> {
    fn get(&self, key: K) -> Found<K, V>;
    fn get_batch(&self, keys: &[K], each: impl FnMut(usize, Found<K, V>));
    fn fill(&self, ticket: Ticket<K>, value: Option<V>) -> bool;
}

macro_rules! front {
    ($table:ty) => {
        impl<K: Plain, V: Plain> Front<K, V> for $table {
            #[inline(always)]
            fn get(&self, key: K) -> Found<K, V> {
                <$table>::get(self, key)
            }
            #[inline(always)]
            fn get_batch(&self, keys: &[K], each: impl FnMut(usize, Found<K, V>)) {
                <$table>::get_batch(self, keys, each);
            }
            #[inline(always)]
            fn fill(&self, ticket: Ticket<K>, value: Option<V>) -> bool {
                <$table>::fill(self, ticket, value)
            }
        }
    };
}

front!(Copies<K, V>);
front!(At<'_, K, V>);

/// Looks a key up in a table, then in the index. Also returns whether the table answered.
#[inline(always)]
pub(crate) fn look<K: Plain, V: Plain, E>(
    front: &impl Front<K, V>,
    key: K,
    index: impl FnOnce(K) -> Result<Option<V>, E>,
) -> Result<(Option<V>, bool), E> {
    answered(front, front.get(key), index)
}

#[inline(always)]
fn answered<K: Plain, V: Plain, E>(
    front: &impl Front<K, V>,
    found: Found<K, V>,
    index: impl FnOnce(K) -> Result<Option<V>, E>,
) -> Result<(Option<V>, bool), E> {
    match found.answer() {
        Ok(value) => Ok((value, true)),
        Err(ticket) => {
            let value = index(*ticket.key())?;
            front.fill(ticket, value);
            Ok((value, false))
        }
    }
}

/// Looks up as many keys as `values` has places, in bursts. Returns how many the table answered.
/// Asks the index no more once it failed.
pub(crate) fn look_batch<K: Plain, V: Plain, E>(
    front: &impl Front<K, V>,
    keys: &[K],
    values: &mut [Option<V>],
    mut index: impl FnMut(K) -> Result<Option<V>, E>,
) -> Result<u32, E> {
    let count = keys.len().min(values.len());
    let values = &mut values[..count];
    let mut hits = Ok(0);
    front.get_batch(&keys[..count], |at, found| {
        if let Ok(so_far) = hits {
            hits = answered(front, found, &mut index).map(|(answer, hit)| {
                values[at] = answer;
                so_far + u32::from(hit)
            });
        }
    });
    hits
}
