//! Ordered maps for C: a B+ tree in a bounded arena, with hints of where keys were found last.

use std::ops::Bound::{Excluded, Included, Unbounded};

use overbank::lookaside::tree::{Full, TreeError};
use overbank::lookaside::{Hints, Tree};

use crate::answers::*;
use crate::border::overbank_status::*;
use crate::border::*;
use crate::cache::overbank_cache_counters;

/// An ordered map of bounded size from keys of 1 to 4 words to values of 1 to 8, with or without
/// hints: a B+ tree whose memory is allocated when it is made.
///
/// Keys are in the order of their first words, then of their second ones, and so on, each a number
/// without a sign.
///
/// One thread at a time uses it; several may use overbank_tree_peek, _range, _counters and _info
/// while none uses another function.
pub struct overbank_tree {
    _opaque: [u8; 0],
}

/// How a tree is made. All zeroes are the defaults.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct overbank_tree_options {
    /// Hints to have at least, 6 bytes each; 0: none. 3 for 10 entries are a start where some keys
    /// are asked for more often than others.
    pub hints: usize,
    /// Seed of the hints' hash function. Use a random one if strangers choose the keys.
    pub seed: u64,
    /// Zero.
    pub reserved: [u64; 4],
}

/// What a tree is and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct overbank_tree_info {
    /// Entries.
    pub len: usize,
    /// Entries that fit, always.
    pub capacity: usize,
    /// Bytes of the tree.
    pub bytes: usize,
    /// Hints that fit.
    pub hints: usize,
    /// Bytes of the hints.
    pub hint_bytes: usize,
    /// Words of a key.
    pub key_words: usize,
    /// Words of a value.
    pub value_words: usize,
}

/// Flag of overbank_tree_range: without the entry of `start` itself, to go on behind it.
pub const OVERBANK_TREE_AFTER: u32 = 1;
/// Flag of overbank_tree_range: from the greatest key down.
pub const OVERBANK_TREE_DOWN: u32 = 2;

impl Blame for TreeError {
    fn status(&self) -> overbank_status {
        match self {
            TreeError::Memory(_) => OVERBANK_MEMORY,
            TreeError::Hints(error) => error.status(),
            _ => OVERBANK_INVALID,
        }
    }
}

impl Blame for Full {
    fn status(&self) -> overbank_status {
        OVERBANK_FULL
    }
}

/// The arguments of a range.
struct Between {
    start: *const u64,
    stop: *const u64,
    flags: u32,
    keys: *mut u64,
    values: *mut u64,
    room: usize,
    count: *mut usize,
}

/// What a tree does, whatever its types. Keys and values are where C has them.
trait Map: Send + Sync {
    /// # Safety
    /// The pointers are NULL or valid for `count` keys.
    unsafe fn lookup(&mut self, sought: &Sought) -> Result<(), Failure>;
    /// # Safety
    /// As [`Map::lookup`].
    unsafe fn peek(&self, sought: &Sought) -> Result<(), Failure>;
    /// # Safety
    /// The pointers are NULL or have the words of a key and of a value.
    unsafe fn insert(&mut self, key: *const u64, value: *const u64) -> Result<(), Failure>;
    /// # Safety
    /// As [`Map::insert`].
    unsafe fn remove(&mut self, key: *const u64, value: *mut u64) -> Result<(), Failure>;
    /// # Safety
    /// The pointers are NULL or valid, for `room` entries those that are written.
    unsafe fn range(&self, between: &Between) -> Result<(), Failure>;
    fn clear(&mut self);
    fn counters(&self) -> overbank_cache_counters;
    fn info(&self) -> overbank_tree_info;
}

/// Keys of one pass: their answers stay in the first-level cache.
const PASS: usize = 128;

