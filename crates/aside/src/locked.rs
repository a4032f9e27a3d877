//! Maps of one writer, behind a lock: std's `BTreeMap`, hashbrown's `HashMap`.
//!
//! Ranges and changes of many keys ([`Aside::read`], [`Aside::write`]) go around the table: the
//! former under the shared lock, the latter under the exclusive one. Then the table is cleared, and
//! takes nothing in until the change is done.

use crate::live::{Aside, Index, Update};
use overbank::lookaside::Plain;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What a lock can make an [`Index`].
pub trait Map<K, V>: Send + Sync {
    /// Returns the value of a key.
    fn get(&self, key: &K) -> Option<V>;
    /// Inserts a value.
    fn insert(&mut self, key: K, value: V);
    /// Removes a key.
    fn remove(&mut self, key: &K) -> Option<V>;
}

macro_rules! map {
    ($feature:literal, $map:ty, [$($param:ident),+], $($bound:tt)+) => {
        #[cfg(feature = $feature)]
        impl<$($param),+> Map<K, V> for $map
        where
            $($bound)+
        {
            #[inline]
            fn get(&self, key: &K) -> Option<V> {
                <$map>::get(self, key).copied()
            }
            fn insert(&mut self, key: K, value: V) {
                <$map>::insert(self, key, value);
            }
            fn remove(&mut self, key: &K) -> Option<V> {
                <$map>::remove(self, key)
            }
        }
    };
}

map!("btreemap", std::collections::BTreeMap<K, V>, [K, V], K: Plain + Ord, V: Plain);
map!("hashmap", hashbrown::HashMap<K, V, S>, [K, V, S],
     K: Plain + Eq + std::hash::Hash, V: Plain, S: std::hash::BuildHasher + Send + Sync);

/// A map behind a lock. A panic of a closure under the lock leaves the map as the closure left it.
#[derive(Default)]
pub struct Locked<M>(RwLock<M>);

impl<M> Locked<M> {
    /// Puts a lock around a map.
    pub const fn new(map: M) -> Self {
        Locked(RwLock::new(map))
    }

    #[inline]
    fn shared(&self) -> RwLockReadGuard<'_, M> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn exclusive(&self) -> RwLockWriteGuard<'_, M> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a closure with the whole map, under the shared lock.
    pub fn read<R>(&self, of: impl FnOnce(&M) -> R) -> R {
        of(&self.shared())
    }

    /// Returns the map.
    pub fn into_inner(self) -> M {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V, M: Map<K, V>> Index<K, V> for Locked<M> {
    #[inline]
    fn get(&self, key: &K) -> Option<V> {
        self.shared().get(key)
    }

    fn insert(&self, key: K, value: V) {
        self.exclusive().insert(key, value);
    }

    fn remove(&self, key: &K) -> Option<V> {
        self.exclusive().remove(key)
    }
}

impl<K: Copy, V: Copy, M: Map<K, V>> Update<K, V> for Locked<M> {
    fn update(&self, key: &K, change: &mut dyn FnMut(Option<V>) -> Option<V>) -> Option<V> {
        let mut map = self.exclusive();
        let new = change(map.get(key));
        match new {
            Some(value) => map.insert(*key, value),
            None => drop(map.remove(key)),
        }
        new
    }
}

impl<M: Map<K, V>, K: Plain, V: Plain> Aside<Locked<M>, K, V> {
    /// Calls a closure with the whole map, under the shared lock: for ranges and lengths.
    pub fn read<R>(&self, of: impl FnOnce(&M) -> R) -> R {
        self.index.read(of)
    }

    /// Calls a closure with the whole map, under the exclusive lock, to change any part of it.
    /// Clears the table. The closure must not use this map by another way: it is locked.
    pub fn write<R>(&self, change: impl FnOnce(&mut M) -> R) -> R {
        let mut map = self.index.exclusive();
        let _clearing = self.table.clearing();
        change(&mut map)
    }
}
