//! Statuses, messages, handles and slices: what every function of the border is made of.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use overbank::isa::{Isa, IsaError};

/// What a function says of its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum overbank_status {
    /// Done.
    OVERBANK_OK = 0,
    /// An argument is NULL, not aligned, out of range, or a name that is none.
    OVERBANK_INVALID = 1,
    /// The system gives no memory.
    OVERBANK_MEMORY = 2,
    /// The table has no place for the key.
    OVERBANK_FULL = 3,
    /// The table does not have the key, or nothing to hand out yet. Not a fault.
    OVERBANK_ABSENT = 4,
    /// A file cannot be read or written.
    OVERBANK_IO = 5,
    /// An image or a delta is damaged, of another format, or of another table.
    OVERBANK_DAMAGED = 6,
    /// The library has a fault. The handle that was changed is poisoned; please report it.
    OVERBANK_PANIC = 7,
    /// An earlier call on this handle ended with OVERBANK_PANIC. It can only be destroyed.
    OVERBANK_POISONED = 8,
    /// A look-aside table did not take an answer in. Not a fault.
    OVERBANK_DECLINED = 9,
}
use overbank_status::*;

const STATUSES: [(overbank_status, &CStr); 10] = [
    (OVERBANK_OK, c"done"),
    (OVERBANK_INVALID, c"an argument is invalid"),
    (OVERBANK_MEMORY, c"out of memory"),
    (OVERBANK_FULL, c"the table is full"),
    (OVERBANK_ABSENT, c"the key is absent"),
    (OVERBANK_IO, c"a file cannot be read or written"),
    (OVERBANK_DAMAGED, c"an image or a delta is damaged or does not fit"),
    (OVERBANK_PANIC, c"a fault in the library"),
    (OVERBANK_POISONED, c"the handle is poisoned by an earlier fault"),
    (OVERBANK_DECLINED, c"the table did not take the answer in"),
];

/// Returns a status in words. Never NULL; the text lives as long as the program.
///
/// Any thread. `status` may be any number.
#[unsafe(no_mangle)]
pub extern "C" fn overbank_strerror(status: i32) -> *const c_char {
    let known = STATUSES.iter().find(|(known, _)| *known as i32 == status);
    known.map_or(c"no status of overbank", |(_, text)| text).as_ptr()
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Returns what the last failed call of this thread had to say: one line, which names the argument,
/// the file or the limit. Empty before the first failure; never NULL.
///
/// Any thread. The text is the library's and lives until the next failed call of the thread.
#[unsafe(no_mangle)]
pub extern "C" fn overbank_last_error() -> *const c_char {
    LAST.with_borrow(|text| text.as_ptr())
}

/// Returns the version of the library, "MAJOR.MINOR.PATCH". Any thread; the text lives as long as
/// the program.
#[unsafe(no_mangle)]
pub extern "C" fn overbank_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Why a call failed. One pointer, so that a call that succeeds returns it in a register.
pub(crate) struct Failure(Box<(overbank_status, String)>);

impl Failure {
    #[cold]
    pub(crate) fn new(status: overbank_status, text: impl Display) -> Failure {
        Failure(Box::new((status, text.to_string())))
    }

    #[cold]
    pub(crate) fn invalid(text: impl Display) -> Failure {
        Failure::new(OVERBANK_INVALID, text)
    }
}

/// Says whose fault an error is.
pub(crate) trait Blame: Display {
    fn status(&self) -> overbank_status;
}

impl<E: Blame> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::new(error.status(), error)
    }
}

/// Says an outcome, and keeps its text.
#[cold]
fn failed(failure: Failure) -> overbank_status {
    let (status, text) = *failure.0;
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    LAST.set(text);
    status
}

/// Runs the body of a function.
#[inline(always)]
pub(crate) fn border(body: impl FnOnce() -> Result<(), Failure>) -> overbank_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => OVERBANK_OK,
        Ok(Err(failure)) => failed(failure),
        Err(_) => failed(Failure::new(OVERBANK_PANIC, "a fault in the library: please report it")),
    }
}

/// What a handle of C points to.
pub(crate) struct Handle<T> {
    poisoned: AtomicBool,
    inner: T,
}

