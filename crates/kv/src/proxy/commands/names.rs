//! Looks up commands by name, in any case of letters, without allocation for names of up to 16
//! bytes: two words in lower case, a hash, a comparison. A slot takes 24 bytes.

use std::collections::HashMap;

/// Longest name that the table of words holds.
const SHORT_MAX: usize = 16;

/// A name in lower case.
type Words = [u64; 2];

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    words: Words,
    /// See [`meta`]; 0 in an empty slot, as a name has a length.
    meta: u32,
    value: u32,
}

/// Maps a name, and the number of the container that it is a subcommand of, to a number.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// A power of two of slots, at most half of them full.
    slots: Box<[Slot]>,
    long: HashMap<(u32, Box<[u8]>), u32>,
}

impl Names {
    /// Returns the map of these names; `None` as a container stands for a command itself.
    pub fn new(names: &[(Option<u32>, &[u8], u32)]) -> Names {
        let empty = vec![Slot::default(); (2 * names.len()).next_power_of_two().max(2)];
        let mut map = Names { slots: empty.into(), long: HashMap::new() };
        for &(container, name, value) in names {
            match words(name) {
                Some(words) => {
                    let meta = meta(container, name.len());
                    let at = map.slot(words, meta);
                    map.slots[at] = Slot { words, meta, value };
                }
                None => {
                    let name = name.to_ascii_lowercase().into();
                    map.long.insert((meta(container, 0), name), value);
                }
            }
        }
        map
    }

    /// Returns the number of a name.
    #[inline]
    pub fn get(&self, container: Option<u32>, name: &[u8]) -> Option<u32> {
        let Some(words) = words(name) else {
            let name = name.to_ascii_lowercase().into();
            return self.long.get(&(meta(container, 0), name)).copied();
        };
        let slot = &self.slots[self.slot(words, meta(container, name.len()))];
        (slot.meta != 0).then_some(slot.value)
    }

    /// Returns the slot of a name, or the empty one where it would be.
    #[inline]
    fn slot(&self, words: Words, meta: u32) -> usize {
        let mask = self.slots.len() - 1;
        let mixed = words[0] ^ words[1].rotate_left(29) ^ u64::from(meta).rotate_left(47);
        let mut at = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        // Half of the slots are empty.
        loop {
            let slot = &self.slots[at];
            if slot.meta == 0 || slot.words == words && slot.meta == meta {
                return at;
            }
            at = (at + 1) & mask;
        }
    }
}

/// Returns length and container as one number; names of equal words differ in length if one ends
/// with zeros.
fn meta(container: Option<u32>, len: usize) -> u32 {
    container.map_or(0, |number| number + 1) << 5 | len as u32
}

#[inline]
fn words(name: &[u8]) -> Option<Words> {
    if name.is_empty() || name.len() > SHORT_MAX {
        return None;
    }
    let word =
        |bytes: &[u8]| lower(bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    let (start, end) = name.split_at(name.len().min(8));
    Some([word(start), word(end)])
}

/// Returns eight bytes with the letters A to Z in lower case.
#[inline]
fn lower(word: u64) -> u64 {
    const EACH: u64 = u64::MAX / 255;
    let low = word & (0x7f * EACH);
    let (from_a, past_z) = (low + (0x80 - 0x41) * EACH, low + (0x80 - 0x5b) * EACH);
    let is_letter = (from_a ^ past_z) & !word & (0x80 * EACH);
    word | is_letter >> 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_word_is_in_lower_case_as_its_bytes_are(word: u64) {
            let wanted = word.to_le_bytes().map(|byte| byte.to_ascii_lowercase());
            prop_assert_eq!(lower(word).to_le_bytes(), wanted);
        }

        #[test]
        fn names_are_found_as_in_a_map(
            names in prop::collection::vec((prop::option::of(0u32..3), "[a-cA-C\0]{0,20}"), 0..200),
        ) {
            let mut map = HashMap::new();
            let mut list = Vec::new();
            for (nth, (container, name)) in names.iter().enumerate() {
                list.push((*container, name.as_bytes(), nth as u32));
                map.insert((*container, name.to_ascii_lowercase()), nth as u32);
            }
            let (half, all) = list.split_at(list.len() / 2);
            let (some, every) = (Names::new(half), Names::new(&list));
            for (container, name, _) in half.iter().chain(all) {
                let wanted = map[&(*container, String::from_utf8_lossy(name).to_ascii_lowercase())];
                let found = every.get(*container, &name.to_ascii_uppercase());
                prop_assert_eq!(found, Some(wanted));
                let is_it = |(of, other, _): &(Option<u32>, &[u8], u32)| {
                    of == container && other.eq_ignore_ascii_case(name)
                };
                prop_assert_eq!(some.get(*container, name).is_some(), half.iter().any(is_it));
            }
        }
    }
}
