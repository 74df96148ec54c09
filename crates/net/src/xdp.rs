//! XDP: programs that see each frame before the kernel's network stack does, and AF_XDP: queues of
//! network devices as a backend of datagrams, past that stack.
//!
//! | module | contents |
//! |---|---|
//! | [`device`] | the interfaces that a program can be attached to |
//! | [`program`] | a program, its maps, and where it is attached |
//! | [`backend`] | the queues and UDP sockets of a worker |
//! | [`queue`] | the AF_XDP socket of a queue |
//! | `live` | the frames of a client that the kernel transmits without a socket |
//! | `rings` | the rings of a queue: which frames are where |
//! | `ring` | one side of a ring |
//! | `umem` | the frames of a queue |
//! | `frame` | Ethernet, IP and UDP headers |

pub mod backend;
pub mod device;
mod frame;
mod live;
pub mod program;
pub mod queue;
mod ring;
mod rings;
mod umem;

pub use backend::Backend;
pub use live::LiveProgram;
pub use program::{AttachError, Mode, Program, SocketMap, Verdict};
pub use queue::{OpenError, Queue, QueueOptions, SocketSource};