impl<T> Handle<T> {
    /// Hands a value to C.
    ///
    /// # Safety
    /// See [`place`].
    pub(crate) unsafe fn give<H>(out: *mut *mut H, inner: T) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let out = unsafe { place(out, "out") }?;
        *out = Box::into_raw(Box::new(Handle { poisoned: AtomicBool::new(false), inner })).cast();
        Ok(())
    }

    /// # Safety
    /// `handle` is NULL, or is from [`Handle::give`] for this `T` and was not destroyed.
    #[inline(always)]
    unsafe fn checked<H>(handle: *const H) -> Result<*mut Handle<T>, Failure> {
        let handle = handle.cast::<Handle<T>>().cast_mut();
        if handle.is_null() {
            return Err(Failure::invalid("the handle is NULL"));
        }
        if !handle.is_aligned() {
            return Err(Failure::invalid("the handle is not aligned: it is not one of overbank's"));
        }
        // SAFETY: not NULL, aligned, and a live handle by the caller's promise.
        let poisoned = unsafe { &(*handle).poisoned };
        if poisoned.load(Ordering::Relaxed) {
            return Err(Failure::new(OVERBANK_POISONED, "the handle is poisoned by a fault"));
        }
        Ok(handle)
    }

    /// Reads a handle, which others may read at the same time.
    ///
    /// # Safety
    /// As [`Handle::change`], but other threads may read it meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn read<H, R>(
        handle: *const H,
        body: impl FnOnce(&T) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        // SAFETY: the caller's promise; nothing changes it meanwhile.
        let this = unsafe { &*Self::checked(handle)? };
        body(&this.inner)
    }

    /// Reads or changes a handle that other threads read and change at the same time. One that
    /// meets a panic is poisoned.
    ///
    /// # Safety
    /// As [`Handle::read`].
    #[inline(always)]
    pub(crate) unsafe fn share<H, R>(
        handle: *const H,
        body: impl FnOnce(&T) -> Result<R, Failure>,
    ) -> Result<R, Failure>
    where
        T: Sync,
    {
        // SAFETY: the caller's promise; nothing has it alone meanwhile.
        let this = unsafe { &*Self::checked(handle)? };
        let fuse = Fuse(&this.poisoned);
        let result = body(&this.inner);
        std::mem::forget(fuse);
        result
    }

    /// Writes to `out` what a handle says.
    ///
    /// # Safety
    /// As [`Handle::read`]; `out` as in [`place`].
    pub(crate) unsafe fn tell<H, V>(
        handle: *const H,
        out: *mut V,
        of: impl FnOnce(&T) -> Result<V, Failure>,
    ) -> overbank_status {
        border(|| {
            // SAFETY: the caller's promise.
            let said = unsafe { Self::read(handle, of) }?;
            // SAFETY: as above.
            *unsafe { place(out, "out") }? = said;
            Ok(())
        })
    }

    /// Changes a handle. One that meets a panic is poisoned.
    ///
    /// # Safety
    /// `handle` is NULL, or is from [`Handle::give`] for this `T`, was not destroyed, and no other
    /// thread uses it meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn change<H, R>(
        handle: *mut H,
        body: impl FnOnce(&mut T) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        // SAFETY: the caller's promise.
        let this = unsafe { &mut *Self::checked(handle)? };
        // Stays if `body` unwinds.
        let fuse = Fuse(&this.poisoned);
        let result = body(&mut this.inner);
        std::mem::forget(fuse);
        result
    }

    /// Frees a handle, poisoned or not. NULL is none.
    ///
    /// # Safety
    /// As [`Handle::change`].
    pub(crate) unsafe fn destroy<H>(handle: *mut H) {
        let handle = handle.cast::<Handle<T>>();
        if handle.is_null() || !handle.is_aligned() {
            return;
        }
        // SAFETY: from `give` by the caller's promise, and used no more.
        let handle = unsafe { Box::from_raw(handle) };
        // A panic in a destructor has no one to tell.
        let _ = catch_unwind(AssertUnwindSafe(move || drop(handle)));
    }
}

/// Poisons a handle when it is dropped, which only a panic does.
struct Fuse<'a>(&'a AtomicBool);

impl Drop for Fuse<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[inline(always)]
fn check<T>(pointer: *const T, name: &str) -> Result<(), Failure> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(no_pointer(pointer.is_null(), name, align_of::<T>()));
    }
    Ok(())
}

#[cold]
fn no_pointer(is_null: bool, name: &str, bytes: usize) -> Failure {
    if is_null {
        return Failure::invalid(format_args!("{name} is NULL"));
    }
    Failure::invalid(format_args!("{name} is not aligned to {bytes} bytes"))
}

/// Returns the place that an argument names.
///
/// # Safety
/// `pointer` is NULL, not aligned, or valid for reads and writes while the call lasts, and not used
/// by others meanwhile.
#[inline(always)]
pub(crate) unsafe fn place<'a, T>(pointer: *mut T, name: &str) -> Result<&'a mut T, Failure> {
    check(pointer, name)?;
    // SAFETY: checked, and by the caller's promise valid.
    Ok(unsafe { &mut *pointer })
}

