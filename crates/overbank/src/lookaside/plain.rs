//! What keys and values of a look-aside table may be: whole 64-bit words, copied as they are.

use core::net::{Ipv4Addr, Ipv6Addr};

/// Most words of a value; a key has at most [`KEY_WORDS_MAX`].
pub const WORDS_MAX: usize = 8;
/// Most words of a key.
pub const KEY_WORDS_MAX: usize = 4;

/// A key or a value of plain words: it has no pointer, nothing to drop, and is equal to another if
/// its words are.
///
/// Implemented for integers, `bool`, IP addresses, `[u8; N]` of up to 64 bytes and `[u64; N]` of up
/// to 8 words. To be implemented for others:
///
/// ```
/// use overbank::lookaside::{Config, Copies, Plain};
///
/// /// Where a row lies.
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// struct Row { page: u64, slot: u16 }
///
/// impl Plain for Row {
///     const WORDS: usize = 2;
///     fn to_words(self) -> [u64; 8] {
///         [self.page, u64::from(self.slot), 0, 0, 0, 0, 0, 0]
///     }
///     fn from_words(words: [u64; 8]) -> Self {
///         Row { page: words[0], slot: words[1] as u16 }
///     }
/// }
///
/// let table = Copies::<u64, Row>::new(&Config::entries(1000))?;
/// # Ok::<(), overbank::lookaside::Error>(())
/// ```
///
/// Sizes that a table cannot hold do not compile: keys of more than 4 words, values of more than 8,
/// or of none.
///
/// ```compile_fail
/// use overbank::lookaside::{Config, Copies};
/// let _ = Copies::<[u64; 5], u64>::new(&Config::entries(1000)); // A key of five words.
/// ```
/// ```compile_fail
/// use overbank::lookaside::{Config, Copies};
/// let _ = Copies::<u64, [u8; 65]>::new(&Config::entries(1000)); // A value of nine words.
/// ```
/// ```compile_fail
/// use overbank::lookaside::{Config, Copies};
/// let _ = Copies::<u64, String>::new(&Config::entries(1000)); // No plain words.
/// ```
pub trait Plain: Copy + Send + Sync + 'static {
    /// Number of words, 1 to 8 (of a key, 1 to 4).
    const WORDS: usize;

    /// Returns the words. Those past [`Plain::WORDS`] are ignored.
    fn to_words(self) -> [u64; WORDS_MAX];

    /// Returns what [`Plain::to_words`] was called on. Words past [`Plain::WORDS`] are zero.
    fn from_words(words: [u64; WORDS_MAX]) -> Self;
}

macro_rules! plain {
    ($($type:ty: |$own:ident| $to:expr, |$word:ident| $from:expr;)+) => {
        $(impl Plain for $type {
            const WORDS: usize = 1;
            #[inline(always)]
            fn to_words(self) -> [u64; WORDS_MAX] {
                let $own = self;
                [$to, 0, 0, 0, 0, 0, 0, 0]
            }
            #[inline(always)]
            fn from_words([$word, ..]: [u64; WORDS_MAX]) -> Self {
                $from
            }
        })+
    };
}

macro_rules! integers {
    ($($type:ty)+) => { plain! { $($type: |own| own as u64, |word| word as $type;)+ } };
}

integers! { u8 u16 u32 u64 usize i8 i16 i32 i64 isize }

plain! {
    bool: |own| u64::from(own), |word| word != 0;
    Ipv4Addr: |own| u64::from(own.to_bits()), |word| Ipv4Addr::from_bits(word as u32);
}

impl Plain for u128 {
    const WORDS: usize = 2;
    #[inline(always)]
    fn to_words(self) -> [u64; WORDS_MAX] {
        [self as u64, (self >> 64) as u64, 0, 0, 0, 0, 0, 0]
    }
    #[inline(always)]
    fn from_words([low, high, ..]: [u64; WORDS_MAX]) -> Self {
        u128::from(high) << 64 | u128::from(low)
    }
}

impl Plain for i128 {
    const WORDS: usize = 2;
    #[inline(always)]
    fn to_words(self) -> [u64; WORDS_MAX] {
        (self as u128).to_words()
    }
    #[inline(always)]
    fn from_words(words: [u64; WORDS_MAX]) -> Self {
        u128::from_words(words) as i128
    }
}

impl Plain for Ipv6Addr {
    const WORDS: usize = 2;
    #[inline(always)]
    fn to_words(self) -> [u64; WORDS_MAX] {
        self.to_bits().to_words()
    }
    #[inline(always)]
    fn from_words(words: [u64; WORDS_MAX]) -> Self {
        Ipv6Addr::from_bits(u128::from_words(words))
    }
}

impl<const N: usize> Plain for [u64; N] {
    const WORDS: usize = N;
    #[inline(always)]
    fn to_words(self) -> [u64; WORDS_MAX] {
        const { assert!(N <= WORDS_MAX, "at most 8 words") };
        core::array::from_fn(|i| if i < N { self[i] } else { 0 })
    }
    #[inline(always)]
    fn from_words(words: [u64; WORDS_MAX]) -> Self {
        core::array::from_fn(|i| words[i])
    }
}

impl<const N: usize> Plain for [u8; N] {
    const WORDS: usize = N.div_ceil(8);
    #[inline(always)]
    fn to_words(self) -> [u64; WORDS_MAX] {
        const { assert!(N <= 8 * WORDS_MAX, "at most 64 bytes") };
        let (whole, rest) = self.as_chunks::<8>();
        let mut words = [0; WORDS_MAX];
        words.iter_mut().zip(whole).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            words[whole.len()] = u64::from_le_bytes(last);
        }
        words
    }
    #[inline(always)]
    fn from_words(words: [u64; WORDS_MAX]) -> Self {
        core::array::from_fn(|i| words[i / 8].to_le_bytes()[i % 8])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::fmt::Debug;

    #[test]
    fn all_come_back_from_their_words() {
        fn check<T: Plain + PartialEq + Debug>(plain: T, count: usize) {
            let words = plain.to_words();
            assert_eq!((T::WORDS, T::from_words(words)), (count, plain));
            assert!(words[count..].iter().all(|&word| word == 0), "{words:?}");
        }
        check(u8::MAX, 1);
        check(i8::MIN, 1);
        check(i64::MIN, 1);
        check(true, 1);
        check(Ipv4Addr::new(192, 0, 2, 255), 1);
        check(u128::MAX - 1, 2);
        check(i128::MIN + 1, 2);
        check(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 2, 3, 4, 0xffff), 2);
        check([1u64, 2, 3], 3);
        check([u64::MAX; 8], 8);
        check([7u8], 1);
        check([1u8, 2, 3, 4, 5, 6, 7, 8], 1);
        check([1u8, 2, 3, 4, 5, 6, 7, 8, 9], 2);
        check([255u8; 64], 8);
    }
}
