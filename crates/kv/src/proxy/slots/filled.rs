//! A key's cached replies.

use super::state::State;

/// Most replies of a key.
pub const VARIANTS_MAX: usize = 8;

/// A request and its reply, in both protocol versions. An item of memcached is one, too:
/// see `memcached::item`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Database that the request was made in.
    pub db: u32,
    /// The request, normalised.
    pub request: Box<[u8]>,
    /// The reply for a RESP3 connection.
    pub resp3: Box<[u8]>,
    /// The reply for a RESP2 connection.
    pub resp2: Box<[u8]>,
}

/// What a worker asks for.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The key's hash.
    pub hash: u128,
    /// The key.
    pub key: &'a [u8],
    /// The connection's database.
    pub db: u32,
    /// The request, normalised.
    pub request: &'a [u8],
}

/// A key's replies at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filled {
    key: Box<[u8]>,
    expires_at: u64,
    variants: Box<[Variant]>,
}

impl Filled {
    /// Returns the replies of a key; `None` with more than [`VARIANTS_MAX`]. `expires_at` is in
    /// monotonic nanoseconds, [`u64::MAX`] without expiry.
    pub fn new(key: &[u8], expires_at: u64, variants: Vec<Variant>) -> Option<Filled> {
        let fits = variants.len() <= VARIANTS_MAX;
        fits.then(|| Filled { key: key.into(), expires_at, variants: variants.into() })
    }

    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns when it expires.
    pub fn expires_at(&self) -> u64 {
        self.expires_at
    }

    /// Returns the replies.
    pub fn variants(&self) -> &[Variant] {
        &self.variants
    }

    /// Returns the bytes that it takes in memory.
    pub fn bytes(&self) -> usize {
        let of =
            |v: &Variant| size_of::<Variant>() + v.request.len() + v.resp3.len() + v.resp2.len();
        size_of::<Entry>() + self.key.len() + self.variants.iter().map(of).sum::<usize>()
    }

    #[inline(always)]
    pub(super) fn find(&self, query: &Query<'_>) -> Option<&Variant> {
        let is_it = |v: &&Variant| v.db == query.db && *v.request == *query.request;
        if *self.key == *query.key { self.variants.iter().find(is_it) } else { None }
    }
}

/// What a slot points to.
pub(super) struct Entry {
    /// The key's word when the fill began.
    pub(super) state: State,
    /// The gate's, open or not.
    pub(super) gate: State,
    pub(super) filled: Filled,
}
