//! The live view: redrawn after every reading and every resize until a key or a signal ends it. The
//! terminal is restored at the end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::command::Top;
use super::draw::draw;
use super::view::View;
use onrush_control::api::stats::Stats;
use onrush_control::client::Client;

/// A reading, or the error.
type Reading = Result<Stats, String>;

/// Longest time until a key or a reading is handled.
const POLL: Duration = Duration::from_millis(100);

/// Shows the view until a key or a signal ends it.
pub(super) fn run(top: &Top, client: Client) -> io::Result<()> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, ended.clone())?;
    }
    let view = View::new(client.url());
    let (to, readings) = bounded(1);
    let every = Duration::from_secs(top.every);
    // A thread of its own, so that a slow tracker does not delay keys. It ends with the process.
    thread::Builder::new().name("reader".into()).spawn(move || read(&client, every, &to))?;
    let mut terminal = ratatui::try_init()?;
    let shown = watch(&mut terminal, view, &readings, &ended);
    ratatui::try_restore()?;
    shown
}

fn read(client: &Client, every: Duration, to: &Sender<Reading>) {
    loop {
        let began = Instant::now();
        let reading = super::read(client).map_err(|failure| failure.to_string());
        if to.send(reading).is_err() {
            return;
        }
        thread::sleep(every.saturating_sub(began.elapsed()));
    }
}

fn watch(
    terminal: &mut DefaultTerminal,
    mut view: View,
    readings: &Receiver<Reading>,
    ended: &AtomicBool,
) -> io::Result<()> {
    let colors = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut stale = true;
    while !ended.load(Ordering::Relaxed) {
        for reading in readings.try_iter() {
            view.take(reading);
            stale = true;
        }
        if std::mem::take(&mut stale) {
            terminal.draw(|frame| {
                draw(&view, frame.area(), frame.buffer_mut());
                if !colors {
                    frame.buffer_mut().content.iter_mut().for_each(|cell| {
                        cell.set_style(ratatui::style::Style::reset());
                    });
                }
            })?;
        }
        if event::poll(POLL)? {
            match event::read()? {
                Event::Key(key) if ends(key) => return Ok(()),
                _ => stale = true,
            }
        }
    }
    Ok(())
}

/// Whether the key ends the view.
fn ends(key: KeyEvent) -> bool {
    let interrupt = key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press
        && match key.code {
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => true,
            KeyCode::Char('c' | 'C') => interrupt,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_escape_and_ctrl_c_end_the_view() {
        let press = |code, modifiers| ends(KeyEvent::new(code, modifiers));
        assert!(press(KeyCode::Char('q'), KeyModifiers::NONE));
        assert!(press(KeyCode::Esc, KeyModifiers::NONE));
        assert!(press(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!press(KeyCode::Char('c'), KeyModifiers::NONE));
        assert!(!press(KeyCode::Enter, KeyModifiers::NONE));
    }
}
