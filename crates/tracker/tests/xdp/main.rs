//! The XDP program against intake: whatever the program decides, intake decides the same, with the
//! same reply and the same counter; which frames the program leaves to the kernel; and a link that
//! it is attached to.

mod agreement;
mod frames;
mod host;
mod wire;
