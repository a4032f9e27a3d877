//! What a request is to the proxy. By name where a command is listed here; others by their flags.

use super::keys::{Keys, Rule, has_word, is_word, number};
use super::{Command, flags};
use overbank_wire::resp::Request;

/// What a request is to the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class<'a> {
    /// A read whose reply depends on its keys' values alone and may be cached.
    Cacheable(Null),
    /// Another read.
    Read,
    /// A write of known keys.
    Write,
    /// A script or function with declared keys, all of them known. A script may SELECT: what it
    /// writes may be in any database.
    Script {
        /// Redis refuses writes of it.
        is_read_only: bool,
    },
    /// MULTI.
    Multi,
    /// EXEC.
    Exec,
    /// DISCARD.
    Discard,
    /// WATCH.
    Watch,
    /// UNWATCH.
    Unwatch,
    /// RESET.
    Reset,
    /// SELECT of a database; nothing if it is no number.
    Select(Option<u32>),
    /// AUTH.
    Auth,
    /// HELLO.
    Hello(Hello<'a>),
    /// A change of users: ACL SETUSER, DELUSER, LOAD.
    Acl,
    /// CLIENT TRACKING ON; `false` if it is switched off.
    ClientTracking(bool),
    /// CLIENT REPLY.
    ClientReply(ReplyMode),
    /// CLIENT SETNAME, CLIENT SETINFO.
    ClientSet,
    /// PING.
    Ping,
    /// SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE: a reply for each argument.
    Subscribe,
    /// UNSUBSCRIBE, PUNSUBSCRIBE, SUNSUBSCRIBE: without arguments, a reply for each subscription.
    Unsubscribe,
    /// Waits on the server. It may write known keys.
    Blocking,
    /// MONITOR, SCRIPT DEBUG: from here on, replies cannot be counted.
    Monitor,
    /// SYNC, PSYNC, REPLCONF: the client is a replica; replies cannot be counted.
    Sync,
    /// QUIT.
    Quit,
    /// Anything may be written: no hits until its reply.
    Close,
    /// Passed through; writes no key.
    Other,
}

/// What an absent value is in a reply, where RESP3 has one null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Null {
    /// `$-1`.
    Bulk,
    /// `*-1`.
    Array,
    /// The reply has no null.
    Never,
}

/// The arguments of a HELLO.
///
/// An error as reply does not mean that nothing happened: Redis applies options one by one, so
/// that `HELLO 3 AUTH user password WRONG` fails with the user changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Version of the protocol, if there is one.
    pub version: Option<i64>,
    /// User and password of the last AUTH.
    pub auth: Option<(&'a [u8], &'a [u8])>,
    /// Name of the last SETNAME.
    pub name: Option<&'a [u8]>,
    /// Redis refuses it, as a version or an option is wrong.
    pub is_malformed: bool,
}

/// What CLIENT REPLY asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyMode {
    /// Replies come, this one's too.
    On,
    /// No reply comes any more.
    Off,
    /// Neither this request nor the next has a reply.
    Skip,
}

/// How the class of a command is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Is(Class<'static>),
    Cacheable {
        args_min: usize,
        args_max: usize,
        null: Null,
    },
    Script,
    Select,
    Hello,
    Tracking,
    Reply,
    Restore,
    /// By flags.
    Plain,
}

const fn cacheable(args_min: usize, args_max: usize, null: Null) -> Kind {
    Kind::Cacheable { args_min, args_max, null }
}

const CLOSE: Kind = Kind::Is(Class::Close);

/// Number of GET among the commands whose replies may be cached.
pub const GET: u8 = 0;

