//! Integration tests of the kernel's behaviour under conditions that the host does not have (small
//! MTU, few ports, no IPv6), in network namespaces of their own.

mod memory;
mod mio;
mod namespace;
mod ports;