impl<const K: usize, const V: usize> Map for Tree<[u64; K], [u64; V]> {
    unsafe fn lookup(&mut self, sought: &Sought) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let Places { keys, values, found, .. } = unsafe { sought.places::<K, V>() }?;
        if let ([key], [value], [found]) = (keys, &mut *values, &mut *found) {
            answer_with(self.get(key), value, found);
            return Ok(());
        }
        let mut pass = [None; PASS];
        let passes = keys.chunks(PASS).zip(values.chunks_mut(PASS)).zip(found.chunks_mut(PASS));
        for ((keys, values), found) in passes {
            self.get_batch(keys, &mut pass);
            for ((value, found), &got) in values.iter_mut().zip(found).zip(&pass) {
                answer_with(got, value, found);
            }
        }
        Ok(())
    }

    unsafe fn peek(&self, sought: &Sought) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let Places { keys, values, found, .. } = unsafe { sought.places::<K, V>() }?;
        for ((key, value), found) in keys.iter().zip(values).zip(found) {
            answer_with(self.peek(key), value, found);
        }
        Ok(())
    }

    unsafe fn insert(&mut self, at: *const u64, value: *const u64) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let (key, value) =
            unsafe { (key(at)?, elements(value.cast::<[u64; V]>(), 1, "value")?[0]) };
        self.insert(key, value)?;
        Ok(())
    }

    unsafe fn remove(&mut self, at: *const u64, value: *mut u64) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let key = unsafe { key(at) }?;
        let out = value.cast::<[u64; V]>();
        if !out.is_null() {
            fits(out, 1, "value")?;
        }
        let gone = self.remove(&key);
        let gone = gone.ok_or_else(|| Failure::new(OVERBANK_ABSENT, "the key has no entry"))?;
        if !out.is_null() {
            // SAFETY: checked, and by the caller's promise valid.
            *unsafe { place(out, "value") }? = gone;
        }
        Ok(())
    }

    unsafe fn range(&self, between: &Between) -> Result<(), Failure> {
        let &Between { start, stop, flags, keys, values, room, count } = between;
        if flags & !(OVERBANK_TREE_AFTER | OVERBANK_TREE_DOWN) != 0 {
            return Err(Failure::invalid(format_args!(
                "flags: OVERBANK_TREE_AFTER (1) and OVERBANK_TREE_DOWN (2), not {flags}"
            )));
        }
        // SAFETY: the caller's promise.
        let (start, stop) = unsafe { (bound::<K>(start, "start")?, bound::<K>(stop, "stop")?) };
        let after = flags & OVERBANK_TREE_AFTER != 0;
        let start =
            start.map_or(Unbounded, |key| if after { Excluded(key) } else { Included(key) });
        let range = self.range((start, stop.map_or(Unbounded, Excluded)));
        let (key_room, value_room) = (keys.cast::<[u64; K]>(), values.cast::<[u64; V]>());
        apart(&[
            ("keys", extent(key_room, room, "keys")?),
            ("values", extent(value_room, room, "values")?),
            ("count", extent(count, 1, "count")?),
        ])?;
        // SAFETY: the caller's promise, and no two share memory.
        let (keys, values, count) = unsafe {
            (
                places(key_room, room, "keys")?,
                places(value_room, room, "values")?,
                place(count, "count")?,
            )
        };
        *count = match flags & OVERBANK_TREE_DOWN {
            0 => write(range, keys, values),
            _ => write(range.rev(), keys, values),
        };
        Ok(())
    }

    fn clear(&mut self) {
        self.clear();
    }

    fn counters(&self) -> overbank_cache_counters {
        self.hints().map(|hints| hints.counters().into()).unwrap_or_default()
    }

    fn info(&self) -> overbank_tree_info {
        overbank_tree_info {
            len: self.len(),
            capacity: self.capacity(),
            bytes: self.memory_bytes(),
            hints: self.hints().map_or(0, Hints::capacity),
            hint_bytes: self.hints().map_or(0, Hints::memory_bytes),
            key_words: K,
            value_words: V,
        }
    }
}

#[inline(always)]
fn answer_with<const V: usize>(got: Option<[u64; V]>, value: &mut [u64; V], found: &mut u8) {
    (*value, *found) = (got.unwrap_or([0; V]), got.is_some().into());
}

/// Writes entries, as many as there is room for, and returns how many.
fn write<K, V>(entries: impl Iterator<Item = (K, V)>, keys: &mut [K], values: &mut [V]) -> usize {
    let places = keys.iter_mut().zip(values).zip(entries);
    places.map(|((key, value), entry)| (*key, *value) = entry).count()
}

/// # Safety
/// `key` is NULL, which is none, or has the words of a key.
unsafe fn bound<const K: usize>(key: *const u64, name: &str) -> Result<Option<Key<K>>, Failure> {
    if key.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    Ok(Some(unsafe { elements(key.cast::<Key<K>>(), 1, name) }?[0]))
}

type Handled = Handle<Box<dyn Map>>;

fn make<const K: usize, const V: usize>(
    capacity: usize,
    hints: Option<overbank::cache::Config>,
) -> Result<Box<dyn Map>, Failure> {
    Ok(Box::new(Tree::<[u64; K], [u64; V]>::with_capacity(capacity, hints)?))
}

/// Makes a tree for `capacity` entries, 1 to 2^31, and sets `*out`. All its memory is taken now,
/// about 16 * `capacity` * (`key_words` + `value_words`) bytes: inserts never wait for the system.
///
/// Keys have `key_words` words of 64 bits, 1 to 4, and values `value_words`, 1 to 8. `options` may
/// be NULL.
///
/// Any thread. The caller owns the tree: overbank_tree_destroy.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_tree_create(
    key_words: usize,
    value_words: usize,
    capacity: usize,
    options: *const overbank_tree_options,
    out: *mut *mut overbank_tree,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            place(out, "out")?;
            let options = or_default(options, "options")?;
            unused(&options.reserved)?;
            let hints = (options.hints > 0).then(|| Hints::entries(options.hints));
            let hints = hints.map(|config| config.seed(options.seed));
            Handle::give(out, crate::aside::shaped!(key_words, value_words, make(capacity, hints))?)
        }
    })
}

