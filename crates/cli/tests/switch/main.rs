//! `overbank switch`, `gateway`, `top` and `fdb` as a person, a script or a service manager sees
//! them: the real binary, its signals, its files, and programs that talk through it.

#[cfg(feature = "cluster")]
mod cluster;
mod control;
mod gateway;
mod l2;
mod net;
mod plain;
mod process;
mod through;
