//! Indexes in C (`c/item.h`): LMDB, the chained hash table, the B+ trees.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

use super::{Index, Visit};
use crate::Failed;
use crate::item::Item;

/// Calls the visitor that `visitor` points to.
///
/// # Safety
/// `visitor` points to a [`Visit`] that nothing else uses.
unsafe extern "C" fn visit(visitor: *mut c_void, address: u64, bytes: u64, level: u32) {
    // SAFETY: the caller's.
    let visit = unsafe { &mut *visitor.cast::<Visit<'_>>() };
    visit(address, bytes, level);
}

type Visitor = unsafe extern "C" fn(*mut c_void, u64, u64, u32);

macro_rules! index {
    ($Name:ident, $name:literal, $doc:literal) => {
        #[doc = $doc]
        pub struct $Name(NonNull<c_void>);

        const _: () = {
            unsafe extern "C" {
                #[link_name = concat!($name, "_new")]
                fn new(size: u64) -> *mut c_void;
                #[link_name = concat!($name, "_insert")]
                fn insert(index: *mut c_void, key: u64, item: u64) -> c_int;
                #[link_name = concat!($name, "_ready")]
                fn ready(index: *mut c_void) -> c_int;
                #[link_name = concat!($name, "_find")]
                fn find(index: *mut c_void, key: u64) -> u64;
                #[link_name = concat!($name, "_depth")]
                fn depth(index: *mut c_void) -> u64;
                #[link_name = concat!($name, "_nodes")]
                fn nodes(index: *mut c_void, visit: Visitor, visitor: *mut c_void);
                #[link_name = concat!($name, "_text")]
                fn text(error: c_int) -> *const c_char;
            }

            fn checked(error: c_int) -> Result<(), Failed> {
                if error == 0 {
                    return Ok(());
                }
                // SAFETY: `text` returns a string that is never freed, for any number.
                let text = unsafe { CStr::from_ptr(text(error)) };
                Err(Failed::new($name, text.to_string_lossy()))
            }

            impl $Name {
                /// Allocates an empty index; `size` as in its C file.
                ///
                /// # Errors
                /// The system is out of memory.
                pub fn new(size: u64) -> Result<Self, Failed> {
                    // SAFETY: `new` takes any size, and returns NULL if it cannot have it.
                    let index = NonNull::new(unsafe { new(size) });
                    let missing = || Failed::new($name, "the system is out of memory");
                    index.map(Self).ok_or_else(missing)
                }
            }

            impl Index for $Name {
                fn insert(&mut self, key: u64, item: Item) -> Result<(), Failed> {
                    // SAFETY: the index is `new`'s and is never freed, nor is the item.
                    checked(unsafe { insert(self.0.as_ptr(), key, item.address()) })
                }

                #[inline]
                fn find(&mut self, key: u64) -> Option<Item> {
                    // SAFETY: the index is `new`'s and is never freed.
                    Item::at(unsafe { find(self.0.as_ptr(), key) })
                }

                fn ready(&mut self) -> Result<(), Failed> {
                    // SAFETY: the index is `new`'s and is never freed.
                    checked(unsafe { ready(self.0.as_ptr()) })
                }

                fn depth(&self) -> Option<u64> {
                    // SAFETY: the index is `new`'s and is never freed.
                    Some(unsafe { depth(self.0.as_ptr()) })
                }

                fn nodes(&self, mut visitor: Visit<'_>) {
                    let visitor = std::ptr::from_mut(&mut visitor).cast();
                    // SAFETY: the index is `new`'s and is never freed; `visit` gets its visitor.
                    unsafe { nodes(self.0.as_ptr(), visit, visitor) }
                }
            }
        };
    };
}

index!(Lmdb, "lmdb", "LMDB (`c/lmdb.c`).");
index!(Hash, "hash", "The chained hash table (`c/hash.c`).");
index!(Bplus, "bplus", "The B+ tree of fanout 20 (`c/tree.c`).");
index!(Masstree, "masstree", "The Masstree-like tree (`c/tree.c`).");