/// Commands by name. That of a container counts for subcommands that are unknown: without one, they
/// close.
pub const KINDS: &[(&str, Kind)] = &[
    ("get", cacheable(2, 2, Null::Bulk)),
    ("mget", cacheable(2, usize::MAX, Null::Bulk)),
    ("strlen", cacheable(2, 2, Null::Never)),
    ("exists", cacheable(2, 2, Null::Never)),
    ("type", cacheable(2, 2, Null::Never)),
    ("getrange", cacheable(4, 4, Null::Never)),
    ("hget", cacheable(3, 3, Null::Bulk)),
    ("hmget", cacheable(3, usize::MAX, Null::Bulk)),
    ("hgetall", cacheable(2, 2, Null::Never)),
    ("hlen", cacheable(2, 2, Null::Never)),
    ("smembers", cacheable(2, 2, Null::Never)),
    ("sismember", cacheable(3, 3, Null::Never)),
    ("scard", cacheable(2, 2, Null::Never)),
    ("lrange", cacheable(4, 4, Null::Never)),
    ("llen", cacheable(2, 2, Null::Never)),
    ("lindex", cacheable(3, 3, Null::Bulk)),
    ("zrange", cacheable(4, usize::MAX, Null::Never)),
    ("zscore", cacheable(3, 3, Null::Bulk)),
    ("zcard", cacheable(2, 2, Null::Never)),
    ("bitcount", cacheable(2, usize::MAX, Null::Never)),
    ("getbit", cacheable(3, 3, Null::Never)),
    ("eval", Kind::Script),
    ("eval_ro", Kind::Script),
    ("evalsha", Kind::Script),
    ("evalsha_ro", Kind::Script),
    ("fcall", Kind::Script),
    ("fcall_ro", Kind::Script),
    ("multi", Kind::Is(Class::Multi)),
    ("exec", Kind::Is(Class::Exec)),
    ("discard", Kind::Is(Class::Discard)),
    ("watch", Kind::Is(Class::Watch)),
    ("unwatch", Kind::Is(Class::Unwatch)),
    ("reset", Kind::Is(Class::Reset)),
    ("select", Kind::Select),
    ("auth", Kind::Is(Class::Auth)),
    ("hello", Kind::Hello),
    ("acl", Kind::Is(Class::Acl)),
    ("acl|setuser", Kind::Is(Class::Acl)),
    ("acl|deluser", Kind::Is(Class::Acl)),
    ("acl|load", Kind::Is(Class::Acl)),
    ("client", Kind::Is(Class::Other)),
    ("client|tracking", Kind::Tracking),
    ("client|reply", Kind::Reply),
    ("client|setname", Kind::Is(Class::ClientSet)),
    ("client|setinfo", Kind::Is(Class::ClientSet)),
    ("ping", Kind::Is(Class::Ping)),
    ("subscribe", Kind::Is(Class::Subscribe)),
    ("psubscribe", Kind::Is(Class::Subscribe)),
    ("ssubscribe", Kind::Is(Class::Subscribe)),
    ("unsubscribe", Kind::Is(Class::Unsubscribe)),
    ("punsubscribe", Kind::Is(Class::Unsubscribe)),
    ("sunsubscribe", Kind::Is(Class::Unsubscribe)),
    ("wait", Kind::Is(Class::Blocking)),
    ("waitaof", Kind::Is(Class::Blocking)),
    ("monitor", Kind::Is(Class::Monitor)),
    ("script|debug", Kind::Is(Class::Monitor)),
    ("sync", Kind::Is(Class::Sync)),
    ("psync", Kind::Is(Class::Sync)),
    ("replconf", Kind::Is(Class::Sync)),
    ("quit", Kind::Is(Class::Quit)),
    ("flushall", CLOSE),
    ("flushdb", CLOSE),
    ("swapdb", CLOSE),
    ("debug", CLOSE),
    ("replicaof", CLOSE),
    ("slaveof", CLOSE),
    ("failover", CLOSE),
    ("cluster|delslots", CLOSE),
    ("cluster|delslotsrange", CLOSE),
    ("cluster|failover", CLOSE),
    ("cluster|flushslots", CLOSE),
    ("cluster|replicate", CLOSE),
    ("cluster|reset", CLOSE),
    ("cluster|setslot", CLOSE),
    ("module|load", CLOSE),
    ("module|loadex", CLOSE),
    ("module|unload", CLOSE),
    ("config|set", CLOSE),
    ("function|delete", CLOSE),
    ("function|flush", CLOSE),
    ("function|load", CLOSE),
    ("function|restore", CLOSE),
    ("restore", Kind::Restore),
    ("restore-asking", Kind::Restore),
    ("command", Kind::Is(Class::Other)),
    ("latency", Kind::Is(Class::Other)),
    ("memory", Kind::Is(Class::Other)),
    ("object", Kind::Is(Class::Other)),
    ("pubsub", Kind::Is(Class::Other)),
    ("slowlog", Kind::Is(Class::Other)),
    ("xinfo", Kind::Is(Class::Other)),
];

