//! A cache of hot keys in front of Redis or memcached, for clients and servers as they are.

pub mod slots;