/// Frees a tree. NULL is none.
///
/// # Safety
/// The tree is NULL, or was made and not destroyed, and is in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_tree_destroy(tree: *mut overbank_tree) {
    // SAFETY: the caller's promise.
    unsafe { Handled::destroy(tree) };
}

/// Looks up any number of keys, in bursts whose waits for memory overlap, by their hints or by
/// searches, which leave hints. Sets `found[i]` to 1 and the value at `values + i * value_words` if
/// key `i` has an entry, else both to zero.
///
/// `keys` are `count` keys of `key_words` words, one after another.
///
/// # Safety
/// The tree is NULL or live, and in no other call; the arrays are so long, and no two share memory:
/// OVERBANK_INVALID if they do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_tree_lookup(
    tree: *mut overbank_tree,
    keys: *const u64,
    count: usize,
    values: *mut u64,
    found: *mut u8,
) -> overbank_status {
    let sought = Sought { keys, count, values, found, tickets: std::ptr::null_mut() };
    // SAFETY: the caller's promise.
    border(|| unsafe { Handled::change(tree, |tree| tree.lookup(&sought)) })
}

/// Looks up keys as overbank_tree_lookup, one after another, by searches alone: it uses no hints,
/// leaves none and counts nothing. So several threads may, while none changes the tree.
///
/// # Safety
/// As overbank_tree_lookup, but calls of _peek, _range, _counters and _info may go on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_tree_peek(
    tree: *const overbank_tree,
    keys: *const u64,
    count: usize,
    values: *mut u64,
    found: *mut u8,
) -> overbank_status {
    let sought = Sought { keys, count, values, found, tickets: std::ptr::null_mut() };
    // SAFETY: the caller's promise.
    border(|| unsafe { Handled::read(tree, |tree| tree.peek(&sought)) })
}

/// Inserts an entry or replaces its value. OVERBANK_FULL if the key is new and the tree has as many
/// entries as its capacity: it is as before.
///
/// # Safety
/// The tree is NULL or live, and in no other call; `key` and `value` are NULL or have `key_words`
/// and `value_words` words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_tree_insert(
    tree: *mut overbank_tree,
    key: *const u64,
    value: *const u64,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Handled::change(tree, |tree| tree.insert(key, value)) })
}

/// Removes an entry. OVERBANK_ABSENT if the key has none: `value` stays as it is. Else it gets what
/// was removed; NULL if that is of no interest.
///
/// # Safety
/// As overbank_tree_insert.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_tree_remove(
    tree: *mut overbank_tree,
    key: *const u64,
    value: *mut u64,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Handled::change(tree, |tree| tree.remove(key, value)) })
}

/// Writes the entries from `start` on and before `stop`, `room` at most, in the order of their
/// keys, and their number to `*count`. Either key may be NULL: no bound. A start above the stop has
/// none.
///
/// `flags` are 0 or of OVERBANK_TREE_AFTER (without the entry of `start`) and OVERBANK_TREE_DOWN
/// (from the greatest key down). If `*count` is `room`, go on: with the last key as `start` and
/// OVERBANK_TREE_AFTER, or on the way down as `stop`.
///
/// # Safety
/// The tree is NULL or live, and no other call changes it; the keys are NULL or valid; the arrays
/// have `room` keys and values; no two share memory: OVERBANK_INVALID if they do. `start` and
/// `stop` may lie in `keys`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_tree_range(
    tree: *const overbank_tree,
    start: *const u64,
    stop: *const u64,
    flags: u32,
    keys: *mut u64,
    values: *mut u64,
    room: usize,
    count: *mut usize,
) -> overbank_status {
    let between = Between { start, stop, flags, keys, values, room, count };
    // SAFETY: the caller's promise.
    border(|| unsafe { Handled::read(tree, |tree| tree.range(&between)) })
}

/// Removes all entries, at once. Hints that are left cost a look each.
///
/// # Safety
/// The tree is NULL or live, and in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_tree_clear(tree: *mut overbank_tree) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe {
        Handled::change(tree, |tree| {
            tree.clear();
            Ok(())
        })
    })
}

/// Writes what the hints have counted: `hits` are keys that lay where their hint said,
/// `false_positives` hints that were wrong. All zero without hints.
///
/// # Safety
/// The tree is NULL or live, and no other call changes it; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_tree_counters(
    tree: *const overbank_tree,
    out: *mut overbank_cache_counters,
) -> overbank_status {
    // SAFETY: the caller's promise.
    unsafe { Handled::tell(tree, out, |tree| Ok(tree.counters())) }
}

/// Writes what the tree is and holds.
///
/// # Safety
/// The tree is NULL or live, and no other call changes it; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_tree_info(
    tree: *const overbank_tree,
    out: *mut overbank_tree_info,
) -> overbank_status {
    // SAFETY: the caller's promise.
    unsafe { Handled::tell(tree, out, |tree| Ok(tree.info())) }
}
