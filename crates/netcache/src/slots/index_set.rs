//! A set of indexes whose lowest one is found at once: bits, and bits that say which words of bits
//! have some.

/// Bits of a word.
const WORD: usize = 64;

/// See the module. Up to 2^16 indexes: levels of 2^10, 2^4 and 1 words, 8 KiB and a bit.
#[derive(Clone, Debug)]
pub struct IndexSet {
    /// From the members to the top: each bit for a word of the level below that is not 0.
    levels: [Box<[u64]>; 3],
}

impl IndexSet {
    fn new() -> IndexSet {
        IndexSet { levels: [1 << 10, 1 << 4, 1].map(|words| vec![0; words].into()) }
    }

    pub fn insert(&mut self, index: u16) {
        let mut at = usize::from(index);
        for level in &mut self.levels {
            level[at / WORD] |= 1 << (at % WORD);
            at /= WORD;
        }
    }

    pub fn remove(&mut self, index: u16) {
        let mut at = usize::from(index);
        for level in &mut self.levels {
            level[at / WORD] &= !(1 << (at % WORD));
            at /= WORD;
            if level[at] != 0 {
                break;
            }
        }
    }

    /// Returns the lowest member.
    pub fn first(&self) -> Option<u16> {
        self.from(0)
    }

    /// Returns the members in their order.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        let after = |index: &u16| self.from(usize::from(*index) + 1);
        std::iter::successors(self.first(), after)
    }

    /// Returns the lowest member from an index on.
    fn from(&self, index: usize) -> Option<u16> {
        // Up to the first level with a bit at or behind the place, then down by the lowest bits.
        let (mut level, mut at) = (0, index);
        let mut at = loop {
            let word = self.levels.get(level)?.get(at / WORD)?;
            let rest = word & u64::MAX << (at % WORD);
            if rest != 0 {
                break at / WORD * WORD + rest.trailing_zeros() as usize;
            }
            (level, at) = (level + 1, at / WORD + 1);
        };
        while level > 0 {
            level -= 1;
            at = at * WORD + self.levels[level][at].trailing_zeros() as usize;
        }
        Some(at as u16)
    }
}

impl FromIterator<u16> for IndexSet {
    fn from_iter<I: IntoIterator<Item = u16>>(indexes: I) -> IndexSet {
        let mut set = IndexSet::new();
        indexes.into_iter().for_each(|index| set.insert(index));
        set
    }
}
