//! `onrush top`: a live view of a running tracker in the terminal, from `/stats.json`.
//!
//! | module | contents |
//! |---|---|
//! | [`command`] | flags |
//! | [`rates`] | rates between two readings |
//! | [`keys`] | keys, from the bytes that a terminal sends |
//! | [`view`] | the state of the view |
//! | [`draw`] | drawing the view into cells |
//! | `screen` | the live view on a terminal: events, and restoring the terminal |

pub mod command;
pub mod draw;
pub mod keys;
pub mod rates;
pub mod view;

mod screen;

use std::io::{IsTerminal, stdout};
use std::thread;
use std::time::Duration;

pub use command::Top;
use view::View;

use crate::exit::print;
use crate::exit::{Exit, GOOD};
use onrush_control::api::stats::Stats;
use onrush_control::client::{Client, ClientError};

/// How long to wait for a reply.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Columns of a view that is printed to a file or a pipe.
const COLUMNS: u16 = 120;

/// Shows the view until a key or a signal ends it, or prints it once.
pub fn run(top: &Top) -> Exit {
    let show = |client| {
        if top.once || !stdout().is_terminal() {
            return once(top, &client);
        }
        Ok(match screen::run(top, client) {
            Ok(()) => Exit::good(),
            Err(error) => {
                Exit::failed(format!("the terminal cannot be used: {error} (--once prints text)"))
            }
        })
    };
    top.admin.reach(true, None, TIMEOUT, show, Exit::from)
}

/// Prints one view, of two readings.
fn once(top: &Top, client: &Client) -> Result<Exit, ClientError> {
    let mut view = View::new(client.url());
    for reading in 0..2 {
        if reading > 0 {
            #[expect(clippy::disallowed_methods, reason = "the interval of the view")]
            thread::sleep(Duration::from_secs(top.every));
        }
        view.take(Ok(read(client)?));
    }
    let lines = draw::lines(&view, COLUMNS);
    Ok(print(&(lines.join("\n") + "\n"), GOOD))
}

/// One reading.
fn read(client: &Client) -> Result<Stats, ClientError> {
    client.get("/stats.json")?.json()
}
