//! One client's connection through the proxy, before Redis and before memcached, under any bytes of
//! client and server, cut and interleaved at will.
//!
//! Nothing panics; what waits has a bound; bytes to each side are those of the other, but for what
//! the proxy answers itself, and its no-ops; and at the end, each key may be cached again.
//!
//! Input: steps of a byte that says the side and how many bytes, then these bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| overbank_kv::proxy::torture(data));
