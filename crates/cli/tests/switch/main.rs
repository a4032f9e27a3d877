//! `overbank switch`, `gateway`, `top` and `fdb` as a person, a script or a service manager sees
//! them: the real binary, its signals, its files, and programs that talk through it.

mod cluster;
#[cfg(all(feature = "cluster", feature = "pfcp"))]
mod cluster_n4;
mod control;
mod flood;
mod gateway;
mod journal;
mod l2;
#[cfg(feature = "pfcp")]
mod lab;
mod net;
mod netcache;
mod osmocom;
mod ovs;
mod plain;
mod process;
mod through;
