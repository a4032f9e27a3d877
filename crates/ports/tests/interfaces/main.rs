//! Ports on network interfaces, in network namespaces. They mostly wait for frames.

#![cfg(target_os = "linux")]

mod afpacket;
mod afxdp;
#[path = "../netns/mod.rs"]
mod netns;
mod tap;
