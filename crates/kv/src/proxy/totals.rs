//! What a proxy counts.
//!
//! Accounts close: `commands = hits + answered + forwarded + refused`. Of reads that could have
//! been hits, `reads = hits + missed`, by reason.

overbank_reasons::reasons! {
    /// Why a read that could have come from the cache went to the server.
    pub enum Missed {
        NotCached = "not_cached", "Key that is not among the hot ones";
        NotFilled = "not_filled", "Hot key whose value has not come from the server yet";
        Writing = "writing", "Write of the key on its way";
        Expired = "expired", "Value past its expiry";
        Closed = "closed", "Cache closed: lease over, or a command that may change any key";
        Connection = "connection",
            "State of the connection: transaction, WATCH, tracking, subscriptions, unanswered SELECT";
        User = "user", "User that may not read all keys, or is not known";
        Order = "order", "Earlier command of the connection on its way to the same key";
        Room = "room", "Replies that the client does not read";
        Form = "form", "Request of another form than the cached ones";
    }
}

overbank_reasons::reasons! {
    /// Why a connection of a client ended.
    pub enum Closed {
        ByClient = "by_client", "The client closed it";
        ByServer = "by_server", "The server closed it, or could not be reached";
        ClientProtocol = "client_protocol", "Bytes of the client that are no request";
        ServerProtocol = "server_protocol", "Bytes of the server that are no reply";
        Slow = "slow", "A client on a shared connection that did not read";
        Drained = "drained", "Time was up after the client had left, or had not read";
        TooMany = "too_many", "More clients than the limit";
        Moved = "moved", "The server's name has another address, or clients have to log in now";
        Tls = "tls", "TLS failed: no handshake within 10 s, no trusted certificate, or other bytes";
        NoServer = "no_server", "No address of the server";
        Stopped = "stopped", "The proxy stopped";
    }
}

overbank_declare::counters! {
    /// What a worker has counted.
    pub struct ProxyTotals: "overbank_kv_proxy_" {
        clients: gauge connections "Connections of clients" rate;
        accepted: counter connections "Connections accepted" rate top "conn/s";
        not_accepted: counter connections "Connections that the system refused";
        closed[Closed]: counter connections "Connections ended";
        commands: counter commands "Commands of clients" rate top "cmd/s";
        hits: counter commands "Commands answered from the cache" rate top "hit/s";
        answered: counter commands
            "Commands of a client's start that the proxy answered: HELLO 3, CLIENT SETNAME, SELECT 0";
        left_lanes: counter connections "Clients that got a separate connection to the server";
        forwarded: counter commands "Commands passed to the server" rate top "passed/s";
        refused: counter commands "Commands that are none: the client got an error";
        reads: counter commands "Reads that could come from the cache" rate;
        read_keys: counter keys "Keys of such reads that were looked up" rate;
        missed[Missed]: counter commands "Reads of those that went to the server";
        writes: counter keys "Keys of commands that write" rate;
        closings: counter commands "Commands that closed the cache";
        late: counter keys "Written keys kept out because no reply came";
        wanted: counter requests "Requests reported as hot, or as not cached yet";
        not_reported: counter requests "Such requests that found no room";
        bytes_from_clients: counter bytes "Bytes read from clients";
        bytes_to_clients: counter bytes "Bytes written to clients" rate top "out B/s";
        bytes_from_server: counter bytes "Bytes read from the server";
        bytes_to_server: counter bytes "Bytes written to the server";
    }
}

overbank_reasons::reasons! {
    /// Why everything that was cached was dropped.
    pub enum Dropped {
        Lost = "lost", "Connection to the server lost";
        Flush = "flush", "The server flushed its keys";
        Command = "command", "Command that may change any key";
        Changed = "changed", "Another server, role, or set of commands";
    }
}

overbank_reasons::reasons! {
    /// Why a value from the server was not taken.
    pub enum Unfilled {
        Changed = "changed", "Key written or invalidated meanwhile";
        Error = "error", "The server answered with an error";
        Long = "long", "Longer than the limit";
        Memory = "memory", "No room within the limit of bytes";
        Expired = "expired", "Expired before it came";
    }
}

overbank_declare::counters! {
    /// What the thread of the tracking connection has counted.
    pub struct CoreTotals: "overbank_kv_proxy_" {
        cached: gauge keys "Hot keys" rate;
        filled: gauge keys "Hot keys with a value" rate;
        cached_bytes: gauge bytes "Bytes that values take" as "cached_bytes" rate;
        promoted: counter keys "Keys that became hot" rate;
        evicted: counter keys "Keys that gave way to hotter ones, or were written too often" rate;
        fills: counter values "Values taken from the server" rate top "fill/s";
        unfilled[Unfilled]: counter values "Values not taken";
        pushes: counter keys "Invalidations by the server" rate;
        dropped[Dropped]: counter events "Times that everything cached was dropped";
        connects: counter connections "Connections made to follow the server";
        lease_ms: gauge milliseconds "Age of the last proof that the server's invalidations arrive"
            rate;
        open: gauge proxies "1 if hits are served" rate;
    }
}

impl ProxyTotals {
    /// Returns whether each command, and each read that could have been a hit, is counted once.
    pub fn closes(&self) -> bool {
        self.commands == self.hits + self.answered + self.forwarded + self.refused
            && self.reads == self.hits + self.missed.iter().sum::<u64>()
    }
}