/// Returns the names of the commands whose replies may be cached, by their numbers.
pub fn names_of_cacheable() -> impl Iterator<Item = &'static str> {
    let cacheable = |(_, kind): &&(_, Kind)| matches!(kind, Kind::Cacheable { .. });
    KINDS.iter().take_while(cacheable).map(|(name, _)| *name)
}

impl Command {
    /// Returns what a request of this command is to the proxy.
    #[inline]
    pub fn class<'a>(&self, request: &Request<'a>) -> Class<'a> {
        match self.kind {
            Kind::Cacheable { args_min, args_max, null }
                if (args_min..=args_max).contains(&request.len()) && self.is_read_only() =>
            {
                Class::Cacheable(null)
            }
            _ if request.is_empty() => Class::Other,
            _ if !self.accepts(request.len()) => Class::Other,
            kind => self.other_class(kind, request),
        }
    }

    fn other_class<'a>(&self, kind: Kind, request: &Request<'a>) -> Class<'a> {
        match kind {
            Kind::Is(class) => class,
            Kind::Select => {
                let db = request.arg(1).and_then(number);
                Class::Select(db.and_then(|db| u32::try_from(db).ok()))
            }
            Kind::Hello => Class::Hello(Hello::read(request)),
            Kind::Tracking => {
                Class::ClientTracking(request.arg(2).is_some_and(|arg| !is_word(arg, "off")))
            }
            Kind::Reply => {
                let modes =
                    [("on", ReplyMode::On), ("off", ReplyMode::Off), ("skip", ReplyMode::Skip)];
                let is_it = |word| request.arg(2).is_some_and(|arg| is_word(arg, word));
                let mode = modes.into_iter().find(|(word, _)| is_it(word));
                mode.map_or(Class::Other, |(_, mode)| Class::ClientReply(mode))
            }
            Kind::Restore if has_word(request, 4, &["replace"]) => Class::Close,
            _ => self.class_by_keys(kind, request),
        }
    }

    fn class_by_keys(&self, kind: Kind, request: &Request<'_>) -> Class<'static> {
        let mut writes = false;
        let keys = self.keys(request, |_, access| writes |= access.writes());
        let may_write = self.has(flags::WRITE) && !self.reads_too;
        match kind {
            _ if keys == Keys::Unknown => Class::Close,
            Kind::Script => Class::Script { is_read_only: self.is_read_only() },
            _ if may_write && !writes => Class::Close,
            _ if self.has(flags::BLOCKING) && self.blocks(request) => Class::Blocking,
            _ if writes => Class::Write,
            _ if self.has(flags::READONLY | flags::WRITE) => Class::Read,
            _ => Class::Other,
        }
    }

    /// Returns whether the request may use a connection to the server that clients share: one
    /// reply, known keys, no state of the connection, no waiting.
    pub fn is_shareable(&self, request: &Request<'_>) -> bool {
        let mut has_keys = false;
        let excluded =
            flags::ADMIN | flags::ASKING | flags::BLOCKING | flags::NOSCRIPT | flags::PUBSUB;
        match self.class(request) {
            Class::Cacheable(_) => true,
            Class::Read | Class::Write if !self.has(excluded) => {
                self.keys(request, |_, _| has_keys = true) == Keys::Known && has_keys
            }
            _ => false,
        }
    }

    /// Returns whether it waits: XREAD and XREADGROUP do so on demand.
    fn blocks(&self, request: &Request<'_>) -> bool {
        !matches!(self.rule, Rule::Streams(_)) || has_word(request, 1, &["block"])
    }
}

impl<'a> Hello<'a> {
    fn read(request: &Request<'a>) -> Hello<'a> {
        let version = request.arg(1).and_then(number);
        let is_malformed = request.len() > 1 && !matches!(version, Some(2 | 3));
        let mut hello = Hello { version, auth: None, name: None, is_malformed };
        let mut at = 2;
        while let Some(option) = request.arg(at) {
            match (request.arg(at + 1), request.arg(at + 2)) {
                (Some(user), Some(password)) if is_word(option, "auth") => {
                    hello.auth = Some((user, password));
                    at += 3;
                }
                (Some(name), _) if is_word(option, "setname") => {
                    hello.name = Some(name);
                    at += 2;
                }
                _ => {
                    hello.is_malformed = true;
                    break;
                }
            }
        }
        hello
    }
}
