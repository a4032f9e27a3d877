//! What a request does, in the three protocols.

/// What a request does. A binary request has the verb of the command that does the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    Get,
    Gets,
    Gat,
    Gats,
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
    Delete,
    Incr,
    Decr,
    Touch,
    /// `mg`
    MetaGet,
    /// `ms`
    MetaSet,
    /// `md`
    MetaDelete,
    /// `ma`
    MetaArithmetic,
    /// `mn`
    MetaNoop,
    /// `me`
    MetaDebug,
    FlushAll,
    Version,
    Verbosity,
    Stats,
    Quit,
    Shutdown,
    Slabs,
    Lru,
    LruCrawler,
    CacheMemlimit,
    Watch,
    /// SASL's list, start and step.
    Sasl,
    /// Anything else.
    Other,
}

impl Verb {
    /// Returns the verb of a text or meta command. Names are in lower case.
    pub(super) fn named(name: &[u8]) -> Verb {
        match name {
            b"get" => Verb::Get,
            b"gets" => Verb::Gets,
            b"gat" => Verb::Gat,
            b"gats" => Verb::Gats,
            b"set" => Verb::Set,
            b"add" => Verb::Add,
            b"replace" => Verb::Replace,
            b"append" => Verb::Append,
            b"prepend" => Verb::Prepend,
            b"cas" => Verb::Cas,
            b"delete" => Verb::Delete,
            b"incr" => Verb::Incr,
            b"decr" => Verb::Decr,
            b"touch" => Verb::Touch,
            b"mg" => Verb::MetaGet,
            b"ms" => Verb::MetaSet,
            b"md" => Verb::MetaDelete,
            b"ma" => Verb::MetaArithmetic,
            b"mn" => Verb::MetaNoop,
            b"me" => Verb::MetaDebug,
            b"flush_all" => Verb::FlushAll,
            b"version" => Verb::Version,
            b"verbosity" => Verb::Verbosity,
            b"stats" => Verb::Stats,
            b"quit" => Verb::Quit,
            b"shutdown" => Verb::Shutdown,
            b"slabs" => Verb::Slabs,
            b"lru" => Verb::Lru,
            b"lru_crawler" => Verb::LruCrawler,
            b"cache_memlimit" => Verb::CacheMemlimit,
            b"watch" => Verb::Watch,
            _ => Verb::Other,
        }
    }

    /// Returns the verb of a binary opcode, and whether it is quiet.
    pub(super) fn binary(opcode: u8) -> (Verb, bool) {
        match opcode {
            0x00 | 0x0c => (Verb::Get, false),
            0x09 | 0x0d => (Verb::Get, true),
            0x01 => (Verb::Set, false),
            0x11 => (Verb::Set, true),
            0x02 => (Verb::Add, false),
            0x12 => (Verb::Add, true),
            0x03 => (Verb::Replace, false),
            0x13 => (Verb::Replace, true),
            0x04 => (Verb::Delete, false),
            0x14 => (Verb::Delete, true),
            0x05 => (Verb::Incr, false),
            0x15 => (Verb::Incr, true),
            0x06 => (Verb::Decr, false),
            0x16 => (Verb::Decr, true),
            0x07 => (Verb::Quit, false),
            0x17 => (Verb::Quit, true),
            0x08 => (Verb::FlushAll, false),
            0x18 => (Verb::FlushAll, true),
            0x0a => (Verb::MetaNoop, false),
            0x0b => (Verb::Version, false),
            0x0e => (Verb::Append, false),
            0x19 => (Verb::Append, true),
            0x0f => (Verb::Prepend, false),
            0x1a => (Verb::Prepend, true),
            0x10 => (Verb::Stats, false),
            0x1b => (Verb::Verbosity, false),
            0x1c => (Verb::Touch, false),
            0x1d | 0x23 => (Verb::Gat, false),
            0x1e | 0x24 => (Verb::Gat, true),
            0x20..=0x22 => (Verb::Sasl, false),
            _ => (Verb::Other, false),
        }
    }

    /// Returns whether the request stores a block of data.
    pub fn is_storage(self) -> bool {
        matches!(
            self,
            Verb::Set
                | Verb::Add
                | Verb::Replace
                | Verb::Append
                | Verb::Prepend
                | Verb::Cas
                | Verb::MetaSet
        )
    }

    /// Returns whether the request is one of the meta commands with a key and flags.
    pub fn is_meta(self) -> bool {
        matches!(
            self,
            Verb::MetaGet
                | Verb::MetaSet
                | Verb::MetaDelete
                | Verb::MetaArithmetic
                | Verb::MetaDebug
        )
    }

    /// Returns whether the request reads keys in a list of any length.
    pub(super) fn is_list(self) -> bool {
        matches!(self, Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats)
    }

    /// Returns whether the request names keys: of the list, or one.
    pub(super) fn has_key(self) -> bool {
        self.is_list()
            || self.is_storage()
            || self.is_meta()
            || matches!(self, Verb::Delete | Verb::Incr | Verb::Decr | Verb::Touch)
    }

    /// Returns whether the request may change what a later read of its keys returns. A meta command
    /// that reads may, by its flags: see [`Flags`](super::Flags).
    pub fn writes_key(self) -> bool {
        self.has_key() && !matches!(self, Verb::Get | Verb::Gets | Verb::MetaGet | Verb::MetaDebug)
    }
}
