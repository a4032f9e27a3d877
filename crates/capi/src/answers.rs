//! Lookups and fills of look-aside tables for C, of whatever type: from arrays of C and back.

use overbank::lookaside::{Found, Ticket};

use crate::aside::*;
use crate::border::overbank_status::*;
use crate::border::*;

/// A key of K words.
pub(crate) type Key<const K: usize> = [u64; K];

/// A table, or a view of one.
pub(crate) trait Looks<const K: usize, const V: usize> {
    fn get(&self, key: Key<K>) -> Found<Key<K>, [u64; V]>;
    fn get_batch(&self, keys: &[Key<K>], each: impl FnMut(usize, Found<Key<K>, [u64; V]>));
    fn fill(&self, ticket: Ticket<Key<K>>, value: Option<[u64; V]>) -> bool;
}

/// The arguments of a lookup.
#[derive(Clone, Copy)]
pub(crate) struct Sought {
    pub(crate) keys: *const u64,
    pub(crate) count: usize,
    pub(crate) values: *mut u64,
    pub(crate) found: *mut u8,
    pub(crate) tickets: *mut overbank_aside_ticket,
}

/// The same as slices.
pub(crate) struct Places<'a, const K: usize, const V: usize> {
    pub(crate) keys: &'a [Key<K>],
    pub(crate) values: &'a mut [[u64; V]],
    pub(crate) found: &'a mut [u8],
    /// As many as keys, or none.
    pub(crate) tickets: &'a mut [overbank_aside_ticket],
}

impl Sought {
    /// Refuses arrays that cannot be, or that share memory.
    ///
    /// # Safety
    /// The pointers are NULL or valid for `count` keys.
    #[inline(always)]
    pub(crate) unsafe fn places<'a, const K: usize, const V: usize>(
        &self,
    ) -> Result<Places<'a, K, V>, Failure> {
        let Self { keys, count, values, found, tickets } = *self;
        let with_tickets = if tickets.is_null() { 0 } else { count };
        let (keys, values) = (keys.cast::<Key<K>>(), values.cast::<[u64; V]>());
        apart(&[
            ("keys", extent(keys, count, "keys")?),
            ("values", extent(values, count, "values")?),
            ("found", extent(found, count, "found")?),
            ("tickets", extent(tickets, with_tickets, "tickets")?),
        ])?;
        // SAFETY: the caller's promise, and no two share memory.
        unsafe {
            Ok(Places {
                keys: elements(keys, count, "keys")?,
                values: places(values, count, "values")?,
                found: places(found, count, "found")?,
                tickets: places(tickets, with_tickets, "tickets")?,
            })
        }
    }
}

/// # Safety
/// The pointers are NULL or valid for `count` keys; those of a table with this number.
#[inline(always)]
pub(crate) unsafe fn lookup<const K: usize, const V: usize>(
    table: &impl Looks<K, V>,
    number: u64,
    sought: &Sought,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let Places { keys, values, found, tickets } = unsafe { sought.places::<K, V>() }?;
    if let ([key], [value], [found]) = (keys, &mut *values, &mut *found) {
        *found = say(&table.get(*key), value, tickets.first_mut(), number);
        return Ok(());
    }
    let mut places = values.iter_mut().zip(found);
    let mut tickets = tickets.iter_mut();
    table.get_batch(keys, |_, answer| {
        // As many places as keys, in their order.
        if let Some((value, found)) = places.next() {
            *found = say(&answer, value, tickets.next(), number);
        }
    });
    Ok(())
}

/// Writes what a lookup found.
#[inline(always)]
fn say<const K: usize, const V: usize>(
    found: &Found<Key<K>, [u64; V]>,
    value: &mut [u64; V],
    ticket: Option<&mut overbank_aside_ticket>,
    number: u64,
) -> u8 {
    let (said, answer, missed) = match found {
        Found::Hit(value) => (OVERBANK_ASIDE_HIT, *value, None),
        Found::Absent => (OVERBANK_ASIDE_ABSENT, [0; V], None),
        Found::Miss(ticket) => (OVERBANK_ASIDE_MISS, [0; V], Some(ticket)),
    };
    *value = answer;
    match (ticket, missed) {
        (Some(place), Some(ticket)) => place.set(number, ticket),
        (Some(place), None) => place.table = 0,
        (None, _) => {}
    }
    said
}

/// Puts in an answer; returns whether the table took it.
///
/// # Safety
/// The pointers are NULL or valid; `value` has the words of a value.
#[inline(always)]
pub(crate) unsafe fn fill<const K: usize, const V: usize>(
    table: &impl Looks<K, V>,
    number: u64,
    ticket: *const overbank_aside_ticket,
    value: *const u64,
) -> Result<bool, Failure> {
    // SAFETY: the caller's promise.
    let (ticket, value) = unsafe { (&elements(ticket, 1, "ticket")?[0], answer(value)?) };
    Ok(ticket.get(number).is_some_and(|ticket| table.fill(ticket, value)))
}

/// # Safety
/// `key` is NULL or has the words of a key.
pub(crate) unsafe fn key<const K: usize>(key: *const u64) -> Result<Key<K>, Failure> {
    // SAFETY: the caller's promise.
    Ok(unsafe { elements(key.cast::<Key<K>>(), 1, "key") }?[0])
}

/// Returns the value; `None` for NULL.
///
/// # Safety
/// `value` is NULL or has the words of a value.
#[inline(always)]
pub(crate) unsafe fn answer<const V: usize>(
    value: *const u64,
) -> Result<Option<[u64; V]>, Failure> {
    if value.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    Ok(Some(unsafe { elements(value.cast::<[u64; V]>(), 1, "value") }?[0]))
}

/// Runs a fill. One that is declined is an answer: no failure is made of it.
#[inline(always)]
pub(crate) fn filled(body: impl FnOnce() -> Result<bool, Failure>) -> overbank_status {
    let mut declined = false;
    let status = border(|| {
        declined = !body()?;
        Ok(())
    });
    if declined { OVERBANK_DECLINED } else { status }
}