/// Returns what an argument points to; the default if it is NULL.
///
/// # Safety
/// As [`place`], for reads.
pub(crate) unsafe fn or_default<T: Copy + Default>(
    pointer: *const T,
    name: &str,
) -> Result<T, Failure> {
    if pointer.is_null() {
        return Ok(T::default());
    }
    check(pointer, name)?;
    // SAFETY: checked, and by the caller's promise valid.
    Ok(unsafe { *pointer })
}

/// Refuses a pointer to this number of elements that cannot be one.
#[inline(always)]
pub(crate) fn fits<T>(pointer: *const T, count: usize, name: &str) -> Result<(), Failure> {
    check(pointer, name)?;
    if count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(too_many(name, count));
    }
    Ok(())
}

#[cold]
fn too_many(name: &str, count: usize) -> Failure {
    Failure::invalid(format_args!("{name}: {count} elements exceed any memory"))
}

/// Returns `count` elements to read. NULL is right for none.
///
/// # Safety
/// As [`place`], for reads of so much.
#[inline(always)]
pub(crate) unsafe fn elements<'a, T>(
    pointer: *const T,
    count: usize,
    name: &str,
) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    fits(pointer, count, name)?;
    // SAFETY: checked, and by the caller's promise valid.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Returns `count` elements to write. NULL is right for none.
///
/// # Safety
/// As [`place`], for so much.
#[inline(always)]
pub(crate) unsafe fn places<'a, T>(
    pointer: *mut T,
    count: usize,
    name: &str,
) -> Result<&'a mut [T], Failure> {
    if count == 0 {
        return Ok(&mut []);
    }
    fits(pointer, count, name)?;
    // SAFETY: checked, and by the caller's promise valid.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, count) })
}

/// Returns where elements begin and end. NULL is right for none.
#[inline(always)]
pub(crate) fn extent<T>(
    pointer: *const T,
    count: usize,
    name: &str,
) -> Result<(usize, usize), Failure> {
    if count == 0 {
        return Ok((0, 0));
    }
    fits(pointer, count, name)?;
    // Their length does not overflow, as just seen, but they may lie at the end of memory.
    Ok((pointer.addr(), pointer.addr().saturating_add(count * size_of::<T>())))
}

/// Refuses arrays of which two share memory.
#[inline(always)]
pub(crate) fn apart<const N: usize>(arrays: &[(&str, (usize, usize)); N]) -> Result<(), Failure> {
    let meet = |a: usize, b: usize| {
        let (a, b) = (arrays[a].1, arrays[b].1);
        (a.0 < b.1) & (b.0 < a.1)
    };
    let any = pairs(N).fold(false, |any, (a, b)| any | meet(a, b));
    let pair = || pairs(N).find(|&(a, b)| meet(a, b)).unwrap_or_default();
    if any { Err(overlap(pair(), |at| arrays[at].0)) } else { Ok(()) }
}

/// Every two of a number.
#[inline(always)]
fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).flat_map(move |b| (0..b).map(move |a| (a, b)))
}

#[cold]
fn overlap<'a>((a, b): (usize, usize), name: impl Fn(usize) -> &'a str) -> Failure {
    Failure::invalid(format_args!(
        "{} and {} overlap: each array needs its memory",
        name(a),
        name(b)
    ))
}

/// Returns a text of C.
///
/// # Safety
/// `pointer` is NULL, or a text that ends with a zero byte.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Failure> {
    check(pointer, name)?;
    // SAFETY: not NULL, and by the caller's promise a text.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::invalid(format_args!("{name} is not UTF-8")))
}

/// Bytes that the library allocated: to be freed by overbank_bytes_free.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct overbank_bytes {
    /// The first byte; NULL if there are none.
    pub data: *mut u8,
    /// How many.
    pub len: usize,
}

impl overbank_bytes {
    pub(crate) const NONE: overbank_bytes = overbank_bytes { data: std::ptr::null_mut(), len: 0 };

    pub(crate) fn of(bytes: Vec<u8>) -> overbank_bytes {
        if bytes.is_empty() {
            return Self::NONE;
        }
        let bytes = Box::leak(bytes.into_boxed_slice());
        overbank_bytes { data: bytes.as_mut_ptr(), len: bytes.len() }
    }
}

/// Frees bytes of the library and empties `bytes`. NULL, and empty bytes, are right.
///
/// Any thread, once for each time that they were handed out.
///
/// # Safety
/// `bytes` is NULL, or holds what a function of the library wrote there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_bytes_free(bytes: *mut overbank_bytes) {
    border(|| {
        if bytes.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let bytes = unsafe { place(bytes, "bytes") }?;
        let overbank_bytes { data, len } = std::mem::replace(bytes, overbank_bytes::NONE);
        if !data.is_null() {
            // SAFETY: from `overbank_bytes::of`, by the caller's promise.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(data, len)) });
        }
        Ok(())
    });
}

