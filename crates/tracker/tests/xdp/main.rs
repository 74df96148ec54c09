//! The XDP program against intake: whatever the program decides, intake decides the same, with the
//! same reply and the same counter; and which frames the program leaves to the kernel.

mod agreement;
mod frames;
mod host;
