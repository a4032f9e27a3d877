//! A hash map whose order influences nothing: under a fixed seed, compared and hashed by content.
//!
//! Its keys are hashes under the cluster's secret seed already, so that a sender cannot crowd one
//! bucket. A lookup reads one line of tags and, if the key is there, its entry.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use hashbrown::HashMap;
use overbank::hash::mix;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// See the module. K is one 64-bit hash.
#[derive(Clone, PartialEq, Eq)]
pub struct Index<K: Eq + Hash, V>(HashMap<K, V, BuildHasherDefault<Mix>>);

/// Spreads the one word of a key.
#[derive(Clone, Copy, Default)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0 ^ word);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

impl<K: Copy + Ord + Hash, V> Index<K, V> {
    /// Returns what a key has.
    #[inline]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    /// Returns whether a key is there.
    #[inline]
    pub fn contains_key(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns keys and values in no order that may influence anything.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter()
    }

    /// Returns the keys in their order.
    pub fn sorted(&self) -> Vec<K> {
        let mut keys: Vec<K> = self.0.keys().copied().collect();
        keys.sort_unstable();
        keys
    }

    /// Returns keys and values in the order of the keys.
    pub fn in_order(&self) -> Vec<(&K, &V)> {
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_unstable_by_key(|entry| entry.0);
        entries
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    #[inline]
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    #[inline]
    pub(crate) fn insert_new(&mut self, key: K, value: V) {
        self.0.entry(key).or_insert(value);
    }

    #[inline]
    pub(crate) fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.0.entry(key).or_default()
    }

    pub(crate) fn retain(&mut self, keep: impl FnMut(&K, &mut V) -> bool) {
        self.0.retain(keep);
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }
}

impl<K: Eq + Hash, V> Default for Index<K, V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Eq + Hash, V> FromIterator<(K, V)> for Index<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl<'a, K: Eq + Hash, V> IntoIterator for &'a Index<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = hashbrown::hash_map::Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<K: Copy + Ord + Hash, V: Hash> Hash for Index<K, V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.in_order().hash(state);
    }
}

impl<K: Copy + Ord + Hash + fmt::Debug, V: fmt::Debug> fmt::Debug for Index<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.in_order()).finish()
    }
}

// In the order of keys, so that equal maps have equal bytes.
impl<K: Copy + Ord + Hash + Serialize, V: Serialize> Serialize for Index<K, V> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.iter().collect::<BTreeMap<&K, &V>>().serialize(to)
    }
}

impl<'de, K: Ord + Hash + Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for Index<K, V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(BTreeMap::deserialize(from)?.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(index: &Index<u64, u64>) -> u64 {
        let mut hasher = Mix::default();
        index.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn equal_content_is_equal_whatever_came_before() {
        let (mut one, mut other) = (Index::default(), Index::default());
        for key in 0..1000 {
            one.insert(key, key);
        }
        for key in 100..1000 {
            one.remove(&key);
        }
        for key in (0..100).rev() {
            other.insert(key, key);
        }
        assert_eq!((&one, hash(&one)), (&other, hash(&other)));
        assert_eq!(format!("{one:?}"), format!("{other:?}"));
        assert_eq!(one.sorted(), (0..100).collect::<Vec<_>>());
        other.insert(5, 6);
        assert_ne!((&one, hash(&one)), (&other, hash(&other)));
    }
}