/// The instruction set that a name asks for; NULL: the best that the CPU has.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn isa(name: *const c_char) -> Result<Option<Isa>, Failure> {
    if name.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let name = unsafe { text(name, "isa") }?;
    let isa = name.parse().map(Some);
    isa.map_err(|error: IsaError| Failure::invalid(format_args!("isa {name:?}: {error}")))
}

/// Refuses options of a later version.
pub(crate) fn unused(reserved: &[u64]) -> Result<(), Failure> {
    if reserved.iter().any(|&word| word != 0) {
        return Err(Failure::invalid("options: reserved words are zero in this version"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null, null_mut};

    fn last() -> String {
        // SAFETY: a text of the library.
        unsafe { CStr::from_ptr(overbank_last_error()) }.to_str().unwrap().to_owned()
    }

    /// Only the library can make a panic, so C cannot test this.
    #[test]
    fn a_panic_is_a_status_and_poisons_what_it_changed() {
        let mut handle: *mut u8 = null_mut();
        // SAFETY: a handle of this test, on one thread, until it is destroyed.
        unsafe {
            assert_eq!(border(|| Handle::give(&raw mut handle, vec![1])), OVERBANK_OK);
            let read = || {
                border(|| {
                    Handle::<Vec<u8>>::read(handle, |bytes| {
                        assert!(!bytes.is_empty());
                        Ok(())
                    })
                })
            };
            let change = |how: fn(&mut Vec<u8>)| {
                border(|| {
                    Handle::<Vec<u8>>::change(handle, |bytes| {
                        how(bytes);
                        Ok(())
                    })
                })
            };
            assert_eq!((read(), change(|bytes| bytes.push(2))), (OVERBANK_OK, OVERBANK_OK));
            assert_eq!(change(|_| panic!("a fault of this test")), OVERBANK_PANIC);
            assert!(last().contains("report it"), "{}", last());
            assert_eq!((read(), change(|_| ())), (OVERBANK_POISONED, OVERBANK_POISONED));
            Handle::<Vec<u8>>::destroy(handle);
            Handle::<Vec<u8>>::destroy(null_mut::<u8>());

            // Those that threads share, too.
            let mut shared: *mut u8 = null_mut();
            assert_eq!(border(|| Handle::give(&raw mut shared, vec![1])), OVERBANK_OK);
            let share = |how: fn(&[u8])| {
                border(|| {
                    Handle::<Vec<u8>>::share(shared, |bytes| {
                        how(bytes);
                        Ok(())
                    })
                })
            };
            assert_eq!((share(|_| ()), share(|_| panic!())), (OVERBANK_OK, OVERBANK_PANIC));
            assert_eq!(share(|_| ()), OVERBANK_POISONED);
            Handle::<Vec<u8>>::destroy(shared);
        }
    }

    #[test]
    fn pointers_that_can_be_seen_to_be_wrong_are_refused_by_name() {
        // SAFETY: none of these is read.
        unsafe {
            let odd = std::ptr::without_provenance_mut::<u64>(9);
            let refused = |result: Result<(), Failure>| result.err().map(|failure| failure.0.1);
            assert_eq!(
                refused(place(odd, "out").map(drop)).unwrap(),
                "out is not aligned to 8 bytes"
            );
            assert_eq!(refused(place(null_mut::<u8>(), "out").map(drop)).unwrap(), "out is NULL");
            assert!(refused(elements(null::<u64>(), 1, "keys").map(drop)).is_some());
            assert!(refused(elements(null::<u64>(), 0, "keys").map(drop)).is_none());
            let huge = elements(std::ptr::without_provenance::<u64>(8), usize::MAX / 8, "keys");
            assert!(refused(huge.map(drop)).unwrap().contains("exceed any memory"));
            assert!(Handle::<u64>::checked(null::<u8>()).is_err());
            assert!(Handle::<u64>::checked(std::ptr::without_provenance::<u8>(3)).is_err());
        }
    }

    #[test]
    fn every_status_has_words() {
        for (at, (status, text)) in STATUSES.iter().enumerate() {
            assert_eq!(*status as usize, at);
            // SAFETY: texts of the library.
            let words = unsafe { CStr::from_ptr(overbank_strerror(at as i32)) };
            assert_eq!(words, *text);
        }
        // SAFETY: as above.
        let other = unsafe { CStr::from_ptr(overbank_strerror(-1)) };
        assert_eq!(other, c"no status of overbank");
    }
}
