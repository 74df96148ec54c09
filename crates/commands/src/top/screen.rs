//! The live view on a terminal: drawn anew after each reading, key and change of size, until a key,
//! a signal or the end of the terminal ends it.
//!
//! The main thread waits for [`Event`]s and draws. Three other threads wait for readings, keys and
//! signals, so that whatever one of them waits for delays neither the others nor the end. Keys are
//! read here and not by crossterm, which repeats a failed read forever (decision 73).
//! Crossterm writes no colors if `$NO_COLOR` is set.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Read, stdin};
use std::mem;
use std::os::fd::AsFd;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::KeyCode;
use ratatui::crossterm::terminal::disable_raw_mode;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;

use super::command::Top;
use super::draw::draw;
use super::keys::keys;
use super::view::View;
use crate::exit::FAILED;
use onrush_control::api::stats::Stats;
use onrush_control::client::Client;

/// How long the view may take to end.
const GRACE: Duration = Duration::from_secs(1);

/// An event that changes or ends the view.
enum Event {
    /// A reading, or its error.
    Reading(Box<Result<Stats, String>>),
    Key(KeyCode),
    /// The terminal has another size.
    Resized,
    /// A signal asks for the end, or the terminal is at its end.
    End,
}

/// Shows the view until a key, a signal or the end of the terminal ends it.
pub(super) fn run(top: &Top, client: Client) -> io::Result<()> {
    let keyboard = keyboard()?;
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM, SIGWINCH])?;
    let view = View::new(client.url());
    let every = Duration::from_secs(top.every);
    // One place: a terminal that takes no output stops readings and keys too.
    let (to, events) = bounded(1);
    let mut terminal = ratatui::try_init()?;
    let shown = spawn("readings", &to, move |to| send_readings(&client, every, to))
        .and_then(|()| spawn("keys", &to, |to| send_keys(keyboard, to)))
        .and_then(|()| spawn("signals", &to, |to| send_signals(signals, to)))
        .and_then(|()| watch(&mut terminal, view, &events));
    let restored = terminal.show_cursor().and_then(|()| ratatui::try_restore());
    if restored.is_err() {
        // Its destructor would print this error, and panic if standard error is the same terminal.
        mem::forget(terminal);
    }
    shown.and(restored)
}

/// The terminal that keys come from, as crossterm selects it for its raw mode.
fn keyboard() -> io::Result<File> {
    match stdin().is_terminal() {
        true => Ok(stdin().as_fd().try_clone_to_owned()?.into()),
        false => File::open("/dev/tty"),
    }
}

/// Starts a thread that ends with the process.
fn spawn(
    name: &str,
    to: &Sender<Event>,
    send: impl FnOnce(&Sender<Event>) + Send + 'static,
) -> io::Result<()> {
    let to = to.clone();
    thread::Builder::new().name(name.into()).spawn(move || send(&to))?;
    Ok(())
}

fn send_readings(client: &Client, every: Duration, to: &Sender<Event>) {
    loop {
        let began = Instant::now();
        let reading = super::read(client).map_err(|failure| failure.to_string());
        if to.send(Event::Reading(Box::new(reading))).is_err() {
            return;
        }
        #[expect(clippy::disallowed_methods, reason = "the interval of the view")]
        thread::sleep(every.saturating_sub(began.elapsed()));
    }
}

fn send_keys(mut keyboard: File, to: &Sender<Event>) {
    let mut sent = [0; 256];
    loop {
        let length = match keyboard.read(&mut sent) {
            Ok(length @ 1..) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // The terminal was closed, or belongs to other processes by now.
            Ok(_) | Err(_) => end(to),
        };
        for key in keys(&sent[..length]) {
            if to.send(Event::Key(key)).is_err() {
                return;
            }
        }
    }
}

fn send_signals(mut signals: Signals, to: &Sender<Event>) {
    for signal in signals.forever() {
        match signal {
            // If there is no place, another event is about to be drawn, in the new size.
            SIGWINCH => drop(to.try_send(Event::Resized)),
            _ => end(to),
        }
    }
}

/// Ends the view, and with it the process. If the view cannot end, because its terminal takes no
/// output, the terminal leaves the raw mode but stays on the alternate screen.
fn end(to: &Sender<Event>) -> ! {
    let begun = Instant::now();
    let _ = to.send_timeout(Event::End, GRACE);
    #[expect(clippy::disallowed_methods, reason = "the terminal's grace period")]
    thread::sleep(GRACE.saturating_sub(begun.elapsed()));
    let _ = disable_raw_mode();
    process::exit(FAILED.into())
}

fn watch(
    terminal: &mut DefaultTerminal,
    mut view: View,
    events: &Receiver<Event>,
) -> io::Result<()> {
    loop {
        terminal.draw(|frame| view.scroll = draw(&view, frame.area(), frame.buffer_mut()))?;
        // The other threads keep their senders.
        let Ok(event) = events.recv() else { return Ok(()) };
        match event {
            Event::Reading(reading) => view.take(*reading),
            Event::Key(key) if view.press(key).is_break() => return Ok(()),
            Event::Key(_) | Event::Resized => {}
            Event::End => return Ok(()),
        }
    }
}
